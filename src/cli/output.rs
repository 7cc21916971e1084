//! Bytes to standard output, written by a thread of their own, so that the next ones are made
//! meanwhile. A few buffers go round between the two; each goes out in one call of write(2).

use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};

/// Bytes that are collected before they are handed over. Large writes let the kernel take large
/// pages for a file: 1 MiB at once is twice as fast as 256 KiB.
const BUFFER_BYTES: usize = 1 << 20;
/// Room behind them, so that the last batch seldom makes the buffer grow.
const SPARE_BYTES: usize = 256 << 10;
/// Buffers that wait for the writer at the most.
const WAITING: usize = 2;

/// The making side.
#[derive(Debug)]
pub struct Output {
    buffer: Vec<u8>,
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    writer: JoinHandle<io::Result<()>>,
    closed: bool,
}

impl Output {
    /// Starts to write to `target`, which should not keep bytes back itself.
    pub fn to(mut target: impl Write + Send + 'static) -> Output {
        let (full, to_write) = mpsc::sync_channel::<Vec<u8>>(WAITING);
        let (written, empty) = mpsc::channel();
        let writer = thread::spawn(move || {
            for mut piece in to_write {
                target.write_all(&piece)?;
                piece.clear();
                if piece.capacity() <= 2 * BUFFER_BYTES {
                    // Nobody wants it back when this was the last one.
                    let _ = written.send(piece);
                }
            }
            Ok(())
        });
        Output { buffer: new_buffer(), full, empty, writer, closed: false }
    }

    /// Where to append.
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Hands over what was appended, once it is worth a write. False when nothing more can be
    /// written; [`Self::finish`] says why.
    #[inline]
    pub fn go_on(&mut self) -> bool {
        if self.buffer.len() < BUFFER_BYTES { !self.closed } else { self.flush() }
    }

    /// Hands over what was appended. False as in [`Self::go_on`].
    pub fn flush(&mut self) -> bool {
        if !self.closed && !self.buffer.is_empty() {
            let next = self.empty.try_recv().unwrap_or_else(|_| new_buffer());
            self.closed = self.full.send(std::mem::replace(&mut self.buffer, next)).is_err();
        }
        !self.closed
    }

    /// Waits until all is written. That the reader of a pipe has gone away is no error.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush();
        drop(self.full);
        match self.writer.join() {
            Ok(Err(gone)) if gone.kind() == ErrorKind::BrokenPipe => Ok(()),
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Prints a text that is whole already. That the reader of a pipe has gone away is no error.
pub fn print(text: &[u8]) -> Result<()> {
    match io::stdout().lock().write_all(text) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Error::io("write", "-")(e)),
        _ => Ok(()),
    }
}

fn new_buffer() -> Vec<u8> {
    Vec::with_capacity(BUFFER_BYTES + SPARE_BYTES)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Takes so many bytes, then fails in the given way.
    struct Limited(usize, ErrorKind);

    impl Write for Limited {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Err(self.1.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Appends pieces until it is told that nobody writes them; how many were taken.
    fn pour(output: &mut Output, pieces: usize) -> usize {
        let piece = vec![b'x'; 300_000];
        (0..pieces)
            .take_while(|_| {
                output.buffer().extend_from_slice(&piece);
                output.go_on()
            })
            .count()
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn everything_arrives_in_order() {
        let target = Shared::default();
        let mut output = Output::to(target.clone());
        for number in 0..300_000_u32 {
            output.buffer().extend_from_slice(&number.to_be_bytes());
            assert!(output.go_on());
        }
        output.finish().unwrap();
        let meant: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
        assert_eq!(*target.0.lock().unwrap(), meant);
    }

    #[test]
    fn a_broken_pipe_ends_the_work_quietly() {
        let mut output = Output::to(Limited(2_000_000, ErrorKind::BrokenPipe));
        assert!(pour(&mut output, 1000) < 1000);
        output.finish().unwrap();
    }

    #[test]
    fn any_other_failure_is_told() {
        let mut output = Output::to(Limited(2_000_000, ErrorKind::StorageFull));
        assert!(pour(&mut output, 1000) < 1000);
        assert_eq!(output.finish().unwrap_err().kind(), ErrorKind::StorageFull);
        let mut short = Output::to(Limited(0, ErrorKind::StorageFull));
        short.buffer().push(b'x');
        assert_eq!(short.finish().unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
