//! TLS: what it is set up from (`files`), and one connection's session (`session`).

mod files;
mod session;

pub use files::{TlsClients, TlsSettings};
pub(crate) use session::{SESSION_BYTES, TlsSession};
