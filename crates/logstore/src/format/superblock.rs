//! The superblock: what a store is, in two slots that are written in turn.
//!
//! A slot holds a header (magic, version, store id, counter, length, checksum) and a body of plain
//! data. The valid slot with the higher counter counts; a torn write leaves the other one. The write
//! of a slot is what commits a change of the body.

use crate::inventory::Run;
use crate::location::SEGMENT_COUNT_MAX;
use tierstone_base::checksum::checksum;
use tierstone_base::codec::{Reader, put_varint};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result};
pub use tierstone_engine::IndexKind;

const MAGIC: u64 = 0x0a65_6e6f_7473_7265;
/// The format version of stores that this program writes; it opens no newer one.
pub const VERSION: u32 = 5;
/// Versions from this one on are read; a store of an older one becomes one of [`VERSION`] when it is
/// opened.
const OLDEST_VERSION: u32 = 1;
/// Bytes of a slot. Slots lie at 0 and at this offset of the device's meta space.
pub const SLOT_BYTES: usize = 64 << 10;
/// Bytes of the meta space that a device for this engine needs.
pub const META_BYTES: u64 = 2 * SLOT_BYTES as u64;
const HEADER_BYTES: usize = 40;
/// Bytes of the number of runs of segments in use: not every second segment of [`SEGMENT_COUNT_MAX`] begins one more.
const COUNT_BYTES_MAX: usize = 3;
/// Bytes of what is said of their lives.
const LIVES_BYTES: usize = 8;

/// A keyspace that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceEntry {
    /// Its id, in every record; never used again once dropped.
    pub id: KeyspaceId,
    /// What the store above calls it.
    pub name: String,
    /// How it finds its keys.
    pub index: IndexKind,
}

/// The keyspaces whose records are served: those listed, each with its companions (the chunks of its
/// large values and their ledger), which are never listed themselves. Nobody walks ranges of companions, so that none
/// is ordered: their records say no keys in the summaries.
pub fn served_keyspaces(listed: &[KeyspaceEntry]) -> Vec<KeyspaceEntry> {
    let family = |entry: &KeyspaceEntry| {
        let (name, index) = (entry.name.clone(), entry.index);
        let of = move |id: KeyspaceId| if id.is_user() { index } else { IndexKind::Hash };
        entry.id.family().map(|id| KeyspaceEntry { id, name: name.clone(), index: of(id) })
    };
    listed.iter().flat_map(family).collect()
}

/// Everything that a store must know before it reads its first segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Random; in every header.
    pub store_id: u64,
    /// The secret of the hash that gives keys their positions.
    pub hash_secret: [u64; 2],
    /// Size of a segment in bytes.
    pub segment_bytes: u64,
    /// How often the store was opened; part of every generation and log id.
    pub open_count: u64,
    /// Whether it was closed in good order after the last opening.
    pub clean: bool,
    /// The highest expiry that was shown as past before the last opening, in milliseconds since 1970:
    /// expiry never goes by an earlier time. What was shown since is in groups and footers.
    pub past_ms: u64,
    /// The id that the next keyspace gets.
    pub next_keyspace: u32,
    /// The keyspaces that exist; records of others are void.
    pub keyspaces: Vec<KeyspaceEntry>,
    /// What the layer above keeps here (its database map, what probing found); opaque, at most
    /// some kilobytes.
    pub facts: Vec<u8>,
    /// Of logs of openings up to this number the batches over several shards are decided: what is void
    /// says so, all else of them is committed. Written by recovery between the two.
    pub batches_decided: u64,
    /// The opening whose redo log lies in a region of persistent memory; zero when the last one had none.
    pub redo_opening: u64,
    /// Segments that held records when this was written, in order: they are missed if they are not there. Empty: it was
    /// written by a program that did not say so.
    pub in_use: Vec<Run>,
    /// Where it was closed in good order, what [`crate::inventory::life_mark`] gives for each of these, XORed: of another
    /// time one of them has another life. Zero: it was written by a program that did not say so, or it is not known.
    pub lives: u64,
}

impl Superblock {
    /// Writes a slot: `counter` orders it among the others.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when there are too many keyspaces for a slot.
    pub fn encode(&self, counter: u64) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        for word in [self.hash_secret[0], self.hash_secret[1], self.segment_bytes, self.open_count] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.push(u8::from(self.clean));
        put_varint(&mut body, self.past_ms);
        put_varint(&mut body, u64::from(self.next_keyspace));
        put_varint(&mut body, self.keyspaces.len() as u64);
        for keyspace in &self.keyspaces {
            put_varint(&mut body, u64::from(keyspace.id.0));
            body.push(u8::from(keyspace.index == IndexKind::Ordered));
            put_varint(&mut body, keyspace.name.len() as u64);
            body.extend_from_slice(keyspace.name.as_bytes());
        }
        put_varint(&mut body, self.facts.len() as u64);
        body.extend_from_slice(&self.facts);
        put_varint(&mut body, self.batches_decided);
        put_varint(&mut body, self.redo_opening);
        let mut room = SLOT_BYTES.saturating_sub(HEADER_BYTES + body.len());
        let tells_lives = self.clean && self.lives != 0 && room > LIVES_BYTES + COUNT_BYTES_MAX;
        room -= if tells_lives { LIVES_BYTES } else { 0 };
        put_runs(&mut body, &self.in_use, room);
        if tells_lives {
            body.extend_from_slice(&self.lives.to_le_bytes());
        }
        if HEADER_BYTES + body.len() > SLOT_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "{} keyspaces and {} bytes of facts do not fit the superblock: use fewer keyspaces, or shorter names",
                    self.keyspaces.len(),
                    self.facts.len()
                ),
            ));
        }
        let mut slot = Vec::with_capacity(SLOT_BYTES);
        slot.extend_from_slice(&MAGIC.to_le_bytes());
        slot.extend_from_slice(&VERSION.to_le_bytes());
        slot.extend_from_slice(&(body.len() as u32).to_le_bytes());
        slot.extend_from_slice(&self.store_id.to_le_bytes());
        slot.extend_from_slice(&counter.to_le_bytes());
        slot.extend_from_slice(&[0; 8]);
        slot.extend_from_slice(&body);
        let sum = checksum(MAGIC, &slot);
        slot[32..40].copy_from_slice(&sum.to_le_bytes());
        slot.resize(SLOT_BYTES, 0);
        Ok(slot)
    }

    /// Whether it fits a slot whatever times and counts become: what an opening writes is longer than what was there before.
    ///
    /// # Errors
    /// As [`Superblock::encode`].
    pub fn check_room(&self) -> Result<()> {
        let (past_ms, batches_decided, redo_opening) = (u64::MAX, u64::MAX, u64::MAX);
        let in_use = Vec::new();
        Superblock { past_ms, batches_decided, redo_opening, next_keyspace: u32::MAX, in_use, ..self.clone() }
            .encode(0)
            .map(drop)
    }

    /// Reads a slot with its counter.
    pub fn decode(slot: &[u8]) -> SlotFound {
        let mut reader = Reader::new(slot);
        if reader.u64() != Some(MAGIC) {
            let blank = slot.iter().all(|&byte| byte == 0);
            return if blank { SlotFound::Blank } else { SlotFound::Damaged };
        }
        match reader.u32() {
            Some(OLDEST_VERSION..=VERSION) => {}
            Some(version) if version > VERSION => return SlotFound::Newer(version),
            _ => return SlotFound::Damaged,
        }
        Self::decode_body(reader, slot).unwrap_or(SlotFound::Damaged)
    }

    fn decode_body(mut reader: Reader<'_>, slot: &[u8]) -> Option<SlotFound> {
        let body_len = reader.u32()? as usize;
        let store_id = reader.u64()?;
        let counter = reader.u64()?;
        let sum = reader.u64()?;
        let mut summed = slot.get(..HEADER_BYTES.checked_add(body_len)?)?.to_vec();
        summed[32..40].fill(0);
        if checksum(MAGIC, &summed) != sum {
            return None;
        }
        let hash_secret = [reader.u64()?, reader.u64()?];
        let segment_bytes = reader.u64()?;
        let open_count = reader.u64()?;
        let clean = reader.u8()? != 0;
        let past_ms = reader.varint()?;
        let next_keyspace = u32::try_from(reader.varint()?).ok()?;
        let mut keyspaces = Vec::new();
        for _ in 0..reader.varint()? {
            let id = KeyspaceId(u32::try_from(reader.varint()?).ok()?);
            let index = if reader.u8()? == 0 { IndexKind::Hash } else { IndexKind::Ordered };
            let len = usize::try_from(reader.varint()?).ok()?;
            let name = String::from_utf8(reader.bytes(len)?.to_vec()).ok()?;
            keyspaces.push(KeyspaceEntry { id, name, index });
        }
        let len = usize::try_from(reader.varint()?).ok()?;
        let facts = reader.bytes(len)?.to_vec();
        let batches_decided = reader.varint()?;
        // Behind the bodies of older versions there are zeros.
        let redo_opening = reader.varint()?;
        let left = (HEADER_BYTES + body_len).saturating_sub(slot.len() - reader.rest().len());
        let mut behind = Reader::new(reader.bytes(left)?);
        let in_use = take_runs(&mut behind)?;
        let lives = behind.u64().unwrap_or(0);
        let superblock = Superblock {
            store_id,
            hash_secret,
            segment_bytes,
            open_count,
            clean,
            past_ms,
            next_keyspace,
            keyspaces,
            facts,
            batches_decided,
            redo_opening,
            in_use,
            lives,
        };
        Some(SlotFound::Whole { superblock, counter })
    }
}

/// Runs of segments in so much of `room` as they need: the first ones, should there be no room for all. A segment that
/// is not listed is not missed.
fn put_runs(body: &mut Vec<u8>, runs: &[Run], room: usize) {
    let mut bytes = Vec::new();
    let (mut count, mut from) = (0u64, 0);
    for &(first, len) in runs {
        let before = bytes.len();
        put_varint(&mut bytes, u64::from(first - from));
        put_varint(&mut bytes, u64::from(len));
        if bytes.len() + COUNT_BYTES_MAX > room {
            bytes.truncate(before);
            break;
        }
        (count, from) = (count + 1, first + len);
    }
    if room >= COUNT_BYTES_MAX {
        put_varint(body, count);
        body.extend_from_slice(&bytes);
    }
}

fn take_runs(reader: &mut Reader<'_>) -> Option<Vec<Run>> {
    let (mut runs, mut from) = (Vec::new(), 0u64);
    for _ in 0..reader.varint().unwrap_or(0) {
        let first = from.checked_add(reader.varint()?)?;
        let end = first.checked_add(reader.varint()?)?;
        if end > u64::from(SEGMENT_COUNT_MAX) || end <= first || (first == from && !runs.is_empty()) {
            return None;
        }
        runs.push((first as u32, (end - first) as u32));
        from = end;
    }
    Some(runs)
}

/// What a slot turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotFound {
    /// A superblock.
    Whole {
        /// Its content.
        superblock: Superblock,
        /// The higher one counts.
        counter: u64,
    },
    /// A superblock of a newer program.
    Newer(u32),
    /// Zeros.
    Blank,
    /// A torn or damaged slot, or not ours.
    Damaged,
}

/// Chooses between the two slots: the superblock that counts, its counter, and the slot (0 or 1) to
/// write next. `Ok(None)`: both are blank, there is no store yet.
///
/// # Errors
/// `Incompatible` for a newer format, naming its version; `Corrupt` when no slot is whole.
pub fn choose(slots: [SlotFound; 2]) -> Result<Option<(Superblock, u64, usize)>> {
    let mut best: Option<(Superblock, u64, usize)> = None;
    let blank = slots.iter().all(|slot| *slot == SlotFound::Blank);
    for (place, slot) in slots.into_iter().enumerate() {
        match slot {
            SlotFound::Newer(version) => {
                return Err(Error::new(
                    ErrorKind::Incompatible,
                    format!(
                        "the store has format version {version}, this program knows versions up to {VERSION}"
                    ),
                ));
            }
            SlotFound::Whole { superblock, counter } => {
                if best.as_ref().is_none_or(|(_, so_far, _)| counter > *so_far) {
                    best = Some((superblock, counter, 1 - place));
                }
            }
            SlotFound::Blank | SlotFound::Damaged => {}
        }
    }
    if best.is_none() && !blank {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "neither superblock of the store is readable: this is no Tierstone store, or both were overwritten",
        ));
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn superblock(open_count: u64) -> Superblock {
        Superblock {
            store_id: 1,
            hash_secret: [2, 3],
            segment_bytes: 4,
            open_count,
            clean: true,
            past_ms: 5,
            next_keyspace: 7,
            keyspaces: vec![KeyspaceEntry { id: KeyspaceId(6), name: "0".into(), index: IndexKind::Ordered }],
            facts: b"facts".to_vec(),
            batches_decided: 8,
            redo_opening: 0,
            in_use: vec![(0, 3), (5, 1), (100, 2)],
            lives: 9,
        }
    }

    fn slot(open_count: u64, counter: u64) -> Vec<u8> {
        superblock(open_count).encode(counter).unwrap()
    }

    #[test]
    fn the_newer_whole_slot_counts() {
        let (old, new) = (slot(1, 1), slot(2, 2));
        let found = |a: &[u8], b: &[u8]| choose([Superblock::decode(a), Superblock::decode(b)]);
        assert_eq!(found(&old, &new).unwrap().unwrap(), (superblock(2), 2, 0));
        let mut torn = new.clone();
        torn[60] ^= 1;
        assert_eq!(found(&old, &torn).unwrap().unwrap(), (superblock(1), 1, 1));
        assert_eq!(found(&torn, &torn).unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(found(&[0; SLOT_BYTES], &[0; SLOT_BYTES]).unwrap().is_none());
    }

    #[test]
    fn companions_of_an_ordered_keyspace_are_not_ordered() {
        let listed = superblock(1).keyspaces;
        let served: Vec<_> =
            served_keyspaces(&listed).into_iter().map(|entry| (entry.id, entry.index)).collect();
        let [user, chunks, ledger] = listed[0].id.family();
        let expected = [(user, IndexKind::Ordered), (chunks, IndexKind::Hash), (ledger, IndexKind::Hash)];
        assert_eq!(served, expected);
    }

    #[test]
    fn an_older_format_is_read() {
        let mut older = slot(1, 1);
        older[8..12].copy_from_slice(&1u32.to_le_bytes());
        older[32..40].fill(0);
        let used = HEADER_BYTES + u32::from_le_bytes(older[12..16].try_into().unwrap()) as usize;
        let sum = checksum(MAGIC, &older[..used]);
        older[32..40].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Superblock::decode(&older), SlotFound::Whole { superblock: superblock(1), counter: 1 });
    }

    #[test]
    fn a_newer_format_is_refused_with_its_version() {
        let mut newer = slot(1, 1);
        newer[8..12].copy_from_slice(&9u32.to_le_bytes());
        let refused = choose([Superblock::decode(&newer), SlotFound::Blank]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Incompatible);
        assert!(refused.message().contains("version 9"), "{refused}");
    }

    #[test]
    fn what_has_no_room_in_the_list_of_segments_is_left_out() {
        let runs: Vec<Run> = (0..SEGMENT_COUNT_MAX / 2).map(|place| (place * 2, 1)).collect();
        let facts_fill = |superblock: &Superblock| superblock.facts.len() > SLOT_BYTES - 1_000;
        let with = |facts: usize, runs: &[Run]| {
            let facts = vec![7; facts];
            let wanted = Superblock { facts, in_use: runs.to_vec(), ..superblock(1) };
            let SlotFound::Whole { superblock, .. } = Superblock::decode(&wanted.encode(1).unwrap()) else {
                panic!("{} bytes of facts", wanted.facts.len())
            };
            assert!(
                superblock.lives == wanted.lives || facts_fill(&wanted),
                "there is room for the lives first"
            );
            let lives = wanted.lives;
            assert!(Superblock { in_use: runs.to_vec(), lives, ..superblock.clone() } == wanted);
            assert!(superblock.in_use == runs[..superblock.in_use.len()]);
            superblock.in_use.len()
        };
        // Two bytes a run: every second segment of the first 60,000 fits, and of the largest store more than half.
        assert_eq!(with(5, &runs[..30_000]), 30_000);
        assert!((runs.len() / 2..runs.len()).contains(&with(5, &runs)));
        assert!((1..30_000).contains(&with(60_000, &runs)));
        let most = (65_000..SLOT_BYTES)
            .take_while(|&facts| Superblock { facts: vec![7; facts], ..superblock(1) }.encode(1).is_ok());
        assert_eq!(with(most.last().unwrap(), &runs), 0);
    }

    proptest! {
        #[test]
        fn hostile_slots_never_panic(bytes: Vec<u8>, place in 0..200usize, value: u8) {
            let _ = Superblock::decode(&bytes);
            let mut near = slot(1, 1);
            let changed = near[place] != value && place < 100;
            near[place] = value;
            let whole = matches!(Superblock::decode(&near), SlotFound::Whole { .. });
            prop_assert!(!(whole && changed && place < 40 + 40));
        }
    }
}
