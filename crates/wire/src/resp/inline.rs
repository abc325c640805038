//! Inline requests: a line of words, as typed into a terminal.

use super::arguments::Arguments;
use super::protocol_error::ProtocolError;

/// Splits `line` (without its line end) into `arguments`, by Redis's quoting rules.
///
/// `"…"` knows `\xHH`, `\n`, `\r`, `\t`, `\b`, `\a` and takes any other escaped byte as it is; `'…'`
/// knows only `\'`. A quote may open inside a word; a closing quote must end the word. A NUL byte is
/// a byte like any other (Redis, which uses C strings here, waits for ever at one).
pub(super) fn split(line: &[u8], arguments: &mut Arguments) -> Result<(), ProtocolError> {
    arguments.begin_inline();
    let mut rest = line;
    loop {
        while let [first, tail @ ..] = rest
            && is_space(*first)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let start = arguments.decoded_len();
        rest = take_word(rest, arguments)?;
        arguments.end_decoded(start);
    }
}

/// Decodes one word; what follows it.
fn take_word<'a>(mut rest: &'a [u8], arguments: &mut Arguments) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            [] => return Ok(rest),
            [b' ' | b'\n' | b'\r' | b'\t', tail @ ..] => return Ok(tail),
            [b'"', tail @ ..] => return take_double_quoted(tail, arguments),
            [b'\'', tail @ ..] => return take_single_quoted(tail, arguments),
            [byte, tail @ ..] => {
                arguments.push_decoded(*byte);
                rest = tail;
            }
        }
    }
}

fn take_double_quoted<'a>(mut rest: &'a [u8], arguments: &mut Arguments) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, tail) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', tail @ ..] => return after_closing_quote(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex_digit(*high) << 4 | hex_digit(*low), tail)
            }
            [b'\\', escaped, tail @ ..] => (unescape(*escaped), tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        arguments.push_decoded(byte);
        rest = tail;
    }
}

fn take_single_quoted<'a>(mut rest: &'a [u8], arguments: &mut Arguments) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, tail) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\\', b'\'', tail @ ..] => (b'\'', tail),
            [b'\'', tail @ ..] => return after_closing_quote(tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        arguments.push_decoded(byte);
        rest = tail;
    }
}

fn after_closing_quote(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(byte) if !is_space(*byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

/// C's `isspace`, which also takes vertical tab and form feed.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex_digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        _ => byte.wrapping_sub(b'A').wrapping_add(10),
    }
}

#[cfg(test)]
#[path = "inline_test.rs"]
mod inline_test;
