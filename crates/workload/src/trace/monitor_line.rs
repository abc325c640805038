//! One line of `MONITOR`, byte by byte: `1339518083.107412 [0 127.0.0.1:60866] "set" "key" "va\x00lue"`.
//!
//! Invariant: memory is bounded whatever comes. Of an argument only its first bytes are kept, all are counted.

/// Bytes of a line before its first argument.
const HEAD_BYTES_MAX: usize = 512;
/// Bytes that are kept of the first key.
pub(super) const KEPT_FIRST_BYTES: usize = 64 << 10;
/// Bytes that are kept of any other argument.
pub(super) const KEPT_BYTES: usize = 4 << 10;
/// Bytes that are kept of a line.
const KEPT_LINE_BYTES: usize = 4 << 20;
/// Arguments that are kept of a line; the rest is only counted.
pub(super) const KEPT_ARGUMENTS: usize = 32 << 10;
/// The last bytes of an argument: as long as the longest note that some were left out.
const TAIL_BYTES: usize = 48;

/// An argument as far as it is kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Argument {
    /// Its first bytes.
    pub kept: Vec<u8>,
    /// All its bytes.
    pub length: u64,
    /// Its last bytes, at least [`TAIL_BYTES`] if it has so many, when it is longer than what is kept.
    tail: Vec<u8>,
}

impl Argument {
    /// The whole argument, if it was kept.
    pub fn whole(&self) -> Option<&[u8]> {
        (self.kept.len() as u64 == self.length).then_some(&self.kept)
    }

    /// How long the client's argument was: servers of this project show the first bytes of a long one, and
    /// `... (N more bytes)`.
    pub fn sent_bytes(&self) -> u64 {
        let tail = if self.whole().is_some() { &self.kept } else { &self.tail };
        let tail = &tail[tail.len().saturating_sub(TAIL_BYTES)..];
        let more = || {
            let inner = tail.strip_suffix(b" more bytes)")?;
            let start = inner.windows(5).rposition(|bytes| bytes == b"... (")?;
            let more: u64 = std::str::from_utf8(&inner[start + 5..]).ok()?.parse().ok()?;
            let note = (tail.len() - start) as u64;
            (self.length - note).checked_add(more)
        };
        more().unwrap_or(self.length)
    }

    fn push(&mut self, byte: u8, kept_max: usize, line_left: &mut usize) {
        self.length += 1;
        if self.tail.is_empty() && self.kept.len() < kept_max && *line_left > 0 {
            self.kept.push(byte);
            *line_left -= 1;
            return;
        }
        if self.tail.is_empty() {
            let from = self.kept.len().saturating_sub(TAIL_BYTES);
            self.tail.extend_from_slice(&self.kept[from..]);
        }
        self.tail.push(byte);
        if self.tail.len() >= 4 * TAIL_BYTES {
            self.tail.drain(..3 * TAIL_BYTES);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first argument.
    Head,
    /// Behind an argument.
    Between,
    /// In an argument.
    Quoted,
    /// Behind a backslash.
    Escaped,
    /// Behind `\x`.
    HexFirst,
    /// Behind `\x` and this digit.
    HexSecond(u8),
    /// The rest of the line is no command.
    Refused,
}

/// What a line was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Nothing, or the answer to `MONITOR`.
    Empty,
    /// A command: [`LineParser::arguments`], [`LineParser::head`].
    Command,
    /// None of the format.
    Refused,
}

/// Takes a line apart while its bytes come.
#[derive(Debug)]
pub(crate) struct LineParser {
    state: State,
    head: Vec<u8>,
    /// Storage that is used again; the first `count` are of this line.
    arguments: Vec<Argument>,
    count: usize,
    /// All arguments of the line, kept or not.
    total: u64,
    line_left: usize,
}

impl LineParser {
    pub fn new() -> LineParser {
        LineParser {
            state: State::Head,
            head: Vec::new(),
            arguments: Vec::new(),
            count: 0,
            total: 0,
            line_left: KEPT_LINE_BYTES,
        }
    }

    /// Whether nothing of a line has come.
    pub fn is_empty(&self) -> bool {
        self.state == State::Head && self.head.is_empty()
    }

    /// The arguments of the line that has ended, the command's name first.
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments[..self.count]
    }

    /// Whether the line had more arguments than are kept.
    pub fn has_more(&self) -> bool {
        self.total > self.count as u64
    }

    /// Time, database and client as they stand before the arguments.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Begins the next line.
    pub fn clear(&mut self) {
        self.state = State::Head;
        self.head.clear();
        self.count = 0;
        self.total = 0;
        self.line_left = KEPT_LINE_BYTES;
    }

    /// Takes the next byte, which is no line feed.
    pub fn push(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (State::Head, b'"') => self.begin(),
            (State::Head, _) if self.head.len() < HEAD_BYTES_MAX => {
                self.head.push(byte);
                State::Head
            }
            (State::Between, b' ' | b'\r') => State::Between,
            (State::Between, b'"') => self.begin(),
            (State::Quoted, b'"') => State::Between,
            (State::Quoted, b'\\') => State::Escaped,
            (State::Quoted, _) => self.take(byte),
            (State::Escaped, b'n') => self.take(b'\n'),
            (State::Escaped, b'r') => self.take(b'\r'),
            (State::Escaped, b't') => self.take(b'\t'),
            (State::Escaped, b'a') => self.take(0x07),
            (State::Escaped, b'b') => self.take(0x08),
            (State::Escaped, b'\\' | b'"') => self.take(byte),
            (State::Escaped, b'x') => State::HexFirst,
            (State::HexFirst, _) => digit(byte).map_or(State::Refused, State::HexSecond),
            (State::HexSecond(high), _) => match digit(byte) {
                Some(low) => self.take(high << 4 | low),
                None => State::Refused,
            },
            (State::Head | State::Between | State::Escaped | State::Refused, _) => State::Refused,
        };
    }

    /// The line has ended.
    pub fn end(&self) -> Line {
        let head = self.head.strip_suffix(b"\r").unwrap_or(&self.head);
        match self.state {
            State::Between => Line::Command,
            State::Head if matches!(head, b"" | b"OK" | b"+OK") => Line::Empty,
            _ => Line::Refused,
        }
    }

    fn begin(&mut self) -> State {
        self.total += 1;
        if self.count < KEPT_ARGUMENTS {
            match self.arguments.get_mut(self.count) {
                Some(argument) => {
                    argument.kept.clear();
                    argument.tail.clear();
                    argument.length = 0;
                }
                None => self.arguments.push(Argument::default()),
            }
            self.count += 1;
        }
        State::Quoted
    }

    fn take(&mut self, byte: u8) -> State {
        if self.total == self.count as u64
            && let Some(argument) = self.arguments.get_mut(self.count - 1)
        {
            let kept = if self.count == 2 { KEPT_FIRST_BYTES } else { KEPT_BYTES };
            argument.push(byte, kept, &mut self.line_left);
        }
        State::Quoted
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Time since 1970 in microseconds, the database, and whether a script asked, of the part before the arguments.
pub(crate) fn parse_head(head: &[u8]) -> Option<(u64, u32, bool)> {
    let text = std::str::from_utf8(head).ok()?;
    let text = text.strip_prefix('+').unwrap_or(text).trim_start();
    let (time, rest) = text.split_once(' ')?;
    let (seconds, micros) = time.split_once('.')?;
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(seconds) || !is_digits(micros) || micros.len() != 6 {
        return None;
    }
    let time_us = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros.parse().ok()?)?;
    let inner = rest.trim_start().strip_prefix('[')?.trim_end().strip_suffix(']')?;
    let (database, client) = inner.split_once(' ')?;
    is_digits(database).then_some(())?;
    Some((time_us, database.parse().ok()?, client == "lua"))
}
