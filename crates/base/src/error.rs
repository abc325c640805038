//! Errors that prescribe: a small public kind says what the caller should do, the detail says why.

use std::fmt;

/// What the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Passing trouble: the same call may succeed later.
    Retry,
    /// The caller's input is wrong: fix it.
    InvalidInput,
    /// The device is full: delete data, or give it more space.
    NoSpace,
    /// The memory budget is used up: raise `--memory`, or delete keys.
    NoMemory,
    /// Stored bytes are damaged, or a device cannot read them: run `check`, restore what it names.
    Corrupt,
    /// A device failed a write; nothing more is acknowledged by the shard that it was of. Ask the operator.
    DeviceFailed,
    /// The store was written by a newer version, or by something else: use that version.
    Incompatible,
    /// Somebody is in the way: another process or handle holds the store, something is under way of which there is one at a
    /// time (a backup, a move, a verification), or this handle was closed. Wait for the end of it, or open the store anew.
    Busy,
    /// The operation is not available here.
    Unsupported,
    /// The snapshot had to be given up for want of space or memory: take a new one.
    SnapshotLost,
}

/// An error of any layer of Tierstone.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The result of any fallible call of Tierstone.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind`; `message` names the thing and the cause, in words for a person.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into() }
    }

    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same error with what was being done put before its message.
    #[must_use]
    pub fn context(mut self, doing: &str) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::FileTooLarge => ErrorKind::NoSpace,
            std::io::ErrorKind::OutOfMemory => ErrorKind::NoMemory,
            std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock => ErrorKind::Retry,
            std::io::ErrorKind::InvalidInput
            | std::io::ErrorKind::IsADirectory
            | std::io::ErrorKind::NotADirectory
            | std::io::ErrorKind::NotFound
            | std::io::ErrorKind::PermissionDenied => ErrorKind::InvalidInput,
            _ => ErrorKind::DeviceFailed,
        };
        Error::new(kind, error.to_string())
    }
}
