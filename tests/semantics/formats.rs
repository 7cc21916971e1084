//! 3, 5.1: formats of records and ranges, codecs, old magics.

use serde_json::{Value, json};

use crate::needs_fuse;
use crate::support::got::Got;
use crate::support::kafkalog::{
    Codec, Rec, T0, batch, batches, gzip, hundred, legacy, null, partition, partition_from, plain,
    rec, xerial,
};
use crate::support::mount::{Mount, v};
use crate::support::{EIO, ENOENT, bytes, lines, show};

fn show_records(records: Vec<Rec>) -> Mount {
    show(partition().add(&batch(0, records)))
}

/// NULL, empty and a letter, as key and as value.
fn nine() -> Vec<Rec> {
    let field = |which: usize| [None, Some(Vec::new()), Some(b"k".to_vec())][which].clone();
    (0..9).map(|n| Rec { key: field(n / 3), value: field(n % 3), ..Rec::default() }).collect()
}

/// 3: "value only; NULL reads as an empty line"
#[test]
fn a_plain_range_is_values_and_newlines() {
    needs_fuse!();
    let mount = show_records(vec![rec("a").key("k"), null(), rec(""), rec("b\nc"), rec("\r")]);
    assert_eq!(mount.t0().by_offset("0.."), "a\n\n\nb\nc\n\r\n");
}

/// 3: "the value and a NUL byte | for values with newlines, `xargs -0`"
#[test]
fn a_nul_range_is_values_and_nul_bytes() {
    needs_fuse!();
    let mount = show_records(vec![rec("a\nb"), rec(""), null(), rec("c\n")]);
    assert_eq!(mount.t0().by_offset("0...nul"), "a\nb\0\0\0c\n\0");
}

/// 3: "key, tab, value, newline | `\t` `\n` `\\` escaped, `\N` is NULL"
#[test]
fn a_tsv_range_keeps_keys() {
    needs_fuse!();
    let records = vec![
        rec("a").key("k"),
        rec("x\ty\r"),
        null().key(""),
        rec("l1\nl2").key("\\N"),
        rec(b"\xff\0").key("\t"),
    ];
    let mount = show_records(records);
    let want = b"k\ta\n\\N\tx\\ty\r\n\t\\N\n\\\\N\tl1\\nl2\n\\t\t\xff\0\n";
    assert_eq!(mount.t0().by_offset("0...tsv"), &want[..]);
}

/// 3: "one JSON object and a newline"
#[test]
fn a_jsonl_range_is_one_object_a_line() {
    needs_fuse!();
    let mount = show(hundred());
    let rows = mount.t0().envelopes("7..12.jsonl");
    let offsets: Vec<i64> = rows.iter().filter_map(|row| row["offset"].as_i64()).collect();
    assert_eq!(offsets, [7, 8, 9, 10, 11]);
    assert_eq!(mount.t0().by_offset("7..8.jsonl"), mount.t0().by_offset("7.json"));
}

/// 3.2: "`.raw` reads are the bytes of the segment files; the batches that hold A and B-1 come
/// whole."
#[test]
fn a_raw_range_is_whole_batches() {
    needs_fuse!();
    let mut part = partition();
    for (base, codec) in [(0, Codec::Gzip), (10, Codec::None), (20, Codec::Zstd), (30, Codec::Lz4)]
    {
        part = part.add(&plain(base..base + 10).codec(codec));
    }
    part = part.roll(40).add(&plain(40..50));
    let logs: Vec<Vec<u8>> = part.segments.iter().map(|segment| segment.log.clone()).collect();
    let mount = show(part);
    let shown = mount.t0();
    let places = batches(&logs[0]);
    assert_eq!(shown.by_offset("15..31.raw"), &logs[0][places[1].start..places[3].end]);
    assert_eq!(shown.by_offset("29..30.raw"), &logs[0][places[2].clone()]);
    assert_eq!(shown.by_offset("0...raw"), &logs.concat()[..]);
    assert_eq!(
        shown.by_offset("35..45.raw"),
        &[&logs[0][places[3].clone()], &logs[1]].concat()[..]
    );
}

/// 3.3: "The JSON envelope is valid UTF-8 JSON in kcat's field order"
/// 3.3: "A range holds only what never changes"
#[test]
fn envelopes_have_their_fields_in_order() {
    needs_fuse!();
    let record = rec("v").key(b"\xff").at(T0).header("h", Some(b"1"));
    let mount = show(partition().add(&batch(0, vec![record]).producer(1)));
    let names =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let want = [
        "topic",
        "partition",
        "offset",
        "tstype",
        "ts",
        "headers",
        "key",
        "key_b64",
        "payload",
        "leader_epoch",
        "transactional",
    ];
    assert_eq!(names(&mount.t0().envelopes("0..1.jsonl")[0]), want);
    assert_eq!(names(&mount.t0().envelope(0)), [&want[..], &["txn"]].concat());
}

/// 3.3: "(both left out without a timestamp)"
/// 3.3: "left out when none"
/// 3.3: "NULL is `null`."
#[test]
fn what_is_not_there_is_left_out() {
    needs_fuse!();
    let mount = show(partition().add(&batch(0, vec![null().at(-1)]).epoch(-1)));
    let want = json!({"topic": "t", "partition": 0, "offset": 0, "key": null, "payload": null});
    assert_eq!(mount.t0().envelope(0), want);
}

/// 3.3: "A key, payload or header value that is not UTF-8 is `null` with `key_b64` after `key`,
/// `payload_b64` after `payload`, or"
#[test]
fn what_is_not_text_is_base64() {
    needs_fuse!();
    let record = rec(b"\xff\xfe")
        .key(b"\0\x80")
        .header("h", Some(b"1"))
        .header("h", Some(b"2"))
        .header("null", None)
        .header("empty", Some(b""))
        .header("bin", Some(b"\xff\0"))
        .header("n\u{e9}", Some("\u{2603}".as_bytes()));
    let mount = show_records(vec![record, rec("\"\\\u{1}\n\u{2028}\u{1f600}")]);
    let envelope = mount.t0().envelope(0);
    let headers = json!([
        ["h", "1"],
        ["h", "2"],
        ["null", null],
        ["empty", ""],
        ["bin", null, "/wA="],
        ["n\u{e9}", "\u{2603}"]
    ]);
    assert_eq!(envelope["headers"], headers);
    assert_eq!((&envelope["key"], &envelope["key_b64"]), (&Value::Null, &json!("AIA=")));
    assert_eq!((&envelope["payload"], &envelope["payload_b64"]), (&Value::Null, &json!("//4=")));
    assert_eq!(mount.t0().envelope(1)["payload"], "\"\\\u{1}\n\u{2028}\u{1f600}");
}

/// 3.3: "NULL is `null`."
#[test]
fn null_and_empty_differ_in_json() {
    needs_fuse!();
    let mount = show_records(nine());
    let shown: Vec<_> = mount
        .t0()
        .envelopes("0...jsonl")
        .iter()
        .map(|row| (row["key"].clone(), row["payload"].clone()))
        .collect();
    let words = [Value::Null, json!(""), json!("k")];
    let want: Vec<_> = (0..9).map(|n| (words[n / 3].clone(), words[n % 3].clone())).collect();
    assert_eq!(shown, want);
}

/// 5.1: "for magic 0, 1, 2, all codecs, transactions, compaction"
#[test]
fn every_framing_of_every_codec_is_read() {
    needs_fuse!();
    let values: Vec<String> = (0..100).map(|n| format!("{n} ").repeat(n * n / 8)).collect();
    let records: Vec<Rec> = values.iter().map(rec).collect();
    let body = batch(0, records.clone()).body();
    let (head, tail) = body.split_at(body.len() / 3);
    let two = |pack: &dyn Fn(&[u8]) -> Vec<u8>| [pack(head), pack(tail)].concat();
    let zstd = |plain: &[u8]| zstd::encode_all(plain, 1).unwrap();
    for (name, codec) in [
        ("none", Codec::None),
        ("gzip", Codec::Gzip),
        ("snappy", Codec::Snappy),
        ("snappy without framing", Codec::SnappyRaw),
        ("snappy in small blocks", Codec::As(2, xerial(&body, 1000))),
        ("lz4", Codec::Lz4),
        ("zstd", Codec::Zstd),
        ("zstd with its size", Codec::As(4, zstd::bulk::compress(&body, 3).unwrap())),
        ("two zstd frames", Codec::As(4, two(&zstd))),
        ("two gzip members", Codec::As(1, two(&gzip))),
    ] {
        let mount = show(partition().add(&batch(0, records.clone()).codec(codec)));
        let want: Vec<Got> = values.iter().map(|value| bytes(value.as_bytes())).collect();
        assert!(mount.t0().records(0..100) == want, "{name}");
        assert_eq!(mount.t0().by_offset("0.."), lines(&values), "{name}");
    }
}

/// 5.1: "for magic 0, 1, 2, all codecs, transactions, compaction"
#[test]
fn old_magics_are_read_beside_new_ones() {
    needs_fuse!();
    for (magic, codec) in [
        (0, Codec::None),
        (0, Codec::Gzip),
        (0, Codec::Snappy),
        (1, Codec::None),
        (1, Codec::Gzip),
        (1, Codec::Snappy),
        (1, Codec::Lz4),
    ] {
        let old = legacy(magic, 50..60, &codec);
        let new = plain(60..70).codec(Codec::Zstd).build();
        let mount = show(partition_from(50).add_bytes(old).add_bytes(new));
        let shown = mount.t0().records(49..71);
        let want = [vec![ENOENT.into()], v(50..70), vec![ENOENT.into()]].concat();
        assert_eq!(shown, want, "magic {magic}, codec {}", codec.number());
        let first = if magic == 0 { 60 } else { 55 };
        let answer = mount.t0().by_time(T0 + 54_500);
        assert_eq!(answer, bytes(format!("v{first}")), "magic {magic}");
    }
}

/// 6.1: "EIO for the records inside the damaged batch only"
#[test]
fn an_unknown_codec_is_eio_for_its_batch() {
    needs_fuse!();
    for number in [5, 6, 7] {
        let odd = plain(10..20).codec(Codec::As(number, vec![1; 50]));
        let mount = show(partition().add(&plain(0..10)).add(&odd).add(&plain(20..30)));
        let want = [v(0..10), vec![EIO.into(); 10], v(20..30)].concat();
        assert_eq!(mount.t0().records(0..30), want, "codec {number}");
    }
}
