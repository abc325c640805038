//! What all handles of a volume share: requests under way, and the state of the members.
//!
//! A request is cut into one part a group. Reads go to one member and, when it fails, to the next;
//! writes and flushes go to every member of the group that counts. Writes of parity groups wait in a
//! queue and go through `parity` as one batch. Rare steps (marking a region, naming a failed member,
//! parity, the flash buffer) wait for their devices.
//!
//! Invariants:
//! 1. A request completes once, to the handle that sent it.
//! 2. A write completes well only when every member that missed it is durably named failed.
//! 3. Reads never go to a member that missed a write.

use crate::intent::Intents;
use crate::journal::Record;
use crate::layout::{Layout, Place, Redundancy};
use crate::members::Members;
use crate::partial::Partial;
use crate::sleep::Sleep;
use crate::superblock::{Health, Slot, Superblock};
use std::collections::{BTreeMap, VecDeque};
use tierstone_base::Token;
use tierstone_base::collections::Map;
use tierstone_crash::Mutations;
use tierstone_media::{
    BLOCK_BYTES, BlockDevice, DeviceError, DeviceErrorKind, Geometry, IoBuffer, IoCompletion, IoKind,
    IoRequest, Wait,
};

/// Where the two slots of the marked regions begin on a member.
pub(crate) const INTENT_START: u64 = 2 * BLOCK_BYTES as u64;
/// Where the parity journal begins on a member.
pub(crate) const JOURNAL_START: u64 = 4 * BLOCK_BYTES as u64;

/// The shared state of a volume.
#[derive(Debug)]
pub(crate) struct Core<D> {
    pub members: Members<D>,
    pub layout: Layout,
    pub health: Vec<Health>,
    pub volume: u128,
    pub generation: u64,
    pub clean: bool,
    pub geometry: Geometry,
    pub region_bytes: u64,
    pub journal_slots: u32,
    pub journal_sequence: u64,
    /// Which half of the journal's slots the next round takes.
    pub journal_half: u64,
    /// Journalled rows that may be half written, see [`crate::torn`].
    pub torn: Vec<Record>,
    pub data_start: u64,
    pub intents: Intents,
    pub superblock_slots: Vec<Slot>,
    /// The newest generation that was written to each member since the opening.
    pub told: Vec<u64>,
    pub mark_slots: Vec<Slot>,
    pub read_errors: Vec<u32>,
    pub read_error_limit: u32,
    pub sleep: Option<Box<Sleep<D>>>,
    /// Which ranges are hot, and where hot rows of pairs that sleep whole lie; with room to spare only.
    pub partial: Option<Box<Partial>>,
    /// Nothing can be recorded any more, so nothing is acknowledged.
    pub is_broken: bool,
    pub mutations: Mutations,
    pub requests: Map<u64, Open>,
    pub parity_queue: Vec<u64>,
    pub parts: Map<Token, Part>,
    pub groups: Map<u64, GroupWork>,
    handles: BTreeMap<u32, Outbox>,
    pub next_id: u64,
}

/// What [`Core::new`] is made of.
pub(crate) struct CoreParts<D> {
    pub members: Members<D>,
    pub superblock: Superblock,
    pub slots: Vec<Slot>,
    pub data_start: u64,
    pub read_error_limit: u32,
    pub mutations: Mutations,
}

#[derive(Debug, Default)]
struct Outbox {
    ready: VecDeque<IoCompletion>,
    in_flight: usize,
}

/// A request that has not been answered.
#[derive(Debug)]
pub(crate) struct Open {
    pub handle: u32,
    pub token: Token,
    pub kind: IoKind,
    pub offset: u64,
    pub buffer: Option<IoBuffer>,
    pub pending: u32,
    pub error: Option<DeviceError>,
    pub regions: Vec<u64>,
    pub covered: Vec<(u64, u64)>,
}

#[derive(Debug)]
pub(crate) enum Part {
    Read { request: u64, place: Place, tried: Vec<usize> },
    Group(u64),
}

/// What a request does to one group: done when every member has answered.
#[derive(Debug)]
pub(crate) struct GroupWork {
    pub request: u64,
    pub pending: u32,
    pub group: u32,
    /// Whether the flash buffer has what a sleeping member misses; `None` when none sleeps.
    pub staged: Option<bool>,
    pub good: Vec<usize>,
    pub failed: Vec<(usize, DeviceError)>,
}

impl<D: BlockDevice> Core<D> {
    pub(crate) fn new(parts: CoreParts<D>) -> Self {
        let superblock = parts.superblock;
        let count = superblock.states.len();
        let partial = (superblock.spare_rows > 0).then(|| Box::new(Partial::new(&superblock)));
        Core {
            members: parts.members,
            layout: superblock.layout,
            health: superblock.states,
            volume: superblock.volume,
            generation: superblock.generation,
            clean: superblock.clean,
            geometry: superblock.geometry,
            region_bytes: superblock.region_bytes,
            journal_slots: superblock.journal_slots,
            journal_sequence: 0,
            journal_half: 0,
            torn: Vec::new(),
            data_start: parts.data_start,
            intents: Intents::default(),
            superblock_slots: parts.slots,
            told: vec![0; count],
            mark_slots: vec![Slot::default(); count],
            read_errors: vec![0; count],
            read_error_limit: parts.read_error_limit,
            sleep: None,
            partial,
            is_broken: false,
            mutations: parts.mutations,
            requests: Map::default(),
            parity_queue: Vec::new(),
            parts: Map::default(),
            groups: Map::default(),
            handles: BTreeMap::new(),
            next_id: 0,
        }
    }

    pub(crate) fn superblock(&self, index: usize) -> Superblock {
        Superblock {
            volume: self.volume,
            index: index as u32,
            generation: self.generation,
            clean: self.clean,
            layout: self.layout,
            geometry: self.geometry,
            region_bytes: self.region_bytes,
            journal_slots: self.journal_slots,
            buffer: self.sleep.as_ref().map_or(0, |sleep| sleep.buffer_id),
            spare_rows: self.partial.as_ref().map_or(0, |partial| partial.spare_rows),
            states: self.health.clone(),
        }
    }

    pub(crate) fn in_flight(&self, handle: u32) -> usize {
        self.handles.get(&handle).map_or(0, |outbox| outbox.in_flight)
    }

    pub(crate) fn forget_handle(&mut self, handle: u32) {
        self.handles.remove(&handle);
    }

    // ---- requests ------------------------------------------------------------------------------

    pub(crate) fn submit(&mut self, handle: u32, requests: &mut Vec<IoRequest>) {
        self.stand_in_for_lost();
        let mut sending = Vec::new();
        let mut writing = Vec::new();
        for request in requests.drain(..) {
            let refusal = self.refusal(&request);
            let id = self.open_request(handle, request);
            if let Some(error) = refusal {
                self.finish(id, Some(error));
                continue;
            }
            let (kind, offset, len) = self.span(id);
            match kind {
                IoKind::Read => self.start_read(id, offset, len, &mut sending),
                IoKind::Write | IoKind::WriteDurable if self.layout.redundancy == Redundancy::Parity => {
                    self.parity_queue.push(id);
                }
                IoKind::Write | IoKind::WriteDurable => writing.push(id),
                IoKind::Flush => self.start_flush(id, &mut sending),
                IoKind::Discard { .. } => self.start_discard(id, &mut writing),
                IoKind::Prepare { .. } => {
                    if self.layout.redundancy == Redundancy::Parity || self.sleep.is_some() {
                        // It may change bytes on one member and not on another: parity would not fit
                        // them, and a sleeping disk would not hear of it.
                        self.finish(id, None);
                    } else {
                        writing.push(id);
                    }
                }
            }
        }
        self.members.send(sending);
        if !writing.is_empty() {
            self.start_writes(&writing);
        }
    }

    /// Pairs whose only disk is one that sleeps wake before they are used.
    pub(crate) fn stand_in_for_lost(&mut self) {
        if self.sleep.is_none() {
            return;
        }
        for group in 0..self.layout.groups {
            if self.behind(group).is_some() && self.in_sync(group).is_empty() {
                self.promote(group);
            }
        }
    }

    pub(crate) fn refusal(&self, request: &IoRequest) -> Option<DeviceError> {
        let wrong = |what: &str| {
            let detail = format!("volume: {what} ({:?} at {})", request.kind, request.offset);
            Some(DeviceError::new(DeviceErrorKind::OutOfBounds, detail))
        };
        let block = BLOCK_BYTES as u64;
        let len = match request.kind {
            IoKind::Flush => return None,
            IoKind::Prepare { len } | IoKind::Discard { len } => len,
            IoKind::Read | IoKind::Write | IoKind::WriteDurable => match &request.buffer {
                Some(buffer) => buffer.len() as u64,
                None => return wrong("a transfer without a buffer"),
            },
        };
        if !request.offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return wrong("not whole blocks");
        }
        match request.offset.checked_add(len) {
            Some(end) if end <= self.geometry.end() => {}
            _ => return wrong("beyond the end of the volume"),
        }
        if matches!(request.kind, IoKind::Discard { .. }) && request.offset < self.geometry.meta_bytes {
            return wrong("superblocks are never discarded");
        }
        None
    }

    pub(crate) fn open_request(&mut self, handle: u32, request: IoRequest) -> u64 {
        self.next_id += 1;
        self.handles.entry(handle).or_default().in_flight += 1;
        let IoRequest { token, kind, offset, buffer } = request;
        let open = Open {
            handle,
            token,
            kind,
            offset,
            buffer,
            pending: 0,
            error: None,
            regions: Vec::new(),
            covered: Vec::new(),
        };
        self.requests.insert(self.next_id, open);
        self.next_id
    }

    pub(crate) fn span(&self, id: u64) -> (IoKind, u64, u64) {
        let Some(open) = self.requests.get(&id) else { return (IoKind::Flush, 0, 0) };
        let len = match open.kind {
            IoKind::Prepare { len } | IoKind::Discard { len } => len,
            _ => open.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64),
        };
        (open.kind, open.offset, len)
    }

    /// Answers request `id`, with `error` if there is one.
    pub(crate) fn finish(&mut self, id: u64, error: Option<DeviceError>) {
        let Some(open) = self.requests.remove(&id) else { return };
        let mut error = error.or(open.error);
        if self.is_broken && open.kind != IoKind::Read {
            let broken =
                || DeviceError::new(DeviceErrorKind::Failed, "volume: no member takes its records any more");
            error.get_or_insert_with(broken);
        }
        for region in open.regions {
            let durable = open.kind == IoKind::WriteDurable || self.sleep.is_some();
            self.intents.end(region, durable, error.is_none());
        }
        if open.kind == IoKind::Flush && error.is_none() {
            self.intents.flushed(&open.covered);
        }
        let Open { token, kind, offset, buffer, .. } = open;
        let result = error.map_or(Ok(()), Err);
        if let Some(outbox) = self.handles.get_mut(&open.handle) {
            outbox.ready.push_back(IoCompletion { token, kind, offset, buffer, result });
        }
    }

    pub(crate) fn part_ends(&mut self, id: u64, error: Option<DeviceError>) {
        let Some(open) = self.requests.get_mut(&id) else { return };
        open.pending = open.pending.saturating_sub(1);
        if open.error.is_none() {
            open.error = error;
        }
        if open.pending == 0 {
            self.finish(id, None);
        }
    }

    // ---- completions ---------------------------------------------------------------------------

    pub(crate) fn complete(&mut self, handle: u32, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        let before = completions.len();
        loop {
            self.pump();
            if let Some(outbox) = self.handles.get_mut(&handle) {
                outbox.in_flight -= outbox.ready.len();
                completions.extend(outbox.ready.drain(..));
            }
            let is_done = match wait {
                Wait::Poll => true,
                Wait::One => completions.len() > before || self.in_flight(handle) == 0,
                Wait::All => self.in_flight(handle) == 0,
            };
            if is_done {
                return completions.len() - before;
            }
            self.wait_for_members();
        }
    }

    /// Takes what has come back, and does what waits in the queue.
    pub(crate) fn pump(&mut self) {
        loop {
            let mut done = Vec::new();
            self.members.poll(&mut done);
            let is_idle = done.is_empty() && self.parity_queue.is_empty();
            for (index, done) in done {
                self.member_answers(index, done);
            }
            if !self.parity_queue.is_empty() {
                self.write_parity();
            }
            if is_idle {
                return;
            }
        }
    }

    pub(crate) fn wait_for_members(&mut self) {
        let mut done = Vec::new();
        self.members.wait_one(&mut done);
        if done.is_empty() && self.members.is_idle() && self.parity_queue.is_empty() {
            // Nothing is under way that could answer these.
            let mut stranded: Vec<u64> = self.requests.keys().copied().collect();
            stranded.sort_unstable();
            for id in stranded {
                let error = DeviceError::new(DeviceErrorKind::Failed, "volume: a member lost this request");
                self.finish(id, Some(error));
            }
        }
        for (index, done) in done {
            self.member_answers(index, done);
        }
    }

    pub(crate) fn member_answers(&mut self, index: usize, done: IoCompletion) {
        match self.parts.remove(&done.token) {
            Some(Part::Read { request, place, tried }) => match (done.result, done.buffer) {
                (Ok(()), Some(buffer)) => self.deliver(request, &place, Ok(buffer)),
                (Ok(()), None) => {
                    let error = DeviceError::new(DeviceErrorKind::Failed, "volume: a read lost its buffer");
                    self.deliver(request, &place, Err(error));
                }
                (Err(error), _) => self.read_failed(request, index, place, tried, error),
            },
            Some(Part::Group(work)) => self.group_part(work, Some((index, done.result))),
            None => {}
        }
    }

    /// Waits until no request is under way.
    pub(crate) fn settle(&mut self) {
        self.pump();
        while !self.requests.is_empty() {
            self.wait_for_members();
            self.pump();
        }
    }
}
