//! Writes in, records out: rule by rule, and at random against what a regular file would hold.

use proptest::prelude::*;

use super::super::render::{longest_text, sample};
use super::*;
use crate::format::codec::Codec;

const LIMITS: Limits = Limits { record_bytes: 1000, expanded_bytes: 1 << 20 };

/// What was stored: values of records, or batches.
#[derive(Default)]
struct Memory {
    stored: Vec<Vec<u8>>,
    /// How many records came in each run.
    runs: Vec<usize>,
    tried: usize,
    /// At which tries the log is full.
    full: Vec<usize>,
}

/// A value that holds this is too large for the sink.
const LARGE: u8 = b'L';

impl Memory {
    fn try_once(&mut self) -> Result<(), AppendError> {
        self.tried += 1;
        if self.full.contains(&(self.tried - 1)) { Err(full()) } else { Ok(()) }
    }
}

fn full() -> AppendError {
    Error::refused("t-0", "no space").into()
}

fn judge(bytes: &[u8]) -> Result<(), AppendError> {
    let too_large = || RecordError::TooLarge("too large".to_owned()).into();
    if bytes.contains(&LARGE) { Err(too_large()) } else { Ok(()) }
}

impl Sink for Memory {
    fn append(&mut self, records: &mut Records<'_>) -> Result<(), Partial> {
        let mut stored = 0;
        for record in records {
            let value = record.value.unwrap_or_default();
            let done = self.try_once().and_then(|()| judge(&value));
            done.map_err(|error| Partial { stored, error })?;
            self.stored.push(value.into_owned());
            stored += 1;
        }
        assert!(stored > 0, "an empty run");
        self.runs.push(stored);
        Ok(())
    }

    fn append_batch(&mut self, batch: &NewBatch<'_>) -> Result<(), AppendError> {
        self.try_once()?;
        self.stored.push(batch.bytes.to_vec());
        Ok(())
    }

    fn check(&mut self, record: &NewRecord<'_>) -> Result<(), AppendError> {
        judge(record.value.as_deref().unwrap_or_default())
    }
}

/// A stream and what it stored.
struct Open {
    stream: AppendStream,
    sink: Memory,
    limits: Limits,
}

impl Open {
    fn new(format: Format) -> Open {
        Open { stream: AppendStream::new(format), sink: Memory::default(), limits: LIMITS }
    }

    fn limited(format: Format, record_bytes: usize) -> Open {
        let mut open = Open::new(format);
        open.limits.record_bytes = record_bytes;
        open
    }

    /// The number of bytes taken, or the name of the error, as the caller of write(2) sees it.
    fn write(&mut self, data: impl AsRef<[u8]>) -> Result<usize, &'static str> {
        let data = data.as_ref();
        let result = self.stream.write(data, self.limits, &mut self.sink);
        assert!(result.accepted <= data.len());
        let most = longest_text(self.stream.format, self.limits.record_bytes);
        assert!(self.stream.rest.capacity() <= most);
        assert_eq!(result.error.is_none(), result.accepted == data.len());
        match result.error {
            Some(error) if result.accepted == 0 => Err(name(&error)),
            _ => Ok(result.accepted),
        }
    }

    fn reason(&mut self, data: &[u8]) -> String {
        self.stream.write(data, self.limits, &mut self.sink).error.unwrap().to_string()
    }

    fn finish(&mut self) -> Result<(), &'static str> {
        self.stream.finish(&mut self.sink).map_err(|error| name(&error))
    }

    fn check(&mut self) -> Result<(), &'static str> {
        self.stream.check_finish(&mut self.sink).map_err(|error| name(&error))
    }

    fn stored(&self) -> Vec<&[u8]> {
        self.sink.stored.iter().map(Vec::as_slice).collect()
    }
}

fn name(error: &AppendError) -> &'static str {
    match error {
        AppendError::Record(RecordError::Invalid(_)) => "EINVAL",
        AppendError::Record(RecordError::TooLarge(_)) => "EMSGSIZE",
        AppendError::Log(_) => "ENOSPC",
    }
}

/// Contract 4.1 (`test_lines`, `test_unterminated_rest_at_fsync`).
#[test]
fn a_record_ends_at_its_delimiter_and_the_rest_at_finish() {
    let mut open = Open::new(Format::Lines);
    assert_eq!(open.write("a\nb\n\nhal"), Ok(8));
    assert_eq!((open.stored(), open.sink.runs.as_slice()), (vec![&b"a"[..], b"b", b""], &[3][..]));
    assert_eq!((open.write(""), open.write("f")), (Ok(0), Ok(1)));
    assert_eq!((open.check(), open.finish(), open.finish()), (Ok(()), Ok(()), Ok(())));
    assert_eq!(open.write("c\rd\r\n\0"), Ok(6));
    assert_eq!(open.finish(), Ok(()));
    assert_eq!(open.stored()[3..], [&b"half"[..], b"c\rd\r", b"\0"]);
}

#[test]
fn newlines_are_data_before_a_nul_byte() {
    let mut open = Open::new(Format::Nul);
    assert_eq!(open.write("a\nb\0\n\0\0c"), Ok(8));
    assert_eq!(open.stored(), [&b"a\nb"[..], b"\n", b""]);
}

/// Contract 4.2 (`test_too_large_is_emsgsize`).
#[test]
fn a_record_over_the_limit_ends_the_write_before_it() {
    let mut open = Open::limited(Format::Lines, 900);
    assert_eq!(open.write("x".repeat(901) + "\n"), Err("EMSGSIZE"));
    assert_eq!(open.write("ok\n".to_owned() + &"x".repeat(2000) + "\n"), Ok(3));
    assert_eq!(open.write("ok\n".to_owned() + &"x".repeat(2000)), Ok(3));
    assert_eq!(open.write("x".repeat(900) + "\n"), Ok(901));
    assert_eq!(open.write("aLa\n"), Err("EMSGSIZE"));
    assert_eq!(open.stored(), [&b"ok"[..], b"ok", "x".repeat(900).as_bytes()]);
}

/// Contract 4.2 (`test_no_piece_of_a_record_that_failed`).
#[test]
fn no_piece_of_a_record_that_failed_is_stored() {
    let mut open = Open::limited(Format::Lines, 500);
    assert_eq!(open.write("x".repeat(400)), Ok(400));
    for data in ["x".repeat(400).as_str(), "yy", "z\nfine\n"] {
        assert_eq!(open.write(data), Err("EMSGSIZE"));
        assert_eq!(open.stream.held_bytes(), 0);
    }
    assert_eq!(open.write("next\n"), Ok(5));
    // The write that fails may hold the delimiter itself.
    assert_eq!((open.write("x".repeat(400)), open.write("L\nfine\n")), (Ok(400), Err("EMSGSIZE")));
    assert_eq!(
        (open.write("x".repeat(400)), open.write("x".repeat(101) + "\n")),
        (Ok(400), Err("EMSGSIZE"))
    );
    assert_eq!(open.write("again\n"), Ok(6));
    assert_eq!(open.stored(), [&b"next"[..], b"again"]);
}

/// Contract 4.2 (`test_bad_input_is_einval`).
#[test]
fn what_is_no_record_ends_the_write_before_it() {
    let mut open = Open::new(Format::Tsv);
    let data = b"k\tv\nno tab\nk\tw\n";
    assert_eq!(open.write(data), Ok(4));
    assert_eq!(open.write(&data[4..]), Err("EINVAL"));
    assert_eq!(open.write(&data[11..]), Ok(4));
    assert_eq!(open.stored(), [b"v", b"w"]);
    assert_eq!(open.reason(b"no tab\n"), "record 3: no tab between key and value");
}

#[test]
fn a_full_log_keeps_what_earlier_writes_brought() {
    let mut open = Open::new(Format::Lines);
    open.sink.full = vec![0, 2, 4];
    assert_eq!(open.write("ha"), Ok(2));
    assert_eq!(open.write("lf\nb\n"), Err("ENOSPC"));
    assert_eq!(open.write("lf\nb\n"), Ok(3));
    assert_eq!(open.write("b\nc"), Ok(3));
    assert_eq!((open.finish(), open.finish()), (Err("ENOSPC"), Ok(())));
    assert_eq!(open.stored(), [&b"half"[..], b"b", b"c"]);
}

/// Contract 3.3, 4.1 (`test_rest_that_cannot_be_stored`).
#[test]
fn a_rest_that_cannot_be_stored_is_said_at_close_and_dropped() {
    let batch = sample::batch(0, Codec::None, &[b"v"]);
    for (format, rest) in [
        (Format::Jsonl, &b"{\"payload\":"[..]),
        (Format::Tsv, b"no tab"),
        (Format::Raw, &batch[..65]),
        (Format::Raw, &batch[..5]),
    ] {
        let mut open = Open::new(format);
        assert_eq!(open.write(rest), Ok(rest.len()));
        assert_eq!((open.check(), open.check()), (Err("EINVAL"), Err("EINVAL")));
        assert_eq!((open.finish(), open.stream.held_bytes()), (Err("EINVAL"), 0));
        assert_eq!((open.check(), open.finish()), (Ok(()), Ok(())));
        // More of what was dropped is no record either.
        assert_eq!(open.write("\"v\"}"), Err("EINVAL"));
        assert_eq!(open.stored(), [&b""[..]; 0]);
    }
    let mut open = Open::new(Format::Lines);
    assert_eq!(
        (open.write("L"), open.check(), open.finish()),
        (Ok(1), Err("EMSGSIZE"), Err("EMSGSIZE"))
    );
}

#[test]
fn reasons_are_short_and_plain() {
    let mut open = Open::limited(Format::Jsonl, 1 << 20);
    let reason = open.reason(format!("{{\"{}\":1}}\n", "\\u001bx".repeat(10_000)).as_bytes());
    assert!(reason.starts_with("record 1: unknown field `\u{fffd}x\u{fffd}x"), "{reason}");
    assert!(reason.len() < 1300 && reason.ends_with("..."), "{}", reason.len());
}

#[test]
fn no_more_is_held_than_one_record_can_be_long() {
    for (format, most) in [(Format::Lines, 1000), (Format::Tsv, 2000), (Format::Jsonl, 7024)] {
        let mut open = Open::new(format);
        for _ in 0..most {
            assert_eq!(open.write("x"), Ok(1));
        }
        assert_eq!((open.write("x"), open.stream.held_bytes()), (Err("EMSGSIZE"), 0));
    }
}

fn batches(values: &[&[u8]]) -> Vec<Vec<u8>> {
    values.iter().map(|value| sample::batch(0, Codec::None, &[value])).collect()
}

/// Contract 3.2, 4.14 (`test_limit_of_raw`).
#[test]
fn batches_are_kept_as_they_are_or_refused() {
    let good = batches(&[b"a", b"", b"c"]);
    let mut broken = batches(&[b"x"]).remove(0);
    broken[17] ^= 1;
    let large = batches(&[&[b'x'; 940]]).remove(0);
    let mut open = Open::new(Format::Raw);
    assert_eq!(open.write(good.concat()), Ok(good.concat().len()));
    for (bad, error) in [(&broken, "EINVAL"), (&large, "EMSGSIZE")] {
        let all = [&good[0], bad, &good[1]].map(Vec::as_slice).concat();
        assert_eq!(open.write(&all), Ok(good[0].len()));
        assert_eq!(open.write(&all[good[0].len()..]), Err(error));
        assert_eq!(open.write(&good[2]), Ok(good[2].len()));
    }
    let meant = [&good[..], &[good[0].clone(), good[2].clone(), good[0].clone(), good[2].clone()]];
    assert_eq!(open.sink.stored, meant.concat());
    assert!(open.reason(&broken).starts_with("batch 8: checksum "));
}

#[test]
fn a_raw_stream_that_lost_its_way_fails_until_it_is_closed() {
    let good = batches(&[b"a"]).remove(0);
    let large = batches(&[&[b'x'; 940]]).remove(0);
    for (lost, error) in
        [(&[0; 100][..], "EINVAL"), (&[0; 17], "EINVAL"), (&large[..17], "EMSGSIZE")]
    {
        for held in [0, 16] {
            let mut open = Open::new(Format::Raw);
            assert_eq!(open.write(&lost[..held]), Ok(held));
            assert_eq!(open.write(&lost[held..]), Err(error));
            assert_eq!((open.write(&good), open.write("\n")), (Err(error), Err(error)));
            assert_eq!((open.check(), open.finish(), open.stored().len()), (Ok(()), Ok(()), 0));
        }
    }
}

/// The rules again, one byte after the other and without a thought for speed.
struct Model {
    format: Format,
    longest: usize,
    full: Vec<usize>,
    tried: usize,
    current: Vec<u8>,
    failing: bool,
    stored: Vec<Vec<u8>>,
}

impl Model {
    fn write(&mut self, data: &[u8]) -> Result<usize, ()> {
        let end = delimiter(self.format).unwrap();
        if data.is_empty() {
            return Ok(0);
        }
        if self.failing {
            self.failing = !data.contains(&end);
            return Err(());
        }
        let before = self.current.clone();
        let mut accepted = 0;
        for (at, &byte) in data.iter().enumerate() {
            let long = self.current.len() == self.longest && byte != end;
            if byte != end && !long {
                self.current.push(byte);
                continue;
            }
            let record = std::mem::take(&mut self.current);
            let value = if long { None } else { self.value(&record) };
            let full = value.is_some() && self.full.contains(&self.tried);
            self.tried += usize::from(value.is_some());
            match value {
                Some(value) if !full && !value.contains(&LARGE) => self.stored.push(value),
                _ if accepted > 0 => return Ok(accepted),
                _ => {
                    self.failing = !full && !data[at..].contains(&end);
                    self.current = if full { before } else { Vec::new() };
                    return Err(());
                }
            }
            accepted = at + 1;
        }
        Ok(data.len())
    }

    fn value(&self, text: &[u8]) -> Option<Vec<u8>> {
        Some(parse(self.format, text).ok()?.value.unwrap_or_default().into_owned())
    }
}

const TEXTS: [Format; 4] = [Format::Lines, Format::Nul, Format::Tsv, Format::Jsonl];

/// Texts of a few lines, some of them records of `format`, some not.
fn any_text(format: Format) -> impl Strategy<Value = Vec<u8>> {
    let pieces: &'static [&'static [u8]] = match format {
        Format::Lines | Format::Raw => &[b"\n", b"a", b"L", b"bc\n", b"\0"],
        Format::Nul => &[b"\0", b"a", b"L", b"bc\0", b"\n"],
        Format::Tsv => &[b"\n", b"\t", b"k\tv\n", b"\tLarge", b"\\n", b"\\", b"N"],
        Format::Jsonl => {
            &[b"\n", b"{\"payload\":\"v\"}\n", b"{}", b" ", b"{\"payload\":\"L\"}", b"{"]
        }
    };
    proptest::collection::vec(proptest::sample::select(pieces), 0..20)
        .prop_map(|pieces| pieces.concat())
}

/// Some writes, and at which tries the log is full.
fn any_writes() -> impl Strategy<Value = (Format, Vec<Vec<u8>>, Vec<usize>)> {
    proptest::sample::select(&TEXTS[..]).prop_flat_map(|format| {
        let writes = proptest::collection::vec(any_text(format), 0..12);
        (Just(format), writes, proptest::collection::vec(0_usize..30, 0..4))
    })
}

/// Writes all of `data` in pieces of these lengths, as a tool does: what was not taken is written
/// again, and the first error ends it. Returns how many bytes were taken.
fn write_all(open: &mut Open, data: &[u8], cuts: &[usize]) -> usize {
    let mut at = 0;
    for cut in cuts.iter().cycle() {
        match open.write(&data[at..data.len().min(at + cut)]) {
            Ok(taken) => at += taken,
            Err(_) => return at,
        }
        if at == data.len() {
            break;
        }
    }
    at
}

proptest! {
    #[test]
    fn every_write_does_what_the_model_does((format, writes, full) in any_writes()) {
        let mut open = Open::limited(format, 6);
        open.sink.full.clone_from(&full);
        let (longest, current) = (longest_text(format, 6), Vec::new());
        let (tried, failing, stored) = (0, false, Vec::new());
        let mut model = Model { format, longest, full, tried, current, failing, stored };
        for data in writes {
            prop_assert_eq!(open.write(&data).map_err(drop), model.write(&data));
            prop_assert_eq!(&open.sink.stored, &model.stored);
            prop_assert_eq!(&open.stream.rest, &model.current);
        }
    }

    /// Contract 4.1: what was taken is what a regular file would hold.
    #[test]
    fn the_records_are_the_lines_that_were_taken(
        text in any_text(Format::Lines),
        full in proptest::collection::vec(0_usize..30, 0..2),
        cuts in proptest::collection::vec(1_usize..9, 1..9),
    ) {
        let mut open = Open::new(Format::Lines);
        open.sink.full = full;
        let taken = write_all(&mut open, &text, &cuts);
        let mut lines: Vec<&[u8]> = text[..taken].split(|&byte| byte == b'\n').collect();
        let rest = lines.pop().filter(|rest| !rest.is_empty() && open.stream.held_bytes() > 0);
        open.sink.full.clear();
        if open.finish().is_ok() {
            lines.extend(rest);
        }
        prop_assert_eq!(open.stored(), lines);
    }

    /// Contract 4.1: however the writes are cut.
    #[test]
    fn records_and_batches_do_not_depend_on_the_cuts(
        values in proptest::collection::vec("[a-k]{0,9}", 0..20),
        cuts in proptest::collection::vec(1_usize..200, 1..9),
    ) {
        let mut lines = Open::new(Format::Lines);
        let text = values.iter().flat_map(|value| [value, "\n"]).collect::<String>();
        prop_assert_eq!(write_all(&mut lines, text.as_bytes(), &cuts), text.len());
        prop_assert_eq!(lines.stored(), values.iter().map(String::as_bytes).collect::<Vec<_>>());
        let mut raw = Open::new(Format::Raw);
        let stored = batches(&values.iter().map(String::as_bytes).collect::<Vec<_>>());
        let bytes = stored.concat();
        prop_assert_eq!(write_all(&mut raw, &bytes, &cuts), bytes.len());
        prop_assert_eq!(raw.finish(), Ok(()));
        prop_assert_eq!(&raw.sink.stored, &stored);
    }

    /// Contract 4.2: a batch that fails, whole or in part, leaves the ones before it.
    #[test]
    fn of_damaged_raw_input_the_batches_before_the_damage_are_stored(
        count in 1_usize..6, bad in 0_usize..6, at in 17_usize..61,
        cuts in proptest::collection::vec(1_usize..200, 1..9),
        full in proptest::option::of(0_usize..6),
    ) {
        let stored = batches(&vec![&b"value"[..]; count]);
        let mut bytes = stored.clone();
        if let Some(batch) = bytes.get_mut(bad) {
            batch[at] ^= 0x10;
        }
        let mut open = Open::new(Format::Raw);
        open.sink.full.extend(full.map_or(0..0, |first| first..20));
        write_all(&mut open, &bytes.concat(), &cuts);
        let meant = count.min(bad).min(full.unwrap_or(count));
        prop_assert_eq!(&open.sink.stored[..], &stored[..meant]);
    }
}
