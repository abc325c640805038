//! Redis's commands, sessions, transactions and channels over the store.
//!
//! Reading order:
//! 1. [`executor`] is what the server drives: requests in, replies and outputs out;
//! 2. [`request`] admits a request and finds what carries it out; [`table`] has all commands, `resolve` finds a request's;
//! 3. [`run`] runs data commands over views, at once or after a wait ([`task`]);
//! 4. [`commands`] are the commands by family, over a [`context::Context`] (data) or a
//!    [`control::Control`] (sessions and settings);
//! 5. [`task_command`] and [`walk`] are the commands that wait by nature;
//! 6. [`upload`] brings large arguments to their shards while they are received;
//! 7. `stream` sends large values while the client takes them;
//! 8. [`making`] makes large values from others, window by window;
//! 9. `acl` decides who may do what;
//! 10. [`remote`], `forward` and [`coordination`] are what several shards do together;
//! 11. [`timing`], [`slowlog`], [`latency`], [`monitor`], [`events`] and [`operators`] are for those who look into the server;
//! 12. [`tracking`] tells clients which of their copies are stale; [`clients`] what clients take of memory;
//! 13. [`opening`] is what they are told while a store is being opened;
//! 14. `work` counts what requests cost, so that none of a client's keeps others waiting behind all that he has sent.
//!
//! Invariants:
//! 1. Replies are those of Redis, byte by byte, in either protocol; `docs/redis-compatibility.md` lists
//!    what differs.
//! 2. No input leads to a panic, to unbounded memory, or to time that grows faster than the input
//!    and the values that it names.
//! 3. No clock is read and no thread started: the same calls give the same replies.

mod account;
mod acl;
pub mod args;
pub mod backup;
pub mod broadcast;
pub mod bundle;
mod channels;
pub mod clients;
pub mod coming;
mod commands;
mod commandstats;
pub mod context;
pub mod control;
mod coordination;
pub mod counters;
mod energy;
mod events;
pub mod everywhere;
mod executor;
mod expected;
mod fold;
mod forward;
mod gathered;
pub mod glob;
mod key_specs;
mod latency;
mod latency_graph;
mod long_double;
pub mod making;
mod map_request;
mod merged_info;
mod monitor;
mod number;
pub mod opening;
pub mod operators;
mod pushes;
mod recipe;
mod rehearsal;
pub mod remote;
mod request;
mod resolve;
mod retries;
mod run;
mod secrets;
pub mod session;
pub mod settings;
pub mod slowlog;
mod stream;
pub mod table;
mod task;
mod task_command;
mod timing;
pub mod tracking;
pub mod upload;
mod verify;
pub mod walk;
mod work;

#[cfg(any(test, feature = "fuzzing"))]
pub use acl::invariants;
pub use acl::{USERS_FILE_BYTES_MAX, Users};
pub use args::{Args, OwnedArgs};
pub use control::{
    DirectoryFacts, DurableProbe, Output, ProcessNumbers, RedoFacts, Secret, ServerFacts, VolumeFacts,
    VolumeOrder,
};
pub use executor::{Executor, ExecutorSettings, Outcome};
pub use map_request::MapRequest;
pub use remote::Message;
pub use session::{ConnectionId, ConnectionInfo};
pub use upload::{Begun, Staged, Ticket, UPLOAD_ABOVE_BYTES};
pub use work::TURN_WORK_MAX;
