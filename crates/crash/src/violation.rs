//! What a scenario reports when the code under test broke its word.

use std::fmt;
use tierstone_base::ErrorKind;

/// A broken promise, or an error that the scenario did not expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    message: String,
    error: Option<ErrorKind>,
}

impl Violation {
    /// A broken promise, in words for the person who will look for the cause.
    pub fn new(message: impl Into<String>) -> Self {
        Violation { message: message.into(), error: None }
    }

    /// A violation only because an operation failed with an error of `kind`. After a loss of
    /// power such errors are expected, broken promises are not.
    pub fn from_error(kind: ErrorKind, message: impl Into<String>) -> Self {
        Violation { message: message.into(), error: Some(kind) }
    }

    /// `Ok` when `holds`, else the violation that `message` describes.
    ///
    /// # Errors
    /// The violation.
    pub fn unless(holds: bool, message: impl FnOnce() -> String) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(Violation::new(message())) }
    }

    /// What was seen.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The kind of the error that it was made from, if it was.
    pub fn error_kind(&self) -> Option<ErrorKind> {
        self.error
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Violation {}

impl From<tierstone_base::Error> for Violation {
    fn from(error: tierstone_base::Error) -> Self {
        Violation::from_error(error.kind(), error.message())
    }
}

impl From<String> for Violation {
    fn from(message: String) -> Self {
        Violation::new(message)
    }
}

impl From<&str> for Violation {
    fn from(message: &str) -> Self {
        Violation::new(message)
    }
}
