//! When the second disk of a mirror sleeps and wakes. Pure; the volume and the simulator of
//! `crates/plan/src/mirrors` decide by the same code.
//!
//! Source: Snyder, Chen, Chrysanthis, Labrinidis, *QMD: Exploiting Flash for Energy Efficient Disk
//! Arrays*, DaMoN 2011, section 4. Departures: the threshold of the buffer is a setting (its value is
//! not printed), and a budget may bound the cycles.

/// When pairs sleep and wake. Plain data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SleepPolicy {
    /// Below this utilisation of both disks an epoch counts as quiet. Published 0.10.
    pub spin_down_utilisation: f64,
    /// So many quiet epochs in a row send the second disk to sleep. Published 30.
    pub spin_down_epochs: u32,
    /// Above this utilisation of the disk that is awake an epoch counts as busy. Published 0.25; 0.6
    /// fattens the tail of response times under spikes.
    pub spin_up_utilisation: f64,
    /// So many busy epochs in a row wake the second disk. Published 2.
    pub spin_up_epochs: u32,
    /// The share of the buffer above which all disks that use it wake and it is flushed; 0 to 1.
    pub buffer_fill: f64,
    /// How often a disk may start, if that is bounded.
    pub cycles: Option<CycleBudget>,
}

/// How many starts and stops a disk is built for. A start is allowed when the disk has had fewer than
/// `ahead + rate * time`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CycleBudget {
    /// Starts an hour; 50,000 over five years are 1.14.
    pub per_hour: f64,
    /// Starts that may be taken before they are due.
    pub ahead: f64,
}

impl CycleBudget {
    /// The budget of a disk rated for `cycles` over `years` of 8,760 hours, with an hour's ahead.
    pub fn rated(cycles: f64, years: f64) -> CycleBudget {
        let per_hour = cycles / (years * 8760.0);
        CycleBudget { per_hour, ahead: per_hour.max(1.0) }
    }

    /// Whether one more start is within the budget after `taken` in `hours`.
    pub fn allows(&self, taken: u64, hours: f64) -> bool {
        (taken as f64) < self.ahead + self.per_hour * hours
    }
}

impl SleepPolicy {
    /// The published thresholds, waking at a buffer that is `buffer_fill` full.
    pub fn published(buffer_fill: f64) -> SleepPolicy {
        SleepPolicy {
            spin_down_utilisation: 0.10,
            spin_down_epochs: 30,
            spin_up_utilisation: 0.25,
            spin_up_epochs: 2,
            buffer_fill,
            cycles: None,
        }
    }
}

/// What a pair should do at the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    Stay,
    /// The second disk should sleep.
    Sleep,
    /// It should wake.
    Wake,
}

/// What the policy remembers of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairHistory {
    quiet: u32,
    busy: u32,
    /// How often its second disk has slept.
    pub cycles: u64,
}

impl PairHistory {
    /// An epoch of an awake pair has ended; `utilisation` is that of its busier disk, `hours` the time
    /// since counting began. Sleep is advised once and counted.
    pub fn awake(&mut self, policy: &SleepPolicy, utilisation: f64, hours: f64) -> Advice {
        self.busy = 0;
        self.quiet = if utilisation < policy.spin_down_utilisation { self.quiet + 1 } else { 0 };
        let is_allowed = policy.cycles.is_none_or(|budget| budget.allows(self.cycles, hours));
        if self.quiet < policy.spin_down_epochs || !is_allowed {
            return Advice::Stay;
        }
        self.quiet = 0;
        self.cycles += 1;
        Advice::Sleep
    }

    /// An epoch of a pair whose second disk sleeps has ended; `utilisation` is that of the other disk,
    /// `fill` the share of the buffer in use.
    pub fn asleep(&mut self, policy: &SleepPolicy, utilisation: f64, fill: f64) -> Advice {
        self.quiet = 0;
        self.busy = if utilisation > policy.spin_up_utilisation { self.busy + 1 } else { 0 };
        if self.busy < policy.spin_up_epochs && fill <= policy.buffer_fill {
            return Advice::Stay;
        }
        self.busy = 0;
        Advice::Wake
    }

    /// An epoch between the two states has ended: nothing counts.
    pub fn between(&mut self) {
        (self.quiet, self.busy) = (0, 0);
    }
}

/// When pairs whose second disk sleeps go on to sleep whole. Plain data. The source gives no numbers; these
/// are ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WholePolicy {
    /// So many epochs in a row without a request for cold data.
    pub cold_epochs: u32,
    /// Up to this utilisation of the pair that takes the hot data, theirs included; 0 to 1.
    pub host_utilisation: f64,
}

impl WholePolicy {
    /// Ten minutes of epochs of a second without a cold request; a host that stays below the published
    /// threshold at which disks wake.
    pub fn cautious() -> WholePolicy {
        WholePolicy { cold_epochs: 600, host_utilisation: 0.20 }
    }
}

/// What the policy remembers of a pair that may sleep whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholeHistory {
    quiet: u32,
    busy: u32,
    /// How often its first disk was sent to sleep.
    pub cycles: u64,
}

impl WholeHistory {
    /// An epoch has ended in which the first disk turned and the second slept; `carried` is the utilisation
    /// that the host had or would have with this pair's hot load. Sleep is advised once and counted.
    pub fn turning(
        &mut self,
        policy: &WholePolicy,
        budget: Option<CycleBudget>,
        was_cold: bool,
        carried: f64,
        hours: f64,
    ) -> Advice {
        self.busy = 0;
        self.quiet = if !was_cold && carried <= policy.host_utilisation { self.quiet + 1 } else { 0 };
        if self.quiet < policy.cold_epochs || budget.is_some_and(|budget| !budget.allows(self.cycles, hours))
        {
            return Advice::Stay;
        }
        self.quiet = 0;
        self.cycles += 1;
        Advice::Sleep
    }

    /// An epoch of a pair that sleeps whole has ended; `host` is the utilisation of its host. Too much sends
    /// the hot data home, by the thresholds at which second disks wake.
    pub fn whole(&mut self, policy: &SleepPolicy, host: f64) -> Advice {
        self.quiet = 0;
        self.busy = if host > policy.spin_up_utilisation { self.busy + 1 } else { 0 };
        if self.busy < policy.spin_up_epochs {
            return Advice::Stay;
        }
        self.busy = 0;
        Advice::Wake
    }

    /// An epoch between the two states has ended: nothing counts.
    pub fn between(&mut self) {
        (self.quiet, self.busy) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_quiet_epochs_in_a_row_send_to_sleep_and_two_busy_ones_wake() {
        let policy = SleepPolicy::published(0.9);
        let mut pair = PairHistory::default();
        for _ in 0..29 {
            assert_eq!(pair.awake(&policy, 0.05, 0.0), Advice::Stay);
        }
        assert_eq!(pair.awake(&policy, 0.10, 0.0), Advice::Stay, "at the threshold is not below it");
        for _ in 0..29 {
            assert_eq!(pair.awake(&policy, 0.0, 0.0), Advice::Stay);
        }
        assert_eq!(pair.awake(&policy, 0.0, 0.0), Advice::Sleep);
        assert_eq!(pair.asleep(&policy, 0.3, 0.0), Advice::Stay);
        assert_eq!(pair.asleep(&policy, 0.25, 0.0), Advice::Stay, "at the threshold is not above it");
        assert_eq!(pair.asleep(&policy, 0.3, 0.0), Advice::Stay);
        assert_eq!(pair.asleep(&policy, 0.3, 0.0), Advice::Wake);
        assert_eq!(pair.asleep(&policy, 0.0, 0.95), Advice::Wake, "a full buffer wakes at once");
        assert_eq!(pair.cycles, 1);
    }

    #[test]
    fn a_pair_without_cold_requests_sleeps_whole_and_comes_home_when_its_host_is_busy() {
        let policy = WholePolicy { cold_epochs: 3, host_utilisation: 0.2 };
        let sleep = SleepPolicy::published(0.9);
        let mut pair = WholeHistory::default();
        let mut turning = |cold, carried| pair.turning(&policy, None, cold, carried, 0.0);
        assert_eq!([turning(false, 0.2), turning(false, 0.2)], [Advice::Stay; 2]);
        assert_eq!(turning(true, 0.0), Advice::Stay, "a cold request");
        assert_eq!([turning(false, 0.0), turning(false, 0.0)], [Advice::Stay; 2]);
        assert_eq!(turning(false, 0.21), Advice::Stay, "too much for the host");
        assert_eq!([turning(false, 0.0), turning(false, 0.0)], [Advice::Stay; 2]);
        assert_eq!(turning(false, 0.0), Advice::Sleep);
        assert_eq!([pair.whole(&sleep, 0.26), pair.whole(&sleep, 0.2)], [Advice::Stay; 2]);
        assert_eq!([pair.whole(&sleep, 0.26), pair.whole(&sleep, 0.26)], [Advice::Stay, Advice::Wake]);
        assert_eq!(pair.cycles, 1);
        let none = Some(CycleBudget { per_hour: 0.0, ahead: 1.0 });
        for _ in 0..9 {
            assert_eq!(pair.turning(&policy, none, false, 0.0, 5.0), Advice::Stay, "no start is left");
        }
    }

    #[test]
    fn the_budget_of_a_rated_disk_is_1_14_starts_an_hour() {
        let budget = CycleBudget::rated(50_000.0, 5.0);
        assert!((budget.per_hour - 1.1416).abs() < 1e-3);
        let policy = SleepPolicy { spin_down_epochs: 1, cycles: Some(budget), ..SleepPolicy::published(0.9) };
        let mut pair = PairHistory::default();
        let week = 7 * 24 * 3600;
        for second in 0..week {
            pair.awake(&policy, 0.0, f64::from(second) / 3600.0);
        }
        assert!((192..=194).contains(&pair.cycles), "{}", pair.cycles);
    }
}
