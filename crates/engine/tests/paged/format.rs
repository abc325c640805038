//! What a paged engine keeps on its device: two roots, a journal of groups, a shadow, the pages.
//!
//! ```text
//! | root 0 | root 1 | journal: groups, one after the other | shadow: list, images | page 0 | page 1 | ...
//! ```
//!
//! Every piece begins with a checksum over the rest of it and says which epoch it belongs to. The root with
//! the higher epoch counts; groups and a shadow of other epochs are nothing.

use super::page::{PageKey, Records, decode_record, decode_records, encode_record, encode_records};
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, Result, Seq};
use tierstone_engine::OwnedRecord;
use tierstone_media::{BLOCK_BYTES, IoBuffer};

pub const BLOCK: u64 = BLOCK_BYTES as u64;
const MAGIC: u64 = 0x7061_6765_6420_3031;

/// Where the pieces lie. Plain data.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The first byte.
    pub base: u64,
    /// Bytes of the journal, whole blocks.
    pub journal_bytes: u64,
    /// Bytes of a page, whole blocks.
    pub page_bytes: u64,
    /// How many pages there are.
    pub pages: u64,
}

impl Layout {
    pub fn root(&self, epoch: u64) -> u64 {
        self.base + epoch % 2 * BLOCK
    }

    pub fn journal(&self) -> u64 {
        self.base + 2 * BLOCK
    }

    pub fn shadow(&self) -> u64 {
        self.journal() + self.journal_bytes
    }

    pub fn image(&self, place: usize) -> u64 {
        self.shadow() + BLOCK + place as u64 * self.page_bytes
    }

    pub fn page(&self, number: usize) -> u64 {
        self.image(self.pages as usize) + number as u64 * self.page_bytes
    }

    pub fn end(&self) -> u64 {
        self.page(self.pages as usize)
    }
}

/// Which batch over several engines a change is of: its id and parts.
pub type PartOf = Option<(u64, u16)>;

/// One entry of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A key gets this record, or loses what it has.
    Change { key: PageKey, record: OwnedRecord, is_delete: bool, part: PartOf },
    /// A batch over several engines is decided.
    Decided { batch: u64 },
}

/// A group of writes that are durable together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub epoch: u64,
    /// Counted from zero in its epoch.
    pub number: u64,
    /// The newest sequence in it, or before it.
    pub last: Seq,
    /// The encoded entries.
    pub entries: Vec<u8>,
}

/// Bytes of a group around its entries.
pub const GROUP_HEAD: usize = 48;

pub fn whole_blocks(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BLOCK) * BLOCK
}

/// A piece: checksum, magic, four numbers, bytes.
fn seal(numbers: [u64; 4], bytes: &[u8]) -> IoBuffer {
    let mut piece = vec![0; 8];
    piece.extend(MAGIC.to_le_bytes());
    numbers.iter().for_each(|number| piece.extend(number.to_le_bytes()));
    piece.extend_from_slice(bytes);
    let sum = checksum(MAGIC, &piece[8..]);
    piece[..8].copy_from_slice(&sum.to_le_bytes());
    piece.resize(whole_blocks(piece.len()) as usize, 0);
    IoBuffer::from_slice(&piece)
}

/// The numbers and bytes of a whole piece; `len` says how many bytes it has from its numbers.
fn unseal(piece: &[u8], len: impl Fn(&[u64; 4]) -> u64) -> Option<([u64; 4], &[u8])> {
    let number = |at: usize| piece.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let mut numbers = [0; 4];
    for (at, slot) in numbers.iter_mut().enumerate() {
        *slot = number(16 + at * 8)?;
    }
    let end = usize::try_from(len(&numbers)).ok()?.checked_add(GROUP_HEAD)?;
    let bytes = piece.get(GROUP_HEAD..end)?;
    let is_whole = number(8)? == MAGIC && number(0)? == checksum(MAGIC, &piece[8..end]);
    is_whole.then_some((numbers, bytes))
}

/// The root of `epoch`, in which sequences go on behind `last`.
pub fn encode_root(epoch: u64, last: Seq) -> IoBuffer {
    seal([epoch, last, 0, 0], &[])
}

/// Epoch and last sequence of a root.
pub fn decode_root(bytes: &[u8]) -> Option<(u64, Seq)> {
    unseal(bytes, |_| 0).map(|([epoch, last, ..], _)| (epoch, last))
}

pub fn encode_group(group: &Group) -> IoBuffer {
    seal([group.epoch, group.number, group.last, group.entries.len() as u64], &group.entries)
}

/// The whole group at the start of `bytes`, if there is one.
pub fn decode_group(bytes: &[u8]) -> Option<Group> {
    let ([epoch, number, last, _], entries) = unseal(bytes, |numbers| numbers[3])?;
    Some(Group { epoch, number, last, entries: entries.to_vec() })
}

pub fn encode_entry(entry: &Entry, out: &mut Vec<u8>) {
    match entry {
        Entry::Decided { batch } => {
            out.push(2);
            out.extend(batch.to_le_bytes());
        }
        Entry::Change { key, record, is_delete, part } => {
            let (id, parts) = part.unwrap_or((0, 0));
            out.push(u8::from(*is_delete));
            out.extend(id.to_le_bytes());
            out.extend(parts.to_le_bytes());
            encode_record(key, record, out);
        }
    }
}

/// The entries of a whole group.
pub fn decode_entries(mut bytes: &[u8]) -> Result<Vec<Entry>> {
    fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N]> {
        let (first, rest) = bytes.split_first_chunk().ok_or_else(|| damaged("a group's entry"))?;
        *bytes = rest;
        Ok(*first)
    }
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let [kind] = take(&mut bytes)?;
        if kind == 2 {
            entries.push(Entry::Decided { batch: u64::from_le_bytes(take(&mut bytes)?) });
            continue;
        }
        let (id, parts) = (u64::from_le_bytes(take(&mut bytes)?), u16::from_le_bytes(take(&mut bytes)?));
        let (key, record) = decode_record(&mut bytes)?;
        let part = (parts > 0).then_some((id, parts));
        entries.push(Entry::Change { key, record, is_delete: kind == 1, part });
    }
    Ok(entries)
}

/// The list of a shadow: which pages its images are, in their order, and the sum over all images.
pub fn encode_shadow(epoch: u64, pages: &[usize], images: &[IoBuffer]) -> IoBuffer {
    let list: Vec<u8> = pages.iter().flat_map(|page| (*page as u32).to_le_bytes()).collect();
    seal([epoch, pages.len() as u64, sum_of(images), 0], &list)
}

pub fn sum_of(images: &[IoBuffer]) -> u64 {
    images.iter().fold(0, |sum, image| checksum(sum, image))
}

/// Epoch, pages and sum of a shadow.
pub fn decode_shadow(bytes: &[u8]) -> Option<(u64, Vec<usize>, u64)> {
    let ([epoch, _, sum, _], list) = unseal(bytes, |numbers| numbers[1].saturating_mul(4))?;
    let pages =
        list.chunks_exact(4).map(|four| four.iter().rev().fold(0, |all, &byte| all << 8 | usize::from(byte)));
    Some((epoch, pages.collect(), sum))
}

/// Bytes of a page that its records may take.
pub fn page_room(layout: &Layout) -> usize {
    layout.page_bytes as usize - GROUP_HEAD
}

pub fn encode_page(number: usize, records: &Records, layout: &Layout) -> IoBuffer {
    let bytes = encode_records(records);
    let mut image = seal([number as u64, bytes.len() as u64, 0, 0], &bytes).to_vec();
    image.resize(layout.page_bytes as usize, 0);
    IoBuffer::from_slice(&image)
}

/// The records of a page; one that was never written is empty.
pub fn decode_page(number: usize, bytes: &[u8]) -> Result<Records> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(Records::new());
    }
    match unseal(bytes, |numbers| numbers[1]) {
        Some(([own, ..], records)) if own == number as u64 => decode_records(records),
        _ => Err(damaged(&format!("page {number}"))),
    }
}

pub fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what} is damaged"))
}
