//! The first line of every reply or element, shared by parser and skimmer.

use std::ops::Range;

use super::number::{lenient_integer, quick_length};
use super::reply_error::ReplyError;
use super::reply_parser::ReplyLimits;

/// What a first line announces.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// The value is the line itself, in this part of the input.
    Line { marker: u8, text: Range<usize> },
    /// A body of `len` bytes and a line end follow.
    Body { marker: u8, len: usize },
    /// `items` elements follow (for pairs both halves count; for attributes also what they belong to).
    Aggregate { marker: u8, items: usize },
    /// No value.
    Null,
}

/// Reads the line at the start of `input`: what it announces and its length, line end included.
/// `None` while it is not complete; `scanned` then keeps how far it was searched.
#[inline]
pub(super) fn read(
    input: &[u8],
    scanned: &mut usize,
    limits: &ReplyLimits,
) -> Result<Option<(Header, usize)>, ReplyError> {
    let Some(marker) = input.first().copied() else { return Ok(None) };
    if let b'$' | b'*' | b'%' | b'~' | b'>' | b'|' | b'=' | b'!' = marker
        && let Some((value, len)) = quick_length(&input[1..])
    {
        *scanned = 0;
        return Ok(Some((sized(marker, value, limits)?, 1 + len)));
    }
    if !b"+-:$*_#,(%~>|=!".contains(&marker) {
        return Err(ReplyError::UnknownMarker(marker));
    }
    let Some(end) = find_line_end(&input[1..], scanned, limits.line_size_max_bytes)? else { return Ok(None) };
    let text = &input[1..1 + end];
    let header = match marker {
        b'_' if text.is_empty() => Header::Null,
        b'_' => return Err(ReplyError::InvalidScalar),
        b'+' | b'-' | b':' | b'#' | b',' | b'(' => Header::Line { marker, text: 1..1 + end },
        b'$' | b'*' if text == b"-1" => Header::Null,
        _ => {
            let number = lenient_integer(text).and_then(|number| usize::try_from(number).ok());
            sized(marker, number.ok_or(ReplyError::InvalidLength)?, limits)?
        }
    };
    Ok(Some((header, end + 3)))
}

#[inline(always)]
fn sized(marker: u8, number: usize, limits: &ReplyLimits) -> Result<Header, ReplyError> {
    if let b'$' | b'=' | b'!' = marker {
        return if number <= limits.bulk_size_max_bytes {
            Ok(Header::Body { marker, len: number })
        } else {
            Err(ReplyError::InvalidLength)
        };
    }
    let items = match marker {
        b'%' => number.checked_mul(2),
        b'|' => number.checked_mul(2).and_then(|items| items.checked_add(1)),
        _ => Some(number),
    };
    match items {
        Some(items) if items <= limits.element_count_max => Ok(Header::Aggregate { marker, items }),
        _ => Err(ReplyError::TooManyElements),
    }
}

/// Where the CR LF of a line begins; `None` while it has not come.
fn find_line_end(line: &[u8], scanned: &mut usize, max: usize) -> Result<Option<usize>, ReplyError> {
    // Only so much is looked at, even where more has come: else the error would depend on the pieces.
    let window = &line[..line.len().min(max.saturating_add(1))];
    let unseen = window.get(*scanned..).unwrap_or_default();
    let Some(found) = unseen.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        if line.len() > max {
            return Err(ReplyError::TooLongLine);
        }
        *scanned = window.len();
        return Ok(None);
    };
    let end = *scanned + found;
    match line.get(end..end + 2) {
        Some(b"\r\n") => {
            *scanned = 0;
            Ok(Some(end))
        }
        None if line[end] == b'\r' => {
            *scanned = end;
            Ok(None)
        }
        _ => Err(ReplyError::InvalidTerminator),
    }
}
