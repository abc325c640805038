//! What a queue holds after a crash, read from its bytes. Nothing is written, so a crash here leaves what was.

use super::{DATA, Design, HEAD, MAGIC, TAIL, end_bit, room};
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, Result};

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the order of all inserts.
    pub position: u64,
    /// What was inserted.
    pub payload: Vec<u8>,
}

/// What a queue held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The design.
    pub design: Design,
    /// Bytes for entries.
    pub capacity_bytes: u64,
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
    /// Entries that a crash left without their end bit.
    pub holes: u64,
    /// Where the next entry goes.
    pub head: u64,
    /// Where the oldest begins.
    pub tail: u64,
}

const SALT: u64 = 0x7175_6575_6501;

/// The second to fourth word of a queue.
pub(super) fn header(design: Design, capacity: u64) -> [u64; 3] {
    let design = design as u64;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&design.to_le_bytes());
    bytes[8..].copy_from_slice(&capacity.to_le_bytes());
    [design, capacity, checksum(SALT, &bytes)]
}

/// Reads the queue in `image`, the bytes of its persistent memory.
///
/// # Errors
/// `Incompatible` when there is no queue, `Corrupt` when its words contradict each other.
pub fn recover(image: &[u8]) -> Result<Recovered> {
    let corrupt = |what: String| {
        Error::new(ErrorKind::Corrupt, format!("the queue is damaged: {what}; restore the region"))
    };
    let word = |at: u64| -> u64 {
        let mut bytes = [0; 8];
        if let Some(found) = image.get(at as usize..at as usize + 8) {
            bytes.copy_from_slice(found);
        }
        u64::from_le_bytes(bytes)
    };
    if word(0) != MAGIC {
        return Err(Error::new(ErrorKind::Incompatible, "there is no queue here: create one"));
    }
    let (number, capacity_bytes) = (word(8), word(16));
    let design = Design::ALL.into_iter().find(|design| *design as u64 == number);
    let design = design.ok_or_else(|| corrupt(format!("there is no design {number}")))?;
    if [number, capacity_bytes, word(24)] != header(design, capacity_bytes) {
        return Err(corrupt("its first line does not fit its checksum".into()));
    }
    if DATA.checked_add(capacity_bytes).is_none_or(|bytes| bytes > image.len() as u64) {
        return Err(corrupt(format!("{capacity_bytes} bytes of entries do not fit {} bytes", image.len())));
    }
    let (head, tail) = (word(HEAD), word(TAIL));
    if tail > head || head - tail > capacity_bytes {
        return Err(corrupt(format!("its tail is {tail} and its head {head}")));
    }
    let place = |position: u64| DATA + position % capacity_bytes;
    let (mut position, mut entries, mut holes) = (tail, Vec::new(), 0);
    while position < head {
        let len = word(place(position));
        if len > head - position || room(design, len) > head - position {
            return Err(corrupt(format!("the entry at {position} claims {len} bytes, the head is {head}")));
        }
        if design == Design::QueueHoles && word(place(end_bit(position, len))) != 1 {
            holes += 1;
        } else {
            let payload = (position + 8..position + 8 + len).map(|at| image[place(at) as usize]).collect();
            entries.push(Entry { position, payload });
        }
        position += room(design, len);
    }
    Ok(Recovered { design, capacity_bytes, entries, holes, head, tail })
}
