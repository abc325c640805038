//! How long processors ran at which clock: `time_in_state` of cpufreq, in hundredths of a second.
//!
//! The effective clock is the mean of the clocks weighted by their times; the processor's power is near linear in
//! it, with an intercept above zero (the phone method, `docs/design/energy.md`).

use crate::meter::{Fault, FaultKind};
use crate::sysfs;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Where policies (processors that share a clock) lie, below the root.
const POLICIES: &str = "sys/devices/system/cpu/cpufreq";
/// Microseconds in the kernel's unit of time.
const UNIT_US: u64 = 10_000;

/// Times of all policies at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    policies: BTreeMap<String, BTreeMap<u64, u64>>,
}

/// Times of one policy between two moments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyTimes {
    /// The policy: `policy0`.
    pub policy: String,
    /// Microseconds by clock, in kilohertz.
    pub us_by_khz: BTreeMap<u64, u64>,
    /// Their weighted mean, in kilohertz.
    pub effective_khz: f64,
    /// The sum of the times, in microseconds: what passed, to the kernel's 10 ms.
    pub total_us: u64,
}

impl Residency {
    /// The times below `root` now; `None` where the kernel keeps none.
    ///
    /// # Errors
    /// [`FaultKind::Rubbish`] when a file does not hold pairs of numbers.
    pub fn read(root: &Path) -> Result<Option<Residency>, Fault> {
        let mut policies = BTreeMap::new();
        for policy in sysfs::entries(&root.join(POLICIES)) {
            let file = policy.join("stats/time_in_state");
            let Ok(text) = sysfs::text(&file) else { continue };
            let parsed = parse(&text);
            let times = parsed
                .ok_or_else(|| Fault::new(FaultKind::Rubbish, format!("{}: no pairs", file.display())))?;
            policies.insert(sysfs::name(&policy), times);
        }
        Ok((!policies.is_empty()).then_some(Residency { policies }))
    }

    /// What passed since `before`. A policy that was not there before, or whose times went back (a processor that was
    /// taken out and put back), is left out.
    pub fn since(&self, before: &Residency) -> Vec<PolicyTimes> {
        let mut all = Vec::new();
        for (policy, times) in &self.policies {
            let Some(old) = before.policies.get(policy) else { continue };
            let passed: Option<BTreeMap<u64, u64>> = times
                .iter()
                .map(|(khz, time)| {
                    let passed = time.checked_sub(old.get(khz).copied().unwrap_or(0))?;
                    Some((*khz, passed.saturating_mul(UNIT_US)))
                })
                .collect();
            let Some(us_by_khz) = passed else { continue };
            let total_us: u64 = us_by_khz.values().sum();
            let weighted: f64 = us_by_khz.iter().map(|(khz, us)| *khz as f64 * *us as f64).sum();
            let effective_khz = weighted / total_us.max(1) as f64;
            all.push(PolicyTimes { policy: policy.clone(), us_by_khz, effective_khz, total_us });
        }
        all
    }
}

fn parse(text: &str) -> Option<BTreeMap<u64, u64>> {
    let pair = |line: &str| {
        let (khz, time) = line.trim().split_once(' ')?;
        Some((khz.parse().ok()?, time.trim().parse().ok()?))
    };
    text.lines().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_clock_is_the_mean_weighted_by_time() {
        let times = |text: &str| {
            let policies = BTreeMap::from([("policy0".to_owned(), parse(text).unwrap())]);
            Residency { policies }
        };
        let before = times("1000000 100\n400000 50\n");
        let after = times("1000000 175\n400000 75\n");
        let passed = after.since(&before);
        assert_eq!(passed.len(), 1);
        assert_eq!(passed[0].total_us, 1_000_000);
        assert_eq!(passed[0].effective_khz, 0.75 * 1e6 + 0.25 * 4e5);
        // Counters that began anew tell nothing.
        assert_eq!(before.since(&after), Vec::new());
        assert_eq!(parse("1000000 100\nfast 3"), None);
    }
}
