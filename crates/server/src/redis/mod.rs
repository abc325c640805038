//! The Redis door: connections in, commands to the shard's executor, replies out.
//!
//! 1. [`service`] joins one driver thread's connections to its shard's executor;
//! 2. `incoming` takes large arguments out of the input piece by piece, `ahead` gathers a pipeline's requests;
//! 3. [`mail`] is what the threads of a node tell each other;
//! 4. [`node`] opens the database, starts the threads (`start`) and ends them in good order; `lobby` answers until they are ready, `facts` is what clients are told;
//!    `users_file` says who may do what;
//! 5. [`clients`] is how shards agree on whose client is closed when all of them take too much memory;
//! 6. [`metrics`] is what the node says about itself; `energy` its joules, `volume` the volume below it, `config` its settings under Redis's names.

mod ahead;
pub mod clients;
mod config;
mod energy;
mod facts;
mod incoming;
mod lobby;
pub mod mail;
pub mod metrics;
pub mod node;
pub mod service;
mod start;
mod users_file;
mod volume;

pub use energy::EnergySettings;
pub use node::{Node, NodeSettings, SettingsFile};
pub use tierstone_redis::settings::{
    ACL_LOG_LIMIT, EVICTION_NAMES, check_own, format_durability, parse_durability, parse_eviction,
    parse_output_limits,
};
