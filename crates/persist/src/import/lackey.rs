//! Traces of Valgrind's `lackey --trace-mem=yes`, with the thread switches of `--trace-sched=yes`.

use super::{AddressMap, Import, ImportSettings, Importer};
use crate::trace::Kind;
use std::io::{BufRead, Read};
use tierstone_base::{Error, ErrorKind, Result};

/// Bytes of a line at most.
const LINE_MAX: u64 = 16 * 1024;
/// Bytes of one access at most: the widest that Valgrind tells are those of saved vector registers.
const ACCESS_MAX: u64 = 4_096;

/// Reads what lackey wrote (`valgrind --tool=lackey --trace-mem=yes --trace-sched=yes --log-file=FILE`). The values
/// that were stored are not in it: each store gets its own number, so that states can be told apart; a load gets zero.
/// Where neither the switches of threads are in it nor the map tells them, everything is thread 0, if the settings say
/// so.
///
/// # Errors
/// `InvalidInput` for a line that lackey does not write, with its number, for more steps than the settings allow, and
/// for a trace that does not tell its threads, unless it is said to be of one; `Corrupt` for a trace without the
/// program's end, unless that is allowed.
pub fn read(source: impl BufRead, map: &AddressMap, settings: &ImportSettings) -> Result<Import> {
    let mut source = source;
    let mut importer = Importer::new(map, settings);
    let (mut line, mut number, mut ended) = (Vec::new(), 0u64, false);
    let mut tells_threads = map.tells_threads();
    loop {
        line.clear();
        number += 1;
        if source.by_ref().take(LINE_MAX + 1).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() as u64 > LINE_MAX {
            return Err(wrong(number, b"", "it is longer than 16 KiB"));
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        match take(text, number, &mut importer)? {
            Told::Nothing => {}
            Told::Thread => tells_threads = true,
            Told::End => ended = true,
        }
        if number.is_multiple_of(1 << 16) {
            (settings.progress)(importer.steps())?;
        }
    }
    if !ended && !settings.allow_cut {
        let message = format!(
            "the trace is cut: after {} lines the program has not ended ('Exit code'); record it again, or allow it",
            number - 1
        );
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    if !tells_threads && !settings.one_thread {
        let message = "the trace does not tell which thread does what (no line 'SCHED[N]:  acquired lock'), so several \
                       would become one; record it with --trace-sched=yes, or say that the program has one thread \
                       (--one-thread)";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(importer.finish())
}

/// What a line tells of the program, besides accesses.
enum Told {
    Nothing,
    /// Which thread goes on.
    Thread,
    /// That it ended.
    End,
}

/// Takes one line.
fn take(line: &[u8], number: u64, importer: &mut Importer<'_>) -> Result<Told> {
    let (kinds, access): (&[Kind], &[u8]) = match line {
        [] | [b'I', ..] => return Ok(Told::Nothing),
        [b' ', b'L', b' ', access @ ..] => (&[Kind::Load], access),
        [b' ', b'S', b' ', access @ ..] => (&[Kind::Store], access),
        [b' ', b'M', b' ', access @ ..] => (&[Kind::Load, Kind::Store], access),
        [b'=', b'=', ..] => {
            let ended = line.windows(10).any(|part| part == b"Exit code:");
            return Ok(if ended { Told::End } else { Told::Nothing });
        }
        [b'*', b'*', ..] | [b'S', b'B', b' ', ..] => return Ok(Told::Nothing),
        [b'-', b'-', ..] => {
            let text = String::from_utf8_lossy(line);
            let Some(thread) = scheduled(&text) else { return Ok(Told::Nothing) };
            let thread = thread.ok_or_else(|| wrong(number, line, "no thread from 1 to 65,535"))?;
            importer.switch(thread);
            return Ok(Told::Thread);
        }
        _ => {
            let why = "not a line of lackey; keep the program's own output out of it with --log-file";
            return Err(wrong(number, line, why));
        }
    };
    let (address, len) =
        parsed(access).ok_or_else(|| wrong(number, line, "not an address and 1 to 4096 bytes"))?;
    importer.access(kinds, address, len, None).map_err(|error| error.context(&format!("line {number}")))?;
    Ok(Told::Nothing)
}

/// The thread that goes on, where the line tells one; `Some(None)` when its number is none.
fn scheduled(line: &str) -> Option<Option<u16>> {
    let (_, after) = line.split_once("SCHED[")?;
    let (thread, what) = after.split_once("]:")?;
    let goes_on = what.trim_start().starts_with("acquired lock");
    goes_on.then(|| thread.parse::<u16>().ok().and_then(|thread| thread.checked_sub(1)))
}

fn parsed(access: &[u8]) -> Option<(u64, u64)> {
    let (address, len) = std::str::from_utf8(access).ok()?.trim().split_once(',')?;
    // `from_str_radix` takes a sign too.
    if !address.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let (address, len) = (u64::from_str_radix(address, 16).ok()?, len.parse::<u64>().ok()?);
    (1..=ACCESS_MAX).contains(&len).then_some(())?;
    address.checked_add(len)?;
    Some((address, len))
}

fn wrong(number: u64, line: &[u8], why: &str) -> Error {
    let shown = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
    Error::new(ErrorKind::InvalidInput, format!("line {number} ({shown:?}): {why}"))
}
