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
use crate::layout::{Layout, Place, Redundancy};
use crate::members::Members;
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
    pub data_start: u64,
    pub intents: Intents,
    pub superblock_slots: Vec<Slot>,
    pub mark_slots: Vec<Slot>,
    pub read_errors: Vec<u32>,
    pub read_error_limit: u32,
    /// Nothing can be recorded any more, so nothing is acknowledged.
    pub is_broken: bool,
    pub mutations: Mutations,
    pub requests: Map<u64, Open>,
    pub parity_queue: Vec<u64>,
    parts: Map<Token, Part>,
    groups: Map<u64, GroupWork>,
    handles: BTreeMap<u32, Outbox>,
    next_id: u64,
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
    handle: u32,
    token: Token,
    kind: IoKind,
    pub offset: u64,
    pub buffer: Option<IoBuffer>,
    pending: u32,
    error: Option<DeviceError>,
    regions: Vec<u64>,
    covered: Vec<(u64, u64)>,
}

#[derive(Debug)]
enum Part {
    Read { request: u64, place: Place, tried: Vec<usize> },
    Group(u64),
}

/// What a request does to one group: done when every member has answered.
#[derive(Debug)]
struct GroupWork {
    request: u64,
    pending: u32,
    good: Vec<usize>,
    failed: Vec<(usize, DeviceError)>,
}

impl<D: BlockDevice> Core<D> {
    pub(crate) fn new(parts: CoreParts<D>) -> Self {
        let superblock = parts.superblock;
        let count = superblock.states.len();
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
            data_start: parts.data_start,
            intents: Intents::default(),
            superblock_slots: parts.slots,
            mark_slots: vec![Slot::default(); count],
            read_errors: vec![0; count],
            read_error_limit: parts.read_error_limit,
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
            states: self.health.clone(),
        }
    }

    pub(crate) fn in_flight(&self, handle: u32) -> usize {
        self.handles.get(&handle).map_or(0, |outbox| outbox.in_flight)
    }

    pub(crate) fn forget_handle(&mut self, handle: u32) {
        self.handles.remove(&handle);
    }

    // ---- members -------------------------------------------------------------------------------

    /// Whether what `index` holds in `row` counts.
    pub(crate) fn is_usable(&self, index: usize, row: u64) -> bool {
        match self.health[index] {
            Health::InSync => true,
            Health::Rebuilding { row: rebuilt } => row < rebuilt,
            Health::Failed | Health::Behind => false,
        }
    }

    pub(crate) fn in_sync(&self, group: u32) -> Vec<usize> {
        self.layout.members(group).filter(|&index| self.health[index] == Health::InSync).collect()
    }

    /// Members that superblocks and marks are written to: all that are awake and not failed.
    pub(crate) fn written_members(&self) -> Vec<usize> {
        let counts =
            |index: &usize| matches!(self.health[*index], Health::InSync | Health::Rebuilding { .. });
        (0..self.health.len()).filter(counts).collect()
    }

    /// Names `index` failed, durably on all others, before it returns; more may fail on the way.
    pub(crate) fn fail_member(&mut self, index: usize) {
        if self.health[index] == Health::Failed {
            return;
        }
        self.health[index] = Health::Failed;
        if !self.mutations.is_on("failure is recorded before the acknowledgement") {
            self.write_superblocks();
        }
    }

    /// Writes a new generation of the superblock to all members that count; those that fail are named
    /// in the next generation.
    pub(crate) fn write_superblocks(&mut self) {
        loop {
            self.generation += 1;
            let targets = self.written_members();
            let write = |&index: &usize| {
                let offset = self.superblock_slots[index].next();
                (index, IoRequest::write_durable(0, offset, self.superblock(index).encode()))
            };
            let requests = targets.iter().map(write).collect();
            let results = self.members.perform(requests);
            for (&index, done) in targets.iter().zip(&results) {
                self.superblock_slots[index].taken(done.result.is_ok());
            }
            let failed: Vec<usize> = targets
                .iter()
                .zip(&results)
                .filter(|(_, done)| done.result.is_err())
                .map(|(&index, _)| index)
                .collect();
            // All at once: the power is off, or nothing is left that could tell.
            if failed.len() == targets.len() {
                self.is_broken = true;
                return;
            }
            if failed.is_empty() {
                return;
            }
            for index in failed {
                self.health[index] = Health::Failed;
            }
        }
    }

    /// Writes the marks of regions to all members that count, durably.
    pub(crate) fn write_marks(&mut self) {
        if self.mutations.is_on("regions are marked before they are written") {
            return;
        }
        let block = self.intents.encode(self.volume);
        let targets = self.written_members();
        let write = |&index: &usize| {
            let offset = INTENT_START + self.mark_slots[index].next();
            (index, IoRequest::write_durable(0, offset, block.clone()))
        };
        let requests = targets.iter().map(write).collect();
        let results = self.members.perform(requests);
        for (&index, done) in targets.iter().zip(&results) {
            self.mark_slots[index].taken(done.result.is_ok());
        }
        if results.iter().all(|done| done.result.is_err()) {
            self.is_broken = true;
            return;
        }
        for (index, done) in targets.into_iter().zip(results) {
            if done.result.is_err() && self.has_other(index) {
                self.fail_member(index);
            }
        }
    }

    /// Whether the group of `index` can do without it.
    pub(crate) fn has_other(&self, index: usize) -> bool {
        let group = self.layout.group_of(index);
        let others = self.in_sync(group).into_iter().filter(|&other| other != index).count();
        match self.layout.redundancy {
            Redundancy::None => false,
            Redundancy::Mirror => others >= 1,
            Redundancy::Parity => others + 1 >= self.layout.width as usize,
        }
    }

    // ---- requests ------------------------------------------------------------------------------

    pub(crate) fn submit(&mut self, handle: u32, requests: &mut Vec<IoRequest>) {
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
                IoKind::Prepare { .. } | IoKind::Discard { .. } => {
                    if self.layout.redundancy == Redundancy::Parity {
                        // Either may change bytes on one member and not on another, and parity would not fit.
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

    fn refusal(&self, request: &IoRequest) -> Option<DeviceError> {
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

    fn open_request(&mut self, handle: u32, request: IoRequest) -> u64 {
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

    fn span(&self, id: u64) -> (IoKind, u64, u64) {
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
            let durable = open.kind == IoKind::WriteDurable;
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

    fn part_ends(&mut self, id: u64, error: Option<DeviceError>) {
        let Some(open) = self.requests.get_mut(&id) else { return };
        open.pending = open.pending.saturating_sub(1);
        if open.error.is_none() {
            open.error = error;
        }
        if open.pending == 0 {
            self.finish(id, None);
        }
    }

    // ---- reads ---------------------------------------------------------------------------------

    fn start_read(&mut self, id: u64, offset: u64, len: u64, sending: &mut Vec<(usize, IoRequest)>) {
        let places = self.layout.places(offset, len);
        if let Some(open) = self.requests.get_mut(&id) {
            open.pending = places.len().max(1) as u32;
        }
        for place in places {
            self.read_place(id, place, Vec::new(), sending);
        }
    }

    /// The members that can serve a read of `place`, best first.
    fn readers(&self, place: &Place, tried: &[usize]) -> Vec<usize> {
        let last_row = (self.layout.member_offset(place) + place.len - 1) / self.layout.chunk_bytes;
        let can = |index: &usize| self.is_usable(*index, last_row) && !tried.contains(index);
        let members = self.layout.members(place.group);
        if self.layout.redundancy == Redundancy::Parity {
            let member = members.start + self.layout.data_member(place.row, place.position) as usize;
            return Some(member).filter(can).into_iter().collect();
        }
        let mut readers: Vec<usize> = members.filter(can).collect();
        if !readers.is_empty() {
            let turn = (place.row % readers.len() as u64) as usize;
            readers.rotate_left(turn);
        }
        readers
    }

    fn read_place(
        &mut self,
        id: u64,
        place: Place,
        tried: Vec<usize>,
        sending: &mut Vec<(usize, IoRequest)>,
    ) {
        match self.readers(&place, &tried).first() {
            Some(&index) => {
                let token = self.members.token();
                let offset = self.data_start + self.layout.member_offset(&place);
                sending.push((index, IoRequest::read(token, offset, IoBuffer::zeroed(place.len as usize))));
                self.parts.insert(token, Part::Read { request: id, place, tried });
            }
            None if self.layout.redundancy == Redundancy::Parity => {
                let result = self.reconstruct(&place, &tried);
                self.deliver(id, &place, result);
            }
            None => {
                let detail = format!("volume: no member of group {} can read this", place.group);
                self.part_ends(id, Some(DeviceError::new(DeviceErrorKind::Failed, detail)));
            }
        }
    }

    fn deliver(&mut self, id: u64, place: &Place, result: Result<IoBuffer, DeviceError>) {
        let error = match result {
            Ok(bytes) => {
                if let Some(target) = self.requests.get_mut(&id).and_then(|open| open.buffer.as_mut()) {
                    let at = place.at as usize;
                    target[at..at + place.len as usize].copy_from_slice(&bytes[..place.len as usize]);
                }
                None
            }
            Err(error) => Some(error),
        };
        self.part_ends(id, error);
    }

    fn read_failed(
        &mut self,
        id: u64,
        index: usize,
        place: Place,
        mut tried: Vec<usize>,
        error: DeviceError,
    ) {
        self.note_read_error(index);
        tried.push(index);
        let can_go_on =
            self.layout.redundancy == Redundancy::Parity || !self.readers(&place, &tried).is_empty();
        if !can_go_on {
            self.part_ends(id, Some(error));
            return;
        }
        let mut sending = Vec::new();
        self.read_place(id, place, tried, &mut sending);
        self.members.send(sending);
    }

    /// Counts a read that failed; a member that fails often is given up, if the group can do without.
    pub(crate) fn note_read_error(&mut self, index: usize) {
        self.read_errors[index] += 1;
        if self.read_errors[index] > self.read_error_limit && self.has_other(index) {
            self.fail_member(index);
        }
    }

    // ---- writes and flushes --------------------------------------------------------------------

    fn start_writes(&mut self, ids: &[u64]) {
        if self.layout.redundancy == Redundancy::Mirror {
            let mut is_new = false;
            for &id in ids {
                let (_, offset, len) = self.span(id);
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
        for &id in ids {
            self.start_write(id, &mut sending);
        }
        self.members.send(sending);
    }

    fn start_write(&mut self, id: u64, sending: &mut Vec<(usize, IoRequest)>) {
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
            let start = self.data_start + self.layout.member_offset(&place);
            let Some(open) = self.requests.get(&id) else { continue };
            let Some(bytes) = open.buffer.as_ref() else { continue };
            let bytes = IoBuffer::from_slice(&bytes[place.at as usize..(place.at + place.len) as usize]);
            self.start_group(id, place.group, kind, start, Some(&bytes), sending);
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
    fn start_group(
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
        self.groups.insert(work, GroupWork { request, pending, good: Vec::new(), failed: Vec::new() });
        for index in targets {
            let token = self.members.token();
            sending.push((index, IoRequest { token, kind, offset, buffer: bytes.cloned() }));
            self.parts.insert(token, Part::Group(work));
        }
        if pending == 0 {
            self.end_group(work);
        }
        work
    }

    fn start_flush(&mut self, id: u64, sending: &mut Vec<(usize, IoRequest)>) {
        let covered = self.intents.settled();
        if let Some(open) = self.requests.get_mut(&id) {
            open.pending = self.layout.groups;
            open.covered = covered;
        }
        for group in 0..self.layout.groups {
            self.start_group(id, group, IoKind::Flush, 0, None, sending);
        }
    }

    /// One member of a group has answered; `failed` with its error when it failed.
    fn group_part(&mut self, work: u64, answer: Option<(usize, Result<(), DeviceError>)>) {
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

    fn end_group(&mut self, work: u64) {
        let Some(mut group) = self.groups.remove(&work) else { return };
        let is_parity = self.layout.redundancy == Redundancy::Parity;
        group.good.retain(|&index| self.health[index] == Health::InSync);
        if group.good.is_empty() && !is_parity
            || group.good.len() + 1 < self.layout.width as usize && is_parity
        {
            let none =
                || DeviceError::new(DeviceErrorKind::Failed, "volume: too many members of a group failed");
            let error = group.failed.into_iter().next().map_or_else(none, |(_, error)| error);
            self.part_ends(group.request, Some(error));
            return;
        }
        for (index, _) in group.failed {
            self.fail_member(index);
        }
        self.part_ends(group.request, None);
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

    fn wait_for_members(&mut self) {
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

    fn member_answers(&mut self, index: usize, done: IoCompletion) {
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
