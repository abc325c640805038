//! A block device's volatile write cache and what the loss of power leaves of it.
//!
//! Writes enter the cache in the order in which they are applied; a flush makes durable what was
//! written before its barrier; a durable write makes its own sectors durable. When power is lost,
//! each sector with undurable versions keeps any one of them or its durable one, independently of
//! the others: nothing is ordered that was not flushed.
//!
//! Invariants:
//! 1. A sector survives whole, unless [`SurvivorSettings::torn_sectors`] says otherwise.
//! 2. A durable version is only ever replaced by a newer write of the same sector.
//! 3. A version orphaned by a failed flush is read back as if all were well, may or may not
//!    survive, and no later flush changes that (what Linux page caches and some drives do).

use crate::choices::Choices;
use crate::image::Image;
use crate::survivors::{SurvivorSettings, Unit, combinations, pick};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The unit that a disk or flash device writes whole, in bytes.
pub const SECTOR_BYTES: usize = 512;

/// Numbers writes in the order in which they were applied, from one. As a barrier it stands for
/// every write with a smaller number.
pub type WriteNumber = u64;

/// The content of a device: what is durable and what is not yet.
#[derive(Clone, Debug)]
pub struct SectorMedia {
    sector_bytes: usize,
    durable: Image,
    volatile: BTreeMap<u64, Vec<Version>>,
    next_write: WriteNumber,
}

#[derive(Clone, Debug)]
struct Version {
    write: WriteNumber,
    bytes: Arc<[u8]>,
    start: usize,
    orphaned: bool,
}

impl SectorMedia {
    /// An empty medium (all zeros) whose atomic unit is `sector_bytes`, a power of two of at least
    /// 8: [`SECTOR_BYTES`] is the honest value; 4096 makes exploring cheaper and proves less.
    pub fn new(sector_bytes: usize) -> Self {
        assert!(sector_bytes.is_power_of_two() && sector_bytes >= 8, "sectors of {sector_bytes} bytes");
        SectorMedia { sector_bytes, durable: Image::default(), volatile: BTreeMap::new(), next_write: 1 }
    }

    /// Applies a write of whole sectors; undurable. Cost: one copy.
    ///
    /// # Panics
    /// When offset or length are not whole sectors.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> WriteNumber {
        let sector_bytes = self.sector_bytes;
        assert!(
            offset.is_multiple_of(sector_bytes as u64) && bytes.len().is_multiple_of(sector_bytes),
            "a write of {} bytes at {offset} is not whole sectors of {sector_bytes} bytes",
            bytes.len()
        );
        let write = self.next_write;
        self.next_write += 1;
        let bytes: Arc<[u8]> = bytes.into();
        for (n, start) in (0..bytes.len()).step_by(sector_bytes).enumerate() {
            let version = Version { write, bytes: Arc::clone(&bytes), start, orphaned: false };
            self.volatile.entry(offset / sector_bytes as u64 + n as u64).or_default().push(version);
        }
        write
    }

    /// Writes zeros over what is not zero in `offset .. offset + len` (whole sectors); undurable.
    pub fn write_zeros(&mut self, offset: u64, len: u64) -> WriteNumber {
        let sector_bytes = self.sector_bytes as u64;
        let range = offset / sector_bytes..(offset + len) / sector_bytes;
        let touched = self.durable.touched(offset..offset + len);
        let mut sectors: Vec<u64> =
            touched.flat_map(|part| part.start / sector_bytes..part.end / sector_bytes).collect();
        sectors.extend(self.volatile.range(range).map(|(&sector, _)| sector));
        sectors.sort_unstable();
        sectors.dedup();
        let write = self.next_write;
        self.next_write += 1;
        let bytes: Arc<[u8]> = vec![0; self.sector_bytes].into();
        for sector in sectors {
            let version = Version { write, bytes: Arc::clone(&bytes), start: 0, orphaned: false };
            self.volatile.entry(sector).or_default().push(version);
        }
        write
    }

    /// Fills `bytes` with what the device would answer now: the newest versions.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        self.durable.read(offset, bytes);
        let sector_bytes = self.sector_bytes as u64;
        let end = offset + bytes.len() as u64;
        let sectors = offset / sector_bytes..end.div_ceil(sector_bytes).max(offset / sector_bytes);
        for (sector, versions) in self.volatile.range(sectors) {
            let Some(newest) = versions.last() else { continue };
            let (from, to) = ((sector * sector_bytes).max(offset), ((sector + 1) * sector_bytes).min(end));
            let skip = (from - sector * sector_bytes) as usize;
            let source = &newest.content(self.sector_bytes)[skip..skip + (to - from) as usize];
            bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
        }
    }

    /// Whether `offset .. offset + len` may hold something other than zeros. May say so of zeros.
    pub fn holds_data(&self, offset: u64, len: u64) -> bool {
        let sector_bytes = self.sector_bytes as u64;
        let sectors = offset / sector_bytes..(offset + len).div_ceil(sector_bytes);
        self.durable.touched(offset..offset + len).next().is_some()
            || self.volatile.range(sectors).next().is_some()
    }

    /// The barrier that stands for every write applied so far.
    pub fn barrier(&self) -> WriteNumber {
        self.next_write
    }

    /// Makes every write before `barrier` durable, except orphaned ones.
    pub fn flush(&mut self, barrier: WriteNumber) {
        let (durable, sector_bytes) = (&mut self.durable, self.sector_bytes);
        self.volatile.retain(|&sector, versions| {
            let flushed = versions.iter().rposition(|version| version.write < barrier && !version.orphaned);
            settle(durable, sector, sector_bytes, versions, flushed)
        });
    }

    /// Makes the sectors of `write` in `offset .. offset + len` durable: the end of a durable write.
    pub fn persist(&mut self, write: WriteNumber, offset: u64, len: u64) {
        let sector_bytes = self.sector_bytes as u64;
        for sector in offset / sector_bytes..(offset + len) / sector_bytes {
            let Some(versions) = self.volatile.get_mut(&sector) else { continue };
            let written = versions.iter().position(|version| version.write == write);
            if !settle(&mut self.durable, sector, self.sector_bytes, versions, written) {
                self.volatile.remove(&sector);
            }
        }
    }

    /// A flush failed: what was written before `barrier` is still read back, may or may not be on
    /// the medium, and will not be made durable by asking again.
    pub fn orphan(&mut self, barrier: WriteNumber) {
        for version in self.volatile.values_mut().flatten().filter(|version| version.write < barrier) {
            version.orphaned = true;
        }
    }

    /// As [`SectorMedia::orphan`], for one write: it failed after reaching the device in part.
    pub fn orphan_write(&mut self, write: WriteNumber) {
        for version in self.volatile.values_mut().flatten().filter(|version| version.write == write) {
            version.orphaned = true;
        }
    }

    /// How many sectors have a version that the loss of power could bring out or lose.
    pub fn undecided(&self) -> usize {
        self.units().len()
    }

    /// How many states the loss of power could leave, torn sectors not counted; saturates.
    pub fn survivor_states(&self) -> u64 {
        combinations(&self.units().into_iter().map(|(_, unit)| unit).collect::<Vec<_>>())
    }

    /// Loses power: each undecided sector keeps the version that `choices` picks, which is durable
    /// from now on; the cache is empty. Tells `choices` the digest of what is left, and returns it.
    /// Cost: reads all of the medium.
    pub fn lose_power(&mut self, choices: &Choices, settings: &SurvivorSettings) -> u64 {
        let (sectors, units): (Vec<u64>, Vec<Unit>) = self.units().into_iter().unzip();
        let picked = pick(choices, &units, settings);
        for (sector, version) in sectors.into_iter().zip(picked) {
            let content = self.surviving_content(choices, settings, sector, version);
            self.durable.write(sector * self.sector_bytes as u64, &content);
        }
        self.volatile.clear();
        let digest = self.durable.digest();
        choices.observe_state(digest);
        digest
    }

    /// What would be there if nothing undurable survived.
    pub fn durable(&self) -> &Image {
        &self.durable
    }

    /// Flips one bit, of the durable and of the newest version: damage of the medium.
    pub fn flip_bit(&mut self, offset: u64, bit: u8) {
        self.damage(offset, |byte| *byte ^= 1 << (bit % 8));
    }

    /// Changes the byte at `offset` of the durable and of the newest version.
    pub fn damage(&mut self, offset: u64, change: impl Fn(&mut u8)) {
        let mut byte = [0];
        self.durable.read(offset, &mut byte);
        change(&mut byte[0]);
        self.durable.write(offset, &byte);
        let (sector_bytes, sector) = (self.sector_bytes as u64, offset / self.sector_bytes as u64);
        if let Some(newest) = self.volatile.get_mut(&sector).and_then(|versions| versions.last_mut()) {
            let mut content = newest.content(self.sector_bytes).to_vec();
            change(&mut content[(offset % sector_bytes) as usize]);
            (newest.bytes, newest.start) = (content.into(), 0);
        }
    }

    fn durable_sector(&self, sector: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.sector_bytes];
        self.durable.read(sector * self.sector_bytes as u64, &mut bytes);
        bytes
    }

    /// The sectors with more than one distinct version, in order. Writing again what is there
    /// already (the zeros that pad a block) leaves nothing to decide.
    fn units(&self) -> Vec<(u64, Unit)> {
        let mut units = Vec::new();
        for (&sector, versions) in &self.volatile {
            let durable = self.durable_sector(sector);
            let content = |version: usize| match version {
                0 => &durable[..],
                _ => versions[version - 1].content(self.sector_bytes),
            };
            let distinct: Vec<usize> = (0..=versions.len())
                .filter(|&version| (0..version).all(|older| content(older) != content(version)))
                .collect();
            if distinct.len() > 1 {
                let writes = std::iter::once(0).chain(versions.iter().map(|version| version.write)).collect();
                units.push((sector, Unit { writes, distinct }));
            }
        }
        units
    }

    fn surviving_content(
        &self,
        choices: &Choices,
        settings: &SurvivorSettings,
        sector: u64,
        version: usize,
    ) -> Vec<u8> {
        let versions = self.volatile.get(&sector).map_or(&[][..], Vec::as_slice);
        let content = |version: usize| match version {
            0 => self.durable_sector(sector),
            _ => versions[version - 1].content(self.sector_bytes).to_vec(),
        };
        let mut survivor = content(version);
        if settings.torn_sectors && version > 0 {
            let older = content(version - 1);
            let words = (self.sector_bytes / 8) as u64;
            match choices.choose(3, "sector torn") {
                0 => {}
                1 => {
                    let cut = 8 * (1 + choices.choose_position(words - 1, "torn at word") as usize);
                    survivor[cut..].copy_from_slice(&older[cut..]);
                }
                _ => {
                    let cut = 8 * (1 + choices.choose_position(words - 1, "torn at word") as usize);
                    survivor[..cut].copy_from_slice(&older[..cut]);
                }
            }
        }
        survivor
    }
}

impl Version {
    fn content(&self, sector_bytes: usize) -> &[u8] {
        &self.bytes[self.start..self.start + sector_bytes]
    }
}

/// Makes version `at` the durable one and forgets what it replaces; whether versions are left.
fn settle(
    durable: &mut Image,
    sector: u64,
    sector_bytes: usize,
    versions: &mut Vec<Version>,
    at: Option<usize>,
) -> bool {
    if let Some(at) = at {
        durable.write(sector * sector_bytes as u64, versions[at].content(sector_bytes));
        versions.drain(..=at);
    }
    !versions.is_empty()
}

#[cfg(test)]
#[path = "sectors_test.rs"]
mod sectors_test;
