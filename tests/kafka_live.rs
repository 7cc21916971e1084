//! A read-only mount beside a real broker that appends, rolls and deletes beneath it (2.13).

mod support;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::broker::Home;
use support::mount;

const ROUNDS: usize = 14;
const RECORDS_A_ROUND: usize = 400;

fn number(path: &std::path::Path) -> usize {
    fs::read_to_string(path).expect("a number").trim().parse().expect("a number")
}

/// 2.13: "Beside a running broker the tree follows within a second: appends, rolls, deletions,
/// truncation; a half-written last batch is "not yet there", never damage."
#[test]
fn the_tree_follows_a_broker_under_load() {
    needs_fuse!();
    let kafka = needs_kafka!();
    let home = Home::format(&kafka);
    let broker = home.start();
    let settings = "segment.bytes=1048576,retention.bytes=3000000,file.delete.delay.ms=1000";
    broker.create_topics(&[format!("live/1/{settings}")]);
    let mount = mount(home.data()).live_source().start();
    let live = mount.path().join("live-0");
    let (acknowledged, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let value = |n: usize| format!("{n:08} {}", "x".repeat(1000));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let first = round * RECORDS_A_ROUND;
                let values: Vec<String> = (first..first + RECORDS_A_ROUND).map(value).collect();
                broker.produce("live", 0, &values, 7 + round);
                acknowledged.store(first + RECORDS_A_ROUND, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        // A file that was opened early is never shorter than before.
        let mut seen = 0;
        while !done.load(Ordering::Acquire) {
            let told = acknowledged.load(Ordering::Acquire);
            let begun = Instant::now();
            while number(&live.join("log-end-offset")) < told {
                assert!(begun.elapsed() < Duration::from_secs(1), "{told} not there in a second");
            }
            let (start, end) =
                (number(&live.join("log-start-offset")), number(&live.join("log-end-offset")));
            assert!(end >= seen, "the log end went from {seen} to {end}");
            seen = end;
            let from = start.max(end.saturating_sub(700));
            // Retention may take the first of them meanwhile; then they are gone, never others.
            let lines = match fs::read_to_string(live.join(format!("by-offset/{from}..{end}"))) {
                Ok(text) => text,
                Err(e) => {
                    assert!(number(&live.join("log-start-offset")) > from, "{from}..{end}: {e}");
                    continue;
                }
            };
            let got: Vec<&str> = lines.lines().collect();
            let first = end - got.len();
            assert!(first >= from, "{} lines of {from}..{end}", got.len());
            for (line, n) in got.iter().zip(first..) {
                assert_eq!(*line, value(n));
            }
            let report = fs::read_to_string(live.join("report.json")).expect("a report");
            assert!(report.contains("\"damage\": []"), "{report}");
        }
    });
    let total = ROUNDS * RECORDS_A_ROUND;
    let begun = Instant::now();
    while number(&live.join("log-start-offset")) == 0 {
        assert!(begun.elapsed() < Duration::from_mins(1), "the broker deletes nothing");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(number(&live.join("log-end-offset")), total);
    let segments = fs::read_dir(live.join("segments")).expect("segments").count();
    assert!(segments > 3, "{segments} files");
    broker.stop();
}
