//! Batches made readable: checked, decompressed, and kept for their neighbours. One budget bounds
//! the memory of all that are in use, so that no input and no number of readers can bloat the
//! process (contract 6.4).

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::engine::cache::Cache;
use crate::engine::disk::{Disk, FileId};
use crate::engine::scanner::SMALL_BATCH_BYTES;
use crate::engine::segment::Segment;
use crate::error::{Error, Result};
use crate::format::FormatError;
use crate::format::batch::{BatchHeader, HEADER_BYTES, Magic};
use crate::format::codec::{self, Codec};
use crate::format::legacy;
use crate::format::record::{Cursor, Record};
use crate::units::{Offset, Position};

/// Bytes of batches that are kept after use.
const KEPT_BYTES: usize = 16 << 20;
/// A batch that expands to no more than this is decompressed in one go and without asking.
const SMALL_BYTES: usize = 4 << 20;
/// Batches with more records than this get marks, so that a search need not begin at the first.
const RECORDS_PER_MARK: u32 = 64;

/// One batch, ready to be read.
#[derive(Debug)]
pub struct Batch {
    /// Its header.
    pub header: BatchHeader,
    /// Its records, uncompressed: what [`Cursor`] wants.
    pub bytes: Vec<u8>,
    marks: OnceLock<Vec<(Offset, Cursor)>>,
    _permit: Option<Permit>,
}

/// A record together with the batch that lends its bytes.
#[derive(Clone, Debug)]
pub struct FoundRecord {
    /// The batch.
    pub batch: Arc<Batch>,
    before: Cursor,
}

impl FoundRecord {
    /// The record. It was read once before, so it is there.
    pub fn record(&self) -> Option<Record<'_>> {
        let mut cursor = self.before;
        cursor.next(&self.batch.header, &self.batch.bytes)?.ok()
    }

    /// How many records of its batch stand before it, and their bytes as far as they were read.
    pub fn before(&self) -> (u64, u64) {
        let first = Cursor::new(&self.batch.header, &self.batch.bytes);
        let count = first.map_or(0, |first| first.records_left());
        (count.saturating_sub(self.before.records_left()).into(), self.before.bytes_read() as u64)
    }
}

impl Batch {
    /// A cursor before the first record with an offset not below `offset`, or after all of them.
    pub fn cursor_at(&self, offset: Offset) -> Result<Cursor, FormatError> {
        let mut cursor = match self.marks()?.partition_point(|(marked, _)| *marked <= offset) {
            0 => Cursor::new(&self.header, &self.bytes)?,
            after => self.marks()?[after - 1].1,
        };
        loop {
            let before = cursor;
            match cursor.next(&self.header, &self.bytes) {
                Some(Ok(record)) if record.offset < offset => {}
                Some(Err(e)) => return Err(e),
                Some(Ok(_)) | None => return Ok(before),
            }
        }
    }

    /// The first record with an offset not below `offset`.
    pub fn find(self: &Arc<Batch>, offset: Offset) -> Result<Option<FoundRecord>, FormatError> {
        let before = self.cursor_at(offset)?;
        let mut cursor = before;
        match cursor.next(&self.header, &self.bytes) {
            Some(Ok(_)) => Ok(Some(FoundRecord { batch: Arc::clone(self), before })),
            Some(Err(e)) => Err(e),
            None => Ok(None),
        }
    }

    /// The first record that `wanted` accepts.
    pub fn find_where(
        self: &Arc<Batch>,
        wanted: impl Fn(&Record<'_>) -> bool,
    ) -> Result<Option<FoundRecord>, FormatError> {
        let mut cursor = Cursor::new(&self.header, &self.bytes)?;
        loop {
            let before = cursor;
            match cursor.next(&self.header, &self.bytes) {
                Some(Ok(record)) if wanted(&record) => {
                    return Ok(Some(FoundRecord { batch: Arc::clone(self), before }));
                }
                Some(Ok(_)) => {}
                Some(Err(e)) => return Err(e),
                None => return Ok(None),
            }
        }
    }

    /// The offsets of its records, up to the first that cannot be read.
    pub fn offsets(&self) -> Vec<Offset> {
        let Ok(mut cursor) = Cursor::new(&self.header, &self.bytes) else { return Vec::new() };
        let records = std::iter::from_fn(|| cursor.next(&self.header, &self.bytes)?.ok());
        records.map(|record| record.offset).collect()
    }

    fn marks(&self) -> Result<&[(Offset, Cursor)], FormatError> {
        if self.header.records_count <= RECORDS_PER_MARK {
            return Ok(&[]);
        }
        if let Some(marks) = self.marks.get() {
            return Ok(marks);
        }
        let mut marks = Vec::new();
        let mut cursor = Cursor::new(&self.header, &self.bytes)?;
        for count in 0u32.. {
            let before = cursor;
            match cursor.next(&self.header, &self.bytes) {
                Some(Ok(record)) if count % RECORDS_PER_MARK == 0 => {
                    marks.push((record.offset, before));
                }
                Some(Ok(_)) => {}
                // The records before an invalid one are readable.
                Some(Err(_)) | None => break,
            }
        }
        Ok(self.marks.get_or_init(|| marks))
    }

    fn weight(&self) -> usize {
        self.bytes.capacity() + size_of::<Batch>() + self.header.records_count as usize / 2
    }
}

/// Decompresses batches and keeps some of them.
#[derive(Debug)]
pub struct Batches {
    disk: Arc<dyn Disk>,
    most: usize,
    kept: Cache<(FileId, Position), Batch>,
    /// The last batch that was too large to be kept among the others.
    last_large: Mutex<Option<(FileId, Position, Arc<Batch>)>>,
    turn: Mutex<()>,
    budget: Arc<Budget>,
}

impl Batches {
    /// Batches of at most `max_batch_bytes`, compressed and expanded, each and all in use together.
    pub fn new(disk: Arc<dyn Disk>, max_batch_bytes: usize) -> Batches {
        Batches {
            disk,
            most: max_batch_bytes,
            kept: Cache::new(KEPT_BYTES),
            last_large: Mutex::new(None),
            turn: Mutex::new(()),
            budget: Arc::new(Budget { most: max_batch_bytes, ..Budget::default() }),
        }
    }

    /// The batch at `position`, whose checksum the caller has verified, or which is kept from then.
    pub fn get(&self, segment: &Segment, position: Position) -> Option<Arc<Batch>> {
        let key = (segment.log.file.id, position);
        self.kept.get(&key).or_else(|| {
            let last = self.last_large.lock().unwrap_or_else(PoisonError::into_inner);
            last.as_ref().filter(|(id, at, _)| (*id, *at) == key).map(|(.., b)| Arc::clone(b))
        })
    }

    /// Makes the batch with this verified header readable. `raw` are all its bytes where the caller
    /// has them. Fails with `Damage` when the codec or the bound refuses.
    pub fn load(
        &self,
        segment: &Segment,
        position: Position,
        header: &BatchHeader,
        raw: Option<&[u8]>,
    ) -> Result<Arc<Batch>> {
        // After a truncation another batch may stand in the same place of the same file.
        if let Some(batch) = self.get(segment, position).filter(|batch| batch.header == *header) {
            return Ok(batch);
        }
        let damaged = |e: FormatError| damage(segment, position, &e.to_string());
        let large = header.bytes > SMALL_BATCH_BYTES;
        // One large batch is worked on at a time, so that none waits for memory that another one
        // holds while it waits itself.
        let turn = large.then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        let mut permit = None;
        let read;
        let raw = if let Some(raw) = raw {
            raw
        } else {
            let bytes = usize::try_from(header.bytes).unwrap_or(usize::MAX);
            permit = large.then(|| self.permit(bytes));
            read = self.read(segment, position, header)?;
            &read
        };
        let payload = payload(header, raw).map_err(damaged)?;
        let bytes = if header.codec == Codec::None {
            payload.to_vec()
        } else {
            self.expand(header, payload, &mut permit).map_err(damaged)?
        };
        drop(turn);
        let header = header.clone();
        let batch = Arc::new(Batch { header, bytes, marks: OnceLock::new(), _permit: permit });
        self.keep(segment, position, &batch);
        Ok(batch)
    }

    /// The expanded payload. What turns out to be large is counted before any memory is taken.
    fn expand(
        &self,
        header: &BatchHeader,
        payload: &[u8],
        permit: &mut Option<Permit>,
    ) -> Result<Vec<u8>, FormatError> {
        let mut bytes = Vec::new();
        let (codec, magic) = (header.codec, header.magic);
        match codec::decompress(codec, magic, payload, &mut bytes, self.small_bytes()) {
            Err(FormatError::TooLarge { .. }) => {}
            done => return done.map(|()| bytes),
        }
        drop(bytes);
        let most = self.most - permit.as_ref().map_or(0, |permit| permit.bytes).min(self.most);
        let expanded = codec::decompressed_bytes(codec, magic, payload, most)?;
        match permit {
            Some(permit) => self.grow(permit, expanded),
            None => *permit = Some(self.permit(expanded)),
        }
        let mut bytes = Vec::with_capacity(expanded);
        codec::decompress(codec, magic, payload, &mut bytes, expanded)?;
        Ok(bytes)
    }

    /// What may be expanded without counting first.
    fn small_bytes(&self) -> usize {
        SMALL_BYTES.min(self.most)
    }

    fn keep(&self, segment: &Segment, position: Position, batch: &Arc<Batch>) {
        let id = segment.log.file.id;
        let weight = batch.weight();
        if weight <= SMALL_BYTES {
            self.kept.put((id, position), Arc::clone(batch), weight);
        } else {
            let mut last = self.last_large.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some((id, position, Arc::clone(batch)));
        }
    }

    fn read(&self, segment: &Segment, position: Position, header: &BatchHeader) -> Result<Vec<u8>> {
        let bytes = usize::try_from(header.bytes).unwrap_or(usize::MAX);
        if bytes > self.most {
            let reason = format!("a batch of {bytes} bytes, allowed {}", self.most);
            return Err(damage(segment, position, &reason));
        }
        let mut raw = vec![0; bytes];
        let read = self.disk.read_at(&segment.log.file, position, &mut raw)?;
        if read < bytes {
            let reason = format!("the batch has {bytes} bytes, {read} are there");
            return Err(damage(segment, position, &reason));
        }
        Ok(raw)
    }

    /// Waits until `bytes` more may be used.
    fn permit(&self, bytes: usize) -> Permit {
        let mut permit = Permit { bytes: 0, budget: Arc::clone(&self.budget) };
        self.grow(&mut permit, bytes);
        permit
    }

    /// Waits until `permit` may cover `bytes` more. Whoever uses all there is alone never waits.
    fn grow(&self, permit: &mut Permit, bytes: usize) {
        let lock = || self.budget.used.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |used: usize| used <= permit.bytes || used + bytes <= self.budget.most;
        let mut used = lock();
        while !fits(*used) {
            drop(used);
            // What is only kept for later goes first.
            self.last_large.lock().unwrap_or_else(PoisonError::into_inner).take();
            used = lock();
            if !fits(*used) {
                let waited = self.budget.freed.wait_timeout(used, Duration::from_millis(50));
                used = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        *used += bytes;
        drop(used);
        permit.bytes += bytes;
    }
}

/// The bytes of `raw` that the codec applies to: records, a plain legacy message, a wrapped value.
pub fn payload<'a>(header: &BatchHeader, raw: &'a [u8]) -> Result<&'a [u8], FormatError> {
    match header.magic {
        Magic::V2 => Ok(raw.get(HEADER_BYTES..).unwrap_or_default()),
        Magic::V0 | Magic::V1 if header.is_legacy_wrapper() => legacy::wrapped_value(header, raw),
        Magic::V0 | Magic::V1 => Ok(raw),
    }
}

/// The error of a batch that cannot be read although its checksum is right.
pub fn damage(segment: &Segment, position: Position, reason: &str) -> Error {
    let path = segment.log.path().to_path_buf();
    Error::Damage { path, position, reason: reason.to_owned() }
}

/// How much memory large batches may take together.
#[derive(Debug, Default)]
struct Budget {
    most: usize,
    used: Mutex<usize>,
    freed: Condvar,
}

/// The right to some of it, given back on drop.
#[derive(Debug)]
struct Permit {
    bytes: usize,
    budget: Arc<Budget>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.budget.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.budget.freed.notify_all();
    }
}

/// Uncompressed bytes of one batch after the other, without keeping them: what a pass over many
/// batches uses.
#[derive(Debug, Default)]
pub struct Unpacker {
    scratch: Vec<u8>,
    large: Option<Arc<Batch>>,
    source: Source,
}

/// Where the uncompressed bytes of the current batch are.
#[derive(Clone, Copy, Debug, Default)]
enum Source {
    #[default]
    Nowhere,
    /// In the batch as it was read, behind so many bytes.
    Raw(usize),
    Scratch,
    Large,
}

impl Unpacker {
    /// Makes the records of the batch with this verified header available. `raw` are all its bytes
    /// where the caller has them; large batches are taken from, and left with, `batches`. Fails
    /// with `Damage` when they cannot be expanded.
    #[inline]
    pub fn prepare(
        &mut self,
        batches: &Batches,
        segment: &Segment,
        position: Position,
        header: &BatchHeader,
        raw: Option<&[u8]>,
    ) -> Result<()> {
        self.release();
        match raw {
            Some(_) if header.codec == Codec::None => {
                let skip = if header.magic == Magic::V2 { HEADER_BYTES } else { 0 };
                self.source = Source::Raw(skip);
                Ok(())
            }
            _ => self.expand(batches, segment, position, header, raw),
        }
    }

    /// The records that were prepared, for [`Cursor`]; `raw` as before.
    #[inline]
    pub fn bytes<'a>(&'a self, raw: Option<&'a [u8]>) -> &'a [u8] {
        match (self.source, &self.large) {
            (Source::Raw(skip), _) => raw.and_then(|raw| raw.get(skip..)).unwrap_or_default(),
            (Source::Scratch, _) => &self.scratch,
            (Source::Large, Some(batch)) => &batch.bytes,
            (Source::Large, None) | (Source::Nowhere, _) => &[],
        }
    }

    /// Lets go of a large batch, so that others may use the memory.
    pub fn release(&mut self) {
        self.large = None;
        self.source = Source::Nowhere;
    }

    /// Is memory of the common budget in use?
    pub fn holds_large(&self) -> bool {
        self.large.is_some()
    }

    /// Is nothing prepared?
    pub fn is_released(&self) -> bool {
        matches!(self.source, Source::Nowhere)
    }

    fn expand(
        &mut self,
        batches: &Batches,
        segment: &Segment,
        position: Position,
        header: &BatchHeader,
        raw: Option<&[u8]>,
    ) -> Result<()> {
        if let Some(raw) = raw {
            let damaged = |e: FormatError| damage(segment, position, &e.to_string());
            let payload = payload(header, raw).map_err(damaged)?;
            self.scratch.clear();
            let (codec, magic) = (header.codec, header.magic);
            let most = batches.small_bytes();
            match codec::decompress(codec, magic, payload, &mut self.scratch, most) {
                Ok(()) => {
                    self.source = Source::Scratch;
                    return Ok(());
                }
                Err(FormatError::TooLarge { .. }) => self.scratch = Vec::new(),
                Err(e) => return Err(damaged(e)),
            }
        }
        self.large = Some(batches.load(segment, position, header, raw)?);
        self.source = Source::Large;
        Ok(())
    }
}
