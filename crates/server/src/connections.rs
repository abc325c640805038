//! What a step sees of the connections of its driver thread.
//!
//! Invariants:
//! 1. A place is used again with another generation, so an old id finds nothing.
//! 2. Whoever was lent out is looked at by the driver at the end of the turn; nobody else is.

use crate::driver::DriverReport;
use crate::gate::ReplyQueue;
use crate::input::{InputBuffer, KEPT_BYTES};
use crate::service::{ConnectionId, ConnectionMemory};
use crate::settings::TransportChange;
use crate::tls::{SESSION_BYTES, TlsSession};
use rustls::ServerConfig;
use std::sync::Arc;
use tierstone_base::histogram::LatencyBuckets;
use tierstone_redis::clients::BufferSizes;

/// What keeps a connection's input from the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Nothing.
    Free,
    /// Its output was full.
    Drain,
    /// The service asked for it.
    Pause,
}

/// How far a connection has come in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// Takes no input; ends when its output is empty.
    Closing,
    /// Ends now.
    Aborted,
}

/// How long requests and replies waited, by stage. Counted once a turn and connection, not once a request:
/// what is pipelined travels together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageLatencies {
    /// From the arrival of a connection's last bytes to the moment at which the service takes them.
    pub queue: LatencyBuckets,
    /// From the moment at which a reply waits for durability to the next one at which something is durable.
    pub gate: LatencyBuckets,
    /// From handing bytes to the kernel to its having taken them.
    pub socket: LatencyBuckets,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Entry<C> {
    pub state: C,
    pub output: ReplyQueue,
    /// What seals and opens its bytes, if they are encrypted.
    pub tls: Option<Box<TlsSession>>,
    pub input: InputBuffer,
    /// Unread input below this need not be shown to the service.
    pub needed: usize,
    pub hold: Hold,
    pub phase: Phase,
    /// The peer has closed its sending half.
    pub is_input_ended: bool,
    /// The reactor was told to receive nothing.
    pub is_receive_paused: bool,
    pub is_changed: bool,
    pub is_gated: bool,
    /// Until when its replies wait for others, once one has waited; 0: none has.
    pub together_by_us: u64,
    pub is_resumed: bool,
    /// It waits for memory.
    pub is_in_line: bool,
    /// It goes on although it is in line.
    pub is_first_in_line: bool,
    /// Its buffers, as the sum over all connections has them.
    pub counted: Buffered,
    /// What the service holds for it beside them.
    pub beside: ConnectionMemory,
    /// Bytes that the reactor is sending.
    pub sending: usize,
    /// When the send under way began.
    pub sending_since_us: u64,
    /// Since when replies have waited for durability.
    pub gated_since_us: u64,
    pub last_input_us: u64,
    /// When bytes last left for the peer.
    pub last_sent_us: u64,
    /// Since when the soft limit is exceeded; `u64::MAX`: it is not.
    pub soft_since_us: u64,
}

impl<C> Entry<C> {
    /// Bytes of memory that its buffers have written to: input, output, what is being sent, and its session of TLS.
    fn buffers(&self) -> [usize; 4] {
        let session = if self.tls.is_some() { SESSION_BYTES } else { 0 };
        [self.input.touched_bytes(), self.output.memory_bytes(), self.sending, session]
    }

    /// What its buffers hold and could hold.
    pub fn sizes(&self) -> BufferSizes {
        BufferSizes {
            unread: self.input.len(),
            input: self.input.memory_bytes(),
            replies: self.output.len() + self.sending,
            output: self.output.memory_bytes() + self.sending,
            tls: if self.tls.is_some() { SESSION_BYTES } else { 0 },
        }
    }

    /// Whether nothing is left to be sent to a connection that ends.
    pub fn is_all_sent(&self) -> bool {
        match &self.tls {
            // What cannot be sealed is never sent.
            Some(tls) => self.sending == 0 && tls.is_done() && (self.output.is_empty() || !tls.is_ready()),
            None => self.sending == 0 && self.output.is_empty(),
        }
    }
}

/// Bytes of buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Buffered {
    pub all: usize,
    /// Above what each buffer may keep.
    pub excess: usize,
    /// All, and what the service holds beside; 0 for who may not be closed to free memory.
    pub memory: usize,
    /// The class of sizes in which it is counted; 0: in none.
    class: u8,
}

/// Classes of sizes: one for each number of bits.
const CLASSES: usize = usize::BITS as usize + 1;

/// How many connections there are of each size; those without memory are in none.
#[derive(Debug)]
struct Sizes([u32; CLASSES]);

impl Sizes {
    fn class_of(bytes: usize) -> u8 {
        (usize::BITS - bytes.leading_zeros()) as u8
    }

    fn exchange(&mut self, old: u8, new: u8) {
        if old != new {
            self.0[usize::from(old)] -= u32::from(old > 0);
            self.0[usize::from(new)] += u32::from(new > 0);
        }
    }

    fn largest(&self) -> u8 {
        self.0.iter().rposition(|count| *count > 0).unwrap_or(0) as u8
    }
}

#[derive(Debug)]
struct Place<C> {
    generation: u32,
    entry: Option<Entry<C>>,
}

/// One connection, lent to the service.
#[derive(Debug)]
pub struct Link<'a, C> {
    /// The service's own state of the connection.
    pub state: &'a mut C,
    /// Its replies.
    pub output: &'a mut ReplyQueue,
}

/// All connections of a driver thread.
#[derive(Debug)]
pub struct Connections<C> {
    places: Vec<Place<C>>,
    count: usize,
    buffered: Buffered,
    sizes: Sizes,
    pub(crate) report: DriverReport,
    pub(crate) stages: StageLatencies,
    /// Changes of the driver's settings that the service asked for.
    pub(crate) settings: Vec<TransportChange>,
    /// What new encrypted connections are set up from.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Indexes of entries with `is_changed`.
    pub(crate) changed: Vec<u32>,
    /// Indexes of entries with `is_gated`.
    pub(crate) gated: Vec<u32>,
    /// Indexes of entries with `is_resumed`.
    pub(crate) resumed: Vec<u32>,
}

impl<C> Default for Connections<C> {
    fn default() -> Self {
        Connections {
            places: Vec::new(),
            count: 0,
            buffered: Buffered::default(),
            sizes: Sizes([0; CLASSES]),
            report: DriverReport::default(),
            stages: StageLatencies::default(),
            settings: Vec::new(),
            tls: None,
            changed: Vec::new(),
            gated: Vec::new(),
            resumed: Vec::new(),
        }
    }
}

impl<C> Connections<C> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What the driver thread has done so far.
    pub fn report(&self) -> &DriverReport {
        &self.report
    }

    /// How long requests and replies waited in this thread so far.
    pub fn stages(&self) -> &StageLatencies {
        &self.stages
    }

    /// Bytes of memory in the buffers of all connections. Cost: O(the most connections there ever
    /// were).
    pub fn buffer_bytes(&self) -> u64 {
        let entries = self.places.iter().filter_map(|place| place.entry.as_ref());
        let held =
            entries.map(|entry| entry.input.memory_bytes() + entry.output.memory_bytes() + entry.sending);
        held.sum::<usize>() as u64
    }

    /// The same without what was reserved and never written to, as of when each connection was last looked
    /// at. Cost: constant.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered.all
    }

    /// Of these, what lies above the [`KEPT_BYTES`] that each buffer may keep. Cost: constant.
    pub(crate) fn excess_bytes(&self) -> usize {
        self.buffered.excess
    }

    /// Bytes of memory that the connections take which may be closed to free it: their buffers, and what the service
    /// holds beside ([`crate::Service::memory`]), as of when each was last looked at. Cost: constant.
    pub fn memory_bytes(&self) -> usize {
        self.buffered.memory
    }

    /// Of the connections that may be closed to free memory, the number of bits of the size of the largest; 0: there
    /// is none. Cost: constant.
    pub fn largest_class(&self) -> u8 {
        self.sizes.largest()
    }

    /// Of the connections that may be closed to free memory, the one that takes most, and its bytes. Cost: O(the most
    /// connections there ever were).
    pub fn largest(&self) -> Option<(ConnectionId, usize)> {
        let class = self.largest_class();
        let places = (0..).zip(&self.places);
        places
            .filter_map(|(index, place)| Some((index, place, place.entry.as_ref()?)))
            .filter(|(.., entry)| class > 0 && entry.counted.class == class)
            .max_by_key(|(.., entry)| entry.counted.memory)
            .map(|(index, place, entry)| {
                (ConnectionId { index, generation: place.generation }, entry.counted.memory)
            })
    }

    /// Has every connection looked at when the turn ends.
    pub fn look_at_all(&mut self) {
        for index in 0..self.place_count() {
            self.note_changed(index);
        }
    }

    /// Whether connection `id` is there.
    pub(crate) fn is_there(&mut self, id: ConnectionId) -> bool {
        self.find(id).is_some()
    }

    /// Counts the buffers of the connection at `index` anew.
    pub(crate) fn recount(&mut self, index: u32) {
        let Some(entry) = self.places.get_mut(index as usize).and_then(|place| place.entry.as_mut()) else {
            return;
        };
        let buffers = entry.buffers();
        let excess = buffers.iter().map(|bytes| bytes.saturating_sub(KEPT_BYTES)).sum();
        let all: usize = buffers.iter().sum();
        let memory = if entry.beside.is_kept { 0 } else { all + entry.beside.bytes };
        let class = Sizes::class_of(memory);
        let new = Buffered { all, excess, memory, class };
        let old = std::mem::replace(&mut entry.counted, new);
        self.sizes.exchange(old.class, class);
        self.buffered.memory = self.buffered.memory - old.memory + memory;
        self.buffered.all = self.buffered.all - old.all + new.all;
        self.buffered.excess = self.buffered.excess - old.excess + new.excess;
    }

    /// The connection `id`, or `None` when it is gone. Its output is looked at when the turn ends.
    #[inline]
    pub fn get(&mut self, id: ConnectionId) -> Option<Link<'_, C>> {
        let place = self.places.get_mut(id.index as usize)?;
        if place.generation != id.generation {
            return None;
        }
        let entry = place.entry.as_mut()?;
        if !entry.is_changed {
            entry.is_changed = true;
            self.changed.push(id.index);
        }
        Some(Link { state: &mut entry.state, output: &mut entry.output })
    }

    /// The service's state of connection `id`, to look at.
    pub fn state(&self, id: ConnectionId) -> Option<&C> {
        let place = self.places.get(id.index as usize)?;
        if place.generation != id.generation {
            return None;
        }
        place.entry.as_ref().map(|entry| &entry.state)
    }

    /// The replies of connection `id`, to look at.
    pub fn output(&self, id: ConnectionId) -> Option<&ReplyQueue> {
        let place = self.places.get(id.index as usize)?;
        if place.generation != id.generation {
            return None;
        }
        place.entry.as_ref().map(|entry| &entry.output)
    }

    /// All ids, in the order of their places. Cost: O(the most connections there ever were).
    pub fn ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.entry.is_some())
            .map(|(index, place)| ConnectionId { index: index as u32, generation: place.generation })
    }

    /// Ends the pause that the service asked for with [`crate::Want::Pause`]. Input that waits is given
    /// to the service at the start of the next turn, which follows at once.
    pub fn resume(&mut self, id: ConnectionId) {
        if let Some(entry) = self.find(id)
            && entry.hold == Hold::Pause
        {
            entry.hold = Hold::Free;
            self.note_resumed(id.index);
        }
    }

    /// Takes no more input of connection `id` and closes it when its output is empty.
    pub fn close(&mut self, id: ConnectionId) {
        if let Some(entry) = self.find(id)
            && entry.phase == Phase::Open
        {
            entry.phase = Phase::Closing;
            self.note_changed(id.index);
        }
    }

    /// Closes connection `id` at the end of the turn; what was not sent is lost.
    pub fn abort(&mut self, id: ConnectionId) {
        if let Some(entry) = self.find(id) {
            entry.phase = Phase::Aborted;
            self.note_changed(id.index);
        }
    }

    /// Sets encrypted connections up from `config` that come from now on.
    pub fn set_tls(&mut self, config: Arc<ServerConfig>) {
        self.tls = Some(config);
    }

    /// Changes a setting of this driver thread, from the end of the step on.
    pub fn change_setting(&mut self, change: TransportChange) {
        self.settings.push(change);
    }

    /// The entry of connection `id`, or `None` when it is gone.
    pub(crate) fn entry_of(&mut self, id: ConnectionId) -> Option<&mut Entry<C>> {
        self.find(id)
    }

    fn find(&mut self, id: ConnectionId) -> Option<&mut Entry<C>> {
        let place = self.places.get_mut(id.index as usize)?;
        if place.generation == id.generation { place.entry.as_mut() } else { None }
    }

    pub(crate) fn entry(&mut self, index: u32) -> Option<&mut Entry<C>> {
        self.places.get_mut(index as usize)?.entry.as_mut()
    }

    /// The id that the next entry at `index` will have.
    pub(crate) fn next_id(&mut self, index: u32) -> ConnectionId {
        while self.places.len() <= index as usize {
            self.places.push(Place { generation: 0, entry: None });
        }
        ConnectionId { index, generation: self.places[index as usize].generation }
    }

    pub(crate) fn insert(&mut self, id: ConnectionId, entry: Entry<C>) {
        let place = &mut self.places[id.index as usize];
        debug_assert!(place.entry.is_none(), "the place is taken");
        place.entry = Some(entry);
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<(ConnectionId, Entry<C>)> {
        let place = self.places.get_mut(index as usize)?;
        let entry = place.entry.take()?;
        let id = ConnectionId { index, generation: place.generation };
        place.generation = place.generation.wrapping_add(1);
        self.count -= 1;
        self.sizes.exchange(entry.counted.class, 0);
        self.buffered.memory -= entry.counted.memory;
        self.buffered.all -= entry.counted.all;
        self.buffered.excess -= entry.counted.excess;
        Some((id, entry))
    }

    pub(crate) fn id(&self, index: u32) -> ConnectionId {
        let generation = self.places.get(index as usize).map_or(0, |place| place.generation);
        ConnectionId { index, generation }
    }

    /// How many places there are, taken or not.
    pub(crate) fn place_count(&self) -> u32 {
        self.places.len() as u32
    }

    pub(crate) fn note_changed(&mut self, index: u32) {
        if let Some(entry) = self.entry(index)
            && !entry.is_changed
        {
            entry.is_changed = true;
            self.changed.push(index);
        }
    }

    pub(crate) fn note_resumed(&mut self, index: u32) {
        if let Some(entry) = self.entry(index)
            && !entry.is_resumed
        {
            entry.is_resumed = true;
            self.resumed.push(index);
        }
    }

    pub(crate) fn note_gated(&mut self, index: u32, now_us: u64) {
        if let Some(entry) = self.entry(index)
            && !entry.is_gated
        {
            entry.is_gated = true;
            entry.gated_since_us = now_us;
            self.gated.push(index);
        }
    }
}
