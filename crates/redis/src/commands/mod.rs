//! The commands, by family.

pub(crate) mod acl;
pub(crate) mod bitfield;
pub(crate) mod bits;
pub(crate) mod client;
pub(crate) mod configuration;
pub(crate) mod connection;
pub(crate) mod debug;
pub(crate) mod dump;
pub(crate) mod expiry;
pub(crate) mod help;
pub(crate) mod info;
pub(crate) mod introspection;
pub(crate) mod keys;
pub(crate) mod lcs;
pub(crate) mod memory;
pub(crate) mod pubsub;
pub(crate) mod scripting;
pub(crate) mod server;
pub(crate) mod strings;
pub(crate) mod tracking;
