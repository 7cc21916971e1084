//! Finding one record: by its offset, by its time, by counting from the end. Each search begins
//! with an index and believes nothing that it says: the batch that an entry names must carry the
//! offsets that the entry promises, or the search begins at the start of the segment. What a search
//! finds has the right checksum, and "there is none" is only said after every batch that could hold
//! it was verified.

use std::sync::Arc;

use crate::engine::batches::{Batch, FoundRecord};
use crate::engine::damage::Stretch;
use crate::engine::load::{promised, unreadable};
use crate::engine::log::{Filter, Found, Log, LogState, SMALL_SEGMENT_BYTES};
use crate::engine::scanner::{Interrupted, Item, Scanner};
use crate::engine::segment::Segment;
use crate::engine::time_bounds::Newest;
use crate::engine::trace::{Searched, Step};
use crate::engine::window::Window;
use crate::error::{Error, Result};
use crate::format::batch::{BatchHeader, HEADER_BYTES};
use crate::format::index::{OffsetIndex, TimeIndex};
use crate::format::legacy;
use crate::format::record::Record;
use crate::units::{Offset, Position, Timestamp};

/// Bytes that a search for one batch reads first: an index interval, a batch of the same size and
/// the header behind it.
const FIND_BYTES: usize = (8 << 10) + 256;

/// Where a search in a segment may begin: no batch before it holds the offset.
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    /// Where a batch begins.
    pub position: Position,
    /// The least offset that it may hold.
    pub expected: Offset,
}

impl Log {
    /// The data record at `offset`. What was found a moment ago in the same state is not searched
    /// again: the kernel asks for a name, for its attributes and for its bytes one after the other.
    pub fn find(&self, state: &LogState, offset: Offset) -> Result<Found> {
        if let Some(found) = self.shared.recent.get(state, offset) {
            return Ok(found);
        }
        let found = self.search(state, offset)?;
        self.shared.recent.put(state, offset, &found);
        Ok(found)
    }

    /// Would [`Self::find`] read little? Where it would, it has been done, and the answer is kept.
    pub fn is_quick(&self, offset: Offset) -> bool {
        if !self.is_open() {
            return false;
        }
        let Ok(state) = self.state() else { return true };
        if self.shared.recent.get(&state, offset).is_some() || offset >= state.log_end {
            return true;
        }
        let Some(number) = state.segment_of(offset) else { return true };
        let segment = &state.segments[number];
        if segment.valid_bytes <= SMALL_SEGMENT_BYTES
            || self.findings().lost(segment.log.path(), offset).is_some()
        {
            return true;
        }
        let Ok(filter) = self.filter(&state) else { return false };
        let found = self.find_by_index(segment, offset, &filter).map(|(found, _)| found);
        if let Ok(Some(found)) = &found
            && found.is_at(offset)
        {
            self.shared.recent.put(&state, offset, found);
        }
        matches!(found, Ok(Some(_)))
    }

    fn search(&self, state: &LogState, offset: Offset) -> Result<Found> {
        if offset < state.log_start || offset >= self.visible_end(state)? {
            return Ok(Found::Nothing);
        }
        let see = |probe| self.shared.tell(|| Step::Probe(Searched::Segments, probe));
        let Some(number) = state.segment_of_seen(offset, see) else { return Ok(Found::Nothing) };
        let segment = &state.segments[number];
        self.shared.tell(|| Step::Segment(segment.base_offset));
        if let Some(stretch) = self.findings().lost(segment.log.path(), offset) {
            return Ok(Found::Damaged(stretch));
        }
        let found = self.find_in_segment(segment, offset, &self.filter(state)?)?;
        Ok(if found.is_at(offset) { found } else { Found::Nothing })
    }

    /// The first data record at or behind `offset`, damage included: what may lie in it counts.
    pub fn find_from(
        &self,
        state: &LogState,
        offset: Offset,
        interrupted: Option<&Interrupted>,
    ) -> Result<Found> {
        let offset = offset.max(state.log_start);
        let end = self.visible_end(state)?;
        let filter = self.filter(state)?;
        let first = state.segment_of(offset).unwrap_or(0);
        for segment in state.segments.get(first..).unwrap_or_default() {
            let from = offset.max(segment.base_offset);
            if from >= end {
                break;
            }
            let anchor = self.anchor(segment, from)?;
            let found = self.scan_for(
                segment,
                anchor,
                interrupted,
                &|header, batch| {
                    if header.last_offset < from || header.control || !filter.shows(header) {
                        return Ok(None);
                    }
                    let found = batch()?.find(from).map_err(|e| damaged(header, &e))?;
                    let answers = |record: Record<'_>| record.offset < segment.limit;
                    Ok(found.filter(|found| found.record().is_some_and(answers)))
                },
                &|stretch| stretch.first_lost(from, segment.limit).is_some(),
            )?;
            match found {
                Found::Nothing => {}
                Found::Record(record, ..) if record.record().is_none_or(|r| r.offset >= end) => {
                    return Ok(Found::Nothing);
                }
                other => return Ok(other),
            }
        }
        Ok(Found::Nothing)
    }

    /// The first data record, in offset order, that is not older than `time`.
    pub fn find_time(
        &self,
        state: &LogState,
        time: Timestamp,
        interrupted: Option<&Interrupted>,
    ) -> Result<Found> {
        let end = self.visible_end(state)?;
        let filter = self.filter(state)?;
        let see = |probe| self.shared.tell(|| Step::Probe(Searched::Segments, probe));
        let first = state.segment_of_seen(state.log_start, see).unwrap_or(0);
        let first = first + self.time_bounds.count_before(&state.segments, first, time);
        for number in first..state.segments.len() {
            match self.find_time_in(state, number, time, &filter, interrupted)? {
                Found::Nothing => {}
                Found::Record(record, ..) if record.record().is_none_or(|r| r.offset >= end) => {
                    return Ok(Found::Nothing);
                }
                other => return Ok(other),
            }
        }
        Ok(Found::Nothing)
    }

    /// The same in segment number `number`. That it has no record so late is remembered.
    fn find_time_in(
        &self,
        state: &LogState,
        number: usize,
        time: Timestamp,
        filter: &Filter,
        interrupted: Option<&Interrupted>,
    ) -> Result<Found> {
        let (segment, from) = (&state.segments[number], state.log_start);
        self.shared.tell(|| Step::Segment(segment.base_offset));
        let (anchor, newest_before) = self.time_anchor(segment, time)?;
        let newest = Newest::of_all_before(newest_before);
        let found = self.scan_for(
            segment,
            anchor,
            interrupted,
            &|header, batch| {
                if header.control || newest.see(header, time) {
                    return Ok(None);
                }
                if header.base_offset < from || !filter.shows(header) {
                    newest.forget();
                }
                if header.last_offset < from || !filter.shows(header) {
                    return Ok(None);
                }
                let wanted = |record: &Record<'_>| {
                    (from..segment.limit).contains(&record.offset)
                        && record.timestamp.is_some_and(|at| at >= time)
                };
                batch()?.find_where(wanted).map_err(|e| damaged(header, &e))
            },
            &|stretch| {
                newest.forget();
                stretch.first_lost(from, segment.limit).is_some()
            },
        )?;
        if let (Found::Nothing, Some(newest)) = (&found, newest.get()) {
            self.time_bounds.note(number, segment, newest);
        }
        Ok(found)
    }

    /// The offset of the `count`th data record from the end; the log start when there are fewer.
    pub fn offset_of_last(
        &self,
        state: &LogState,
        count: u64,
        interrupted: Option<&Interrupted>,
    ) -> Result<Offset> {
        let end = self.visible_end(state)?;
        let filter = self.filter(state)?;
        let mut left = count;
        for segment in state.segments.iter().rev() {
            if segment.limit <= state.log_start {
                break;
            }
            let mut section_end = Position::new(segment.valid_bytes);
            for start in self.sections_from_the_end(segment)? {
                let counted =
                    self.count_section(segment, start, section_end, interrupted, |header| {
                        !header.control && header.base_offset < end && filter.shows(header)
                    })?;
                for (header, position) in counted.into_iter().rev() {
                    let end = end.min(segment.limit);
                    let offsets =
                        self.offsets_in(segment, &header, position, state.log_start, end)?;
                    match offsets.len().checked_sub(usize::try_from(left).unwrap_or(usize::MAX)) {
                        Some(skip) if left > 0 => return Ok(offsets.get(skip)),
                        _ => left -= offsets.len() as u64,
                    }
                }
                section_end = start.position;
            }
        }
        Ok(state.log_start)
    }

    /// A search in one segment for the first record at or behind `offset` in the batch that covers
    /// it: few reads where the index and the neighbours agree, a verifying scan where they do not.
    fn find_in_segment(
        &self,
        segment: &Arc<Segment>,
        offset: Offset,
        filter: &Filter,
    ) -> Result<Found> {
        let (found, anchor) = self.find_by_index(segment, offset, filter)?;
        if let Some(found) = found {
            return Ok(found);
        }
        self.scan_for(
            segment,
            anchor,
            None,
            &|header, batch| {
                if header.last_offset < offset {
                    return Ok(None);
                }
                if header.base_offset > offset && !header.is_legacy_wrapper() {
                    return Err(Stop::Nothing);
                }
                if header.control || !filter.shows(header) {
                    return Err(Stop::Nothing);
                }
                let found = batch()?.find(offset).map_err(|e| damaged(header, &e))?;
                found.map(Some).ok_or(Stop::Nothing)
            },
            &|stretch| stretch.holds(offset),
        )
    }

    /// Tries the way that the index shows; the anchor is for those who go another one.
    fn find_by_index(
        &self,
        segment: &Arc<Segment>,
        offset: Offset,
        filter: &Filter,
    ) -> Result<(Option<Found>, Anchor)> {
        // Of the batch that an entry names only the header is wanted: the record is behind it.
        let mut window = Window::new(HEADER_BYTES);
        let anchor = self.anchor_in(&mut window, segment, offset)?;
        self.shared.tell(|| Step::Anchor(anchor));
        window.widen(FIND_BYTES);
        let found = self.find_quickly(&mut window, segment, offset, anchor, filter)?;
        if found.is_none() {
            self.shared.tell(|| Step::Doubt(anchor.position));
        }
        Ok((found, anchor))
    }

    /// Walks headers from the anchor; `None` as soon as anything is not as it should be.
    fn find_quickly(
        &self,
        window: &mut Window,
        segment: &Arc<Segment>,
        offset: Offset,
        anchor: Anchor,
        filter: &Filter,
    ) -> Result<Option<Found>> {
        let disk = &*self.shared.disk;
        let Anchor { mut position, mut expected } = anchor;
        let header = loop {
            let left = segment.valid_bytes.saturating_sub(position.get());
            let bytes = window.fill(disk, &segment.log.file, position, HEADER_BYTES)?;
            let Ok(header) = BatchHeader::parse(bytes) else { return Ok(None) };
            let sound = header.bytes <= left
                && header.base_offset >= expected
                && header.last_offset < segment.plausible_end();
            if !sound {
                return Ok(None);
            }
            self.shared.tell(|| Step::Batch(header.clone(), position));
            if header.last_offset >= offset {
                break header;
            }
            position = position.plus(header.bytes);
            expected = header.last_offset.next();
        };
        let covers = header.base_offset <= offset || header.is_legacy_wrapper();
        if !covers || header.bytes > self.shared.options.max_batch_bytes as u64 {
            return Ok(None);
        }
        let batch = match self.shared.batches.get(segment, position) {
            Some(batch) if batch.header == header => batch,
            _ => {
                let Some(batch) = self.load_checked(segment, &header, position, window)? else {
                    return Ok(None);
                };
                batch
            }
        };
        // The offset of a wrapper is not covered by its checksum: it must join the batch before.
        if header.is_legacy_wrapper() && legacy::first_offset(&header, &batch.bytes) != Ok(expected)
        {
            return Ok(None);
        }
        if header.control || !filter.shows(&header) {
            return Ok(Some(Found::Nothing));
        }
        match batch.find(offset) {
            Ok(Some(found)) => Ok(Some(Found::Record(found, Arc::clone(segment), position))),
            Ok(None) => Ok(Some(Found::Nothing)),
            Err(_) => Ok(None),
        }
    }

    /// The batch, if its checksum is right and the next one begins behind its offsets.
    fn load_checked(
        &self,
        segment: &Arc<Segment>,
        header: &BatchHeader,
        position: Position,
        window: &mut Window,
    ) -> Result<Option<Arc<Batch>>> {
        let disk = &*self.shared.disk;
        let Ok(bytes) = usize::try_from(header.bytes) else { return Ok(None) };
        if header.bytes > crate::engine::scanner::SMALL_BATCH_BYTES {
            return Ok(None);
        }
        let file = &segment.log.file;
        let held = window.fill(disk, file, position, bytes + HEADER_BYTES)?;
        let Some((raw, behind)) = held.split_at_checked(bytes) else { return Ok(None) };
        if header.checksum(raw) != header.crc {
            return Ok(None);
        }
        if position.get() + header.bytes < segment.valid_bytes
            && !BatchHeader::parse(behind).is_ok_and(|n| n.base_offset > header.last_offset)
        {
            return Ok(None);
        }
        match self.shared.batches.load(segment, position, header, Some(raw)) {
            Ok(batch) => Ok(Some(batch)),
            Err(Error::Damage { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Where a search for `offset` may begin, by the offset index.
    pub fn anchor(&self, segment: &Segment, offset: Offset) -> Result<Anchor> {
        self.anchor_in(&mut Window::new(HEADER_BYTES), segment, offset)
    }

    fn anchor_in(&self, window: &mut Window, segment: &Segment, offset: Offset) -> Result<Anchor> {
        let bytes = self.shared.offset_index(segment);
        let index = OffsetIndex::new(segment.base_offset, &bytes);
        let start = Anchor { position: Position::START, expected: segment.base_offset };
        let see = |probe| self.shared.tell(|| Step::Probe(Searched::OffsetIndex, probe));
        let Some(entry) = index.floor_seen(offset, see) else { return Ok(start) };
        if entry.offset > offset {
            self.shared.tell(|| Step::Entry(entry, false));
            return Ok(start);
        }
        let header = promised(&*self.shared.disk, window, segment, entry.position, entry.offset)?;
        self.shared.tell(|| Step::Entry(entry, header.is_some()));
        let Some(header) = header else { return Ok(start) };
        let expected = self.shared.first_offset(segment, &header, entry.position)?;
        Ok(Anchor { position: entry.position, expected })
    }

    /// Where a search for the first record that is not older than `time` may begin, and the newest
    /// time of all records before that place, if there are any.
    fn time_anchor(
        &self,
        segment: &Arc<Segment>,
        time: Timestamp,
    ) -> Result<(Anchor, Option<Timestamp>)> {
        let start = Anchor { position: Position::START, expected: segment.base_offset };
        if segment.valid_bytes <= SMALL_SEGMENT_BYTES {
            return Ok((start, None));
        }
        let bytes = self.shared.time_index(segment);
        let index = TimeIndex::new(segment.base_offset, &bytes);
        let before = Timestamp::from_millis(time.millis().saturating_sub(1));
        let see = |probe| self.shared.tell(|| Step::Probe(Searched::TimeIndex, probe));
        let entry = index.floor_seen(before, see);
        let Some(entry) = entry.filter(|entry| entry.timestamp < time) else {
            return Ok((start, None));
        };
        // Everything with a time after the entry's lies behind the batch that ends with its offset.
        let anchor = self.anchor(segment, entry.offset)?;
        let mut scanner = self.shared.scanner(segment, FIND_BYTES);
        scanner.seek(anchor.position, anchor.expected);
        loop {
            match scanner.step()? {
                Item::Batch(header, _) if header.last_offset < entry.offset => {}
                Item::Batch(header, _)
                    if header.last_offset == entry.offset
                        && header.max_timestamp == Some(entry.timestamp) =>
                {
                    let (position, expected) = (scanner.position(), scanner.expected());
                    self.shared.tell(|| Step::TimeEntry(entry, true));
                    return Ok((Anchor { position, expected }, Some(entry.timestamp)));
                }
                Item::Batch(..) | Item::Damage(_) | Item::End { .. } => {
                    self.shared.tell(|| Step::TimeEntry(entry, false));
                    return Ok((start, None));
                }
            }
        }
    }

    /// Reads on from `anchor` until `pick` finds a record, or `stops` recognises damage in which it
    /// might be.
    fn scan_for(
        &self,
        segment: &Arc<Segment>,
        anchor: Anchor,
        interrupted: Option<&Interrupted>,
        pick: &Pick<'_>,
        stops: &dyn Fn(&Stretch) -> bool,
    ) -> Result<Found> {
        let scanner = self.shared.scanner(segment, FIND_BYTES);
        let mut scanner = scanner.interruptible(interrupted.cloned());
        scanner.seek(anchor.position, anchor.expected);
        self.shared.tell(|| Step::Anchor(anchor));
        loop {
            let (header, position) = match scanner.step()? {
                Item::Batch(header, position) => (header, position),
                Item::Damage(stretch) => {
                    self.findings().note(&stretch);
                    self.shared.tell(|| Step::Damage(stretch.clone()));
                    if stops(&stretch) {
                        return Ok(Found::Damaged(stretch));
                    }
                    continue;
                }
                Item::End { .. } => return Ok(Found::Nothing),
            };
            self.shared.tell(|| Step::Batch(header.clone(), position));
            let batch = || self.load_scanned(&scanner, segment, &header, position);
            match pick(&header, &batch) {
                Ok(None) => {}
                Ok(Some(found)) => return Ok(Found::Record(found, Arc::clone(segment), position)),
                Err(Stop::Nothing) => return Ok(Found::Nothing),
                Err(Stop::Unreadable(reason)) => {
                    let stretch = unreadable(segment, position, &header, reason);
                    self.findings().note(&stretch);
                    return Ok(Found::Damaged(stretch));
                }
                Err(Stop::Failed(e)) => return Err(e),
            }
        }
    }

    fn load_scanned(
        &self,
        scanner: &Scanner,
        segment: &Segment,
        header: &BatchHeader,
        position: Position,
    ) -> Result<Arc<Batch>, Stop> {
        let raw = scanner.batch_bytes(header, position);
        self.shared.batches.load(segment, position, header, raw).map_err(|e| match e {
            Error::Damage { reason, .. } => Stop::Unreadable(reason),
            other => Stop::Failed(other),
        })
    }

    /// Places where a reading of the segment may begin, from its end to its start, each section
    /// twice as long as the one behind it.
    fn sections_from_the_end(&self, segment: &Arc<Segment>) -> Result<Vec<Anchor>> {
        let bytes = self.shared.offset_index(segment);
        let index = OffsetIndex::new(segment.base_offset, &bytes);
        let (mut sections, mut back) = (Vec::new(), 1);
        let mut window = Window::new(HEADER_BYTES);
        let mut before = Position::new(segment.valid_bytes);
        while let Some(entry) = index.entries_count().checked_sub(back).map(|i| index.get(i)) {
            back *= 2;
            let Some(entry) = entry.filter(|entry| entry.position < before) else { continue };
            let disk = &*self.shared.disk;
            let header = promised(disk, &mut window, segment, entry.position, entry.offset)?;
            if let Some(header) = header {
                let position = entry.position;
                let expected = self.shared.first_offset(segment, &header, position)?;
                sections.push(Anchor { position, expected });
                before = position;
            }
        }
        sections.push(Anchor { position: Position::START, expected: segment.base_offset });
        Ok(sections)
    }

    /// The batches of a section that `counts` accepts.
    fn count_section(
        &self,
        segment: &Arc<Segment>,
        start: Anchor,
        end: Position,
        interrupted: Option<&Interrupted>,
        counts: impl Fn(&BatchHeader) -> bool,
    ) -> Result<Vec<(BatchHeader, Position)>> {
        let mut scanner = self.shared.long_scanner(segment, interrupted);
        scanner.seek(start.position, start.expected);
        let mut counted = Vec::new();
        while scanner.position() < end {
            match scanner.step()? {
                Item::Batch(header, position) if counts(&header) => {
                    counted.push((header, position));
                }
                Item::Batch(..) => {}
                Item::Damage(stretch) => self.findings().note(&stretch),
                Item::End { .. } => break,
            }
        }
        Ok(counted)
    }

    /// The offsets of the data records of a batch from `start` up to `end`.
    fn offsets_in(
        &self,
        segment: &Segment,
        header: &BatchHeader,
        position: Position,
        start: Offset,
        end: Offset,
    ) -> Result<Offsets> {
        let span = header.last_offset.distance_from(header.base_offset) + 1;
        let whole = header.base_offset >= start && header.last_offset < end;
        if whole && u64::from(header.records_count) == span && !header.is_legacy_wrapper() {
            return Ok(Offsets::Dense(header.base_offset, header.records_count as usize));
        }
        let batch = match self.shared.batches.load(segment, position, header, None) {
            Ok(batch) => batch,
            Err(Error::Damage { reason, .. }) => {
                self.findings().note(&unreadable(segment, position, header, reason));
                return Ok(Offsets::Sparse(Vec::new()));
            }
            Err(e) => return Err(e),
        };
        let all = batch.offsets();
        Ok(Offsets::Sparse(all.into_iter().filter(|o| (start..end).contains(o)).collect()))
    }
}

/// The offsets of records that exist.
enum Offsets {
    Dense(Offset, usize),
    Sparse(Vec<Offset>),
}

impl Offsets {
    fn len(&self) -> usize {
        match self {
            Offsets::Dense(_, count) => *count,
            Offsets::Sparse(offsets) => offsets.len(),
        }
    }

    fn get(&self, i: usize) -> Offset {
        match self {
            Offsets::Dense(base, _) => {
                i64::try_from(i).ok().and_then(|i| base.checked_add(i)).unwrap_or(*base)
            }
            Offsets::Sparse(offsets) => offsets.get(i).copied().unwrap_or_default(),
        }
    }
}

/// Looks at one batch, which its second argument loads, for the record that is searched.
type Pick<'a> = dyn Fn(&BatchHeader, &Load<'_>) -> Result<Option<FoundRecord>, Stop> + 'a;
type Load<'a> = dyn Fn() -> Result<Arc<Batch>, Stop> + 'a;

/// Why a search in a segment ends without a record.
enum Stop {
    Nothing,
    Unreadable(String),
    Failed(Error),
}

fn damaged(header: &BatchHeader, e: &crate::format::FormatError) -> Stop {
    Stop::Unreadable(format!("batch {} to {}: {e}", header.base_offset, header.last_offset))
}
