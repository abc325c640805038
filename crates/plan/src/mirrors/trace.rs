//! Block traces: one request a line, from the formats of MSR Cambridge and of blkparse.

use std::io::BufRead;
use tierstone_base::{Error, ErrorKind, Result};

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it arrives, in nanoseconds since the first.
    pub arrival_ns: u64,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u32,
    /// Whether it writes.
    pub is_write: bool,
}

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// `timestamp,host,disk,Read|Write,offset,size,response`: the traces of MSR Cambridge as SNIA
    /// publishes them. Timestamps count 100 ns; offset and size are bytes. All disks are read, each
    /// behind the other in one address space of 16 TiB a disk.
    Msr,
    /// The default text of blkparse; of its events the queued ones (`Q`). Sectors of 512 bytes.
    Blkparse,
}

/// Bytes that each disk of an MSR trace gets.
const MSR_DISK_BYTES: u64 = 1 << 44;

/// Reads a trace in the order of its lines. Blank lines, the heading of an MSR trace and what is no
/// queued transfer in a blkparse trace are passed over.
///
/// # Errors
/// Invalid input, with the line's number: a line that does not parse, a request that comes before the
/// one above it by more than a second, no request at all. Traces of MSR may be out of order by less
/// (they are stamped at completion); such requests count as simultaneous with the one before.
pub fn read_trace(format: TraceFormat, input: impl BufRead) -> Result<Vec<Request>> {
    let mut requests: Vec<Request> = Vec::new();
    let mut start_ns = None;
    for (number, line) in (1u64..).zip(input.lines()) {
        let line = line.map_err(|error| wrong(number, &error.to_string()))?;
        let parsed = match format {
            TraceFormat::Msr => msr_line(&line),
            TraceFormat::Blkparse => blkparse_line(&line),
        };
        let Some((at_ns, request)) = parsed.map_err(|what| wrong(number, what))? else { continue };
        let start = *start_ns.get_or_insert(at_ns);
        let last = requests.last().map_or(0, |last| last.arrival_ns);
        let arrival_ns = at_ns.saturating_sub(start).max(last);
        if at_ns + SLACK_NS < start + last {
            return Err(wrong(
                number,
                "comes more than a second before the request above it: sort the trace by time",
            ));
        }
        requests.push(Request { arrival_ns, ..request });
    }
    if requests.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "the trace holds no request"));
    }
    Ok(requests)
}

const SLACK_NS: u64 = 1_000_000_000;

fn wrong(line: u64, what: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("line {line} of the trace: {what}"))
}

type Line = std::result::Result<Option<(u64, Request)>, &'static str>;

fn msr_line(line: &str) -> Line {
    let line = line.trim();
    if line.is_empty() || line.starts_with("Timestamp") {
        return Ok(None);
    }
    let mut fields = line.split(',').map(str::trim);
    let mut next = || fields.next().ok_or("has fewer than 7 fields");
    let stamp: u64 = next()?.parse().map_err(|_| "the timestamp is no number")?;
    let _host = next()?;
    let disk: u64 = next()?.parse().map_err(|_| "the disk is no number")?;
    let kind = next()?;
    let offset: u64 = next()?.parse().map_err(|_| "the offset is no number")?;
    let bytes: u32 = next()?.parse().map_err(|_| "the size is no number below 4 GiB")?;
    let _response = next()?;
    let is_write = match kind {
        "Read" | "read" => false,
        "Write" | "write" => true,
        _ => return Err("the type is neither Read nor Write"),
    };
    if offset >= MSR_DISK_BYTES || disk >= 1 << 19 {
        return Err("disk or offset is beyond any disk");
    }
    let at_ns = stamp.checked_mul(100).ok_or("the timestamp is beyond the year 2185")?;
    Ok(Some((at_ns, Request { arrival_ns: 0, offset: disk * MSR_DISK_BYTES + offset, bytes, is_write })))
}

/// `maj,min cpu sequence seconds pid action rwbs sector + sectors [process]`
fn blkparse_line(line: &str) -> Line {
    let mut fields = line.split_whitespace();
    let Some(device) = fields.next() else { return Ok(None) };
    // The summary at the end, and its headings, have no device.
    if !device
        .split_once(',')
        .is_some_and(|(major, minor)| major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok())
    {
        return Ok(None);
    }
    let mut next = || fields.next().ok_or("has fewer than 10 fields");
    let (_cpu, _sequence, seconds) = (next()?, next()?, next()?);
    let (_process, action, kind) = (next()?, next()?, next()?);
    let is_write = kind.contains('W');
    if action != "Q" || (!is_write && !kind.contains('R')) || kind.contains('D') {
        return Ok(None);
    }
    let sector: u64 = next()?.parse().map_err(|_| "the sector is no number")?;
    if next()? != "+" {
        return Err("no '+' between sector and length");
    }
    let sectors: u32 = next()?.parse().map_err(|_| "the length is no number")?;
    let (whole, part) = seconds.split_once('.').ok_or("the time is no number of seconds")?;
    let whole: u64 = whole.parse().map_err(|_| "the time is no number of seconds")?;
    let digits = part.get(..part.len().min(9)).unwrap_or("");
    let part: u64 = digits.parse().map_err(|_| "the time is no number of seconds")?;
    let part_ns = part * 10u64.pow(9 - digits.len() as u32);
    let offset = sector.checked_mul(512).ok_or("the sector is beyond any disk")?;
    let bytes = sectors.checked_mul(512).ok_or("the length is beyond 4 GiB")?;
    let at_ns = whole.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(part_ns));
    Ok(Some((
        at_ns.ok_or("the time is beyond 500 years")?,
        Request { arrival_ns: 0, offset, bytes, is_write },
    )))
}

#[cfg(test)]
#[path = "trace_test.rs"]
mod trace_test;
