//! Changing pages: writes and batches, groups of the journal, checkpoints.

use super::format::{
    BLOCK, Entry, GROUP_HEAD, Group, encode_entry, encode_group, encode_page, encode_root, encode_shadow,
    page_room, whole_blocks,
};
use super::page::{Records, encoded_len, record_len};
use super::{Page, PagedEngine, Purpose};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result, Seq};
use tierstone_engine::{
    BatchTicket, Commit, Cost, Durability, OwnedRecord, RecordMeta, Write, WriteKind, WriteReceipt,
};
use tierstone_media::IoBuffer;

/// In `relaxed`, a group waits so long at most: half of the stated bound.
const RELAXED_INTERVAL_US: u64 = 500_000;

/// The group that gathers.
#[derive(Debug, Default)]
pub struct OpenGroup {
    entries: Vec<u8>,
    opened_us: u64,
    /// It waits for no company.
    pub is_due: bool,
    parts: Vec<Arc<BatchTicket>>,
    marks: Vec<Arc<BatchTicket>>,
}

/// A part of a batch over several engines that recovery may still have to leave out.
#[derive(Debug)]
pub struct Part {
    pub first: Seq,
    batch: Arc<BatchTicket>,
    is_durable: bool,
    is_undone: bool,
    is_marking: bool,
    /// Bytes that taking it back needs: of pages, and of the journal.
    page_bytes: BTreeMap<usize, usize>,
    journal_bytes: u64,
}

impl Part {
    pub fn is_decided(&self) -> bool {
        self.is_durable && (self.is_undone || self.batch.is_decided())
    }

    /// Whether nobody will count it any more.
    fn is_settled(&self) -> bool {
        self.is_durable && (self.is_undone || self.batch.is_marked())
    }
}

/// A checkpoint under way.
#[derive(Debug)]
pub struct Checkpoint {
    stage: Stage,
    images: Vec<(usize, IoBuffer)>,
    outstanding: usize,
    /// Nothing comes behind it: the engine is being closed.
    is_last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Shadow,
    Pages,
    Root,
}

/// What writes would make of pages, and what the journal would say.
#[derive(Debug)]
pub(super) struct Plan {
    pages: BTreeMap<usize, Records>,
    entries: Vec<u8>,
    last: Seq,
    page_bytes: BTreeMap<usize, usize>,
    journal_bytes: u64,
}

fn busy(why: &str) -> Error {
    Error::new(ErrorKind::Retry, why.to_owned())
}

impl PagedEngine {
    /// Works out what `writes` do; starts reading the pages that are missing for it.
    pub(super) fn plan(&mut self, writes: &[Write<'_>], part: bool) -> Result<Plan> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.is_shutting {
            return Err(Error::new(ErrorKind::Busy, "the store is being closed"));
        }
        let pages: BTreeSet<usize> = writes.iter().map(|write| self.page_of(write.key.position)).collect();
        let mut scratch = BTreeMap::new();
        for &page in &pages {
            if let Page::Damaged(error) = &self.pages[page] {
                return Err(error.clone());
            }
            if let Some(records) = self.records(page) {
                scratch.insert(page, Records::clone(records));
            }
        }
        if scratch.len() < pages.len() {
            pages.iter().for_each(|page| {
                self.load(*page);
            });
            self.wanted.extend(pages);
            return Err(busy("the pages that the write changes are on their way"));
        }
        let mut plan = self.changed(scratch, writes, part)?;
        plan.journal_bytes += if part { 2 * BLOCK } else { 0 };
        self.check_room(&plan)?;
        Ok(plan)
    }

    fn changed(&self, pages: BTreeMap<usize, Records>, writes: &[Write<'_>], part: bool) -> Result<Plan> {
        let before: BTreeMap<usize, usize> =
            pages.iter().map(|(page, records)| (*page, encoded_len(records))).collect();
        let (entries, last) = (Vec::new(), self.applied);
        let mut plan = Plan { pages, entries, last, page_bytes: BTreeMap::new(), journal_bytes: 0 };
        // Space of dropped keyspaces comes back here.
        plan.pages.values_mut().for_each(|records| records.retain(|(id, ..), _| !self.dropped.contains(id)));
        for write in writes {
            plan.last += 1;
            let key = (write.key.keyspace, write.key.position, write.key.bytes.to_vec());
            let records = plan.pages.entry(self.page_of(write.key.position)).or_default();
            let old = records.get(&key);
            plan.journal_bytes += old.map_or(0, |old| record_len(&key, old)) as u64;
            let mut record = OwnedRecord { meta: RecordMeta::default(), value: Vec::new() };
            record.meta.seq = plan.last;
            let is_delete = matches!(write.kind, WriteKind::Delete);
            if let WriteKind::Put { value, expiry_ms, kind } = write.kind {
                (record.meta.expiry_ms, record.meta.kind) = (expiry_ms, kind);
                record.value = value.to_vec();
                if record_len(&key, &record) > page_room(&self.settings.layout) {
                    return Err(Error::new(ErrorKind::InvalidInput, "the value is too long for a page"));
                }
                records.insert(key.clone(), record.clone());
            } else {
                records.remove(&key);
            }
            encode_entry(&Entry::Change { key, record, is_delete, part: None }, &mut plan.entries);
        }
        for (page, records) in &plan.pages {
            let (old, new) = (before[page], encoded_len(records));
            let kept: usize = self.parts.iter().filter_map(|part| part.page_bytes.get(page)).sum();
            if new > old && new + kept > page_room(&self.settings.layout) {
                return Err(Error::new(ErrorKind::NoSpace, format!("page {page} is full")));
            }
            if part {
                plan.page_bytes.insert(*page, old.saturating_sub(new));
            }
        }
        Ok(plan)
    }

    /// Whether the journal has room for the group with `plan` in it, and for what must come behind.
    fn check_room(&mut self, plan: &Plan) -> Result<()> {
        let bytes = whole_blocks(GROUP_HEAD + self.group.entries.len() + 2 * plan.entries.len());
        if whole_blocks(2 * plan.entries.len()) + 4 * BLOCK > self.settings.layout.journal_bytes {
            return Err(Error::new(ErrorKind::InvalidInput, "the batch is too long for the journal"));
        }
        if self.journal_is_full(bytes + plan.journal_bytes) {
            self.wants_room = true;
            return Err(busy("the journal has no room before the next checkpoint"));
        }
        Ok(())
    }

    /// Whether `bytes` more would take what is kept for marks and for taking parts back.
    pub(super) fn journal_is_full(&self, bytes: u64) -> bool {
        let open = if self.group.entries.is_empty() {
            0
        } else {
            whole_blocks(GROUP_HEAD + self.group.entries.len())
        };
        let kept: u64 = self.parts.iter().map(|part| part.journal_bytes + 2 * BLOCK).sum();
        self.journal_at + open + kept + bytes + 2 * BLOCK > self.settings.layout.journal_bytes
    }

    pub(super) fn apply(
        &mut self,
        writes: &[Write<'_>],
        batch: Option<&Arc<BatchTicket>>,
    ) -> Result<WriteReceipt> {
        let plan = self.plan(writes, batch.is_some())?;
        Ok(self.carry_out(plan, writes, batch))
    }

    pub(super) fn undo(&mut self, writes: &[Write<'_>], batch: &Arc<BatchTicket>) -> Result<WriteReceipt> {
        let is_its = |part: &Part| Arc::ptr_eq(&part.batch, batch);
        let mut kept = Vec::new();
        for part in self.parts.iter_mut().filter(|part| is_its(part)) {
            // What was kept for this is used now.
            kept.push((std::mem::take(&mut part.page_bytes), std::mem::take(&mut part.journal_bytes)));
        }
        let plan = self.plan(writes, false);
        for (part, kept) in self.parts.iter_mut().filter(|part| is_its(part)).zip(kept) {
            match &plan {
                Ok(_) => part.is_undone = true,
                Err(_) => (part.page_bytes, part.journal_bytes) = kept,
            }
        }
        plan.map(|plan| self.carry_out(plan, writes, None))
    }

    fn carry_out(
        &mut self,
        plan: Plan,
        writes: &[Write<'_>],
        batch: Option<&Arc<BatchTicket>>,
    ) -> WriteReceipt {
        let first = self.applied + 1;
        let cost = Cost { bytes_written: plan.entries.len() as u64, ..Cost::default() };
        self.record_bytes += cost.bytes_written;
        for (page, records) in plan.pages {
            self.keep_for_snapshots(page);
            if let Some(old) = self.records(page).map(Arc::clone) {
                self.count(&old, &records);
            }
            self.pages[page] = Page::Resident { records: Arc::new(records), is_dirty: true };
        }
        if self.group.entries.is_empty() {
            self.group.opened_us = self.now.monotonic_us;
        }
        match batch {
            None => self.group.entries.extend(plan.entries),
            Some(batch) => {
                let part = Some((batch.id(), batch.parts()));
                self.append_part(&plan.entries, part);
                self.group.parts.push(Arc::clone(batch));
                self.parts.push(Part {
                    first,
                    batch: Arc::clone(batch),
                    is_durable: false,
                    is_undone: false,
                    is_marking: false,
                    page_bytes: plan.page_bytes,
                    journal_bytes: plan.journal_bytes,
                });
            }
        }
        self.applied = plan.last;
        self.wanted.clear();
        debug_assert_eq!(self.applied + 1 - first, writes.len() as u64);
        let commit = match self.durability {
            Durability::Sync => Commit::Durable,
            Durability::Group { .. } => Commit::Grouped,
            Durability::Relaxed => Commit::Relaxed,
        };
        WriteReceipt { seq: self.applied, commit, cost }
    }

    fn append_part(&mut self, entries: &[u8], part: super::format::PartOf) {
        let Ok(entries) = super::format::decode_entries(entries) else {
            unreachable!("the entries were encoded a moment ago")
        };
        for entry in entries {
            let entry = match entry {
                Entry::Change { key, record, is_delete, .. } => {
                    Entry::Change { key, record, is_delete, part }
                }
                other => other,
            };
            encode_entry(&entry, &mut self.group.entries);
        }
    }

    fn keep_for_snapshots(&mut self, page: usize) {
        let Page::Resident { records, .. } = &self.pages[page] else { return };
        for snapshot in self.snapshots.values_mut() {
            snapshot.images.entry(page).or_insert_with(|| Arc::clone(records));
        }
    }

    fn count(&mut self, old: &Records, new: &Records) {
        let mut change = |records: &Records, by: i64| {
            for (id, ..) in records.keys().filter(|(id, ..)| !self.dropped.contains(id)) {
                let count: &mut u64 = self.counts.entry(KeyspaceId(id.0)).or_default();
                *count = count.saturating_add_signed(by);
            }
        };
        change(new, 1);
        change(old, -1);
    }

    /// When the open group is to be closed, by the clock.
    pub(super) fn group_due_us(&self) -> Option<u64> {
        if self.group.entries.is_empty() {
            return None;
        }
        if self.group.is_due || self.wants_checkpoint() {
            return Some(self.now.monotonic_us);
        }
        Some(match self.durability {
            Durability::Sync => self.now.monotonic_us,
            Durability::Group { interval_ms } => self.group.opened_us + u64::from(interval_ms) * 1_000,
            Durability::Relaxed => self.group.opened_us + RELAXED_INTERVAL_US,
        })
    }

    pub(super) fn close_group_if_due(&mut self) {
        let is_due = self.group_due_us().is_some_and(|due_us| due_us <= self.now.monotonic_us);
        if self.group.entries.is_empty() {
            self.group.is_due = false;
        }
        if !is_due || self.group_in_flight || self.checkpoint.is_some() {
            return;
        }
        let OpenGroup { entries, parts, marks, .. } = std::mem::take(&mut self.group);
        let group = Group { epoch: self.epoch, number: self.next_group, last: self.applied, entries };
        let buffer = encode_group(&group);
        let offset = self.settings.layout.journal() + self.journal_at;
        self.journal_at += buffer.len() as u64;
        self.next_group += 1;
        self.group_in_flight = true;
        self.write_durable(offset, buffer, Purpose::Group { last: self.applied, batches: parts, marks });
    }

    pub(super) fn group_durable(
        &mut self,
        last: Seq,
        batches: &[Arc<BatchTicket>],
        marks: &[Arc<BatchTicket>],
    ) {
        self.group_in_flight = false;
        self.durable = last;
        for part in
            self.parts.iter_mut().filter(|part| batches.iter().any(|own| Arc::ptr_eq(own, &part.batch)))
        {
            part.is_durable = true;
            part.batch.note_durable();
        }
        marks.iter().for_each(|batch| batch.note_marked());
    }

    /// Says in the journal what is decided, and forgets parts that nobody will count.
    pub(super) fn advance_parts(&mut self) {
        let lost = self.parts.iter().any(|part| part.batch.is_abandoned() && !part.is_settled());
        if lost && self.failed.is_none() {
            let message = "an engine that takes part in a batch with this one has stopped";
            self.failed = Some(Error::new(ErrorKind::DeviceFailed, message));
        }
        if self.failed.is_some() {
            return self.parts.iter().for_each(|part| part.batch.abandon());
        }
        // Whoever asks for marks waits for the parts as well, whatever the mode.
        self.group.is_due |= self.parts.iter().any(|part| part.batch.is_waited_for());
        for part in &mut self.parts {
            if part.is_decided() && !part.is_undone && !std::mem::replace(&mut part.is_marking, true) {
                encode_entry(&Entry::Decided { batch: part.batch.id() }, &mut self.group.entries);
                self.group.marks.push(Arc::clone(&part.batch));
                self.group.is_due = true;
            }
        }
        self.parts.retain(|part| !part.is_settled());
    }

    pub(super) fn wants_checkpoint(&self) -> bool {
        let is_dirty = |page: &&Page| matches!(page, Page::Resident { is_dirty: true, .. });
        let dirty = self.pages.iter().filter(is_dirty).count();
        self.wants_room
            || self.is_shutting && !self.is_shut
            || self.journal_at > self.settings.layout.journal_bytes / 2
            || dirty > self.pages.len() / 2
    }

    pub(super) fn may_checkpoint(&self) -> bool {
        self.checkpoint.is_none()
            && !self.group_in_flight
            && self.group.entries.is_empty()
            && self.parts.is_empty()
    }

    pub(super) fn begin_checkpoint_if_due(&mut self) {
        if !self.wants_checkpoint() {
            return;
        }
        self.parts.iter().for_each(|part| part.batch.wait_for_marks());
        if !self.may_checkpoint() {
            return;
        }
        let mut images = Vec::new();
        for (number, page) in self.pages.iter_mut().enumerate() {
            if let Page::Resident { records, is_dirty } = page
                && std::mem::take(is_dirty)
            {
                images.push((number, encode_page(number, records, &self.settings.layout)));
            }
        }
        self.checkpoint =
            Some(Checkpoint { stage: Stage::Shadow, images, outstanding: 0, is_last: self.is_shutting });
        if self.settings.mutations.is_on("pages_without_shadow") {
            return self.begin_stage(Stage::Pages);
        }
        self.begin_stage(Stage::Shadow);
    }

    /// Whether a page's new image is not in its place yet.
    pub(super) fn is_being_written(&self, page: usize) -> bool {
        self.checkpoint.as_ref().is_some_and(|own| own.images.iter().any(|(number, _)| *number == page))
    }

    fn begin_stage(&mut self, stage: Stage) {
        let Some(checkpoint) = &mut self.checkpoint else { return };
        checkpoint.stage = stage;
        let layout = self.settings.layout;
        let root = (layout.root(self.epoch + 1), encode_root(self.epoch + 1, self.durable));
        let images = checkpoint.images.iter();
        let mut writes: Vec<(u64, IoBuffer)> = match stage {
            Stage::Shadow => {
                let pages: Vec<usize> = images.clone().map(|(page, _)| *page).collect();
                let bytes: Vec<IoBuffer> = images.map(|(_, image)| IoBuffer::from_slice(image)).collect();
                let list = (layout.shadow(), encode_shadow(self.epoch, &pages, &bytes));
                bytes
                    .into_iter()
                    .enumerate()
                    .map(|(at, image)| (layout.image(at), image))
                    .chain([list])
                    .collect()
            }
            Stage::Pages => {
                images.map(|(page, image)| (layout.page(*page), IoBuffer::from_slice(image))).collect()
            }
            Stage::Root => vec![root.clone()],
        };
        if stage == Stage::Pages && self.settings.mutations.is_on("root_beside_pages") {
            writes.push(root);
        }
        checkpoint.outstanding = writes.len();
        for (offset, buffer) in writes {
            self.write_durable(offset, buffer, Purpose::Checkpoint);
        }
        // With nothing changed there are no pages to wait for.
        if self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.outstanding == 0) {
            self.begin_stage(Stage::Root);
        }
    }

    pub(super) fn checkpoint_written(&mut self) {
        let Some(checkpoint) = &mut self.checkpoint else { return };
        checkpoint.outstanding -= 1;
        if checkpoint.outstanding > 0 {
            return;
        }
        match checkpoint.stage {
            // crash here: the shadow is whole, the pages are as they were or torn.
            Stage::Shadow => self.begin_stage(Stage::Pages),
            // crash here: recovery puts the same images to the same places.
            Stage::Pages => self.begin_stage(Stage::Root),
            Stage::Root => {
                self.is_shut = checkpoint.is_last;
                self.checkpoint = None;
                self.epoch += 1;
                (self.next_group, self.journal_at) = (0, 0);
                self.wants_room = false;
            }
        }
    }
}
