//! Plans of hardware, and what plans and results are written in.
//!
//! A plan turns a description (TOML or CSV) into a [`Report`]: what was asked, the answer with the
//! label of each number, published values beside ours, tables, plots, and how each figure was come to.
//! Models are pure functions of their descriptions: no clock, no input or output, no machine.
//!
//! Invariants:
//! 1. Every number has a unit and a label: measured, modelled or published.
//! 2. Nothing that decides about money or power has a silent default: what is missing is an error
//!    that names it.

pub mod drawing;
pub mod mirrors;
pub mod number;
pub mod parts;
pub mod report;

pub use report::{Fact, Label, Report};
