//! Writes and flushes of single members and mirrors: to every member of a group that counts, and what
//! sleeping ones miss to the flash buffer.
//!
//! Invariant: a write of a group ends well only when some member in sync has it, every member that
//! failed is durably named, and what a sleeping member misses is durable in the buffer.

use crate::core::{Core, GroupWork, Part};
use crate::layout::{Place, Redundancy};
use crate::superblock::Health;
use tierstone_media::{BLOCK_BYTES, BlockDevice, DeviceError, DeviceErrorKind, IoBuffer, IoKind, IoRequest};

impl<D: BlockDevice> Core<D> {
    pub(crate) fn start_writes(&mut self, ids: &[u64]) {
        if self.layout.redundancy == Redundancy::Mirror {
            self.settle_marks();
            let mut is_new = false;
            for &id in ids {
                let (_, offset, len) = self.span(id);
                self.rouse_for(offset, len);
                self.forget_discards(offset, len);
                let regions: Vec<u64> =
                    (offset / self.region_bytes..=(offset + len.max(1) - 1) / self.region_bytes).collect();
                for &region in &regions {
                    is_new |= self.intents.begin(region);
                }
                if let Some(open) = self.requests.get_mut(&id) {
                    open.regions = regions;
                }
            }
            if is_new {
                self.write_marks();
            }
        }
        let mut sending = Vec::new();
        let mut staged = Vec::new();
        for &id in ids {
            self.start_write(id, &mut sending, &mut staged);
        }
        self.members.send(sending);
        self.stage(staged);
    }

    /// Flushes for marked regions of which too many wait for it: who writes durably and prepares space never does.
    fn settle_marks(&mut self) {
        if !self.intents.wants_flush() {
            return;
        }
        let covered = self.intents.settled();
        let members = self.written_members();
        let results =
            self.members.perform(members.iter().map(|&index| (index, IoRequest::flush(0))).collect());
        let failed: Vec<usize> = members
            .iter()
            .zip(&results)
            .filter(|(_, done)| done.result.is_err())
            .map(|(&at, _)| at)
            .collect();
        // A member that cannot be spared keeps its marks; the next write tries again.
        let is_good = failed.iter().all(|&index| self.has_other(index));
        for index in failed {
            if self.has_other(index) {
                self.fail_member(index);
            }
        }
        if is_good && !self.is_broken {
            self.intents.flushed(&covered);
        }
    }

    pub(crate) fn start_write(
        &mut self,
        id: u64,
        sending: &mut Vec<(usize, IoRequest)>,
        staged: &mut Vec<(u64, Place)>,
    ) {
        let (kind, offset, len) = self.span(id);
        let is_transfer = matches!(kind, IoKind::Write | IoKind::WriteDurable);
        let places = if is_transfer { self.layout.places(offset, len) } else { Vec::new() };
        let spans = if is_transfer { Vec::new() } else { self.layout.spans(offset, len) };
        if let Some(open) = self.requests.get_mut(&id) {
            open.pending = (places.len() + spans.len()).max(1) as u32;
        }
        if places.is_empty() && spans.is_empty() {
            self.part_ends(id, None);
        }
        for place in places {
            let place = self.written(place);
            let start = self.data_start + self.layout.member_offset(&place);
            let Some(open) = self.requests.get(&id) else { continue };
            let Some(bytes) = open.buffer.as_ref() else { continue };
            let bytes = IoBuffer::from_slice(&bytes[place.at as usize..(place.at + place.len) as usize]);
            // A sleeping volume acknowledges nothing that is not in two durable places.
            let kind = if self.sleep.is_some() { IoKind::WriteDurable } else { kind };
            let work = self.start_group(id, place.group, kind, start, Some(&bytes), sending);
            if self.behind(place.group).is_some() {
                if let Some(group) = self.groups.get_mut(&work) {
                    group.pending += 1;
                }
                staged.push((work, place));
            }
        }
        for (group, start, len) in spans {
            let kind = match kind {
                IoKind::Prepare { .. } => IoKind::Prepare { len },
                _ => IoKind::Discard { len },
            };
            self.start_group(id, group, kind, self.data_start + start, None, sending);
        }
    }

    /// Sends one request to every member of a group that counts. Returns the work's number.
    pub(crate) fn start_group(
        &mut self,
        request: u64,
        group: u32,
        kind: IoKind,
        offset: u64,
        bytes: Option<&IoBuffer>,
        sending: &mut Vec<(usize, IoRequest)>,
    ) -> u64 {
        self.next_id += 1;
        let work = self.next_id;
        let counts =
            |index: &usize| matches!(self.health[*index], Health::InSync | Health::Rebuilding { .. });
        let targets: Vec<usize> = self.layout.members(group).filter(counts).collect();
        let pending = targets.len() as u32;
        self.groups.insert(
            work,
            GroupWork { request, pending, group, staged: None, good: Vec::new(), failed: Vec::new() },
        );
        for index in targets {
            let token = self.members.token();
            sending.push((index, IoRequest { token, kind, offset, buffer: bytes.cloned() }));
            self.parts.insert(token, Part::Group(work));
            if let Some(sleep) = &mut self.sleep {
                sleep.note_use(index, offset - self.data_start, bytes.map_or(0, |bytes| bytes.len() as u64));
            }
        }
        if pending == 0 {
            self.end_group(work);
        }
        work
    }

    pub(crate) fn start_flush(&mut self, id: u64, sending: &mut Vec<(usize, IoRequest)>) {
        if self.sleep.is_some() {
            // Every completed write is durable already.
            self.finish(id, None);
            return;
        }
        let covered = self.intents.settled();
        if let Some(open) = self.requests.get_mut(&id) {
            open.pending = self.layout.groups;
            open.covered = covered;
        }
        for group in 0..self.layout.groups {
            self.start_group(id, group, IoKind::Flush, 0, None, sending);
        }
    }

    /// Puts what sleeping disks miss into the flash buffer, and counts it as their write.
    pub(crate) fn stage(&mut self, staged: Vec<(u64, Place)>) {
        if staged.is_empty() {
            return;
        }
        let mut blocks = Vec::new();
        for (work, place) in &staged {
            let request = self.groups.get(work).map_or(0, |work| work.request);
            if let Some(bytes) = self.requests.get(&request).and_then(|open| open.buffer.as_ref()) {
                let bytes = &bytes[place.at as usize..(place.at + place.len) as usize];
                let first = self.layout.member_offset(place) / BLOCK_BYTES as u64;
                blocks.extend(
                    (first..)
                        .zip(bytes.chunks(BLOCK_BYTES))
                        .map(|(at, bytes)| (place.group, at, bytes.to_vec())),
                );
            }
        }
        let is_good = self.stage_blocks(blocks);
        for (work, _) in staged {
            if let Some(group) = self.groups.get_mut(&work) {
                group.staged = Some(is_good);
            }
            self.group_part(work, None);
        }
    }

    /// Waits until no member owes an answer; requests may still wait for the buffer.
    pub(crate) fn drain_parts(&mut self) {
        while !self.parts.is_empty() && !self.members.is_idle() {
            let mut done = Vec::new();
            self.members.wait_one(&mut done);
            for (index, done) in done {
                self.member_answers(index, done);
            }
        }
    }

    /// One member of a group has answered; `failed` with its error when it failed.
    pub(crate) fn group_part(&mut self, work: u64, answer: Option<(usize, Result<(), DeviceError>)>) {
        let Some(group) = self.groups.get_mut(&work) else { return };
        match answer {
            Some((index, Ok(()))) => group.good.push(index),
            Some((index, Err(error))) => group.failed.push((index, error)),
            None => {}
        }
        group.pending = group.pending.saturating_sub(1);
        if group.pending == 0 {
            self.end_group(work);
        }
    }

    pub(crate) fn end_group(&mut self, work: u64) {
        let Some(mut group) = self.groups.remove(&work) else { return };
        let is_parity = self.layout.redundancy == Redundancy::Parity;
        group.good.retain(|&index| self.health[index] == Health::InSync);
        let needed = if is_parity { self.layout.width as usize - 1 } else { 1 };
        let is_good = group.staged != Some(false) && group.good.len() >= needed;
        if is_good || group.staged == Some(true) && self.stand_in(group.group, &group.failed) {
            for (index, _) in group.failed {
                if self.has_other(index) || is_good {
                    self.fail_member(index);
                }
            }
            self.part_ends(group.request, None);
            return;
        }
        let none = || DeviceError::new(DeviceErrorKind::Failed, "volume: too many members of a group failed");
        let error = group.failed.into_iter().next().map_or_else(none, |(_, error)| error);
        self.part_ends(group.request, Some(error));
    }

    /// The disk of a pair that was awake did not take a write that the buffer, or by now the other disk,
    /// has: whether the other can go on alone.
    pub(crate) fn stand_in(&mut self, group: u32, failed: &[(usize, DeviceError)]) -> bool {
        if self.behind(group).is_some() {
            return self.promote(group);
        }
        let remains = |index: &usize| failed.iter().all(|(other, _)| other != index);
        self.in_sync(group).iter().any(remains)
    }
}
