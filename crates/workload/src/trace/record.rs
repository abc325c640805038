//! Recording what the clients of a running server ask, by its `MONITOR`.
//!
//! `MONITOR` shows every command of every client: on Redis it costs the server a good part of its throughput while it
//! lasts. It does not tell what was answered, so the sizes of values that are only read are not known; with
//! [`RecordSettings::ask_sizes`] they are asked for at the end, key by key.

use std::collections::BTreeMap;
use std::io::{ErrorKind as IoErrorKind, Write};

use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};
use tierstone_client::{Connection, Stream, TlsFiles, Value};

use super::monitor::MonitorImport;
use super::{Anonymizer, ImportCounts, TraceKey, TraceOperation, TraceRecord, TraceWriter, VALUE_BYTES_MAX};
use crate::redis_load::{Server, accepted, login};

/// How soon a stop is seen, and how often progress is told.
const LOOK: Duration = Duration::from_millis(100);
/// How long an interrupted recording goes on while lines keep coming.
const LAST_SECONDS: f64 = 1.0;
/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of the first answer, which is short.
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// Keys whose sizes are asked for: some 200 MiB of memory at most, with keys of 100 bytes.
const ASKED_KEYS_MAX: usize = 1_000_000;
/// Questions that are under way together.
const ASKED_TOGETHER: usize = 1_000;

/// What is recorded, and how long.
#[derive(Clone, Debug)]
pub struct RecordSettings {
    /// Which server. Its database does not matter: all are shown.
    pub server: Server,
    /// Seconds, above 0.
    pub seconds: f64,
    /// Ask at the end how long the values are of up to a million keys that were read and not written.
    pub ask_sizes: bool,
}

/// What came of a recording.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Recorded {
    /// What became of the lines.
    pub counts: ImportCounts,
    /// How long was listened.
    pub seconds: f64,
    /// Keys whose size was asked for and told.
    pub sizes: u64,
    /// Why it ended before its time; `None` when it did not.
    pub ended_early: Option<String>,
}

/// Listens to a server and writes what it shows. `progress` gets the seconds so far and the records, about ten times a
/// second, and ends it with `Break`; what was heard until then is kept.
///
/// # Errors
/// `InvalidInput`: the server refuses. `Retry`: nobody answers. Others: when the writer fails.
pub fn record<W: Write>(
    settings: &RecordSettings,
    writer: &mut TraceWriter<W>,
    anonymizer: Option<&Anonymizer>,
    progress: &mut dyn FnMut(f64, u64) -> ControlFlow<()>,
) -> Result<Recorded> {
    let mut sizes = settings.ask_sizes.then(Sizes::default);
    let mut last_us = 0;
    let mut sink = |record: &TraceRecord| {
        if let Some(sizes) = &mut sizes {
            sizes.note(record);
        }
        last_us = record.time_us;
        put(writer, anonymizer, record.clone())
    };
    let mut recorded = listen(settings, &mut sink, progress)?;
    if let Some(sizes) = sizes {
        recorded.sizes = sizes.ask(&settings.server, &mut |database, key, bytes| {
            let record = TraceRecord::new(last_us, TraceOperation::Size, TraceKey::of(key));
            put(writer, anonymizer, TraceRecord { database, value_bytes: Some(bytes), ..record })
        })?;
    }
    Ok(recorded)
}

fn put<W: Write>(
    writer: &mut TraceWriter<W>,
    anonymizer: Option<&Anonymizer>,
    mut record: TraceRecord,
) -> Result<()> {
    if let Some(anonymizer) = anonymizer {
        anonymizer.hide(&mut record);
    }
    writer.push(&record)
}

fn listen(
    settings: &RecordSettings,
    sink: super::Sink<'_>,
    progress: &mut dyn FnMut(f64, u64) -> ControlFlow<()>,
) -> Result<Recorded> {
    let tls = settings.server.tls.as_ref().map(TlsFiles::load).transpose()?;
    // Lines follow the answer at once: from here on the stream is read without the connection.
    let stream = login(&settings.server, tls.as_ref(), PATIENCE)?.into_stream()?;
    stream.write_all(b"*1\r\n$7\r\nMONITOR\r\n")?;
    let mut first = read_answer(&stream)?;
    let mut import = MonitorImport::new();
    let clock = SystemClock::new();
    stream.socket().set_read_timeout(Some(LOOK))?;
    let mut bytes = vec![0; 64 << 10];
    let mut recorded = Recorded::default();
    let mut until = settings.seconds;
    loop {
        import.feed(&std::mem::take(&mut first), sink)?;
        recorded.seconds = clock.now().monotonic_us as f64 / 1e6;
        if recorded.seconds >= until {
            break;
        }
        if recorded.ended_early.is_none() && progress(recorded.seconds, import.counts().records).is_break() {
            // What is on its way already is still taken.
            recorded.ended_early = Some("interrupted".to_owned());
            until = until.min(recorded.seconds + LAST_SECONDS);
        }
        match stream.read(&mut bytes) {
            Ok(0) => {
                recorded.ended_early = Some("the server closed the connection".to_owned());
                break;
            }
            Ok(count) => first.extend_from_slice(&bytes[..count]),
            Err(error) if is_pause(&error) && recorded.ended_early.is_some() => break,
            Err(error) if is_pause(&error) => {}
            Err(error) => {
                recorded.ended_early = Some(format!("the connection was lost: {error}"));
                break;
            }
        }
    }
    // The line that was under way is not of the recording.
    recorded.counts = import.counts().clone();
    Ok(recorded)
}

fn is_pause(error: &std::io::Error) -> bool {
    matches!(error.kind(), IoErrorKind::WouldBlock | IoErrorKind::TimedOut | IoErrorKind::Interrupted)
}

/// Waits for `+OK`; what came behind it.
fn read_answer(stream: &Stream) -> Result<Vec<u8>> {
    let mut answer = Vec::new();
    loop {
        if let Some(end) = answer.iter().position(|byte| *byte == b'\n') {
            let rest = answer.split_off(end + 1);
            if answer.starts_with(b"+") {
                return Ok(rest);
            }
            let text = String::from_utf8_lossy(&answer).trim_start_matches('-').trim().to_owned();
            return Err(Error::new(ErrorKind::InvalidInput, format!("the server refuses MONITOR: {text}")));
        }
        let mut bytes = [0; ANSWER_BYTES_MAX];
        match stream.read(&mut bytes) {
            Ok(0) => return Err(Error::new(ErrorKind::Retry, "the server closed the connection")),
            Ok(count) if answer.len() < ANSWER_BYTES_MAX => answer.extend_from_slice(&bytes[..count]),
            Ok(_) => return Err(Error::new(ErrorKind::Incompatible, "the answer to MONITOR is none")),
            Err(error) if error.kind() == IoErrorKind::Interrupted => {}
            Err(error) => return Err(Error::new(ErrorKind::Retry, format!("wait for MONITOR: {error}"))),
        }
    }
}

/// Where database, key and size go.
type PutSize<'a> = &'a mut dyn FnMut(u32, &[u8], u32) -> Result<()>;

/// Keys that were read and whose size nobody told.
#[derive(Debug, Default)]
struct Sizes {
    /// By database and key; false: it was written, its size is known.
    keys: BTreeMap<(u32, Vec<u8>), bool>,
}

impl Sizes {
    fn note(&mut self, record: &TraceRecord) {
        let TraceKey::Named(key) = &record.key else { return };
        let is_unknown = match record.operation {
            TraceOperation::Read | TraceOperation::Update | TraceOperation::Expire => true,
            TraceOperation::Write | TraceOperation::Add => false,
            _ => return,
        };
        let place = (record.database, key.clone());
        if let Some(before) = self.keys.get_mut(&place) {
            *before &= is_unknown;
        } else if self.keys.len() < ASKED_KEYS_MAX {
            self.keys.insert(place, is_unknown);
        }
    }

    fn ask(self, server: &Server, put: PutSize<'_>) -> Result<u64> {
        let tls = server.tls.as_ref().map(TlsFiles::load).transpose()?;
        let mut connection = login(server, tls.as_ref(), PATIENCE)?;
        let (mut told, mut database) = (0, None);
        let mut unknown = self.keys.into_iter().filter(|(_, is_unknown)| *is_unknown).map(|(place, _)| place);
        let mut next = unknown.next();
        while let Some((number, _)) = &next {
            let number = *number;
            if database != Some(number) {
                let reply = connection.command(&[b"SELECT", number.to_string().as_bytes()])?;
                accepted("SELECT", &reply)?;
                database = Some(number);
            }
            let mut keys = Vec::new();
            while keys.len() < ASKED_TOGETHER
                && let Some((_, key)) = next.take_if(|(other, _)| *other == number)
            {
                keys.push(key);
                next = unknown.next();
            }
            for (key, bytes) in keys.iter().zip(lengths(&mut connection, &keys)?) {
                if let Some(bytes) = bytes {
                    put(number, key, bytes)?;
                    told += 1;
                }
            }
        }
        Ok(told)
    }
}

/// How long the values of `keys` are; `None` for what is not there or is no string.
fn lengths(connection: &mut Connection, keys: &[Vec<u8>]) -> Result<Vec<Option<u32>>> {
    let mut pipeline = connection.pipeline();
    for key in keys {
        pipeline.command(&[b"STRLEN", key]);
    }
    let length = |reply: Value| match reply {
        Value::Integer(bytes) if bytes > 0 => {
            u32::try_from(bytes).ok().filter(|bytes| *bytes <= VALUE_BYTES_MAX)
        }
        _ => None,
    };
    Ok(pipeline.execute()?.into_iter().map(length).collect())
}
