//! Whole batches, which say their own length. Each is checked to its last record before it goes to
//! the sink. A length or magic that no batch can have is noticed as soon as 17 bytes are there.

use super::super::render::raw;
use super::{AppendStream, Limits, RecordError, Sink, Stop, extend};
use crate::format::batch::{PREFIX_BYTES, Prefix};

impl AppendStream {
    pub(super) fn take_batches(
        &mut self,
        data: &[u8],
        limits: Limits,
        sink: &mut impl Sink,
    ) -> Result<(), Stop> {
        let mut left = data;
        while !left.is_empty() {
            let before = data.len() - left.len();
            left = self
                .take_batch(left, limits, sink)
                .map_err(|stop| Stop { accepted: before, ..stop })?;
        }
        Ok(())
    }

    /// Takes the bytes of one batch, or all there are; returns those behind.
    fn take_batch<'a>(
        &mut self,
        data: &'a [u8],
        limits: Limits,
        sink: &mut impl Sink,
    ) -> Result<&'a [u8], Stop> {
        let bytes = match self.batch_bytes(data) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                self.rest.extend_from_slice(data);
                return Ok(&[]);
            }
            Err(error) => return Err(Stop::at_batch(error, false)),
        };
        // The part of the batch that is in `data`: it has at least a byte there.
        let part = bytes.saturating_sub(self.rest.len());
        if bytes > limits.record_bytes {
            let reason = format!("{bytes} bytes, allowed {}", limits.record_bytes);
            return Err(Stop::at_batch(RecordError::TooLarge(reason), part <= data.len()));
        }
        let Some((part, after)) = data.split_at_checked(part) else {
            extend(&mut self.rest, data, bytes);
            return Ok(&[]);
        };
        let whole = if self.rest.is_empty() {
            part
        } else {
            extend(&mut self.rest, part, bytes);
            &self.rest
        };
        let batch = raw::parse(whole, limits.expanded_bytes)
            .map_err(|reason| Stop::at_batch(RecordError::Invalid(reason), true))?;
        sink.append_batch(&batch).map_err(|error| Stop { accepted: 0, error, has_end: true })?;
        self.rest.clear();
        self.stored += 1;
        Ok(after)
    }

    /// How long the batch is whose first bytes are held, or begin `data`; `None` while too few are
    /// there to know.
    fn batch_bytes(&self, data: &[u8]) -> Result<Option<usize>, RecordError> {
        let mut start = [0; PREFIX_BYTES];
        let bytes = self.rest.iter().chain(data);
        let there = start.iter_mut().zip(bytes).map(|(to, from)| *to = *from).count();
        if there < PREFIX_BYTES {
            return Ok(None);
        }
        let prefix =
            Prefix::parse(&start).map_err(|error| RecordError::Invalid(error.to_string()))?;
        Ok(Some(usize::try_from(prefix.bytes).unwrap_or(usize::MAX)))
    }
}

impl Stop {
    fn at_batch(error: RecordError, has_end: bool) -> Stop {
        Stop { accepted: 0, error: error.into(), has_end }
    }
}

/// Why `rest`, the beginning of a batch, is none.
pub(super) fn incomplete(rest: &[u8]) -> String {
    match Prefix::parse(rest) {
        Ok(prefix) => format!("incomplete: {} of its {} bytes are there", rest.len(), prefix.bytes),
        Err(_) => format!("incomplete: {} bytes, too few to know its length", rest.len()),
    }
}
