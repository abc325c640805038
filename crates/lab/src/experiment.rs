//! What an experiment is: plain data and one function.

use crate::result::Verdict;
use crate::run::Run;
use serde::{Deserialize, Serialize};
use std::fmt;
use tierstone_base::Result;

/// One published experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line and of its folder: words joined by `-`.
    pub name: &'static str,
    /// What it is, for a heading.
    pub title: &'static str,
    /// The work, and the tables and figures that are run here.
    pub source: &'static str,
    /// What is measured, and how that differs from the publication, in a few sentences.
    pub measures: &'static str,
    /// Whether the numbers here are measured or modelled.
    pub kind: Kind,
    /// The published values that the run is compared to.
    pub published: &'static [Published],
    /// Published curves and table columns that are drawn beside ours.
    pub series: &'static [PublishedSeries],
    /// Bytes of disk that a run of this size needs.
    pub space_bytes: fn(Size) -> u64,
    /// Measures, and gives its findings to the [`Run`].
    pub run: fn(&mut Run<'_>) -> Result<()>,
}

/// Where the numbers of a result come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Observed in the run.
    Measured,
    /// Worked out by a model.
    Modelled,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Kind::Measured => "measured",
            Kind::Modelled => "modelled",
        })
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// A second or so: shows that the experiment runs. Its numbers mean nothing.
    Tiny,
    /// Seconds: shows the shape.
    Quick,
    /// Minutes: the published sizes where they fit.
    Full,
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Size::Tiny => "tiny",
            Size::Quick => "quick",
            Size::Full => "full",
        })
    }
}

/// One published value, and what agrees with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// What it is of; unique in its experiment.
    pub name: &'static str,
    /// The value. A ratio of two printed numbers is given as such, and `place` names both.
    pub value: f64,
    /// Its unit; `ratio` for a quotient.
    pub unit: &'static str,
    /// Table, figure or section, with the printed numbers that a ratio comes from.
    pub place: &'static str,
    /// What is compared here, and why it can be.
    pub because: &'static str,
    /// Which values here agree with it.
    pub rule: Rule,
}

/// A published curve, or a column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PublishedSeries {
    /// What it is of.
    pub name: &'static str,
    /// Table or figure.
    pub place: &'static str,
    /// What the first number of a point is, with its unit.
    pub x: &'static str,
    /// What the second is, with its unit.
    pub y: &'static str,
    /// The printed values.
    pub points: &'static [(f64, f64)],
}

/// Which values agree with a published one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// From the first to the second.
    Between(f64, f64),
}

impl Rule {
    /// Whether `here` agrees. No number that is not finite agrees with anything.
    pub fn judge(&self, here: f64) -> Verdict {
        let agrees = here.is_finite()
            && match *self {
                Rule::AtLeast(bound) => here >= bound,
                Rule::AtMost(bound) => here <= bound,
                Rule::Between(low, high) => (low..=high).contains(&here),
            };
        if agrees { Verdict::Agrees } else { Verdict::Differs }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::AtLeast(bound) => write!(formatter, "agrees at {bound} or more"),
            Rule::AtMost(bound) => write!(formatter, "agrees at {bound} or less"),
            Rule::Between(low, high) => write!(formatter, "agrees from {low} to {high}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_includes_its_bounds_and_refuses_what_is_no_number() {
        for (rule, agreeing, differing) in [
            (Rule::AtLeast(0.8), 0.8, 0.799),
            (Rule::AtMost(2.0), 2.0, 2.001),
            (Rule::Between(1.0, 3.0), 1.0, 0.99),
            (Rule::Between(1.0, 3.0), 3.0, 3.01),
        ] {
            assert_eq!(rule.judge(agreeing), Verdict::Agrees, "{rule}");
            assert_eq!(rule.judge(differing), Verdict::Differs, "{rule}");
            assert_eq!(rule.judge(f64::NAN), Verdict::Differs, "{rule}");
            assert_eq!(rule.judge(f64::INFINITY), Verdict::Differs, "{rule}");
        }
    }
}
