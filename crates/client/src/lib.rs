//! A client of the Redis protocol over blocking sockets: for tools, tests and load generators.
//!
//! Reading order: [`settings`], [`stream`] (a socket, encrypted with [`tls`] or not, of TCP or [`unix`]), [`halves`] (one direction of a connection each), [`connection`]
//! (both together, replies matched with commands), [`pipeline`].
//!
//! Invariants:
//! 1. A reply is never taken for the answer to another command: replies are counted, and a command is
//!    refused while answers to earlier ones are outstanding.
//! 2. What a server answers is a value, its errors included; `Err` means that the connection, or the
//!    call, failed.
//! 3. Memory is bounded by the limits of the settings, whatever the server sends: one reply and the pushes that are kept,
//!    and of a pipeline a reply a command.
//!
//! Each connection is owned by one caller; nothing here starts a thread, and a clock is read only while a server takes
//! nothing of a long pipeline.

pub mod connection;
pub mod halves;
pub mod pipeline;
pub mod settings;
pub mod stream;
pub mod tls;
pub mod unix;

pub use connection::Connection;
pub use halves::{Receiver, Sender};
pub use pipeline::Pipeline;
pub use settings::ConnectionSettings;
pub use stream::Stream;
pub use tierstone_wire::resp::{ReplyLimits, Skimmed, Value};
pub use tls::{Tls, TlsFiles};
pub use unix::unix_path;
