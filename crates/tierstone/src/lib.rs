//! Tierstone as a library: a durable store of keys and values on flash, embedded in a program.

mod batch;
pub mod database;
mod lane;
mod local;
mod scan;
pub mod shared;
#[cfg(test)]
mod simulated;
mod space;
mod statistics;

pub use batch::{Batch, Expiry, PutOptions};
pub use database::{Database, DatabaseFacts, DatabaseOptions};
pub use local::{Keyspace, Store, Ticket};
pub use scan::{Cursor, Entry, Page, Scan};
pub use shared::{Answer, SharedKeyspace, SharedScan, SharedStore};
