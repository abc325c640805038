//! The superblock of an open store: its two slots are read at the opening and written in turn.
//!
//! Crash: a write commits what it says when it is durable; torn, it leaves the other slot.

use crate::format::superblock::{self, SLOT_BYTES, SlotFound, Superblock};
use crate::inventory::Inventory;
use crate::open::{OpenReport, OpenSettings, read_ranges, run_all};
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};
use tierstone_media::{BlockDevice, IoBuffer, IoRequest};

/// The superblock of an open store, to change and write it.
#[derive(Debug)]
pub struct SuperblockWriter {
    /// Its content as last written.
    pub superblock: Superblock,
    counter: u64,
    slot: usize,
}

impl SuperblockWriter {
    /// Makes the request that commits `changed`; it counts when the write has completed.
    ///
    /// # Errors
    /// When it does not fit its slot.
    pub fn request(&mut self, token: u64, changed: Superblock) -> Result<IoRequest> {
        let bytes = changed.encode(self.counter + 1)?;
        self.counter += 1;
        let offset = (self.slot * SLOT_BYTES) as u64;
        self.slot = 1 - self.slot;
        self.superblock = changed;
        Ok(IoRequest::write_durable(token, offset, IoBuffer::from_slice(&bytes)))
    }

    /// Writes `changed` and waits for it. `device` must have nothing else in flight.
    ///
    /// # Errors
    /// When it does not fit, or the device fails.
    pub fn write(&mut self, device: &mut dyn BlockDevice, changed: Superblock) -> Result<()> {
        let request = self.request(0, changed)?;
        run_all(device, vec![request]).map(drop)
    }

    /// Writes to one slot after the other what somebody is told of, and waits for both. Cost: two durable writes. A slot that
    /// rots afterwards takes nothing with it; a crash between the two leaves what is new in one.
    ///
    /// # Errors
    /// As [`SuperblockWriter::write`].
    pub fn write_both(&mut self, device: &mut dyn BlockDevice, changed: Superblock) -> Result<()> {
        self.write(device, changed.clone())?;
        self.write(device, changed)
    }

    /// Lists the segments that are in use now, if the list has changed: they are missed if they are not there at the next
    /// opening, and space of others can be given back. To be called now and then while shards work. Cost: two durable writes, or
    /// none.
    ///
    /// # Errors
    /// As [`SuperblockWriter::write`].
    pub fn note_segments(&mut self, device: &mut dyn BlockDevice, inventory: &Inventory) -> Result<()> {
        if !inventory.is_due() {
            return Ok(());
        }
        let in_use = inventory.begin_note();
        self.write_both(device, Superblock { in_use: in_use.clone(), ..self.superblock.clone() })?;
        inventory.end_note(&in_use);
        Ok(())
    }

    /// Notes that all shards were shut in good order, with what they leave. Cost: a durable write.
    ///
    /// # Errors
    /// As [`SuperblockWriter::write`]; the next opening then finds a store that was not closed.
    pub fn close(&mut self, device: &mut dyn BlockDevice, inventory: Option<&Inventory>) -> Result<()> {
        let lives = inventory.map_or(0, Inventory::lives);
        let in_use = inventory.map(Inventory::begin_note).unwrap_or_default();
        self.write(device, Superblock { clean: true, in_use, lives, ..self.superblock.clone() })
    }
}

/// Whether a blank slot was written before: from the second write on both were.
pub(crate) fn is_lost(has_blank: bool, counter: u64) -> bool {
    has_blank && counter > 1
}

pub(crate) fn read_superblock(
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    report: &mut OpenReport,
) -> Result<SuperblockWriter> {
    let slots = read_slots(device)?;
    let has = |state| slots.contains(&state);
    let (has_damaged, has_blank) = (has(SlotFound::Damaged), has(SlotFound::Blank));
    if let Some((superblock, counter, slot)) = superblock::choose(slots)? {
        report.damaged_superblock_slot = has_damaged || is_lost(has_blank, counter);
        report.clean = superblock.clean && !report.damaged_superblock_slot;
        return Ok(SuperblockWriter { superblock, counter, slot });
    }
    if !settings.create {
        return Err(Error::new(ErrorKind::InvalidInput, "there is no store here"));
    }
    report.created = true;
    let mut random = SeededRandom::new(settings.seed);
    let next_keyspace = settings.keyspaces.iter().map(|keyspace| keyspace.id.0 + 1).max().unwrap_or(1);
    let superblock = Superblock {
        store_id: random.next_u64(),
        hash_secret: [random.next_u64(), random.next_u64()],
        segment_bytes: device.geometry().segment_bytes,
        open_count: 0,
        clean: true,
        past_ms: 0,
        next_keyspace,
        keyspaces: settings.keyspaces.clone(),
        facts: settings.facts.clone(),
        batches_decided: 0,
        redo_opening: 0,
        in_use: Vec::new(),
        lives: 0,
    };
    Ok(SuperblockWriter { superblock, counter: 0, slot: 0 })
}

/// What both slots of the superblock hold.
pub(crate) fn read_slots(device: &mut dyn BlockDevice) -> Result<[SlotFound; 2]> {
    let mut slots = [SlotFound::Blank, SlotFound::Blank];
    read_ranges(device, &[(0, SLOT_BYTES), (SLOT_BYTES as u64, SLOT_BYTES)], |number, bytes| {
        slots[number] = Superblock::decode(bytes);
        Ok(())
    })?;
    Ok(slots)
}
