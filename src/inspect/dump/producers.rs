//! `.snapshot` and `.txnindex` files: what is known of producers, and which transactions were
//! aborted.

use crate::error::{Error, Result};
use crate::format::index::{TXN_ENTRY_BYTES, parse_txn_index};
use crate::format::snapshot::{ProducerState, parse_snapshot};
use crate::inspect::dump::Dumping;
use crate::inspect::dump::files::Named;
use crate::inspect::dump::line::Line;
use crate::units::{Offset, Timestamp};

/// A snapshot is checked as a whole; this one would hold five million producers.
const MOST_SNAPSHOT_BYTES: usize = 256 << 20;

/// Dumps a `.snapshot`. One with a wrong checksum is worth nothing, as for Kafka.
pub fn dump_snapshot(named: &Named, to: &mut Dumping<'_, '_>) -> Result<()> {
    let bytes = named.open(to.disk)?.read_all(MOST_SNAPSHOT_BYTES)?;
    match parse_snapshot(&bytes) {
        Ok(producers) => {
            for producer in &producers {
                push_producer(producer, &mut to.out.text);
                if !to.out.go_on() {
                    break;
                }
            }
        }
        Err(reason) => to.report.damage(&format_args!("{}: {reason}", named.path().display())),
    }
    Ok(())
}

fn push_producer(producer: &ProducerState, out: &mut Vec<u8>) {
    let timestamp = producer.last_timestamp.map_or(-1, Timestamp::millis);
    let mut line = Line(out);
    line.words("producerId: ").number(producer.producer_id);
    line.words(" producerEpoch: ").number(producer.producer_epoch);
    line.words(" coordinatorEpoch: ").number(producer.coordinator_epoch);
    line.words(" currentTxnFirstOffset: ");
    line.optional(producer.current_txn_first_offset.map(Offset::get));
    line.words(" lastTimestamp: ").number(timestamp);
    if let Some(batch) = &producer.last_batch {
        line.words(" firstSequence: ").number(batch.first_sequence());
        line.words(" lastSequence: ").number(batch.last_sequence);
        line.words(" lastOffset: ").number(batch.last_offset.get());
        line.words(" offsetDelta: ").number(batch.offset_delta);
        line.words(" timestamp: ").number(timestamp);
    }
    line.end();
}

/// Dumps a `.txnindex`, entry by entry; Kafka's tool shows none when one of them is wrong.
pub fn dump_txn_index(named: &Named, to: &mut Dumping<'_, '_>) -> Result<()> {
    named.base_offset()?;
    let mut index = named.open(to.disk)?;
    let count = index.bytes() / TXN_ENTRY_BYTES as u64;
    for number in 0..count {
        let entry = index.read(number * TXN_ENTRY_BYTES as u64, TXN_ENTRY_BYTES)?;
        if entry.len() < TXN_ENTRY_BYTES {
            return Err(Error::refused(named.path(), "became shorter while it was read"));
        }
        match parse_txn_index(entry) {
            Ok(entries) => {
                for aborted in entries {
                    let mut line = Line(&mut to.out.text);
                    line.words("version: 0 producerId: ").number(aborted.producer_id);
                    line.words(" firstOffset: ").number(aborted.first_offset.get());
                    line.words(" lastOffset: ").number(aborted.last_offset.get());
                    line.words(" lastStableOffset: ").number(aborted.last_stable_offset.get());
                    line.end();
                }
            }
            Err(reason) => {
                let path = named.path().display();
                to.report.damage(&format_args!("{path}, entry {number}: {reason}"));
            }
        }
        if !to.out.go_on() {
            break;
        }
    }
    Ok(())
}
