//! Tierstone as a library: a durable store of keys and values on flash, embedded in a program.

pub mod database;

pub use database::{Database, DatabaseFacts, DatabaseOptions};
