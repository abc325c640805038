//! What a crash left in the buffer: the units of each volume's extents, then its staging log.
//!
//! Nothing is written here, so that a crash in the middle of it changes nothing.

use super::buffer::{BLOCK, BlockOf, Buffer, Held, Place, STAGING};
use super::format::Batch;
use std::collections::BTreeMap;
use tierstone_base::Result;
use tierstone_media::{BLOCK_BYTES, BlockDevice};

impl<D: BlockDevice> Buffer<D> {
    pub(super) fn recover(&mut self, volume: u32) -> Result<()> {
        let owned: Vec<u32> = (0..self.map.extents.len() as u32)
            .filter(|&extent| self.map.extents[extent as usize].owner == volume + 1)
            .collect();
        let mut units: BTreeMap<u64, (u32, u32, Batch)> = BTreeMap::new();
        for &extent in &owned {
            let life = u64::from(self.map.extents[extent as usize].life);
            for unit in 0..self.units_an_extent() {
                let offset = self.extent_start(extent) + u64::from(unit) * self.unit_bytes();
                let head = self.read_at(offset, BLOCK)?;
                match Batch::decode(self.map.id, life, &head).filter(|batch| batch.volume == volume) {
                    Some(batch) => _ = units.insert(batch.unit, (extent, unit, batch)),
                    None => break,
                }
            }
        }
        // Only the unit written last may be torn: the others were durable before their logs began anew.
        if let Some((_, (extent, unit, batch))) = units.pop_last() {
            let life = u64::from(self.map.extents[extent as usize].life);
            let offset = self.extent_start(extent) + u64::from(unit) * self.unit_bytes() + BLOCK;
            let data = match batch.addresses.len() as u64 {
                0 => Vec::new(),
                count => self.read_at(offset, count * BLOCK)?.to_vec(),
            };
            if batch.fits(self.map.id, life, &data) {
                units.insert(batch.unit, (extent, unit, batch));
            }
        }
        let mut last_unit = self.map.volumes[volume as usize].unit.checked_sub(1);
        for (number, (extent, unit, batch)) in units {
            last_unit = last_unit.max(Some(number));
            self.units[extent as usize] = self.units[extent as usize].max(unit + 1);
            self.stages[volume as usize].extent = Some((extent, unit + 1));
            for (at, address) in batch.addresses.iter().enumerate() {
                let block = unit * self.map.unit_blocks + 1 + at as u32;
                self.found(volume, *address, batch.sequence + at as u64, Place::Extent(extent, block));
            }
        }
        self.map.volumes[volume as usize].unit = last_unit.map_or(0, |unit| unit + 1);
        self.recover_log(volume)
    }

    /// Takes the records of the unit that is being staged, up to the first that is not whole.
    fn recover_log(&mut self, volume: u32) -> Result<()> {
        let bytes = self.read_log(volume)?;
        let unit = self.map.volumes[volume as usize].unit;
        let mut at = 0;
        while let Some(batch) = bytes.get(at..).and_then(|rest| Batch::decode(self.map.id, STAGING, rest)) {
            let stage = &self.stages[volume as usize];
            let end = at + BLOCK_BYTES * (1 + batch.addresses.len());
            let Some(data) = bytes.get(at + BLOCK_BYTES..end) else { break };
            let is_next = batch.volume == volume && batch.unit == unit && batch.index == stage.records;
            if !is_next || !batch.fits(self.map.id, STAGING, data) {
                break;
            }
            let stage = &mut self.stages[volume as usize];
            if stage.blocks.is_empty() {
                stage.first = batch.sequence;
            }
            stage.records += 1;
            stage.used = (end / BLOCK_BYTES) as u64;
            for (n, (address, bytes)) in batch.addresses.iter().zip(data.chunks(BLOCK_BYTES)).enumerate() {
                let stage = &mut self.stages[volume as usize];
                let place = Place::Staged(stage.blocks.len());
                stage.blocks.push((*address, bytes.to_vec()));
                self.found(volume, *address, batch.sequence + n as u64, place);
            }
            at = end;
        }
        Ok(())
    }

    /// A block that recovery has found: the newest counts, unless its pair was flushed since.
    fn found(&mut self, volume: u32, address: BlockOf, sequence: u64, place: Place) {
        let entry = &mut self.map.volumes[volume as usize];
        entry.sequence = entry.sequence.max(sequence);
        let pair = volume * self.map.pairs_a_volume + address.0;
        let is_flushed = self.map.flushed.get(pair as usize).is_none_or(|flushed| sequence <= *flushed);
        let is_older = self.sequence_of(volume, address).is_some_and(|held| held > sequence);
        if !is_flushed && !is_older {
            self.hold(volume, address, Held { sequence, place });
        }
    }
}
