//! What is wrong with a request's bytes, in Redis's own words.

use std::fmt;

use tierstone_base::{Error, ErrorKind};

/// Why a byte stream is not a stream of requests.
///
/// A server answers with `-ERR ` and this text ([`super::ReplyWriter::protocol_error`]), then closes
/// the connection: after such an error nobody knows where the next request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The number after `*` is no number or above the limit.
    InvalidMultibulkLength,
    /// More arguments than a client may send before it has authenticated.
    UnauthenticatedMultibulkLength,
    /// The line after `*` does not end.
    TooBigMultibulkCountString,
    /// The number after `$` is no number, negative or above the limit.
    InvalidBulkLength,
    /// A larger argument than a client may send before it has authenticated.
    UnauthenticatedBulkLength,
    /// The line after `$` does not end.
    TooBigBulkCountString,
    /// An argument does not begin with `$`.
    ExpectedDollar {
        /// What stands there instead.
        got: u8,
    },
    /// An inline request does not end.
    TooBigInlineRequest,
    /// The quotes of an inline request are not closed, or text follows a closing quote.
    UnbalancedQuotes,
    /// An argument is not followed by CR LF. Redis does not look; here a request stream that lost its
    /// step is refused before it can be taken for other commands.
    InvalidBulkTerminator,
    /// The request as a whole is larger than [`super::RequestLimits::request_size_max_bytes`]. Redis
    /// closes the connection without a word.
    TooBigRequest,
}

impl ProtocolError {
    /// Appends the text, without `ERR ` and line end: `Protocol error: …`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Protocol error: ");
        out.extend_from_slice(self.cause().as_bytes());
        if let ProtocolError::ExpectedDollar { got } = self {
            // A line end inside would end the reply early; Redis too puts a space.
            out.push(if matches!(got, b'\r' | b'\n') { b' ' } else { *got });
            out.push(b'\'');
        }
    }

    fn cause(&self) -> &'static str {
        match self {
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::TooBigMultibulkCountString => "too big mbulk count string",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::TooBigBulkCountString => "too big bulk count string",
            ProtocolError::ExpectedDollar { .. } => "expected '$', got '",
            ProtocolError::TooBigInlineRequest => "too big inline request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::InvalidBulkTerminator => "expected CRLF after bulk",
            ProtocolError::TooBigRequest => "too big request",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(64);
        self.append_to(&mut text);
        formatter.write_str(&String::from_utf8_lossy(&text))
    }
}

impl std::error::Error for ProtocolError {}

impl From<ProtocolError> for Error {
    fn from(error: ProtocolError) -> Self {
        Error::new(ErrorKind::InvalidInput, error.to_string())
    }
}
