//! The Redis door: connections in, commands to the shard's executor, replies out.
//!
//! 1. [`service`] joins one driver thread's connections to its shard's executor;
//! 2. [`mail`] is what the threads of a node tell each other;
//! 3. [`node`] opens the database, starts the threads and ends them in good order;
//! 4. [`metrics`] is what the node says about itself.

pub mod mail;
pub mod metrics;
pub mod node;
pub mod service;

pub use node::{Node, NodeSettings};
