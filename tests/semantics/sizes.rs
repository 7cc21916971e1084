//! 2.1: every file has its exact size, and every way to read it gives the same bytes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::needs_fuse;
use crate::support::kafkalog::{Codec, batch, partition, plain, rec};
use crate::support::mount::Mount;
use crate::support::{code, out, sh, show, told};

const SIZES: [usize; 8] = [0, 1, 4095, 4096, 4097, 65_536, 131_073, 1_048_577];

fn value(size: usize) -> Vec<u8> {
    let line = b"the quick brown fox jumps over the lazy dog 0123456789\n";
    line.iter().copied().cycle().take(size).collect()
}

/// Records of many sizes, then small ones, in all codecs.
fn of_many_sizes() -> Mount {
    let codecs = [Codec::None, Codec::Zstd, Codec::Lz4, Codec::Gzip, Codec::Snappy];
    let mut part = partition();
    let mut codec = codecs.iter().cycle().cloned();
    for (n, size) in (0..).zip(SIZES) {
        let one = batch(n, vec![rec(value(size)).key("key")]);
        part = part.add(&one.codec(codec.next().unwrap()));
    }
    for base in (8..5008).step_by(100) {
        part = part.add(&plain(base..base + 100).codec(codec.next().unwrap()));
    }
    show(part)
}

/// 2.1: "Every file has its exact size"
#[test]
fn a_record_has_its_size() {
    needs_fuse!();
    let mount = of_many_sizes();
    for (n, size) in (0..).zip(SIZES) {
        let name = format!("by-offset/{n}");
        assert_eq!(mount.t0().metadata(&name).size(), size as u64, "{n}");
        assert!(mount.t0().by_offset(n) == value(size).as_slice(), "{n}");
    }
}

/// 2.1: "`stat`, `wc -c`, `tar`, `rsync`, `split`, `tac`, `tail -c` and `cat` agree."
#[test]
fn every_file_in_the_tree_has_one_size() {
    needs_fuse!();
    let mount = of_many_sizes();
    let script = r#"cd "$1/t-0"; { find . -type f | awk '!/by-/ || NR % 97 == 1'
        for r in 2..30 4990.. ..5 -3.. 0..; do for f in "" .nul .tsv .jsonl .raw; do
        echo "by-offset/$r$f"; done; done; echo by-offset/3.json; echo by-offset/3.key; } |
        while IFS= read -r f; do s=$(stat -c %s "$f"); w=$(wc -c < "$f"); c=$(cat "$f" | wc -c)
        d=$(dd if="$f" bs=1000 status=none | wc -c); t=$(tar cf - "$f" | tar xOf - | wc -c)
        p=$(split -n 3 --filter cat "$f" | wc -c); r=$(tail -c +1 "$f" | wc -c)
        b=$(tac -b "$f" | wc -c)
        [ "$w $c $d $t $p $r $b" = "$s $s $s $s $s $s $s" ] || echo "$f: $s $w $c $d $t $p $r $b"
        done"#;
    let done = sh(script, &[mount.path()]);
    assert_eq!((code(&done), out(&done).as_str()), (0, ""), "{}", told(&done));
    assert!(done.stderr.is_empty(), "{}", told(&done));
}

/// 2.1: "every file can be read at any position, mapped, copied, archived"
#[test]
fn any_position_can_be_read() {
    needs_fuse!();
    let mount = of_many_sizes();
    for name in ["0..", "3..", "0..4000.jsonl", "0...raw", "7"] {
        let path = mount.t0().path("by-offset").join(name);
        let mut file = File::open(&path).unwrap();
        let mut whole = Vec::new();
        file.read_to_end(&mut whole).unwrap();
        let end = whole.len() as u64;
        assert_eq!(file.metadata().unwrap().len(), end, "{name}");
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), end, "{name}");
        for step in 0..400_u64 {
            let at = step * 7_919_191 % (end + 50);
            let size = [1, 100, 4096, 70_000][usize::try_from(step % 4).unwrap()];
            let mut piece = vec![0; size];
            let got = file.read_at(&mut piece, at).unwrap();
            let from = usize::try_from(at.min(end)).unwrap();
            let to = whole.len().min(from + size);
            assert!(piece[..got] == whole[from..to], "{name} at {at}, {size} bytes");
        }
    }
}

/// 2.1: "every file can be read at any position, mapped, copied, archived"
#[test]
fn any_file_can_be_mapped() {
    needs_fuse!();
    crate::needs_tool!("python3");
    let mount = of_many_sizes();
    let program = "import mmap, sys
for name in sys.argv[1:]:
    with open(name, 'rb') as f:
        want = f.read()
        for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ, flags=flags) as m:
                assert m[:] == want and m[-1:] == want[-1:], name";
    let names = [
        "by-offset/7",
        "by-offset/0..",
        "by-offset/0..900.jsonl",
        "by-offset/-3...nul",
        "segments/00000000000000000000.log",
        "report.json",
    ];
    let mut args = vec![program.to_string()];
    args.extend(names.map(|name| mount.t0().path(name).display().to_string()));
    let done = sh("python3 -c \"$@\"", &args);
    assert_eq!(code(&done), 0, "{}", told(&done));
}

/// 2.1: "every file can be read at any position, mapped, copied, archived"
#[test]
fn many_readers_read_the_same() {
    needs_fuse!();
    let mount = of_many_sizes();
    let path = mount.t0().path("by-offset/0...jsonl");
    let whole = std::fs::read(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(std::fs::read(&path).unwrap() == whole));
        }
    });
}
