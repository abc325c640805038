//! Load generators: what is asked ([`workload`], [`mix`], [`distribution`], [`key`], [`value`]), when
//! it is asked ([`pacing`]), whom ([`redis_load`]: any Redis server; [`target_load`]: an embedded
//! store), and what came of it ([`outcome`]). [`trace`] records what others asked of a server, and [`replay`] asks it
//! again. [`soak`] is a load of its own that judges every reply; [`node`]
//! asks nobody: its kernels tell what kind of work this node is good at.
//!
//! Invariants:
//! 1. One seed gives one sequence of operations for each thread, whatever the server does; only
//!    [`distribution::Distribution::Latest`] and the growth of the others by inserts follow what has
//!    been acknowledged.
//! 2. In an open loop a latency counts from the time at which the operation was meant to be sent, so
//!    a stall of the server (or of this program) is seen by every operation that fell into it.
//! 3. What is read back can be checked: a value names its key and version and ends in a checksum.
//! 4. Memory does not grow with the length of a run, nor with what a server sends.
//!
//! Nothing here is durable. Threads, sockets and the machine's clock are used by [`redis_load`], [`soak`],
//! [`target_load`], [`replay`], [`trace::record`] and [`node`] only; the rest is a pure function of settings and seed.

pub mod distribution;
pub mod key;
pub mod mix;
pub mod node;
pub mod outcome;
pub mod pacing;
mod recorder;
pub mod redis_load;
pub mod replay;
mod run;
pub mod soak;
pub mod target_load;
pub mod trace;
pub mod value;
pub mod workload;
mod zipf;

pub use distribution::Distribution;
pub use key::{KeyFormat, SizeDistribution};
pub use mix::{Mix, OperationKind};
pub use outcome::{CallSummary, KindOutcome, LatencySummary, Outcome};
pub use pacing::{Arrivals, Extent, Pacing};
pub use run::Progress;
pub use target_load::Target;
pub use value::{ValueFault, ValueSettings, check_value};
pub use workload::{Workload, Ycsb};
