//! What a dump finds wrong: on the way where bytes cannot be read, and at the end, in Kafka's
//! words, what does not fit together.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Pairs of one kind that are kept for a file; of more only the number is told.
const MOST_PAIRS: usize = 1 << 18;
/// Damage that is told one by one; a log in which every record is wrong would never end.
const MOST_TOLD: u64 = 1000;

/// Everything that was found, over all files.
#[derive(Debug, Default)]
pub struct Report {
    told: u64,
    mismatches: Vec<(PathBuf, Pairs)>,
    time_mismatches: Vec<(PathBuf, Pairs)>,
    times_out_of_order: Vec<(PathBuf, Pairs)>,
    offsets_not_found: Vec<(PathBuf, Pairs)>,
    gaps: Vec<(PathBuf, Pairs)>,
}

/// What does not fit in one file.
#[derive(Debug, Default)]
pub struct FileReport {
    /// Offsets in an offset index, and in the log.
    pub mismatches: Pairs,
    /// Times in a time index, and in the log.
    pub time_mismatches: Pairs,
    /// Times in a time index, and before them there.
    pub times_out_of_order: Pairs,
    /// Offsets in a time index, and what is there in the log.
    pub offsets_not_found: Pairs,
    /// Offsets of records, and those that follow.
    pub gaps: Pairs,
}

/// Pairs of numbers, a bounded number of them.
#[derive(Debug, Default)]
pub struct Pairs {
    kept: Vec<(i64, i64)>,
    others: u64,
}

impl Pairs {
    /// Adds one.
    pub fn add(&mut self, first: i64, second: i64) {
        if self.kept.len() < MOST_PAIRS {
            self.kept.push((first, second));
        } else {
            self.others += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// In the order of a Java `TreeMap`, in which a number is a key once.
    fn sorted(self) -> Pairs {
        let kept = BTreeMap::from_iter(self.kept).into_iter().collect();
        Pairs { kept, ..self }
    }
}

impl Report {
    /// Tells of bytes that cannot be read.
    pub fn damage(&mut self, message: &dyn Display) {
        self.told += 1;
        if self.told <= MOST_TOLD {
            log::warn!("{message}");
        } else if self.told == MOST_TOLD + 1 {
            log::warn!("there is more damage, which is not told one by one");
        }
    }

    /// Was anything found that should not be? Gaps between offsets are usual.
    pub fn is_damaged(&self) -> bool {
        let lists = [
            &self.mismatches,
            &self.time_mismatches,
            &self.times_out_of_order,
            &self.offsets_not_found,
        ];
        self.told > 0 || lists.iter().any(|list| !list.is_empty())
    }

    /// Adds what was found in the file with this absolute path.
    pub fn add(&mut self, path: &Path, found: FileReport) {
        let lists = [
            (&mut self.mismatches, found.mismatches),
            (&mut self.time_mismatches, found.time_mismatches),
            (&mut self.times_out_of_order, found.times_out_of_order),
            (&mut self.offsets_not_found, found.offsets_not_found),
            (&mut self.gaps, found.gaps),
        ];
        for (list, pairs) in lists {
            if !pairs.is_empty() {
                list.push((path.to_path_buf(), pairs));
            }
        }
    }

    /// What Kafka's tool prints on stderr at the end. Files come in the order in which they were
    /// typed; Kafka's order is that of a hash table.
    pub fn into_text(self) -> Vec<u8> {
        let mut out = Vec::new();
        for (path, pairs) in self.mismatches {
            let mut pairs = pairs.sorted();
            pairs.kept.reverse();
            push(&mut out, "Mismatches in :", &path, &pairs, |a, b| {
                format!("  Index offset: {a}, log offset: {b}")
            });
        }
        for (path, pairs) in self.time_mismatches {
            push(&mut out, "Found timestamp mismatch in :", &path, &pairs, |a, b| {
                format!("  Index timestamp: {a}, log timestamp: {b}")
            });
        }
        for (path, pairs) in self.times_out_of_order {
            push(&mut out, "Found out of order timestamp in :", &path, &pairs, |a, b| {
                format!("  Index timestamp: {a}, Previously indexed timestamp: {b}")
            });
        }
        for (path, pairs) in self.offsets_not_found {
            let title = "The following indexed offsets are not found in :";
            push(&mut out, title, &path, &pairs, |a, b| {
                format!("Indexed offset: {a}, found log offset: {b}")
            });
        }
        for (path, pairs) in self.gaps {
            push(&mut out, "Non-consecutive offsets in ", &path, &pairs.sorted(), |a, b| {
                format!("  {a} is followed by {b}")
            });
        }
        out
    }
}

fn push(
    out: &mut Vec<u8>,
    title: &str,
    path: &Path,
    pairs: &Pairs,
    line: impl Fn(i64, i64) -> String,
) {
    out.extend_from_slice(title.as_bytes());
    out.extend_from_slice(path.as_os_str().as_bytes());
    out.push(b'\n');
    for (first, second) in &pairs.kept {
        out.extend_from_slice(line(*first, *second).as_bytes());
        out.push(b'\n');
    }
    if pairs.others > 0 {
        let written = writeln!(out, "  and {} more", pairs.others);
        written.expect("a Vec takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(found: FileReport) -> String {
        let mut report = Report::default();
        report.add(Path::new("/a"), found);
        String::from_utf8(report.into_text()).unwrap()
    }

    #[test]
    fn mismatches_come_with_the_greatest_offset_first() {
        let mut found = FileReport::default();
        found.mismatches.add(1, 2);
        found.mismatches.add(5, 6);
        found.mismatches.add(5, 7);
        let meant = "Mismatches in :/a\n  Index offset: 5, log offset: 7\n  Index offset: 1, log \
                     offset: 2\n";
        assert_eq!(text(found), meant);
    }

    #[test]
    fn gaps_are_told_but_are_no_damage() {
        let mut found = FileReport::default();
        found.gaps.add(-1, 71);
        let mut report = Report::default();
        report.add(Path::new("/a"), found);
        assert!(!report.is_damaged());
        let meant = "Non-consecutive offsets in /a\n  -1 is followed by 71\n";
        assert_eq!(report.into_text(), meant.as_bytes());
    }

    #[test]
    fn pairs_are_bounded() {
        let mut found = FileReport::default();
        let count = i64::try_from(MOST_PAIRS).unwrap() + 3;
        (0..count).for_each(|n| found.time_mismatches.add(n, n));
        assert!(text(found).ends_with(", log timestamp: 262143\n  and 3 more\n"));
    }
}
