//! Byte-addressable persistent memory behind volatile CPU caches; see [`crate::lines`] and
//! [`crate::words`] for the two meanings of its unit.

use crate::choices::Choices;
use crate::order::StoreOrder;
use crate::survivors::{SurvivorSettings, Unit, combinations, pick};
use std::collections::BTreeMap;
use tierstone_base::checksum::checksum;

/// Bytes that a cache line has: what a write-back covers.
pub const LINE_BYTES: usize = 64;
/// Bytes that the memory stores whole, when aligned.
pub const WORD_BYTES: usize = 8;

/// What a fence makes durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FenceScope {
    /// What its processor wrote back: hardware.
    #[default]
    WrittenBack,
    /// What its processor stored, loaded or wrote back, and what came before on the same units: epoch persistency.
    Touched,
    /// The same, and all that came before: buffered strict persistency.
    InOrder,
}

/// A region of persistent memory whose stores reach the medium in order within each aligned
/// `UNIT` of bytes, and in no order between units.
///
/// Invariants:
/// 1. A store within one aligned word of 8 bytes survives whole or not at all; longer stores are
///    cut into such words.
/// 2. What a processor wrote back (`write_back`, `store_streaming`) before a fence of its own is durable after it;
///    before the fence it may or may not be; so may any other store at any time (eviction). A fence says nothing of
///    what another processor writes back.
/// 3. Under another [`FenceScope`] a fence makes more durable, never less, and still says nothing of stores of other
///    processors that its own has nothing to do with.
#[derive(Clone, Debug)]
pub struct ByteMemory<const UNIT: usize> {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: BTreeMap<usize, Pending>,
    next_store: u64,
    /// Who does what comes next.
    processor: u32,
    scope: FenceScope,
    /// Empty unless stores become durable in order.
    order: StoreOrder,
}

#[derive(Clone, Debug, Default)]
struct Pending {
    stores: Vec<Store>,
    /// How many of the stores the next fence of which processor makes durable; each once, none of no stores.
    written_back: Vec<(u32, usize)>,
}

impl Pending {
    /// The first `count` stores, one at least, are durable after the next fence of `processor`.
    fn write_back(&mut self, processor: u32, count: usize) {
        match self.written_back.iter_mut().find(|(by, _)| *by == processor) {
            Some((_, written_back)) => *written_back = count.max(*written_back),
            None => self.written_back.push((processor, count)),
        }
    }

    /// The last store to the word at `word`: how many there are up to it, and its number.
    fn last_of(&self, word: usize) -> Option<(usize, u64)> {
        let place = self.stores.iter().rposition(|store| store.at / WORD_BYTES == word / WORD_BYTES)?;
        Some((place + 1, self.stores[place].number))
    }

    /// Takes out what a fence of `processor` makes durable.
    fn fence(&mut self, processor: u32) -> Vec<Store> {
        let Some(place) = self.written_back.iter().position(|(by, _)| *by == processor) else {
            return Vec::new();
        };
        let (_, count) = self.written_back.swap_remove(place);
        for (_, others) in &mut self.written_back {
            *others = others.saturating_sub(count);
        }
        self.written_back.retain(|(_, others)| *others > 0);
        self.stores.drain(..count).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct Store {
    number: u64,
    at: usize,
    len: usize,
    bytes: [u8; WORD_BYTES],
}

impl Store {
    fn apply(&self, memory: &mut [u8], base: usize) {
        memory[self.at - base..self.at - base + self.len].copy_from_slice(&self.bytes[..self.len]);
    }
}

impl<const UNIT: usize> ByteMemory<UNIT> {
    /// `bytes` bytes of zeros, rounded up to whole lines.
    pub fn new(bytes: usize) -> Self {
        const { assert!(UNIT == LINE_BYTES || UNIT == WORD_BYTES, "a unit is a line or a word") };
        let len = bytes.next_multiple_of(LINE_BYTES);
        ByteMemory {
            durable: vec![0; len],
            current: vec![0; len],
            pending: BTreeMap::new(),
            next_store: 1,
            processor: 0,
            scope: FenceScope::default(),
            order: StoreOrder::default(),
        }
    }

    /// What fences make durable from now on.
    ///
    /// # Panics
    /// When it changes while stores are not durable.
    pub fn set_scope(&mut self, scope: FenceScope) {
        assert!(scope == self.scope || self.pending.is_empty(), "stores are not durable yet");
        self.scope = scope;
    }

    /// What comes next is done by processor `number`; the first is 0.
    pub fn set_processor(&mut self, number: u32) {
        self.processor = number;
    }

    /// The threads on the processors end, by a kernel that lets other threads on: what they were writing back is made durable by
    /// the next fence of processor 0, whose thread comes after them.
    pub fn end_threads(&mut self) {
        for pending in self.pending.values_mut() {
            let count = pending.written_back.iter().map(|(_, count)| *count).max();
            pending.written_back = count.map(|count| (0, count)).into_iter().collect();
        }
        self.order.end_threads();
        self.processor = 0;
    }

    /// What the CPU reads now.
    pub fn bytes(&self) -> &[u8] {
        &self.current
    }

    /// What would be there if nothing undurable survived.
    pub fn durable_bytes(&self) -> &[u8] {
        &self.durable
    }

    /// The little-endian word at `offset`.
    pub fn load_u64(&self, offset: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.current[offset..offset + 8]);
        u64::from_le_bytes(word)
    }

    /// Stores `bytes`, word by word.
    ///
    /// # Panics
    /// When they do not fit the region.
    pub fn store(&mut self, offset: usize, bytes: &[u8]) {
        self.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done;
            let len = (WORD_BYTES - at % WORD_BYTES).min(bytes.len() - done);
            let mut word = [0; WORD_BYTES];
            word[..len].copy_from_slice(&bytes[done..done + len]);
            let store = Store { number: self.next_store, at, len, bytes: word };
            self.next_store += 1;
            let pending = self.pending.entry(at / UNIT).or_default();
            let previous = pending.stores.last().map(|store| store.number);
            pending.stores.push(store);
            match self.scope {
                FenceScope::WrittenBack => {}
                FenceScope::Touched => pending.write_back(self.processor, pending.stores.len()),
                FenceScope::InOrder => {
                    self.order.store(self.processor, store.number, at / WORD_BYTES, previous);
                }
            }
            done += len;
        }
    }

    /// The processor loads `offset .. offset + len`: under the models of persistency a fence of its own covers what it
    /// has seen.
    pub fn observe(&mut self, offset: usize, len: usize) {
        if self.scope == FenceScope::WrittenBack || len == 0 || self.pending.is_empty() {
            return;
        }
        for word in offset / WORD_BYTES..(offset + len).div_ceil(WORD_BYTES) {
            let mut pending = self.pending.get_mut(&(word * WORD_BYTES / UNIT));
            let last = pending.as_ref().and_then(|pending| pending.last_of(word * WORD_BYTES));
            match (self.scope, &mut pending, last) {
                (FenceScope::InOrder, _, last) => {
                    self.order.load(self.processor, word, last.map(|(_, number)| number));
                }
                (_, Some(pending), Some((count, _))) => pending.write_back(self.processor, count),
                _ => {}
            }
        }
    }

    /// Stores one little-endian word; whole if `offset` is aligned.
    pub fn store_u64(&mut self, offset: usize, value: u64) {
        self.store(offset, &value.to_le_bytes());
    }

    /// Stores past the caches: durable after the next fence.
    pub fn store_streaming(&mut self, offset: usize, bytes: &[u8]) {
        self.store(offset, bytes);
        self.write_back(offset, bytes.len());
    }

    /// Starts to write back the lines that `offset .. offset + len` touches (CLWB, DC CVAP).
    pub fn write_back(&mut self, offset: usize, len: usize) {
        let start = offset / LINE_BYTES * LINE_BYTES;
        let end = (offset + len).next_multiple_of(LINE_BYTES);
        for pending in self.pending.range_mut(start / UNIT..end / UNIT).map(|(_, pending)| pending) {
            match self.scope {
                FenceScope::InOrder => {
                    self.order.observe(self.processor, pending.stores.last().map(|store| store.number));
                }
                _ => pending.write_back(self.processor, pending.stores.len()),
            }
        }
    }

    /// Waits for what the processor is writing back (SFENCE, DSB), or for more, as the scope says: it is durable now.
    pub fn fence(&mut self) {
        if self.scope == FenceScope::InOrder {
            return self.fence_in_order();
        }
        let durable = &mut self.durable;
        self.pending.retain(|_, pending| {
            for store in pending.fence(self.processor) {
                store.apply(durable, 0);
            }
            !pending.stores.is_empty()
        });
    }

    fn fence_in_order(&mut self) {
        let (durable, order, processor) = (&mut self.durable, &mut self.order, self.processor);
        let mut done = Vec::new();
        self.pending.retain(|_, pending| {
            let count = pending.stores.partition_point(|store| order.is_before(store.number, processor));
            for store in pending.stores.drain(..count) {
                store.apply(durable, 0);
                done.push(store.number);
            }
            !pending.stores.is_empty()
        });
        done.into_iter().for_each(|number| order.forget(number));
    }

    /// Writes back and fences `offset .. offset + len`.
    pub fn persist(&mut self, offset: usize, len: usize) {
        self.write_back(offset, len);
        self.fence();
    }

    /// Writes back and fences everything.
    pub fn persist_all(&mut self) {
        self.persist(0, self.current.len());
    }

    /// Whether the processor's next fence makes anything durable.
    pub fn is_being_written_back(&self) -> bool {
        let is_mine = |pending: &Pending| match self.scope {
            FenceScope::InOrder => {
                pending.stores.first().is_some_and(|store| self.order.is_before(store.number, self.processor))
            }
            _ => pending.written_back.iter().any(|(by, _)| *by == self.processor),
        };
        self.pending.values().any(is_mine)
    }

    /// Damages the medium: puts `bytes` at `offset`, in the caches and below them, past all order.
    ///
    /// # Panics
    /// When they do not fit the region.
    pub fn overwrite(&mut self, offset: usize, bytes: &[u8]) {
        self.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.durable[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// How many units the loss of power could leave in more than one state.
    pub fn undecided(&self) -> usize {
        self.units().len()
    }

    /// How many states the loss of power could leave; saturates.
    pub fn survivor_states(&self) -> u64 {
        combinations(&self.units().into_iter().map(|(_, unit)| unit).collect::<Vec<_>>())
    }

    /// Loses power: each unit keeps the stores up to the one that `choices` picks; where stores become durable in order,
    /// each processor keeps a prefix of its own, with all that came before. Tells `choices` the digest of what is left.
    pub fn lose_power(&mut self, choices: &Choices, settings: &SurvivorSettings) {
        if self.scope == FenceScope::InOrder {
            return self.lose_power_in_order(choices);
        }
        let (places, units): (Vec<usize>, Vec<Unit>) = self.units().into_iter().unzip();
        let picked = pick(choices, &units, settings);
        for (place, survivors) in places.into_iter().zip(picked) {
            let Some(pending) = self.pending.get(&place) else { continue };
            for store in &pending.stores[..survivors] {
                store.apply(&mut self.durable, 0);
            }
        }
        self.forget_pending(choices);
    }

    fn lose_power_in_order(&mut self, choices: &Choices) {
        let left = self.order.cut(|options| choices.choose_position(options, "surviving prefix"));
        let stores = self.pending.values().flat_map(|pending| &pending.stores);
        for store in stores.filter(|store| left.contains(&store.number)) {
            store.apply(&mut self.durable, 0);
        }
        self.forget_pending(choices);
    }

    fn forget_pending(&mut self, choices: &Choices) {
        self.pending.clear();
        self.order = StoreOrder::default();
        self.current.copy_from_slice(&self.durable);
        choices.observe_state(checksum(0, &self.durable));
    }

    /// Version `n` of a unit is what the durable bytes and its first `n` stores make.
    fn units(&self) -> Vec<(usize, Unit)> {
        let mut units = Vec::new();
        for (&place, pending) in &self.pending {
            let base = place * UNIT;
            let mut bytes = self.durable[base..base + UNIT].to_vec();
            let (mut versions, mut writes, mut distinct) = (vec![bytes.clone()], vec![0], vec![0]);
            for store in &pending.stores {
                store.apply(&mut bytes, base);
                if !versions.contains(&bytes) {
                    distinct.push(writes.len());
                }
                versions.push(bytes.clone());
                writes.push(store.number);
            }
            if distinct.len() > 1 {
                units.push((place, Unit { writes, distinct }));
            }
        }
        units
    }
}

#[cfg(test)]
#[path = "memory_test.rs"]
mod memory_test;
