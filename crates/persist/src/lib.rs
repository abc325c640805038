//! The order in which stores become durable: how to ask for it, what it costs, and how to see that a structure
//! asks for enough.
//!
//! Structures are written over [`memory`], from the steps of [`primitives`]; [`queue`] has three. [`tracer`] records
//! what threads do as a [`trace`], [`import`] reads what others recorded; [`order`] says which of its persists a persistency model orders; [`observer`] gives
//! every state that a failure may leave; [`litmus`] runs small tests written as text; [`timing`] says what the order
//! costs.
//!
//! Invariants:
//! 1. A persist is a store to an aligned word of 8 bytes in persistent memory; longer stores are several.
//! 2. Every state that the observer gives is a cut of the order that is closed downwards; enumerating leaves none
//!    out unless it says so.
//! 3. Nothing here reads a clock or draws randomness that no seed decides; threads are started by the tracer only.
//! 4. Over [`memory::Direct`] nothing is recorded: tracing is a type parameter.
//!
//! The guide is `docs/persist.md`.

pub mod import;
#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
pub mod litmus;
pub mod memory;
pub mod observer;
pub mod order;
pub mod primitives;
pub mod queue;
#[cfg(test)]
mod testing;
pub mod timing;
pub mod trace;
pub mod tracer;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/persist.md")]
struct Guide;
