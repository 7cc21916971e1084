//! The kernel's table of mounts, as this process sees it: `/proc/self/mountinfo`.
//!
//! Reading it asks no filesystem anything, so it answers beside dead and hanging mounts too.
//!
//! ```text
//! 36 35 0:48 /root /mount/point rw,nosuid shared:1 - fuse.offsetfs SOURCE rw,user_id=0
//!        device in-fs  place      options  optional    type        source  options
//! ```
//!
//! Space, tab, newline and backslash in a path are written as three octal digits behind a
//! backslash.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The type under which the kernel shows our mounts.
pub const OUR_TYPE: &str = "fuse.offsetfs";

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Device number of the filesystem, which names it under `/sys`: `0:48`.
    pub device: String,
    /// Which directory of the filesystem is mounted; more than `/` for bind mounts.
    pub root: PathBuf,
    /// Where.
    pub mountpoint: PathBuf,
    /// Type with subtype: `ext4`, `fuse.offsetfs`.
    pub kind: String,
    /// What was named as the source.
    pub source: OsString,
    /// Options of the filesystem: `rw,user_id=0,allow_other`.
    pub options: String,
}

impl MountEntry {
    /// A mount of this program.
    pub fn is_ours(&self) -> bool {
        self.kind == OUR_TYPE
    }

    /// A mount of any FUSE filesystem.
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.")
    }

    /// The second half of the device number, by which FUSE names a connection.
    pub fn minor(&self) -> &str {
        self.device.split_once(':').map_or("", |(_, minor)| minor)
    }

    /// The user that a FUSE mount belongs to.
    pub fn owner(&self) -> Option<u32> {
        let id = self.options.split(',').find_map(|option| option.strip_prefix("user_id="))?;
        id.parse().ok()
    }
}

/// All mounts, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountTable {
    entries: Vec<MountEntry>,
}

impl MountTable {
    /// The table as it is now.
    pub fn read() -> Result<MountTable> {
        let path = "/proc/self/mountinfo";
        let text = std::fs::read(path).map_err(Error::io("read", path))?;
        Ok(MountTable::parse(&text))
    }

    /// Lines that make no sense are left out.
    fn parse(text: &[u8]) -> MountTable {
        MountTable { entries: text.split(|byte| *byte == b'\n').filter_map(parse_line).collect() }
    }

    /// What one sees at `mountpoint`, an absolute path without links: the last mount there.
    pub fn at(&self, mountpoint: &Path) -> Option<&MountEntry> {
        self.entries.iter().rev().find(|entry| entry.mountpoint == mountpoint)
    }

    /// Where `path` (absolute, without links) really lies: its filesystem and its path in there.
    /// Equal for two ways to one directory, also through bind mounts.
    pub fn place(&self, path: &Path) -> Option<(&str, PathBuf)> {
        let depth = |entry: &&MountEntry| entry.mountpoint.components().count();
        let holds = |entry: &&MountEntry| path.starts_with(&entry.mountpoint);
        let entry = self.entries.iter().filter(holds).max_by_key(depth)?;
        let below = path.strip_prefix(&entry.mountpoint).ok()?;
        Some((&entry.device, entry.root.join(below)))
    }
}

fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = text(fields.nth(2)?);
    let root = PathBuf::from(unescape(fields.next()?));
    let mountpoint = PathBuf::from(unescape(fields.next()?));
    fields.find(|field| *field == b"-")?;
    let kind = text(fields.next()?);
    let source = unescape(fields.next()?);
    let options = text(fields.next().unwrap_or_default());
    Some(MountEntry { device, root, mountpoint, kind, source, options })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.first_chunk().filter(|_| *first == b'\\').copied().and_then(octal_byte);
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    OsString::from_vec(bytes)
}

fn octal_byte(digits: [u8; 3]) -> Option<u8> {
    let digits = std::str::from_utf8(&digits).ok()?;
    u8::from_str_radix(digits, 8).ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
27 1 253:0 / / rw,relatime - ext4 /dev/root rw
36 27 0:48 / /mnt/a\\040b rw,nosuid shared:1 master:2 - fuse.offsetfs /data\\134x ro,user_id=1000
37 36 0:49 / /mnt/a\\040b rw - tmpfs tmpfs rw
38 27 253:0 /data/kafka /srv/bound rw - ext4 /dev/root rw
half a line
";

    #[test]
    fn fields_are_told_apart() {
        let table = MountTable::parse(TABLE);
        assert_eq!(table.entries.len(), 4);
        let ours = &table.entries[1];
        assert_eq!(ours.mountpoint, Path::new("/mnt/a b"));
        assert_eq!(ours.source, "/data\\x");
        assert_eq!((ours.minor(), ours.owner()), ("48", Some(1000)));
        assert!(ours.is_ours() && ours.is_fuse());
        assert!(!table.entries[2].is_fuse());
    }

    #[test]
    fn last_mount_at_a_place_is_what_one_sees() {
        let table = MountTable::parse(TABLE);
        assert_eq!(table.at(Path::new("/mnt/a b")).unwrap().kind, "tmpfs");
        assert_eq!(table.at(Path::new("/mnt")), None);
    }

    #[test]
    fn two_ways_to_one_directory_are_one_place() {
        let table = MountTable::parse(TABLE);
        assert_eq!(
            table.place(Path::new("/srv/bound/t-0")),
            table.place(Path::new("/data/kafka/t-0"))
        );
        assert_eq!(table.place(Path::new("/mnt/a b/x")).unwrap().0, "0:49");
    }

    #[test]
    fn only_three_octal_digits_are_an_escape() {
        assert_eq!(unescape(b"a\\040\\0\\999\\+12\\\\"), "a \\0\\999\\+12\\\\");
        assert_eq!(unescape(b"\\777"), "\\777");
    }

    #[test]
    fn table_of_this_process_has_a_root() {
        assert!(MountTable::read().unwrap().place(Path::new("/")).is_some());
    }
}
