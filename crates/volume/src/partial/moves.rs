//! Rows on their way to a host and home, in bounded steps, and the map that says where they count.

use super::format::{RangeMap, SLOT_BYTES};
use super::{Away, MAP_BYTES, MAP_START, Way};
use crate::core::Core;
use crate::layout::Place;
use crate::sleep::PairState;
use crate::superblock::{Health, Slot};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::{BlockDevice, IoBuffer, IoRequest};

impl<D: BlockDevice> Core<D> {
    // ---- where rows count ----------------------------------------------------------------------

    /// Where a place that is about to be read counts.
    pub(crate) fn whereabouts(&mut self, place: Place) -> Place {
        let Some(partial) = &mut self.partial else { return place };
        partial.note_use(&place);
        partial.whereabouts(place)
    }

    /// Where a place that is about to be written counts; the other copy is old from now on.
    pub(crate) fn written(&mut self, place: Place) -> Place {
        let Some(partial) = &mut self.partial else { return place };
        let is_noted = |counts: bool| {
            let rule = if counts {
                "rows written at their host come home"
            } else {
                "rows written at home are copied anew"
            };
            !self.mutations.is_on(rule)
        };
        if let Some(away) = partial.away_mut(place.group)
            && away.row_there(place.row).is_some()
            && is_noted(away.counts)
        {
            away.differing.insert(place.row);
        }
        self.whereabouts(place)
    }

    /// Starts the disks that stand of the pairs that a request touches: they must have its marks too.
    pub(crate) fn rouse_for(&mut self, offset: u64, len: u64) {
        if !self.sleep.as_ref().is_some_and(|sleep| sleep.pairs.iter().any(|pair| pair.standing.is_some())) {
            return;
        }
        for place in self.layout.places(offset, len) {
            let group = self.whereabouts(place).group;
            if let Some(sleep) = &mut self.sleep {
                sleep.rouse(group);
            }
        }
    }

    /// Starts every disk that stands because its pair sleeps whole.
    pub(crate) fn rouse_all(&mut self) {
        if let Some(sleep) = &mut self.sleep {
            (0..sleep.pairs.len()).for_each(|group| sleep.rouse(group as u32));
        }
    }

    /// Whether a row of a pair holds bytes that count, there being spare ones.
    pub(crate) fn holds_data(&self, group: u32, row: u64) -> bool {
        let Some(partial) = &self.partial else { return true };
        let counts = |away: &Away| {
            away.counts
                && away.host == group
                && (away.base..away.base + super::count(&away.rows)).contains(&row)
        };
        row < partial.first_spare_row()
            || partial.pairs.iter().filter_map(|pair| pair.away.as_ref()).any(counts)
    }

    pub(crate) fn is_needed_awake(&self, group: u32) -> bool {
        self.partial.as_ref().is_some_and(|partial| partial.is_needed_awake(group))
    }

    // ---- the map -------------------------------------------------------------------------------

    /// Takes over the newest map of all members.
    pub(crate) fn read_ranges(&mut self) -> Result<()> {
        let Some(mut partial) = self.partial.take() else { return Ok(()) };
        let mut newest: Option<RangeMap> = None;
        for index in 0..self.health.len() {
            if self.health[index] == Health::Failed {
                continue;
            }
            let read = IoRequest::read(0, MAP_START, IoBuffer::zeroed(MAP_BYTES as usize));
            let done = self.members.perform(vec![(index, read)]).pop();
            let slots = done.filter(|done| done.result.is_ok()).and_then(|done| done.buffer);
            if let Some((slot, map)) = slots.and_then(|slots| RangeMap::newest(self.volume, &slots)) {
                partial.slots[index] = Slot(slot);
                if newest.as_ref().is_none_or(|newest| newest.sequence < map.sequence) {
                    newest = Some(map);
                }
            }
        }
        let Some(newest) = newest else {
            return Err(Error::new(ErrorKind::Corrupt, "no member holds a whole map of ranges"));
        };
        partial.adopt(newest)?;
        self.partial = Some(partial);
        Ok(())
    }

    /// Member `index` was replaced: it holds no map.
    pub(crate) fn forget_map_slot(&mut self, index: usize) {
        if let Some(partial) = &mut self.partial {
            partial.slots[index] = Slot::default();
        }
    }

    /// Writes the map to all members that are awake, durably.
    pub(crate) fn publish_ranges(&mut self) {
        if self.written_members().is_empty() {
            self.rouse_all();
        }
        let targets = self.written_members();
        let Some(partial) = &mut self.partial else { return };
        partial.sequence += 1;
        let bytes = partial.map().encode(self.volume);
        let slot_blocks = SLOT_BYTES as u64 / tierstone_media::BLOCK_BYTES as u64;
        let write = |&index: &usize| {
            let offset = MAP_START + partial.slots[index].next() * slot_blocks;
            (index, IoRequest::write_durable(0, offset, bytes.clone()))
        };
        let results = self.members.perform(targets.iter().map(write).collect());
        for (&index, done) in targets.iter().zip(&results) {
            partial.slots[index].taken(done.result.is_ok());
        }
        let failed: Vec<bool> = results.iter().map(|done| done.result.is_err()).collect();
        self.recorded(&targets, &failed);
    }

    // ---- moving --------------------------------------------------------------------------------

    /// The rows of a pair that are away shall come home; those on their way out turn back. Starts its
    /// first disk.
    pub(crate) fn call_home(&mut self, group: u32) {
        if let Some(sleep) = &mut self.sleep {
            sleep.rouse(group);
        }
        let Some(away) = self.partial.as_mut().and_then(|partial| partial.away_mut(group)) else { return };
        match (away.counts, away.moving) {
            (true, Some((Way::Home, _))) => {}
            (true, _) => away.moving = Some((Way::Home, 3 * away.differing.len() as u64)),
            (false, _) => away.moving = None,
        }
    }

    /// One step of each move, of `rows` rows at most unless it is the last; whether any is left.
    ///
    /// # Errors
    /// When rows that are away cannot be read, or home takes none.
    pub(crate) fn move_step(&mut self, rows: u64) -> Result<bool> {
        if self.partial.is_none() {
            return Ok(false);
        }
        for group in 0..self.layout.groups {
            let Some(away) = self.partial.as_ref().and_then(|partial| partial.away(group)) else { continue };
            let host_is_whole = self.pair_state(away.host) == PairState::Awake;
            if away.counts && away.moving.is_none() && !(host_is_whole && self.behind(group).is_some()) {
                self.wake(group);
            }
            self.move_rows(group, rows.max(1))?;
        }
        Ok(self.partial.as_ref().is_some_and(|partial| {
            partial.pairs.iter().any(|pair| pair.away.as_ref().is_some_and(|away| away.moving.is_some()))
        }))
    }

    /// Brings all rows of a pair home that are away, its second disk being up to date.
    pub(crate) fn finish_move(&mut self, group: u32) -> Result<()> {
        self.move_rows(group, u64::MAX)?;
        match self.partial.as_ref().and_then(|partial| partial.away(group)) {
            Some(away) if away.is_needed() => {
                let message = format!("the hot rows of pair {group} could not be brought home");
                Err(Error::new(ErrorKind::DeviceFailed, message))
            }
            _ => Ok(()),
        }
    }

    /// Whether rows of a pair may go out to its host now.
    fn may_go_out(&self, group: u32, host: u32) -> bool {
        self.pair_state(group) == PairState::Asleep && self.pair_state(host) == PairState::Awake
    }

    fn move_rows(&mut self, group: u32, rows: u64) -> Result<()> {
        let moving = |core: &Self| {
            let away = core.partial.as_ref()?.away(group)?;
            away.moving.map(|(way, budget)| (way, budget, away.host))
        };
        let Some((way, budget, host)) = moving(self) else { return Ok(()) };
        if way == Way::Home && self.behind(group).is_some() {
            // The second disk gets what it missed first.
            return Ok(());
        }
        // No write may be half done while its row is copied.
        self.settle();
        if way == Way::Out && !self.may_go_out(group, host) {
            self.call_home(group);
            return Ok(());
        }
        let Some(away) = self.partial.as_ref().and_then(|partial| partial.away(group)) else { return Ok(()) };
        let is_last = away.differing.len() as u64 <= rows || budget == 0;
        let most = if is_last { u64::MAX } else { rows };
        let batch: Vec<(u64, Option<u64>)> =
            away.differing.iter().take(most as usize).map(|&row| (row, away.row_there(row))).collect();
        let taken = batch.len() as u64;
        for (row, there) in batch {
            let Some(there) = there else { continue };
            let (home, there) = ((group, row), (host, there));
            let copied = match way {
                Way::Out => self.copy_row(way, home, there),
                Way::Home => self.copy_row(way, there, home),
            };
            if copied.is_err() && way == Way::Out {
                self.call_home(group);
                return Ok(());
            }
            copied?;
            if let Some(partial) = &mut self.partial {
                partial.pairs[group as usize].copied += 1;
                if let Some(away) = partial.away_mut(group) {
                    away.differing.remove(&row);
                }
            }
        }
        if is_last {
            return self.end_move(group, way, host);
        }
        if let Some(away) = self.partial.as_mut().and_then(|partial| partial.away_mut(group)) {
            away.moving = Some((way, budget.saturating_sub(taken)));
        }
        Ok(())
    }

    /// All rows are alike in both places: from now on those count that the move went to.
    fn end_move(&mut self, group: u32, way: Way, host: u32) -> Result<()> {
        if way == Way::Out && !self.may_go_out(group, host) {
            self.call_home(group);
            return Ok(());
        }
        let Some(away) = self.partial.as_mut().and_then(|partial| partial.away_mut(group)) else {
            return Ok(());
        };
        (away.counts, away.moving) = (way == Way::Out, None);
        // crash here [rows_moved]: both places have them, and either map is right.
        if !(way == Way::Out
            && self.mutations.is_on("the map is durable before rows are written at their host"))
        {
            self.publish_ranges();
        }
        if self.is_broken {
            return Err(Error::new(ErrorKind::DeviceFailed, "no member takes the map of ranges"));
        }
        if way == Way::Out && self.may_go_out(group, host) {
            self.stop_first(group);
        }
        Ok(())
    }

    /// Stops the first disk of a pair whose second sleeps already.
    pub(super) fn stop_first(&mut self, group: u32) {
        let Some(&first) = self.in_sync(group).first() else { return };
        if let Some(sleep) = &mut self.sleep {
            let pair = &mut sleep.pairs[group as usize];
            if pair.standing.is_none() {
                pair.standing = Some(first);
                pair.cycles[first % 2] += 1;
                sleep.spindle.stop(first);
            }
        }
    }

    /// Copies one row to all disks of another pair, or back, durably.
    fn copy_row(&mut self, way: Way, from: (u32, u64), to: (u32, u64)) -> Result<()> {
        let rule = match way {
            Way::Out => "hot rows are copied before the map says that they are away",
            Way::Home => "rows come home before the map says so",
        };
        if self.mutations.is_on(rule) {
            return Ok(());
        }
        let chunk = self.layout.chunk_bytes;
        let mut last = Error::new(ErrorKind::DeviceFailed, format!("pair {} cannot be read", from.0));
        let mut bytes = None;
        for source in self.in_sync(from.0) {
            let read = IoRequest::read(0, self.data_start + from.1 * chunk, IoBuffer::zeroed(chunk as usize));
            match self.members.perform(vec![(source, read)]).pop().map(|done| (done.result, done.buffer)) {
                Some((Ok(()), Some(buffer))) => {
                    bytes = Some(buffer);
                    break;
                }
                Some((Err(error), _)) => last = error.into(),
                _ => {}
            }
            self.note_read_error(source);
        }
        let Some(bytes) = bytes else { return Err(last) };
        let counts =
            |&index: &usize| matches!(self.health[index], Health::InSync | Health::Rebuilding { .. });
        let targets: Vec<usize> = self.layout.members(to.0).filter(counts).collect();
        let offset = self.data_start + to.1 * chunk;
        let write = |&index: &usize| (index, IoRequest::write_durable(0, offset, bytes.clone()));
        let results = self.members.perform(targets.iter().map(write).collect());
        for (index, done) in targets.into_iter().zip(results) {
            if let Err(error) = done.result {
                if !self.has_other(index) {
                    return Err(error.into());
                }
                self.fail_member(index);
            }
        }
        Ok(())
    }

    /// At an opening: rows that were away come home, before anything is read.
    pub(crate) fn bring_all_home(&mut self) -> Result<()> {
        let pairs: Vec<u32> = match &self.partial {
            Some(partial) => (0..self.layout.groups)
                .filter(|&pair| partial.away(pair).is_some_and(|away| away.counts))
                .collect(),
            None => return Ok(()),
        };
        if self.mutations.is_on("an opening brings rows home") {
            pairs.iter().for_each(|&pair| self.drop_copy(pair));
            return Ok(());
        }
        for &pair in &pairs {
            self.call_home(pair);
            self.finish_move(pair)?;
            self.drop_copy(pair);
        }
        Ok(())
    }

    /// A pair's copy is void.
    pub(super) fn drop_copy(&mut self, pair: u32) {
        if let Some(partial) = &mut self.partial {
            partial.pairs[pair as usize].away = None;
        }
    }
}
