//! Where a number comes from. Every number that a report, a plan or a meter shows has one.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// A meter or a clock of this machine said so, over the time that is given with it.
    Measured,
    /// A model made it, of counters or of a description.
    Modelled,
    /// The source says so that is named beside it.
    Published,
}

impl Label {
    /// Its name, as reports and files have it.
    pub fn name(self) -> &'static str {
        match self {
            Label::Measured => "measured",
            Label::Modelled => "modelled",
            Label::Published => "published",
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
