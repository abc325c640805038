//! What is wrong with a reply's bytes.

use std::fmt;

use tierstone_base::{Error, ErrorKind};

/// Why a byte stream is not a stream of replies. The connection is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// No reply begins with this byte.
    UnknownMarker(u8),
    /// A length is no number, negative, or above its limit.
    InvalidLength,
    /// A line does not end within the limit.
    TooLongLine,
    /// CR LF was expected.
    InvalidTerminator,
    /// An integer, double, boolean, null or big number that cannot be read.
    InvalidScalar,
    /// A verbatim string without its format.
    InvalidVerbatim,
    /// Aggregates nested deeper than the limit.
    TooDeep,
    /// More elements in one reply than the limit.
    TooManyElements,
    /// More bytes in one reply than the limit.
    TooBigReply,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("not a reply of the Redis protocol: ")?;
        match self {
            ReplyError::UnknownMarker(byte) => {
                write!(formatter, "it begins with '{}'", byte.escape_ascii())
            }
            ReplyError::InvalidLength => formatter.write_str("invalid length"),
            ReplyError::TooLongLine => formatter.write_str("a line that does not end"),
            ReplyError::InvalidTerminator => formatter.write_str("expected CRLF"),
            ReplyError::InvalidScalar => formatter.write_str("a number or truth value that cannot be read"),
            ReplyError::InvalidVerbatim => formatter.write_str("a verbatim string without its format"),
            ReplyError::TooDeep => formatter.write_str("aggregates nested too deep"),
            ReplyError::TooManyElements => formatter.write_str("too many elements in one reply"),
            ReplyError::TooBigReply => formatter.write_str("too many bytes in one reply"),
        }
    }
}

impl std::error::Error for ReplyError {}

impl From<ReplyError> for Error {
    fn from(error: ReplyError) -> Self {
        Error::new(ErrorKind::Incompatible, error.to_string())
    }
}
