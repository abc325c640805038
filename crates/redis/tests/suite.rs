//! All tests of this crate in one program: what they share is compiled and linked once.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and prints what it counts")]

mod support;

mod access_control;
mod ahead;
mod backup_cuts;
mod changed_databases;
mod dumps;
mod edge_comparison;
mod everywhere;
mod forwarding;
mod gathered_keys;
mod keyspace_events;
mod large_operands;
mod large_values;
mod latency;
mod long_requests;
mod monitor;
mod redis_comparison;
mod repeated_words;
mod scan;
mod sequences;
mod shards_agree;
mod slowlog;
mod statistics;
mod tracking;
mod transcripts;
mod waiting;
