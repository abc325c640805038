//! Reads a checkpoint's pieces into indexes.

use super::Place;
use super::find::FoundCheckpoint;
use crate::format::checkpoint::{
    Commit, Item, SegmentFact, TouchFact, next_item, open_piece, piece_bytes, piece_place,
};
use crate::format::superblock::KeyspaceEntry;
use crate::index::{HashIndex, HashIndexSettings};
use crate::location::{SEGMENT_COUNT_MAX, Target, index_settings};
use crate::redo::snapshots::Area;
use crate::shard::segment_salt;
use std::collections::BTreeMap;
use tierstone_base::{KeyspaceId, Position, Seq};
use tierstone_engine::OpeningPart;
use tierstone_media::{BlockDevice, IoBuffer, IoRequest, Wait};

/// Pieces asked for at a time.
const READS_MAX: u64 = 8;

/// One keyspace as a checkpoint has it.
pub(crate) struct LoadedKeyspace {
    pub index: HashIndex,
    /// Where each chunk begins, and as of which sequence it is; in order.
    pub chunks: Vec<(Position, Seq)>,
}

impl LoadedKeyspace {
    fn new(settings: HashIndexSettings) -> LoadedKeyspace {
        LoadedKeyspace { index: HashIndex::new(settings), chunks: Vec::new() }
    }
}

/// A checkpoint in memory.
pub(crate) struct Loaded {
    settings: HashIndexSettings,
    pub keyspaces: BTreeMap<KeyspaceId, LoadedKeyspace>,
    /// What each segment that it names held when it began.
    pub facts: BTreeMap<u32, SegmentFact>,
    /// How many entries point into each segment, by number.
    pub counts: Vec<u32>,
    /// What touches said of values when it was written.
    pub touches: Vec<TouchFact>,
}

impl Loaded {
    /// As of which sequence the entries at `position` are.
    pub fn as_of(&self, keyspace: KeyspaceId, position: Position, begin: Seq) -> Seq {
        let Some(keyspace) = self.keyspaces.get(&keyspace) else { return begin };
        let after = keyspace.chunks.partition_point(|&(from, _)| from <= position);
        after.checked_sub(1).map_or(begin, |place| keyspace.chunks[place].1)
    }
}

/// Reads the checkpoint; `None` when it is damaged or does not fit the store's keyspaces.
pub(crate) fn load(
    device: &mut dyn BlockDevice,
    found: &FoundCheckpoint,
    keyspaces: &[KeyspaceEntry],
    opening: &OpeningPart,
) -> Option<Loaded> {
    let commit = &found.commit;
    let mut loaded = Loaded {
        settings: index_settings(device.geometry().segment_limit),
        keyspaces: BTreeMap::new(),
        facts: BTreeMap::new(),
        counts: vec![0; SEGMENT_COUNT_MAX as usize],
        touches: Vec::new(),
    };
    let mut named = Vec::new();
    let exists = |id: &KeyspaceId| keyspaces.iter().any(|keyspace| keyspace.id == *id);
    let piece_bytes = piece_bytes(device.geometry().segment_bytes) as u64;
    let take = |mut items: &[u8]| {
        opening.advance(piece_bytes);
        while !items.is_empty() {
            match next_item(&mut items)? {
                Item::Chunk { keyspace, from, applied, regions } => {
                    loaded.take_chunk(keyspace, (from, applied), regions, commit)?;
                }
                Item::Segments(facts) => {
                    loaded.facts.extend(facts.into_iter().map(|fact| (fact.segment, fact)));
                }
                Item::Keyspaces(ids) => named.extend(ids),
                // Its drop did not become durable: the checkpoint knows too little.
                Item::Dropped(ids) if ids.iter().any(exists) => return None,
                Item::Dropped(_) => {}
                Item::Touches(touches) => loaded.touches.extend(touches),
            }
        }
        Some(())
    };
    match &found.place {
        Place::Flash(_) => read_pieces(device, commit, take)?,
        Place::Region(area) => read_area(area, commit, take)?,
    }
    let fits = named.iter().all(exists) && loaded.keyspaces.keys().all(|id| named.contains(id));
    fits.then_some(loaded)
}

impl Loaded {
    /// A keyspace, with an empty index where it has none.
    pub fn keyspace(&mut self, keyspace: KeyspaceId) -> &mut LoadedKeyspace {
        self.keyspaces.entry(keyspace).or_insert_with(|| LoadedKeyspace::new(self.settings))
    }

    fn take_chunk(
        &mut self,
        keyspace: KeyspaceId,
        (from, applied): (Position, Seq),
        regions: &[u8],
        commit: &Commit,
    ) -> Option<()> {
        let keyspace = self.keyspaces.entry(keyspace).or_insert_with(|| LoadedKeyspace::new(self.settings));
        let is_next = keyspace.chunks.last().map_or(from.0 == 0, |&(last, _)| last < from);
        if !is_next || applied < commit.seq {
            return None;
        }
        keyspace.chunks.push((from, applied));
        let counts = &mut self.counts;
        let mut count = |value| match Target::unpack(value) {
            Target::Device(location) => {
                counts[location.segment() as usize] += 1;
                true
            }
            Target::Frame(_) => false,
        };
        keyspace.index.load_with(regions, commit.layout, &mut count).ok().map(drop)
    }
}

/// Shows the items of all pieces in an area of the region, in order. `None` when one is damaged or `take` gives up.
fn read_area(area: &Area, commit: &Commit, mut take: impl FnMut(&[u8]) -> Option<()>) -> Option<()> {
    let salt = area.salt(commit.generation);
    (0..commit.pieces).try_for_each(|number| {
        let piece = area.load_piece(number);
        open_piece(&piece, number, salt).and_then(&mut take)
    })
}

/// Reads all pieces, some at a time, and shows their items in order. `None` when one is damaged or
/// `take` gives up; then too nothing is left in flight.
fn read_pieces(
    device: &mut dyn BlockDevice,
    commit: &Commit,
    mut take: impl FnMut(&[u8]) -> Option<()>,
) -> Option<()> {
    let mut spare: Vec<IoBuffer> = Vec::new();
    let mut arrived: BTreeMap<u64, IoBuffer> = BTreeMap::new();
    let (mut asked, mut taken) = (0, 0);
    let mut completions = Vec::new();
    let mut result = Some(());
    while result.is_some() && taken < commit.pieces {
        let mut requests = Vec::new();
        while asked < commit.pieces && asked < taken + READS_MAX {
            requests.push(request(device, commit, asked, spare.pop())?);
            asked += 1;
        }
        device.submit(&mut requests);
        device.complete(Wait::One, &mut completions);
        for completion in completions.drain(..) {
            match (completion.result, completion.buffer) {
                (Ok(()), Some(buffer)) => drop(arrived.insert(completion.token, buffer)),
                _ => result = None,
            }
        }
        while let Some(buffer) = arrived.remove(&taken) {
            let (place, _) = piece_place(taken, device.geometry().segment_bytes);
            let salt = segment_salt(commit.store, commit.segments[place], commit.generation);
            if result.is_some() {
                result = open_piece(&buffer, taken, salt).and_then(&mut take);
            }
            spare.push(buffer);
            taken += 1;
        }
    }
    device.complete(Wait::All, &mut completions);
    result
}

fn request(
    device: &mut dyn BlockDevice,
    commit: &Commit,
    number: u64,
    spare: Option<IoBuffer>,
) -> Option<IoRequest> {
    let geometry = device.geometry();
    let (place, offset) = piece_place(number, geometry.segment_bytes);
    let &segment = commit.segments.get(place)?;
    let buffer = spare.unwrap_or_else(|| IoBuffer::zeroed(piece_bytes(geometry.segment_bytes)));
    Some(IoRequest::read(number, geometry.segment_offset(segment) + offset as u64, buffer))
}
