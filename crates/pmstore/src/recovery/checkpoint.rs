//! What an opening takes in of a checkpoint ([`crate::checkpoint`]): blocks that are as they were listed, and what the
//! indexes said of them.
//!
//! What does not fit, or a record of those that are read that is not whole: nothing is taken in, and all records are
//! read. Then blocks that the checkpoint lists may be appended to, so it is taken back first, durably when that begins.

use super::Rebuild;
use crate::blocks::Role;
use crate::checkpoint::OPENING_AT;
use crate::checkpoint::page::{Checked, Item, Kind, Page, check, read_chain};
use crate::format::LEAD_BYTES;
use crate::open::Keyspace;
use crate::seal::{self, Lead};
use crate::shard::Found;
use tierstone_base::{Position, Result};

/// Keys between which the next lines of the index are asked for.
const ASKED_AHEAD: usize = 8;

impl Rebuild {
    /// Takes in the checkpoint whose first page is in block `first`, or takes it back.
    pub(super) fn take_checkpoint(&mut self, first: u32, kinds: &[Keyspace]) -> Result<()> {
        let maker = self.shard.maker.clone();
        let segments = &self.shard.blocks.segments;
        let checked = check(&maker, first, |segment| segments.contains_key(&segment));
        let Some(checked) = checked.filter(|checked| self.load(first, checked).is_some()) else {
            self.forget_loaded(kinds);
            if self.shard.mutations.is_on("unfit_checkpoint_kept") {
                return Ok(());
            }
            // crash here [checkpoint-found-unfit]: the next opening finds it unfit too. No barrier: the one before blocks
            // are appended to makes it durable.
            maker.memory.put_word(maker.layout.shard_line(maker.shard) + OPENING_AT, 0);
            return Ok(());
        };
        for &page in &checked.pages {
            self.shard.blocks.note_use(page);
        }
        let numbers = self.shard.blocks.table.numbers();
        self.shard.graves.is_partial =
            !numbers.is_empty() && !self.shard.mutations.is_on("uncounted_taken_for_none");
        self.shard.recount.blocks = numbers.into();
        self.shard.longest_bytes = checked.totals.longest_bytes;
        self.seen = self.seen.max(checked.totals.applied);
        self.pages = checked.pages.iter().copied().collect();
        let passed_over = self.shard.recount.blocks.len() + self.pages.len();
        let geometry = &maker.layout.geometry;
        let bytes = self.shard.blocks.segments.len() as u64 * geometry.segment_bytes;
        self.opening.at_most_left(bytes.saturating_sub(passed_over as u64 * geometry.block_bytes));
        self.shard.checkpoints.adopt(checked.pages);
        Ok(())
    }

    fn load(&mut self, first: u32, checked: &Checked) -> Option<()> {
        let maker = self.shard.maker.clone();
        for (id, &count) in &checked.keys {
            if let Some(keys) = self.shard.keyspaces.get_mut(id) {
                keys.expect(count);
            }
        }
        read_chain(
            &maker,
            first,
            |_| true,
            |page| match page.kind {
                Kind::Blocks => {
                    page.items.into_iter().for_each(|item| self.adopt_listed(item));
                    Some(())
                }
                Kind::Keys => self.load_keys(&page),
                Kind::Tombstones => page.items.into_iter().try_for_each(|item| self.load_tombstone(item)),
                Kind::End => Some(()),
            },
        )
        .map(|_| ())
    }

    /// A listed block whose life has not ended is as it was. What lies in a segment that the shard has not any more may be
    /// anything, also what looks like that block.
    fn adopt_listed(&mut self, Item(word, life): Item) {
        let (number, end) = (word as u32, (word >> 32) as u32);
        let segment = number / self.shard.maker.layout.blocks_per_segment();
        let is_own = self.shard.blocks.segments.contains_key(&segment)
            || self.shard.mutations.is_on("listed_of_others_adopted");
        if is_own && seal::lead(&self.shard.maker, number) == Lead::Life(life) {
            self.shard.blocks.adopt(number, life, end, Role::Full).counted_to = LEAD_BYTES as u32;
        }
    }

    fn is_in_listed(&self, place: u64) -> bool {
        self.shard.blocks.life_at(place).is_some()
    }

    fn load_keys(&mut self, page: &Page) -> Option<()> {
        let id = page.keyspace;
        // Records of a dropped keyspace are old: they are counted later.
        let Some(keys) = self.shard.keyspaces.get(&id) else { return Some(()) };
        let is_ordered = keys.is_ordered();
        for (at, item) in page.items.iter().enumerate() {
            if let (Some(ahead), Some(keys)) =
                (page.items.get(at + ASKED_AHEAD), self.shard.keyspaces.get(&id))
            {
                keys.prefetch(Position(ahead.0));
                self.shard.blocks.prefetch(ahead.place());
            }
            if let Some(soon) = page.items.get(at + ASKED_AHEAD / 2) {
                self.shard.blocks.prefetch_bit(soon.place());
            }
            let (position, place) = (Position(item.0), item.place());
            if !self.is_in_listed(place) {
                continue;
            }
            let key = match is_ordered {
                true => {
                    let (head, record) = self.shard.record(place).ok()?;
                    self.key_of(&head, &record).ok()?.into_owned()
                }
                false => Vec::new(),
            };
            let Some(keys) = self.shard.keyspaces.get_mut(&id) else { continue };
            if keys.has(position, place) {
                continue;
            }
            keys.insert(position, &key, place);
            self.shard.blocks.take_in(place, item.len());
            self.shard.sweeper.has_expiring |= item.expires();
            if item.is_overflow() {
                self.overflows.push((id, position.0, place));
            }
            self.report.loaded += 1;
            self.opening.advance(u64::from(item.len()));
        }
        Some(())
    }

    fn load_tombstone(&mut self, item: Item) -> Option<()> {
        let place = item.place();
        if self.is_in_listed(place) {
            let (head, _) = self.shard.record(place).ok().filter(|(head, _)| head.is_tombstone())?;
            let number = self.shard.maker.layout.block_of(place);
            self.shard.blocks.table.get_mut(number)?.has_tombstones = true;
            self.gathered.push(Found { place, head });
        }
        Some(())
    }

    /// As if nothing had been taken in.
    fn forget_loaded(&mut self, kinds: &[Keyspace]) {
        for &Keyspace { id, index } in kinds {
            let keys = self.shard.new_keys(index);
            self.shard.keyspaces.insert(id, keys);
        }
        for number in self.shard.blocks.table.numbers() {
            self.shard.blocks.abandon(number);
        }
        self.gathered.clear();
        self.overflows.clear();
        self.report.loaded = 0;
        self.shard.sweeper.has_expiring = false;
    }

    /// A record of a listed block may be damaged: it is verified before it is compared.
    pub(super) fn is_listed_damaged(&self, place: u64) -> bool {
        !self.shard.blocks.is_counted(place) && self.shard.record(place).is_err()
    }
}
