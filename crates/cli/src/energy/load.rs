//! Loads of the profiler: arrays, files and links that are read in pieces, for a part of the time.

use clap::ValueEnum;
use rustix::fs::OFlags;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};
use tierstone_media::IoBuffer;

/// Within a period a thread works for its part of the time and rests for the other; short, so that power is even.
const PERIOD_US: u64 = 20_000;
/// Bytes of one piece.
const PIECE_BYTES: usize = 256 << 10;

/// What is put under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// Reading arrays.
    Memory,
    /// Reading a file.
    Storage,
    /// Sending over the loopback interface.
    Link,
}

impl Subject {
    pub fn name(self) -> &'static str {
        match self {
            Subject::Memory => "memory",
            Subject::Storage => "storage",
            Subject::Link => "link",
        }
    }
}

/// One thread's load.
pub trait Load: Send {
    /// Does a piece, and gives its bytes.
    fn piece(&mut self) -> Result<u64>;

    /// How it is done, in words.
    fn how(&self) -> String;
}

/// How loads are made.
#[derive(Clone, Debug)]
pub struct Loads {
    pub threads: usize,
    pub array_bytes: usize,
    pub folder: PathBuf,
    pub file_bytes: u64,
}

impl Loads {
    /// The loads of all threads.
    pub fn make(&self, subject: Subject) -> Result<Vec<Box<dyn Load>>> {
        match subject {
            Subject::Memory => Ok((0..self.threads)
                .map(|_| Box::new(Array::new(self.array_bytes, self.threads)) as _)
                .collect()),
            Subject::Storage => {
                let made = Made::new(&self.folder, self.file_bytes)?;
                (0..self.threads).map(|part| Ok(Box::new(made.open(part, self.threads)?) as _)).collect()
            }
            Subject::Link => Ok(vec![Box::new(Link::new()?)]),
        }
    }
}

/// Runs every load in a thread of its own for `seconds`, working `part` of the time; bytes of all, and seconds.
pub fn drive(
    loads: &mut [Box<dyn Load>],
    part: f64,
    seconds: f64,
    clock: &SystemClock,
) -> Result<(u64, f64)> {
    let bytes = AtomicU64::new(0);
    let begun_us = clock.now().monotonic_us;
    let end_us = begun_us + (seconds * 1e6) as u64;
    let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = loads
            .iter_mut()
            .map(|load| scope.spawn(|| work(load.as_mut(), part, end_us, clock, &bytes)))
            .collect();
        let died = |_| Err(Error::new(ErrorKind::Retry, "a thread of the load died"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect()
    });
    outcomes.into_iter().collect::<Result<()>>()?;
    let passed_us = clock.now().monotonic_us.saturating_sub(begun_us);
    Ok((bytes.load(Ordering::Relaxed), passed_us as f64 / 1e6))
}

fn work(load: &mut dyn Load, part: f64, end_us: u64, clock: &SystemClock, bytes: &AtomicU64) -> Result<()> {
    let busy_us = (PERIOD_US as f64 * part) as u64;
    loop {
        let period_us = clock.now().monotonic_us;
        let mut now_us = period_us;
        while now_us < (period_us + busy_us).min(end_us) {
            bytes.fetch_add(load.piece()?, Ordering::Relaxed);
            now_us = clock.now().monotonic_us;
        }
        if now_us >= end_us {
            return Ok(());
        }
        let next_us = (period_us + PERIOD_US).min(end_us);
        while now_us < next_us {
            // Waking early only means another look at the clock.
            std::thread::park_timeout(Duration::from_micros(next_us - now_us));
            now_us = clock.now().monotonic_us;
        }
    }
}

/// An array that is summed up.
struct Array {
    words: Vec<u64>,
    place: usize,
    threads: usize,
}

impl Array {
    fn new(bytes: usize, threads: usize) -> Array {
        // Not zeros: those share one page until they are written.
        Array { words: (0..(bytes / 8).max(1) as u64).collect(), place: 0, threads }
    }
}

impl Load for Array {
    fn piece(&mut self) -> Result<u64> {
        let end = (self.place + PIECE_BYTES / 8).min(self.words.len());
        let piece = &self.words[self.place..end];
        let sum = piece.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
        std::hint::black_box(sum);
        self.place = if end == self.words.len() { 0 } else { end };
        Ok(8 * piece.len() as u64)
    }

    fn how(&self) -> String {
        format!(
            "{} threads each sum up an array of {} MiB over and over",
            self.threads,
            self.words.len() >> 17
        )
    }
}

/// A file that was made for this, and is gone when nobody has it open any more.
struct Made {
    path: PathBuf,
    bytes: u64,
}

impl Made {
    fn new(folder: &Path, bytes: u64) -> Result<Made> {
        let path = folder.join(format!("tierstone-profile-{}", std::process::id()));
        let bytes = bytes.next_multiple_of(PIECE_BYTES as u64);
        let made = Made { path, bytes };
        let context = |error: std::io::Error| Error::from(error).context(&made.path.display().to_string());
        let mut file = OpenOptions::new().write(true).create_new(true).open(&made.path).map_err(context)?;
        let mut random = tierstone_base::SeededRandom::new(1);
        let mut piece = vec![0u8; PIECE_BYTES];
        for _ in 0..bytes / PIECE_BYTES as u64 {
            // What a device could compress away would be read quicker than data.
            random.fill(&mut piece);
            file.write_all(&piece).map_err(context)?;
        }
        file.sync_all().map_err(context)?;
        Ok(made)
    }

    fn open(&self, part: usize, threads: usize) -> Result<Storage> {
        let open =
            |flags: OFlags| OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(&self.path);
        let (file, is_direct) = match open(OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(_) => (open(OFlags::empty())?, false),
        };
        let pieces = self.bytes / PIECE_BYTES as u64;
        let place = pieces * part as u64 / threads.max(1) as u64 * PIECE_BYTES as u64;
        let buffer = IoBuffer::zeroed(PIECE_BYTES);
        Ok(Storage { file, is_direct, place, bytes: self.bytes, buffer, threads })
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tell!("tierstone: {} was not removed: {error}", self.path.display());
        }
    }
}

/// A file that is read in order, over and over.
struct Storage {
    file: File,
    is_direct: bool,
    place: u64,
    bytes: u64,
    buffer: IoBuffer,
    threads: usize,
}

impl Load for Storage {
    fn piece(&mut self) -> Result<u64> {
        self.file.seek(SeekFrom::Start(self.place))?;
        let count = self.file.read(&mut self.buffer)? as u64;
        self.place += PIECE_BYTES as u64;
        if self.place >= self.bytes {
            self.place = 0;
        }
        Ok(count)
    }

    fn how(&self) -> String {
        let way = if self.is_direct {
            "past the page cache"
        } else {
            "through the page cache, which this file system insists on: this is memory, not the device"
        };
        format!(
            "{} threads read a file of {} MiB in order over and over, 256 KiB at a time, {way}",
            self.threads,
            self.bytes >> 20
        )
    }
}

/// A connection to oneself.
struct Link {
    stream: TcpStream,
    piece: Vec<u8>,
}

impl Link {
    fn new() -> Result<Link> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (mut other, _) = listener.accept()?;
        std::thread::Builder::new().name("link".into()).spawn(move || {
            let mut bytes = vec![0; PIECE_BYTES];
            // It ends when the sender is dropped.
            while matches!(other.read(&mut bytes), Ok(1..)) {}
        })?;
        Ok(Link { stream, piece: vec![7; PIECE_BYTES] })
    }
}

impl Load for Link {
    fn piece(&mut self) -> Result<u64> {
        self.stream.write_all(&self.piece)?;
        Ok(self.piece.len() as u64)
    }

    fn how(&self) -> String {
        "one thread sends over the loopback interface, 256 KiB at a time, another receives".to_owned()
    }
}
