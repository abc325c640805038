//! Whole nodes in one thread, from one seed.
//!
//! The code of connections, commands and shards is production's; the driver ([`tierstone_server::ManualDriver`]),
//! the clock, the device and the sockets are simulated. What clients see is written to a transcript and
//! recorded as histories, which are checked afterwards.
//!
//! Reading order:
//! 1. [`model`] says what one object does when commands reach it one after the other;
//! 2. [`history`] is what clients asked and saw; [`linearize`] looks for an order that explains it;
//! 3. [`ground`] is what it lies on, [`node`] the node: shards, the superblock's owner, its beginning and its ends;
//!    [`content`] is a value there, [`suffix`] compares objects after crashes of relaxed nodes;
//! 4. [`script`] invents requests; [`client`] sends them in pieces and reads the replies; [`lasting`] knows what
//!    a scan must give, [`channels`] what listeners must hear, [`wall`] what time people take it for;
//! 5. [`settings`] say what a run is made of; [`simulation`] lets clients, shards, device and faults take turns as the seed says.
//!
//! Invariants:
//! 1. One seed and one [`SimulationSettings`] give one run: the same transcript and the same requests
//!    to the device, byte for byte.
//! 2. No clock is read and no thread started.
//!
//! Nothing here is durable.

pub mod channels;
pub mod client;
pub mod content;
pub mod ground;
pub mod history;
pub mod lasting;
pub mod linearize;
pub mod model;
pub mod node;
pub mod script;
pub mod settings;
pub mod simulation;
pub mod suffix;
pub mod wall;

pub use ground::Ground;
pub use settings::{End, Outcome, SimulationSettings};
pub use simulation::Simulation;
