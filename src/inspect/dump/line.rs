//! The lines of a dumped log, one for a batch and one for a record, in the words of Kafka's tool.
//! Numbers are what is printed most, so they go through `itoa`.

use crate::format::batch::TimestampType;
use crate::format::codec::Codec;
use crate::format::record::Record;
use crate::inspect::dump::batch::{RawBatch, increment_sequence};
use crate::inspect::dump::text::push_java_text;
use crate::units::Timestamp;

/// Appends words and numbers to a line.
#[derive(Debug)]
pub struct Line<'a>(pub &'a mut Vec<u8>);

impl Line<'_> {
    /// These words, as they are.
    #[inline]
    pub fn words(&mut self, words: &str) -> &mut Self {
        self.0.extend_from_slice(words.as_bytes());
        self
    }

    /// A number in decimal digits.
    #[inline]
    pub fn number(&mut self, number: impl itoa::Integer) -> &mut Self {
        self.0.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self
    }

    /// `true` or `false`.
    pub fn truth(&mut self, truth: bool) -> &mut Self {
        self.words(if truth { "true" } else { "false" })
    }

    /// A number that may not be there, as Java shows an `OptionalLong`.
    pub fn optional(&mut self, number: Option<i64>) -> &mut Self {
        match number {
            Some(number) => self.words("OptionalLong[").number(number).words("]"),
            None => self.words("OptionalLong.empty"),
        }
    }

    /// The end of the line.
    #[inline]
    pub fn end(&mut self) {
        self.0.push(b'\n');
    }
}

/// The name of a timestamp's type, where that of magic 0 is a type too.
pub const fn timestamp_type(kind: Option<TimestampType>) -> &'static str {
    match kind {
        Some(TimestampType::Create) => "CreateTime",
        Some(TimestampType::LogAppend) => "LogAppendTime",
        None => "NoTimestampType",
    }
}

const fn codec_name(codec: Codec) -> Option<&'static str> {
    match codec {
        Codec::None => Some("none"),
        Codec::Gzip => Some("gzip"),
        Codec::Snappy => Some("snappy"),
        Codec::Lz4 => Some("lz4"),
        Codec::Zstd => Some("zstd"),
        Codec::Unknown(_) => None,
    }
}

/// What a batch's line begins with.
pub fn push_batch_start(batch: &RawBatch, out: &mut Vec<u8>) {
    let mut line = Line(out);
    if !batch.is_v2() {
        line.words("offset: ").number(batch.last_offset());
        return;
    }
    line.words("baseOffset: ").number(batch.offset());
    line.words(" lastOffset: ").number(batch.last_offset());
    line.words(" count: ").number(batch.count());
    line.words(" baseSequence: ").number(batch.base_sequence());
    line.words(" lastSequence: ").number(batch.last_sequence());
    line.words(" producerId: ").number(batch.producer_id());
    line.words(" producerEpoch: ").number(batch.producer_epoch());
    line.words(" partitionLeaderEpoch: ").number(batch.leader_epoch());
    line.words(" isTransactional: ").truth(batch.is_transactional());
    line.words(" isControl: ").truth(batch.is_control());
    line.words(" deleteHorizonMs: ").optional(batch.delete_horizon());
}

/// The rest of a batch's line. Fails, with nothing appended, where Kafka's tool throws: on a magic
/// or codec that does not exist.
pub fn push_batch_rest(batch: &RawBatch, valid: bool, out: &mut Vec<u8>) -> Result<(), String> {
    let magic = batch.magic;
    if magic < 0 {
        return Err(format!("Invalid magic used in LegacyRecord: {magic}"));
    }
    let codec = codec_name(batch.codec())
        .ok_or_else(|| format!("Unknown compression type id: {}", batch.codec().number()))?;
    let mut line = Line(out);
    line.words(" position: ").number(batch.position);
    line.words(" ").words(timestamp_type(batch.timestamp_type()));
    line.words(": ").number(batch.max_timestamp());
    line.words(" size: ").number(batch.bytes);
    line.words(" magic: ").number(magic);
    line.words(" compresscodec: ").words(codec);
    line.words(" crc: ").number(batch.crc());
    line.words(" isvalid: ").truth(valid).end();
    Ok(())
}

/// What all records of a batch have in common in their lines.
#[derive(Clone, Copy, Debug)]
pub struct Common {
    /// What is added to the offsets that are read.
    pub base_offset: i64,
    /// Base sequence number of the batch.
    pub base_sequence: i32,
    /// Who set the timestamps.
    pub timestamp_type: Option<TimestampType>,
    /// Is it of magic 2?
    pub v2: bool,
}

impl Common {
    /// Those of the records of `batch`.
    pub fn of(batch: &RawBatch) -> Common {
        Common {
            base_offset: if batch.is_v2() { batch.offset() } else { 0 },
            base_sequence: batch.base_sequence(),
            timestamp_type: batch.timestamp_type(),
            v2: batch.is_v2(),
        }
    }
}

/// What a record's line says of it before its contents.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its offset less what is added to the offsets of the batch.
    pub offset_delta: i64,
    /// Length of its key, negative for NULL.
    pub key_size: i64,
    /// Length of its value, negative for NULL.
    pub value_size: i64,
}

impl Place {
    /// That of a record that was read by the rules.
    #[inline]
    pub fn of(record: &Record<'_>) -> Place {
        let size = |bytes: Option<&[u8]>| {
            bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX))
        };
        Place {
            offset_delta: record.offset.get(),
            key_size: size(record.key),
            value_size: size(record.value),
        }
    }

    /// Its offset in the log.
    #[inline]
    pub fn offset(&self, common: &Common) -> i64 {
        common.base_offset.wrapping_add(self.offset_delta)
    }
}

/// The line of the record before. Most of it is the same in the next one, and its numbers have as
/// many digits, so it is changed in place and appended in one piece.
#[derive(Debug, Default)]
pub struct RecordLine {
    text: Vec<u8>,
    of: Option<(Option<TimestampType>, bool)>,
    /// Offset, timestamp, size of the key, size of the value, sequence number.
    numbers: [Number; 5],
}

/// A number in a line, and where its digits are.
#[derive(Clone, Copy, Debug, Default)]
struct Number {
    value: i64,
    start: usize,
    end: usize,
}

impl RecordLine {
    /// Appends the line of a record, without what it says and without its end.
    #[inline]
    pub fn push<'a>(
        &mut self,
        common: &Common,
        place: Place,
        timestamp: Option<Timestamp>,
        header_names: impl Iterator<Item = &'a [u8]>,
        out: &mut Vec<u8>,
    ) {
        let sequence = if common.v2 { i64::from(sequence(common, place)) } else { 0 };
        let timestamp = timestamp.map_or(-1, Timestamp::millis);
        let values = [place.offset(common), timestamp, place.key_size, place.value_size, sequence];
        let same_words = self.of == Some((common.timestamp_type, common.v2));
        if !same_words || !self.change(values) {
            self.make(common, values);
        }
        out.extend_from_slice(&self.text);
        if common.v2 {
            push_header_keys(&mut Line(out), header_names);
        }
    }

    /// False where a number has more or fewer digits than before.
    #[inline]
    fn change(&mut self, values: [i64; 5]) -> bool {
        self.numbers
            .iter_mut()
            .zip(values)
            .all(|(number, value)| number.value == value || number.change(&mut self.text, value))
    }

    fn make(&mut self, common: &Common, values: [i64; 5]) {
        self.text.clear();
        let labels = [
            "| offset: ",
            match common.timestamp_type {
                Some(TimestampType::Create) => " CreateTime: ",
                Some(TimestampType::LogAppend) => " LogAppendTime: ",
                None => " NoTimestampType: ",
            },
            " keySize: ",
            " valueSize: ",
            " sequence: ",
        ];
        let count = if common.v2 { labels.len() } else { labels.len() - 1 };
        for ((label, value), number) in
            labels.into_iter().zip(values).zip(&mut self.numbers).take(count)
        {
            let start = Line(&mut self.text).words(label).0.len();
            let end = Line(&mut self.text).number(value).0.len();
            *number = Number { value, start, end };
        }
        if common.v2 {
            Line(&mut self.text).words(" headerKeys: [");
        } else {
            self.numbers[count] = Number::default();
        }
        self.of = Some((common.timestamp_type, common.v2));
    }
}

impl Number {
    #[inline]
    fn change(&mut self, text: &mut [u8], value: i64) -> bool {
        let Some(digits) = text.get_mut(self.start..self.end) else { return false };
        if self.value < 0 || self.value.checked_add(1) != Some(value) || !increment(digits) {
            let mut buffer = itoa::Buffer::new();
            let changed = buffer.format(value).as_bytes();
            if changed.len() != digits.len() {
                return false;
            }
            digits.copy_from_slice(changed);
        }
        self.value = value;
        true
    }
}

/// Adds 1 to a number in decimal digits; false where it needs one more.
#[inline]
fn increment(digits: &mut [u8]) -> bool {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return true;
        }
        *digit = b'0';
    }
    false
}

/// Sequence number of a record of magic 2.
#[inline]
fn sequence(common: &Common, place: Place) -> i32 {
    match (common.base_sequence, i32::try_from(place.offset_delta)) {
        (0.., Ok(delta)) => increment_sequence(common.base_sequence, delta),
        _ => -1,
    }
}

#[inline]
fn push_header_keys<'a>(line: &mut Line<'_>, mut names: impl Iterator<Item = &'a [u8]>) {
    if let Some(first) = names.next() {
        push_java_text(first, line.0);
        for name in names {
            push_java_text(name, line.words(",").0);
        }
    }
    line.words("]");
}

/// What a record of magic 0 or 1 has behind it: the checksum of the message that it is.
pub fn push_checksum(valid: bool, crc: u32, out: &mut Vec<u8>) {
    Line(out).words(" isValid: ").truth(valid).words(" crc: ").number(crc);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMMON: Common = Common {
        base_offset: 0,
        base_sequence: 0,
        timestamp_type: Some(TimestampType::Create),
        v2: true,
    };

    fn push(line: &mut RecordLine, place: Place, time: i64) -> String {
        let mut out = Vec::new();
        let time = Some(Timestamp::from_millis(time));
        line.push(&COMMON, place, time, std::iter::empty(), &mut out);
        String::from_utf8(out).unwrap()
    }

    proptest! {
        /// A line that is changed in place is the line that would be made.
        #[test]
        fn lines_depend_on_nothing_before_them(
            steps in proptest::collection::vec(
                (-1..3_i64, -3..120_i64, -1..11_i64, -1..101_i64), 1..60),
        ) {
            let (mut kept, mut offset, mut time) = (RecordLine::default(), 96, 9_990);
            for (more, later, key_size, value_size) in steps {
                (offset, time) = (offset + more, time + later);
                let place = Place { offset_delta: offset, key_size, value_size };
                let made = push(&mut RecordLine::default(), place, time);
                prop_assert_eq!(push(&mut kept, place, time), made);
            }
        }
    }

    #[test]
    fn a_line_is_in_the_words_of_kafkas_tool() {
        let place = Place { offset_delta: 9, key_size: -1, value_size: 3 };
        let meant = "| offset: 9 CreateTime: 5 keySize: -1 valueSize: 3 sequence: 9 headerKeys: []";
        assert_eq!(push(&mut RecordLine::default(), place, 5), meant);
    }
}
