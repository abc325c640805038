//! The Redis serialisation protocol, versions 2 and 3.
//!
//! A server uses [`RequestParser`] and [`ReplyWriter`]; a client uses [`encode_command`] and
//! [`ReplyParser`], or [`ReplySkimmer`] where only the count and the errors of replies matter.

pub mod arguments;
pub mod command;
pub mod double;
mod inline;
#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
mod number;
pub mod protocol_error;
pub mod reply;
pub mod reply_error;
mod reply_header;
pub mod reply_parser;
pub mod request;
pub mod skim;
pub mod value;

pub use arguments::{Arguments, Request};
pub use command::encode_command;
pub use double::format_double;
pub use protocol_error::ProtocolError;
pub use reply::{ReplyWriter, Version};
pub use reply_error::ReplyError;
pub use reply_parser::{ReplyLimits, ReplyParser, ReplyProgress};
pub use request::{PendingBulk, Progress, RequestLimits, RequestParser};
pub use skim::{ReplySkimmer, SkimProgress, Skimmed};
pub use value::Value;
