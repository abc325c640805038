//! Rules of order switched off by name, to see that the explorer notices.
//!
//! The code under test takes a [`Mutations`] through its settings (or a plain flag that the test
//! derives from one) and skips a rule when its name is on. A rule whose mutation is not caught is
//! either not needed or not tested.
//!
//! Without the feature `mutations` every rule holds, whatever the settings say, and asking is no code at all: so
//! the same binary path serves production. Only `dev-dependencies` ask for the feature; a check sees to it.

use crate::explore::Report;
#[cfg(any(test, feature = "mutations"))]
use std::collections::BTreeSet;

/// The rules that are switched off. Plain data; no bytes at all outside tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mutations {
    #[cfg(any(test, feature = "mutations"))]
    names: BTreeSet<&'static str>,
}

impl Mutations {
    /// All rules hold.
    #[inline]
    pub fn none() -> Self {
        Self::default()
    }

    /// Only the rule `name` is switched off.
    pub fn one(name: &'static str) -> Self {
        Self::none().and(name)
    }

    /// The same with `name` switched off too.
    #[cfg(any(test, feature = "mutations"))]
    #[must_use]
    pub fn and(mut self, name: &'static str) -> Self {
        self.names.insert(name);
        self
    }

    /// Every rule holds all the same.
    #[cfg(not(any(test, feature = "mutations")))]
    #[must_use]
    pub fn and(self, _name: &'static str) -> Self {
        self
    }

    /// Whether any rule is switched off.
    #[cfg(any(test, feature = "mutations"))]
    pub fn is_any_on(&self) -> bool {
        !self.names.is_empty()
    }

    /// Every rule holds.
    #[cfg(not(any(test, feature = "mutations")))]
    pub const fn is_any_on(&self) -> bool {
        false
    }

    /// Whether the rule `name` is switched off. Cost: a search of the names in tests, nothing elsewhere.
    #[cfg(any(test, feature = "mutations"))]
    pub fn is_on(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Every rule holds.
    #[cfg(not(any(test, feature = "mutations")))]
    #[inline(always)]
    pub const fn is_on(&self, _name: &str) -> bool {
        false
    }
}

/// Explores with one rule broken and demands that a violation is found. Prints what was tried.
/// Returns the report.
///
/// # Panics
/// When nothing was found.
#[track_caller]
#[expect(clippy::print_stdout, reason = "the counts belong in the output of the test")]
pub fn assert_caught(name: &str, explore: impl FnOnce() -> Report) -> Report {
    let report = explore();
    let Some(found) = &report.found else {
        panic!("mutation '{name}' was not caught: {report}");
    };
    let place = std::panic::Location::caller();
    println!("mutation '{name}' caught: {place}: in run {} after {} states", found.run, report.states);
    println!("  {}: \"{}\"", found.minimal_message, found.minimal_path);
    report
}

/// Explores with every rule in place, which must be clean, then with each of `names` broken, which
/// must be caught. Prints the counts. Returns the report of the clean exploration.
///
/// # Panics
/// When the unbroken code is found wrong or a mutation is not caught.
#[track_caller]
#[expect(clippy::print_stdout, reason = "the counts belong in the output of the test")]
pub fn assert_all_caught(names: &[&'static str], mut explore: impl FnMut(&Mutations) -> Report) -> Report {
    let clean = explore(&Mutations::none()).assert_clean();
    for &name in names {
        assert_caught(name, || explore(&Mutations::one(name)));
    }
    println!("{} mutations, all caught; unbroken: {clean}", names.len());
    clean
}
