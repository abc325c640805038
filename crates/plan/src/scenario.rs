//! Descriptions that ship with the program: published cases, and examples to start from.

use crate::description::{Description, Form};

/// A description that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The plan that it is of.
    pub plan: &'static str,
    /// Its name; unique among all.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// What it is written in.
    pub form: Form,
    /// The file.
    pub text: &'static str,
}

impl Scenario {
    /// As something to plan.
    pub fn description(&self) -> Description {
        Description { origin: self.name.to_owned(), form: self.form, text: self.text.to_owned() }
    }
}

/// All, in the order of the plans.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    crate::SCENARIOS.iter().flat_map(|scenarios| scenarios.iter())
}

/// The scenario called `name`.
pub fn find(name: &str) -> Option<&'static Scenario> {
    all().find(|scenario| scenario.name == name)
}
