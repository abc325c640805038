//! What ranges are, and when pairs sleep whole.

use super::ranges::{COLD_MAX, Runs, changed, complement, count};
use super::{Away, PartialPair, RangeClass, RangeStatus, Way};
use crate::core::Core;
use crate::policy::{Advice, WholePolicy};
use crate::sleep::PairState;
use std::ops::Range;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::BlockDevice;

fn refuse<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidInput, what))
}

impl<D: BlockDevice> Core<D> {
    /// Declares a range of bytes hot or cold, durably. Pairs that sleep whole and whose rows change their
    /// class come home first.
    pub(crate) fn declare(&mut self, bytes: &Range<u64>, class: RangeClass) -> Result<()> {
        let Some(partial) = &self.partial else {
            return refuse("the volume keeps no room for hot data of other pairs: make it with --spare");
        };
        let (chunk, end) = (self.layout.chunk_bytes, self.geometry.end());
        if bytes.start >= bytes.end || bytes.end > end {
            return refuse(format!(
                "bytes {} to {} are not a range of the volume's {end}",
                bytes.start, bytes.end
            ));
        }
        let (first, last) = match class {
            RangeClass::Hot => (bytes.start / chunk, bytes.end.div_ceil(chunk)),
            RangeClass::Cold if bytes.end == end => (bytes.start.div_ceil(chunk), end.div_ceil(chunk)),
            RangeClass::Cold => (bytes.start.div_ceil(chunk), bytes.end / chunk),
        };
        let cold = changed(&partial.cold, first, last, class == RangeClass::Cold);
        if cold.len() > COLD_MAX {
            return refuse(format!(
                "more than {COLD_MAX} cold ranges do not fit the map: declare larger ones"
            ));
        }
        if cold == partial.cold {
            return Ok(());
        }
        self.settle();
        for pair in 0..self.layout.groups {
            self.clear_for(pair, &cold)?;
        }
        if let Some(partial) = &mut self.partial {
            partial.cold = cold;
            partial.reckon_hot();
        }
        self.publish_ranges();
        if self.is_broken {
            return Err(Error::new(ErrorKind::DeviceFailed, "no member takes the map of ranges"));
        }
        Ok(())
    }

    /// A pair whose hot rows change comes home, and its copy is void.
    fn clear_for(&mut self, pair: u32, cold: &Runs) -> Result<()> {
        let Some(partial) = &self.partial else { return Ok(()) };
        if partial.hot_rows(cold, pair) == partial.pairs[pair as usize].hot {
            return Ok(());
        }
        let is_away = partial.away(pair).is_some_and(Away::is_needed);
        let stands = self.sleep.as_ref().is_some_and(|sleep| sleep.pairs[pair as usize].standing.is_some());
        if is_away || stands {
            self.wake(pair);
            self.finish_flush(pair)?;
            self.finish_move(pair)?;
        }
        self.drop_copy(pair);
        Ok(())
    }

    /// What is true of a range, in runs of one class.
    pub(crate) fn range_status(&self, bytes: &Range<u64>) -> Vec<RangeStatus> {
        let end = bytes.end.min(self.geometry.end());
        let chunk = self.layout.chunk_bytes;
        let whole = |class, runs: &Runs| {
            let clip =
                |&(first, last): &(u64, u64)| (first * chunk).max(bytes.start)..(last * chunk).min(end);
            let clipped = runs.iter().map(clip).filter(|bytes| bytes.start < bytes.end);
            clipped
                .map(|bytes| RangeStatus { needs_start: self.needs_start(&bytes), bytes, class })
                .collect::<Vec<_>>()
        };
        let none = Runs::new();
        let cold = self.partial.as_ref().map_or(&none, |partial| &partial.cold);
        let hot = complement(cold, self.geometry.end().div_ceil(chunk));
        let mut all = whole(RangeClass::Cold, cold);
        all.extend(whole(RangeClass::Hot, &hot));
        all.sort_unstable_by_key(|status| status.bytes.start);
        all
    }

    /// Whether some byte of a range lies, where it counts, on a pair whose disks both stand.
    fn needs_start(&self, bytes: &Range<u64>) -> bool {
        let Some(sleep) = &self.sleep else { return false };
        let Some(partial) = &self.partial else { return false };
        let chunk = self.layout.chunk_bytes;
        let groups = u64::from(self.layout.groups);
        let chunks = bytes.start / chunk..bytes.end.div_ceil(chunk);
        let stands = |group: u32| sleep.pairs[group as usize].standing.is_some();
        let is_away = |group: u32, row| {
            let away = partial.away(group).filter(|away| away.counts);
            away.is_some_and(|away| away.row_there(row).is_some())
        };
        // A class reaches all pairs alike: chunks that go once round them tell of all.
        chunks.take(self.layout.groups as usize).any(|chunk| {
            let group = (chunk % groups) as u32;
            stands(group) && !is_away(group, chunk / groups)
        })
    }

    /// Sends a pair to sleep whole: its second disk now, its first when its hot rows are away.
    pub(crate) fn begin_whole(&mut self, pair: u32) -> Result<()> {
        if self.sleep.is_none() || self.partial.is_none() {
            return refuse(
                "the volume's pairs cannot sleep whole: make it with --spare, open it with a buffer",
            );
        }
        if pair >= self.layout.groups {
            return refuse(format!("the volume has no pair {pair}"));
        }
        let awake = self.pair_state(pair) == PairState::Awake;
        if awake && !self.put_to_sleep(pair) || self.pair_state(pair) != PairState::Asleep {
            return refuse(format!(
                "pair {pair} cannot sleep: it flushes, is degraded, or keeps hot data of others"
            ));
        }
        let Some(partial) = &self.partial else { return Ok(()) };
        let hot = partial.pairs[pair as usize].hot.clone();
        let is_away = partial.away(pair).is_some_and(|away| away.counts);
        if hot.is_empty() || is_away {
            self.stop_first(pair);
            return Ok(());
        }
        self.find_room(pair, hot)?;
        let Some(away) = self.partial.as_mut().and_then(|partial| partial.away_mut(pair)) else {
            return Ok(());
        };
        if away.moving.is_none() {
            away.moving = Some((Way::Out, 3 * away.differing.len() as u64));
        }
        Ok(())
    }

    /// Keeps the copy that a pair has if its host is awake, else takes room for a new one.
    fn find_room(&mut self, pair: u32, hot: Runs) -> Result<()> {
        let Some(partial) = &self.partial else { return Ok(()) };
        if let Some(away) = partial.away(pair) {
            if self.pair_state(away.host) == PairState::Awake {
                return Ok(());
            }
            self.drop_copy(pair);
        }
        let rows = count(&hot);
        let Some(partial) = &self.partial else { return Ok(()) };
        let is_host = |group: u32| {
            partial.pairs.iter().filter_map(|pair| pair.away.as_ref()).any(|away| away.host == group)
        };
        let is_away = |group: u32| partial.away(group).is_some_and(Away::is_needed);
        let mut hosts: Vec<u32> = (0..self.layout.groups)
            .filter(|&group| group != pair && self.pair_state(group) == PairState::Awake && !is_away(group))
            .collect();
        // Those that must be awake anyway first; else the last, so that pairs can be sent in their order.
        hosts
            .sort_by_key(|&group| (partial.keeper != Some(group), !is_host(group), std::cmp::Reverse(group)));
        for &host in &hosts {
            let Some(partial) = &mut self.partial else { return Ok(()) };
            let base = match partial.room(host, rows) {
                Some(base) => Some(base),
                None => {
                    partial.forget_copies(host);
                    partial.room(host, rows)
                }
            };
            if let Some(base) = base {
                partial.pairs[pair as usize].away = Some(Away::new(host, base, hot, false));
                return Ok(());
            }
        }
        refuse(format!(
            "no pair that is awake on both disks has room for the {rows} hot rows of pair {pair}: wake one, declare \
             more cold, or make the volume with more --spare"
        ))
    }

    /// What is true of each pair; empty without room to spare.
    pub(crate) fn partial_pairs(&self) -> Vec<PartialPair> {
        let Some(partial) = &self.partial else { return Vec::new() };
        let stands =
            |pair: usize| self.sleep.as_ref().is_some_and(|sleep| sleep.pairs[pair].standing.is_some());
        let of = |(at, pair): (usize, &super::PairRanges)| {
            let away = pair.away.as_ref();
            PartialPair {
                host: away.filter(|away| away.counts).map(|away| away.host),
                sleeps_whole: stands(at),
                is_moving: away.is_some_and(|away| away.moving.is_some()),
                rows_differing: away.map_or(0, |away| away.differing.len() as u64),
                rows_copied: pair.copied,
            }
        };
        partial.pairs.iter().enumerate().map(of).collect()
    }

    pub(crate) fn set_whole_policy(&mut self, policy: Option<WholePolicy>) -> Result<()> {
        let Some(partial) = &mut self.partial else {
            return refuse("the volume keeps no room for hot data of other pairs: make it with --spare");
        };
        (partial.policy, partial.keeper) = (policy, None);
        Ok(())
    }

    /// The pair that stays awake for the others by the policy, if there is one; chosen once, the busiest.
    /// With two pairs it would cost as much as it saves.
    pub(crate) fn keeper(&mut self, shares: &[f64]) -> Option<u32> {
        let state = |core: &Self, group: u32| core.pair_state(group);
        let partial = self.partial.as_ref()?;
        partial.policy?;
        if partial.cold.is_empty() || self.layout.groups < 3 {
            return None;
        }
        if let Some(keeper) = partial.keeper.filter(|&keeper| state(self, keeper) != PairState::Degraded) {
            return Some(keeper);
        }
        let share = |group: &u32| self.layout.members(*group).map(|index| shares[index]).sum::<f64>();
        let fit = (0..self.layout.groups).filter(|&group| state(self, group) != PairState::Degraded);
        let keeper = fit.rev().max_by(|one, two| share(one).total_cmp(&share(two)));
        self.partial.as_mut()?.keeper = keeper;
        keeper
    }

    /// An epoch has ended: pairs whose second disk sleeps go on to sleep whole, or come home.
    pub(crate) fn tick_whole(&mut self, hours: f64, shares: &[f64], keeper: Option<u32>) {
        let (Some(keeper), Some(sleep)) = (keeper, &self.sleep) else { return };
        let (sleeping, budget) = (sleep.settings.policy, sleep.settings.policy.cycles);
        let share = |group: u32| self.layout.members(group).map(|index| shares[index]).fold(0.0, f64::max);
        let shares: Vec<f64> = (0..self.layout.groups).map(share).collect();
        let kept = shares[keeper as usize];
        for pair in (0..self.layout.groups).filter(|&pair| pair != keeper) {
            let is_asleep = self.pair_state(pair) == PairState::Asleep;
            let stands =
                self.sleep.as_ref().is_some_and(|sleep| sleep.pairs[pair as usize].standing.is_some());
            let Some(partial) = &mut self.partial else { return };
            let Some(policy) = partial.policy else { return };
            let ranges = &mut partial.pairs[pair as usize];
            let was_cold = std::mem::take(&mut ranges.was_cold);
            let is_moving = ranges.away.as_ref().is_some_and(|away| away.moving.is_some());
            let advice = if !is_asleep || is_moving {
                ranges.history.between();
                Advice::Stay
            } else if stands {
                ranges.history.whole(&sleeping, kept)
            } else {
                ranges.history.turning(&policy, budget, was_cold, kept + shares[pair as usize], hours)
            };
            match advice {
                // Without room the pair stays as it is, and is asked again later.
                Advice::Sleep => _ = self.begin_whole(pair),
                Advice::Wake => self.wake(pair),
                Advice::Stay => {}
            }
        }
    }
}
