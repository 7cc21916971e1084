//! What the read of one batch costs by each way out of the kernel, each of them really gone.
//!
//! All of them end in the same place, a socket, as a broker's reads do; what comes out of it is
//! compared. They run on a copy of the batch's bytes in a file without a name, all of it in the
//! page cache: so no route pays for the disk, and nothing of the log is touched.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::sys::{self, UnnamedFile};

/// Bytes that go with one call at the most; a socket takes as many without waiting.
const CHUNK_BYTES: usize = 64 << 10;
/// Each route is gone so long, and at least and at most so often.
const TIME_OF_A_ROUTE: Duration = Duration::from_millis(50);
const LEAST_TIMES: usize = 5;
const MOST_TIMES: usize = 2000;
/// System calls of a FUSE daemon for each request: read of `/dev/fuse`, pread, writev of the reply.
const CALLS_OF_A_REQUEST: u64 = 3;

/// The bytes that are measured with.
#[derive(Debug)]
pub struct Batch {
    copy: UnnamedFile,
    bytes: u64,
    checksum: u32,
}

/// Files that FUSE serves with the bytes of a batch; `Err` says why not.
#[derive(Debug)]
pub struct FuseFiles {
    /// Each read is a request to the daemon.
    pub copy: std::result::Result<File, String>,
    /// The kernel reads by itself.
    pub passthrough: std::result::Result<File, String>,
    /// How many requests to read the daemon has answered.
    pub requests: Arc<AtomicU64>,
}

impl FuseFiles {
    /// There are none.
    pub fn missing(reason: &str) -> FuseFiles {
        let (copy, passthrough) = (Err(reason.to_owned()), Err(reason.to_owned()));
        FuseFiles { copy, passthrough, requests: Arc::default() }
    }
}

/// One way, and what it costs.
#[derive(Debug, Serialize)]
pub struct Route {
    /// Its name.
    pub route: &'static str,
    /// What happens on it.
    pub how: &'static str,
    /// What it cost.
    pub cost: Option<Cost>,
    /// Why it cannot be gone here.
    pub unavailable: Option<String>,
}

/// The cost of one read of the whole batch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// How often it was measured.
    pub times: usize,
    /// The median, in nanoseconds.
    pub median_ns: u64,
    /// The shortest.
    pub least_ns: u64,
    /// Bytes that came out of the socket.
    pub bytes: u64,
    /// System calls, those of a FUSE daemon too.
    pub system_calls: u64,
    /// How often each byte is copied between the kernel and a process, or the other way.
    pub copies: u64,
    /// Requests that a FUSE daemon answered.
    pub fuse_requests: u64,
    /// Pages that had to be mapped.
    pub page_faults: f64,
    /// Times that the reader waited for another thread.
    pub context_switches: f64,
}

impl Batch {
    /// Takes a copy of `bytes` bytes at `position` of `segment`.
    pub fn copy_of(segment: &Path, position: u64, bytes: u64) -> Result<Batch> {
        let copy = UnnamedFile::new().map_err(Error::io("make a file in", std::env::temp_dir()))?;
        let copied = || {
            let mut log = sys::open_untouched(segment)?;
            log.seek(SeekFrom::Start(position))?;
            if io::copy(&mut log.take(bytes), &mut copy.file())? < bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            copy.map()
        };
        let checksum = crc32c::crc32c(&copied().map_err(Error::io("copy", segment))?);
        Ok(Batch { copy, bytes, checksum })
    }

    /// The file with the copy.
    pub fn file(&self) -> &File {
        self.copy.file()
    }

    /// Goes every route.
    pub fn measure(&self, fuse: &FuseFiles) -> Vec<Route> {
        let mut buffer = vec![0; CHUNK_BYTES];
        let (file, bytes, asked) = (self.file(), self.bytes, &*fuse.requests);
        let mut routes = vec![
            route(
                READ_WRITE,
                self.cost(2, asked, |sink| read_and_write(file, bytes, &mut buffer, sink)),
            ),
            route(SENDFILE, self.cost(0, asked, |sink| send(file, bytes, sink))),
            route(MMAP, self.cost(1, asked, |sink| self.map_and_write(sink))),
        ];
        for (name, copies, file) in
            [(PASSTHROUGH, 2, &fuse.passthrough), (FUSE_COPY, 3, &fuse.copy)]
        {
            let cost = match file {
                Ok(file) => {
                    self.cost(copies, asked, |sink| read_and_write(file, bytes, &mut buffer, sink))
                }
                Err(reason) => Err(io::Error::other(reason.clone())),
            };
            routes.push(route(name, cost));
        }
        routes
    }

    fn cost(
        &self,
        copies: u64,
        asked: &AtomicU64,
        mut go: impl FnMut(&mut Sink) -> io::Result<()>,
    ) -> io::Result<Cost> {
        let requests = || asked.load(Ordering::Relaxed);
        let mut sink = Sink::new()?;
        // The first time warms up, and shows that the right bytes arrive.
        sink.checksum = Some(0);
        go(&mut sink)?;
        if sink.checksum.take() != Some(self.checksum) {
            return Err(io::Error::other("other bytes arrived than were in the file"));
        }
        let mut times = Vec::new();
        let begun = Instant::now();
        let (used, answered) = (sys::thread_usage()?, requests());
        while times.len() < LEAST_TIMES
            || times.len() < MOST_TIMES && begun.elapsed() < TIME_OF_A_ROUTE
        {
            sink.clock = Clock::default();
            go(&mut sink)?;
            times.push(u64::try_from(sink.clock.spent.as_nanos()).unwrap_or(u64::MAX));
        }
        let (using, answers) = (sys::thread_usage()?, requests() - answered);
        times.sort_unstable();
        let count = times.len() as u64;
        #[expect(clippy::cast_precision_loss, reason = "an average of small numbers")]
        let of_one = |total: u64| (total as f64 / count as f64 * 100.0).round() / 100.0;
        let fuse_requests = answers / count;
        Ok(Cost {
            times: times.len(),
            median_ns: times[times.len() / 2],
            least_ns: times[0],
            bytes: self.bytes,
            system_calls: sink.clock.calls + CALLS_OF_A_REQUEST * fuse_requests,
            copies,
            fuse_requests,
            page_faults: of_one(using.page_faults - used.page_faults),
            context_switches: of_one(using.context_switches - used.context_switches),
        })
    }

    fn map_and_write(&self, sink: &mut Sink) -> io::Result<()> {
        let map = sink.clock.time(1, || self.copy.map())?;
        for chunk in map.chunks(CHUNK_BYTES) {
            sink.pass(1, |mut socket| socket.write_all(chunk).map(|()| chunk.len()))?;
        }
        sink.clock.time(1, || drop(map));
        Ok(())
    }
}

/// A name, and what happens on that way.
type Name = (&'static str, &'static str);

const READ_WRITE: Name = (
    "read+write",
    "The kernel copies from the page cache into the program, and from there into the socket.",
);
const SENDFILE: Name = (
    "sendfile",
    "The socket gets the pages of the page cache themselves; the program never has the bytes. A \
     broker answers a fetch so.",
);
const MMAP: Name = (
    "mmap",
    "The pages of the page cache become memory of the program, each when it is first touched; one \
     copy, into the socket.",
);
const PASSTHROUGH: Name = (
    "FUSE passthrough",
    "A file of a FUSE mount that the kernel reads by itself: like read+write, and the daemon is \
     not asked.",
);
const FUSE_COPY: Name = (
    "FUSE copy",
    "A file of a FUSE mount: for each read the daemon is woken, reads the bytes, and gives them \
     to the kernel, which gives them to the reader.",
);

fn route((route, how): Name, cost: io::Result<Cost>) -> Route {
    match cost {
        Ok(cost) => Route { route, how, cost: Some(cost), unavailable: None },
        Err(error) => Route { route, how, cost: None, unavailable: Some(error.to_string()) },
    }
}

fn read_and_write(file: &File, bytes: u64, buffer: &mut [u8], sink: &mut Sink) -> io::Result<()> {
    let mut at = 0;
    while at < bytes {
        at += sink.pass(2, |mut socket| {
            let read = file.read_at(buffer, at)?;
            socket.write_all(&buffer[..read])?;
            Ok(read)
        })?;
    }
    Ok(())
}

fn send(file: &File, bytes: u64, sink: &mut Sink) -> io::Result<()> {
    let mut at = 0;
    while at < bytes {
        at += sink.pass(1, |socket| sys::send_file(socket, file, at, CHUNK_BYTES))?;
    }
    Ok(())
}

/// What one read took.
#[derive(Debug, Default)]
struct Clock {
    spent: Duration,
    calls: u64,
}

impl Clock {
    /// Does something that takes so many system calls.
    fn time<T>(&mut self, calls: u64, act: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = act();
        self.spent += begun.elapsed();
        self.calls += calls;
        result
    }
}

/// Where the bytes go, and a clock that runs only on the way there.
#[derive(Debug)]
struct Sink {
    socket: UnixStream,
    other_end: UnixStream,
    buffer: Vec<u8>,
    clock: Clock,
    /// Of what arrived, where that is asked for.
    checksum: Option<u32>,
}

impl Sink {
    fn new() -> io::Result<Sink> {
        let (socket, other_end) = UnixStream::pair()?;
        let buffer = vec![0; CHUNK_BYTES];
        Ok(Sink { socket, other_end, buffer, clock: Clock::default(), checksum: None })
    }

    /// Sends a chunk by so many system calls; what comes out is taken away off the clock.
    fn pass(
        &mut self,
        calls: u64,
        send: impl FnOnce(&UnixStream) -> io::Result<usize>,
    ) -> io::Result<u64> {
        let bytes = self.clock.time(calls, || send(&self.socket))?;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.other_end.read_exact(&mut self.buffer[..bytes])?;
        if let Some(checksum) = &mut self.checksum {
            *checksum = crc32c::crc32c_append(*checksum, &self.buffer[..bytes]);
        }
        Ok(bytes as u64)
    }
}
