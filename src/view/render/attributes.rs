//! The extended attributes of a record file, as `getfattr -d` shows them: single facts in the words
//! of the JSON envelope, the key and header values as raw bytes.
//!
//! Left out is what the kernel cannot hold: a name over 255 bytes or with a NUL byte, a value over
//! 64 KiB, and the headers with which the list of names would pass 64 KiB. A header whose value is
//! NULL reads as empty: that it is there matters more, and the JSON tells the two apart.

use std::collections::BTreeMap;

use super::{Marks, timestamp_type};
use crate::format::batch::BatchHeader;
use crate::format::record::Record;

/// `XATTR_NAME_MAX` of Linux, without the NUL byte.
const NAME_BYTES_MAX: usize = 255;
/// `XATTR_SIZE_MAX` of Linux.
const VALUE_BYTES_MAX: usize = 65_536;
/// `XATTR_LIST_MAX` of Linux; each name counts with a NUL byte.
const LIST_BYTES_MAX: usize = 65_536;

/// The names and values of all attributes: the record's own facts, then its headers by name.
pub fn attributes(batch: &BatchHeader, record: &Record, marks: &Marks) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut attributes = Attributes::default();
    attributes.add("user.offset", record.offset.to_string().as_bytes());
    if let Some(timestamp) = record.timestamp {
        attributes.add("user.timestamp", timestamp.to_string().as_bytes());
        attributes.add("user.timestamp_type", timestamp_type(batch).as_bytes());
    }
    if let Some(key) = record.key {
        attributes.add("user.key", key);
    }
    if let Some(epoch) = batch.leader_epoch {
        attributes.add("user.leader_epoch", epoch.to_string().as_bytes());
    }
    if record.value.is_none() {
        attributes.add("user.null_value", b"true");
    }
    if let Some(state) = marks.txn {
        attributes.add("user.txn", state.as_str().as_bytes());
    }
    // Of duplicate names the map keeps the last.
    for (name, value) in record.headers.iter().collect::<BTreeMap<_, _>>() {
        attributes.add([b"user.headers.", name].concat(), value.unwrap_or_default());
    }
    attributes.list
}

#[derive(Default)]
struct Attributes {
    list: Vec<(Vec<u8>, Vec<u8>)>,
    list_bytes: usize,
}

impl Attributes {
    fn add(&mut self, name: impl Into<Vec<u8>>, value: &[u8]) {
        let name = name.into();
        let list_bytes = self.list_bytes + name.len() + 1;
        let fits = name.len() <= NAME_BYTES_MAX
            && value.len() <= VALUE_BYTES_MAX
            && list_bytes <= LIST_BYTES_MAX;
        if fits && !name.contains(&0) {
            self.list.push((name, value.to_vec()));
            self.list_bytes = list_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::TransactionState;
    use super::super::sample::{Sample, any_sample};
    use super::*;
    use crate::format::batch::TimestampType;

    fn have(sample: &Sample, marks: Marks) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut list = Vec::new();
        sample.with(|_, batch, record| list = attributes(batch, record, &marks));
        list
    }

    fn text(sample: &Sample, marks: Marks) -> String {
        let lines = have(sample, marks).into_iter().map(|(name, value)| {
            format!("{}={:?}\n", name.escape_ascii(), value.escape_ascii().to_string())
        });
        lines.collect()
    }

    /// The headers among the attributes of a record with `headers`.
    fn header_attributes(headers: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut sample = Sample::new(None, None);
        sample.headers = headers;
        let all = have(&sample, Marks::default()).into_iter();
        all.filter_map(|(name, v)| Some((name.strip_prefix(b"user.headers.")?.to_vec(), v)))
            .collect()
    }

    /// Contract 2.8 (`test_attributes`).
    #[test]
    fn facts_of_a_record() {
        let mut sample = Sample::new(Some(b"k"), Some(b"v"));
        sample.offset = 9;
        sample.leader_epoch = 4;
        sample.headers = vec![(b"h".to_vec(), Some(b"1".to_vec()))];
        let meant = "user.offset=\"9\"\nuser.timestamp=\"1700000000000\"\n\
                     user.timestamp_type=\"create\"\nuser.key=\"k\"\nuser.leader_epoch=\"4\"\n\
                     user.headers.h=\"1\"\n";
        assert_eq!(text(&sample, Marks::default()), meant);
    }

    #[test]
    fn a_record_without_timestamp_key_value_and_epoch() {
        let mut sample = Sample::new(None, None);
        sample.timestamp = -1;
        sample.leader_epoch = -1;
        let meant = "user.offset=\"0\"\nuser.null_value=\"true\"\n";
        assert_eq!(text(&sample, Marks::default()), meant);
    }

    #[test]
    fn an_empty_key_is_there_and_an_empty_value_is_not_null() {
        let said = text(&Sample::new(Some(b""), Some(b"")), Marks::default());
        assert!(said.contains("user.key=\"\"\n") && !said.contains("null_value"), "{said}");
    }

    #[test]
    fn transactions_and_append_time_are_named_as_in_the_json() {
        let mut sample = Sample::new(None, Some(b"v"));
        sample.timestamp_type = TimestampType::LogAppend;
        let marks = Marks { txn: Some(TransactionState::Open), above_high_watermark: true };
        let said = text(&sample, marks);
        assert!(said.contains("user.timestamp_type=\"logappend\"\n"), "{said}");
        assert!(said.ends_with("user.txn=\"open\"\n"), "{said}");
    }

    #[test]
    fn of_duplicate_headers_the_last_counts_even_where_it_does_not_fit() {
        let one = |name: &[u8], value: &[u8]| (name.to_vec(), Some(value.to_vec()));
        let said = header_attributes(vec![
            one(b"h", b"0"),
            one(b"bin", b"\xff\0"),
            one(b"big", b"small"),
            one(b"h", b"1"),
            (b"null".to_vec(), None),
            one(b"big", &vec![0; 70_000]),
        ]);
        let meant: [(&[u8], &[u8]); 3] = [(b"bin", b"\xff\0"), (b"h", b"1"), (b"null", b"")];
        assert_eq!(said, meant.map(|(name, value)| (name.to_vec(), value.to_vec())));
    }

    #[test]
    fn the_limits_of_the_kernel_are_exact() {
        let header = |name: &[u8], bytes: usize| (name.to_vec(), Some(vec![b'x'; bytes]));
        let said = header_attributes(vec![
            header(&[b'a'; 242], 1),
            header(&[b'b'; 243], 1),
            header(b"c", 65_536),
            header(b"d", 65_537),
            header(b"e\0", 1),
            header(b"\xff", 1),
            header(b"", 1),
        ]);
        let names: Vec<_> = said.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [b"".to_vec(), vec![b'a'; 242], b"c".to_vec(), b"\xff".to_vec()]);
    }

    #[test]
    fn headers_beyond_the_longest_list_are_left_out() {
        let headers = (0..9000).map(|n| (format!("{n:04}").into_bytes(), None)).collect();
        let mut sample = Sample::new(None, None);
        sample.headers = headers;
        let marks = Marks { txn: Some(TransactionState::Open), above_high_watermark: false };
        let list = have(&sample, marks);
        let bytes: usize = list.iter().map(|(name, _)| name.len() + 1).sum();
        assert!((65_536 - 18..=65_536).contains(&bytes), "{bytes}");
        assert!(list.iter().any(|(name, _)| name == b"user.txn"));
    }

    proptest! {
        #[test]
        fn no_name_comes_twice(sample in any_sample()) {
            let list = have(&sample, Marks::default());
            let names: BTreeMap<_, _> = list.iter().cloned().collect();
            prop_assert_eq!(names.len(), list.len());
        }
    }
}
