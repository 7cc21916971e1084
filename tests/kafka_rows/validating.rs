//! Rows about what is looked at before a batch is taken. What comes through `append.raw` is taken
//! as a replica takes it, so it is never changed; what only a client must not do is none of its
//! rules.

use offsetfs::format::batch::TimestampType;
use offsetfs::format::codec::Codec as Stored;

use crate::home::Home;
use crate::support::kafkalog::{Codec, T0, batch, legacy, marker, partition, patched, plain, rec};

/// The bytes of the log of `home`.
fn log_of(home: &Home) -> Vec<u8> {
    std::fs::read(home.file(0, "log")).unwrap()
}

/// kafka-behaviours row 141 (`LogValidatorTest.checkOnlyOneBatch`): "two batches in one set; append
/// from a client: invalid-record error in every case". A replica gets many in one fetch, and so may
/// `append.raw` in one write.
#[test]
fn a_write_may_hold_several_raw_batches() {
    let gzip = |at: i64| plain(at..at + 2).codec(Codec::Gzip).build();
    let bytes = [gzip(0), gzip(2), plain(4..5).build(), legacy(1, 5..7, &Codec::Gzip)].concat();
    let mut home = Home::new(&partition(), "compression.type=lz4");
    assert_eq!(home.raw(&bytes), Ok(bytes.len()));
    assert_eq!(log_of(&home), bytes);
    assert_eq!(home.offsets(), (0..7).collect::<Vec<_>>());
}

/// kafka-behaviours row 142 (`LogValidatorTest.testRecordBatchWithCountOverrides`,
/// `testInconsistentCountAndOffset`, `testUnmatchedNumberOfRecords`): "3-record batch with
/// (lastOffsetDelta, count) = (2, 3); (0, 3), (15, 3), (-3, 3); (5, 6), (1, 2): accepted; all
/// others invalid-record error". A replica takes (15, 3), as compaction leaves such batches.
#[test]
fn a_batch_has_as_many_records_as_it_says() {
    for codec in [Codec::None, Codec::Gzip] {
        for (delta, count, taken) in [
            (2, 3, true),
            (15, 3, true),
            (0, 3, false),
            (-3, 3, false),
            (5, 6, false),
            (1, 2, false),
        ] {
            let mut claims = plain(0..3).codec(codec.clone());
            (claims.last_delta, claims.count) = (Some(delta), Some(count));
            let mut home = Home::new(&partition(), "");
            let result = home.raw(&claims.build());
            assert_eq!(result.is_ok(), taken, "({delta}, {count}): {result:?}");
            assert_eq!(home.log_end(), if taken { i64::from(delta) + 1 } else { 0 });
        }
    }
}

/// kafka-behaviours row 143 (`LogValidatorTest.testInvalidCreateTimeNonCompressedV2`): "before.max
/// = after.max = 1000; record ts now - 1001: refused".
#[test]
fn a_time_that_is_too_far_from_now_is_refused() {
    let limits = ["before", "after"].map(|way| format!("message.timestamp.{way}.max.ms=1000"));
    for codec in ["uncompressed", "gzip"] {
        let settings = format!("{} compression.type={codec}", limits.join(" "));
        let mut home = Home::new(&partition(), &settings);
        let now = home.clock;
        for far in [-1001, 1001] {
            let line = format!("{{\"ts\":{},\"payload\":\"v\"}}\n", now + far);
            let (taken, said) = home.json(&line).unwrap_err();
            assert!(said.contains("message.timestamp.before.max.ms"), "{said}");
            assert_eq!((taken, home.log_end()), (0, 0));
        }
        for near in [-1000, 1000] {
            let line = format!("{{\"ts\":{},\"payload\":\"v\"}}\n", now + near);
            assert_eq!(home.json(&line), Ok(line.len()));
        }
    }
}

/// kafka-behaviours row 144 (`LogValidatorTest.checkInvalidSequence`): "producer 1234, base
/// sequence overwritten with -2; append from a client: invalid-record error". A replica takes what
/// its leader has, and so do we; nothing that follows depends on the number.
#[test]
fn sequence_numbers_are_the_business_of_the_leader() {
    let bytes = patched(plain(0..1).producer(1234).build(), 53, &(-2_i32).to_be_bytes());
    let mut home = Home::new(&partition(), "");
    assert_eq!(home.raw(&bytes), Ok(bytes.len()));
    home.follow(&marker(1, true, 1234));
    home.close();
    let mut home = home.unclean(0);
    home.load();
    assert_eq!((home.offsets(), home.log_end()), (vec![0], 2));
}

/// kafka-behaviours row 145 (`LogValidatorTest.testControlRecordsNotAllowedFromClients`,
/// `testControlRecordsNotCompressed`): "COMMIT marker batch; append from a client; from the
/// coordinator on a topic with snappy: refused; accepted and left uncompressed".
#[test]
fn a_marker_is_taken_and_left_uncompressed() {
    let mut home = Home::new(&partition(), "compression.type=snappy");
    home.follow(&plain(0..1).producer(1));
    home.follow(&marker(1, true, 1));
    let headers = home.headers();
    assert!(headers[1].control);
    assert_eq!(headers[1].codec, Stored::None);
    assert_eq!(home.offsets(), [0]);
}

/// kafka-behaviours row 146 (`LogValidatorTest.testDifferentLevelDoesNotCauseRecompression`,
/// `testDifferentCodecCausesRecompression`): "gzip level 9 batch; append to a topic with gzip level
/// 1; with lz4: bytes unchanged; recompressed as lz4". A replica recompresses nothing.
#[test]
fn a_raw_batch_is_never_recompressed() {
    let bytes = plain(0..50).codec(Codec::Gzip).build();
    for settings in ["compression.type=gzip compression.gzip.level=1", "compression.type=lz4"] {
        let mut home = Home::new(&partition(), settings);
        assert_eq!(home.raw(&bytes), Ok(bytes.len()));
        assert_eq!(log_of(&home), bytes, "{settings}");
    }
}

/// kafka-behaviours row 147 (`LogValidatorTest.checkLogAppendTimeWithoutRecompression`): "gzip set,
/// ts 1234, 3 records; LogAppendTime topic; append: still valid, type LogAppendTime, max timestamp
/// = now, its offset 2; base timestamp still 1234". A raw batch keeps its times.
#[test]
fn append_time_is_said_in_the_header_alone() {
    let settings = "message.timestamp.type=LogAppendTime compression.type=gzip";
    let mut home = Home::new(&partition(), settings);
    let line = "{\"ts\":1234,\"payload\":\"v\"}\n".repeat(3);
    assert_eq!(home.json(&line), Ok(line.len()));
    let now = home.clock;
    let header = home.headers().remove(0);
    assert_eq!((header.timestamp_type, header.codec), (TimestampType::LogAppend, Stored::Gzip));
    assert_eq!(header.max_timestamp, Some(home.now()));
    assert_eq!((header.base_timestamp, header.last_offset.get()), (1234, 2));
    assert_eq!(home.at_time(1234), Some((now, 0, Some(0))), "each record has that time");
    home.follow(&batch(3, vec![rec("v").at(T0)]));
    assert_eq!(home.headers()[1].timestamp_type, TimestampType::Create);
}
