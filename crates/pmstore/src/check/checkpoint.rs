//! A checkpoint of the index, held against the records: what the next opening would take in without reading them.
//!
//! 1. Where one is in force, all of its pages are whole: they were durable before it was named.
//! 2. What it names in blocks that are as it lists them is a record of that key, or a tombstone.
//! 3. The newest record of each key in such a block is named; else the opening would miss the key.

use super::findings::DamageKind;
use super::walk::Walk;
use crate::checkpoint::page::{self, Item, Kind, Page};
use crate::format::{RECORD_BYTES, RecordHead, record_is_whole};
use crate::open::{Owned, checkpoint_in_force};
use crate::seal::{self, Lead};
use std::collections::BTreeSet;
use tierstone_base::collections::Map;

/// What a checkpoint names, of the keys of one pass.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// Blocks that are as they were listed, and their lives.
    lives: Map<u32, u64>,
    /// Places of records, in order.
    places: Vec<u64>,
}

impl Walk<'_> {
    /// What the checkpoint in force names; `None`: there is none, or it is damaged. What is wrong with it is noted.
    pub(super) fn named(&mut self, owned: &Owned) -> Option<Named> {
        let first = checkpoint_in_force(&self.maker, self.checked.opening()?)?;
        let segments: BTreeSet<u32> = owned.storage.iter().copied().collect();
        let Some(whole) = page::check(&self.maker, first, |segment| segments.contains(&segment)) else {
            if self.is_first_pass {
                let detail =
                    "the checkpoint of the index is damaged: the next opening reads all records".to_owned();
                self.note(DamageKind::Checkpoint, self.maker.layout.block(first), None, detail);
            }
            return None;
        };
        if self.is_first_pass {
            self.report.checkpoints += 1;
            self.report.checkpoint_keys += whole.totals.keys;
        }
        let mut named = Named::default();
        let maker = self.maker.clone();
        page::read_chain(
            &maker,
            first,
            |_| true,
            |page| {
                match page.kind {
                    Kind::Blocks => {
                        page.items.iter().for_each(|item| self.list(&mut named, &segments, *item))
                    }
                    Kind::Keys | Kind::Tombstones => self.take_page(&mut named, &page),
                    Kind::End => {}
                }
                Some(())
            },
        );
        named.places.sort_unstable();
        Some(named)
    }

    fn list(&self, named: &mut Named, segments: &BTreeSet<u32>, Item(word, life): Item) {
        let number = word as u32;
        let is_own = segments.contains(&(number / self.maker.layout.blocks_per_segment()));
        if is_own && seal::lead(&self.maker, number) == Lead::Life(life) {
            named.lives.insert(number, life);
        }
    }

    fn take_page(&mut self, named: &mut Named, page: &Page) {
        let mut wrong = Vec::new();
        // Each in the pass of its key.
        for item in page.items.iter().filter(|item| self.keys.is_of_pass(item.0)) {
            let place = item.place();
            let Some(&life) = named.lives.get(&self.maker.layout.block_of(place)) else { continue };
            if !self.is_right(page, item, life) {
                let detail = "the checkpoint of the index leads a key to another's record".to_owned();
                wrong.push((place, item.0, detail));
            } else if page.kind == Kind::Keys {
                named.places.push(place);
            }
        }
        for (place, position, detail) in wrong {
            self.note(DamageKind::Checkpoint, place, Some(position), detail);
        }
    }

    /// Whether the record that an item names is the key's. One that is not whole is another finding.
    fn is_right(&self, page: &Page, item: &Item, life: u64) -> bool {
        let (memory, layout, place) = (&self.maker.memory, &self.maker.layout, item.place());
        let room = layout.block(layout.block_of(place) + 1) - place;
        let head = RecordHead::decode(&memory.load::<RECORD_BYTES>(place), room)
            .filter(|head| record_is_whole(&memory.bytes(place, head.len as usize), life, place));
        // Pages of tombstones are of all keyspaces.
        head.is_none_or(|head| {
            (head.position, head.len) == (item.0, item.len())
                && match page.kind {
                    Kind::Tombstones => head.is_tombstone(),
                    _ => !head.is_tombstone() && head.keyspace == page.keyspace.0,
                }
        })
    }

    /// Whether the opening would find the newest record of a key.
    pub(super) fn look_for(&mut self, named: &Named, keyspace: u32, position: u64, place: u64) {
        let layout = &self.maker.layout;
        let is_in_segments = place >= layout.data_start() && place < layout.end();
        if is_in_segments
            && named.lives.contains_key(&layout.block_of(place))
            && named.places.binary_search(&place).is_err()
        {
            let detail = format!(
                "the checkpoint of the index leaves out a key of keyspace {keyspace}: the next opening misses it"
            );
            self.note(DamageKind::CheckpointLacks, place, Some(position), detail);
        }
    }
}
