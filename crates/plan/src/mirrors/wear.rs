//! Starts of disks beside what they are rated for. The rating belongs to one disk, so the disk that starts most decides;
//! the mean of all is told beside it.

use super::describe::Description;
use crate::number::number;
use crate::{Fact, Label};
use tierstone_volume::CycleBudget;

const HOURS_A_WEEK: f64 = 168.0;
const WEEKS_A_YEAR: f64 = 365.0 / 7.0;

/// What a disk is rated for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rating {
    /// Starts in its life.
    cycles: f64,
    budget: CycleBudget,
}

/// Starts of disks in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wear {
    /// Starts a week of the mean disk.
    pub mean: f64,
    /// Starts a week of the disk that starts most.
    pub most: f64,
    /// Whether that one keeps to its rating, by the rule of the policy.
    pub is_within: bool,
    /// Years in which that one has its rated starts; `None` where no disk starts.
    pub years: Option<f64>,
}

impl Rating {
    pub fn of(description: &Description) -> Rating {
        Rating { cycles: description.disk.rated_cycles, budget: description.cycle_budget() }
    }

    /// Starts a week that use a disk up in its rated life.
    pub fn weekly(&self) -> f64 {
        self.budget.per_hour * HOURS_A_WEEK
    }

    /// What `starts`, of the mean disk and of the one with most, in `seconds` come to.
    pub fn wear(&self, (mean, most): (f64, u64), seconds: f64) -> Wear {
        let hours = seconds / 3600.0;
        let weekly = |starts: f64| starts * HOURS_A_WEEK / hours;
        let most_weekly = weekly(most as f64);
        Wear {
            mean: weekly(mean),
            most: most_weekly,
            is_within: most.checked_sub(1).is_none_or(|before| self.budget.allows(before, hours)),
            years: (most > 0).then(|| self.cycles / (most_weekly * WEEKS_A_YEAR)),
        }
    }

    /// A sentence on the disks that `what` names, with `advice` where the one with most starts too often.
    pub fn sentence(&self, what: &str, wear: &Wear, advice: &str) -> String {
        let Some(years) = wear.years else { return format!("{what} never starts.") };
        let starts = format!(
            "{what} starts {} times a week, the one with most {} times",
            number(wear.mean),
            number(wear.most)
        );
        let (rated, lasts) = (
            number(self.weekly()),
            format!("its {} rated starts last {} years", number(self.cycles), number(years)),
        );
        if !wear.is_within {
            return format!("{starts}, MORE than the {rated} that it is rated for: {lasts}; {advice}.");
        }
        // The policy lets a disk have an hour's starts before they are due.
        let ahead = if wear.most > self.weekly() { " and an hour's ahead" } else { "" };
        format!("{starts}, within the {rated} that it is rated for{ahead}: {lasts}.")
    }

    /// The numbers, with `of` behind each name.
    pub fn facts(&self, wear: &Wear, of: &str) -> Vec<Fact> {
        let fact = |name: &str, value: f64, unit: &str| Fact {
            name: format!("{name}{of}"),
            value,
            unit: unit.into(),
            label: Label::Modelled,
        };
        let mut facts = vec![
            fact("starts of the mean disk a week", wear.mean, "1"),
            fact("starts of the disk with most a week", wear.most, "1"),
        ];
        let name = "years until the disk with most has had its rated starts";
        facts.extend(wear.years.map(|years| fact(name, years, "years")));
        facts
    }
}
