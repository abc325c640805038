//! Several simulated devices with one power switch, and what must hold of a volume on them.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use tierstone_crash::{Choices, Violation};
pub use tierstone_media::sim::Powered;
use tierstone_media::sim::{CutPoints, PowerCut};
use tierstone_media::{
    BLOCK_BYTES, BlockDevice, Geometry, IoBuffer, IoCompletion, IoRequest, SimMedium, SimSettings, Wait,
};
use tierstone_volume::{Level, VolumeSettings};

pub const BLOCK: u64 = BLOCK_BYTES as u64;

/// Devices that lose power together.
#[derive(Clone)]
pub struct Array {
    pub media: Vec<SimMedium>,
    cuts_left: Rc<Cell<u32>>,
}

/// A small device: 64 blocks of superblocks, then segments of 16 blocks.
pub fn small(segments: u32) -> Geometry {
    Geometry { meta_bytes: 16 * BLOCK, segment_bytes: 16 * BLOCK, segment_limit: segments }
}

/// Settings under which everything is open and power is lost before one durable completion in `one_in`.
pub fn exploring(geometry: Geometry, one_in: u64) -> SimSettings {
    let power_cut = PowerCut::Anywhere { points: CutPoints::BeforeDurable, one_in };
    SimSettings { power_cut, cut_limit: u32::MAX, trace_limit_lines: 64, ..SimSettings::exploring(geometry) }
}

impl Array {
    pub fn new(settings: &[SimSettings], choices: &Choices, cuts: u32) -> Array {
        let media = settings.iter().map(|one| SimMedium::new(one.clone(), choices)).collect();
        Array { media, cuts_left: Rc::new(Cell::new(cuts)) }
    }

    /// Devices that never lose power by themselves.
    pub fn calm(count: usize, geometry: Geometry) -> Array {
        Array::new(&vec![SimSettings::new(geometry); count], &Choices::quiet(), 0)
    }

    pub fn device(&self, index: usize) -> Powered {
        Powered::new(&self.media, index)
    }

    pub fn devices(&self) -> Vec<Powered> {
        (0..self.media.len()).map(|index| self.device(index)).collect()
    }

    pub fn power_is_off(&self) -> bool {
        self.media.iter().any(SimMedium::power_is_off)
    }

    /// Power is lost everywhere and comes back.
    pub fn restart(&self) {
        for medium in &self.media {
            medium.power_on_after_loss();
        }
    }

    /// Lives of the array as `SimMedium::run_lives` has them of one device: life 0 works, each later one
    /// recovers and checks; a life that ends with power on ends with a cut too, once.
    pub fn run_lives(
        &self,
        mut life: impl FnMut(&Array, u32) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let mut ended_well = 0;
        for number in 0.. {
            let result = life(self, number);
            let was_lost = self.power_is_off();
            match result {
                Err(violation) if !was_lost || violation.error_kind().is_none() => {
                    let trace = self.media[0].trace();
                    return Err(Violation::new(format!("life {number}: {violation}\n{trace}")));
                }
                _ => {}
            }
            if was_lost {
                self.cuts_left.set(self.cuts_left.get().saturating_sub(1));
            } else if ended_well == 1 {
                return Ok(());
            } else {
                ended_well += 1;
            }
            if self.cuts_left.get() == 0 {
                self.media.iter().for_each(|medium| medium.set_power_cut(PowerCut::Never));
            }
            self.restart();
        }
        Ok(())
    }
}

/// What each block may hold: the acknowledged value, and those submitted since.
#[derive(Clone, Default)]
pub struct Blocks {
    allowed: BTreeMap<u64, Vec<u64>>,
}

/// A block whose every sector holds `value`.
pub fn filled(value: u64) -> IoBuffer {
    let mut buffer = IoBuffer::zeroed(BLOCK_BYTES);
    buffer.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    buffer
}

impl Blocks {
    /// A write of `value` to block `at` is submitted.
    pub fn submit(&mut self, at: u64, value: u64) {
        self.allowed.entry(at).or_insert_with(|| vec![0]).push(value);
    }

    /// It was acknowledged: nothing older may come back.
    pub fn acknowledge(&mut self, at: u64, value: u64) {
        if let Some(values) = self.allowed.get_mut(&at)
            && let Some(place) = values.iter().position(|&held| held == value)
        {
            values.drain(..place);
        }
    }

    /// Checks what a read gave, sector by sector, and holds the volume to it from now on. A block whose
    /// sectors come from several unacknowledged writes keeps all of them allowed.
    pub fn check(&mut self, at: u64, bytes: &[u8]) -> Result<(), Violation> {
        let zero = vec![0];
        let allowed = self.allowed.get(&at).unwrap_or(&zero);
        let mut seen = Vec::new();
        for sector in bytes.chunks(512) {
            let words: Vec<u64> =
                sector.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8"))).collect();
            let value = words[0];
            Violation::unless(words.iter().all(|&word| word == value), || {
                format!("block {at}: a sector mixes values")
            })?;
            Violation::unless(allowed.contains(&value), || {
                format!("block {at} holds {value}, may hold {allowed:?}")
            })?;
            seen.push(value);
        }
        let same = seen.windows(2).all(|pair| pair[0] == pair[1]);
        if same && self.allowed.contains_key(&at) {
            self.allowed.insert(at, vec![seen[0]]);
        }
        Ok(())
    }

    pub fn known(&self) -> Vec<u64> {
        self.allowed.keys().copied().collect()
    }
}

/// Sends requests and waits for all, by token.
pub fn perform(device: &mut impl BlockDevice, mut requests: Vec<IoRequest>) -> BTreeMap<u64, IoCompletion> {
    device.submit(&mut requests);
    let mut done = Vec::new();
    device.complete(Wait::All, &mut done);
    done.into_iter().map(|done| (done.token, done)).collect()
}

pub fn read(device: &mut impl BlockDevice, block: u64) -> Result<IoBuffer, Violation> {
    let done = perform(device, vec![IoRequest::read(1, block * BLOCK, IoBuffer::zeroed(1))]);
    let done = done.into_values().next().ok_or("no completion")?;
    done.result?;
    Ok(done.buffer.ok_or("no buffer")?)
}

pub fn write(device: &mut impl BlockDevice, block: u64, value: u64) -> Result<(), Violation> {
    let done = perform(device, vec![IoRequest::write_durable(1, block * BLOCK, filled(value))]);
    Ok(done.into_values().next().ok_or("no completion")?.result?)
}

/// The value of a block of one value.
pub fn value(device: &mut impl BlockDevice, block: u64) -> u64 {
    let bytes = read(device, block).expect("reads");
    u64::from_le_bytes(bytes[..8].try_into().expect("8"))
}

/// Writes every block with its number above `from`.
pub fn fill(device: &mut impl BlockDevice, from: u64) {
    for block in 0..device.geometry().end() / BLOCK {
        write(device, block, from + block).expect("written");
    }
}

pub fn assert_filled(device: &mut impl BlockDevice, from: u64) {
    for block in 0..device.geometry().end() / BLOCK {
        assert_eq!(value(device, block), from + block, "block {block}");
    }
}

/// A small volume of any level, with many regions and few slots in its journal.
pub fn small_volume(level: Level) -> VolumeSettings {
    VolumeSettings {
        chunk_bytes: 2 * BLOCK,
        meta_bytes: 4 * BLOCK,
        region_bytes: 16 * BLOCK,
        journal_slots: 2,
        is_zeroed: true,
        ..VolumeSettings::new(level, 0xabcd, 16 * BLOCK)
    }
}

/// Random durable writes, up to three in flight, each noted in `blocks`; `values` gives new values.
pub fn work(
    device: &mut impl BlockDevice,
    choices: &Choices,
    blocks: &mut Blocks,
    places: &[u64],
    rounds: u64,
    values: &mut u64,
) -> Result<(), Violation> {
    for _ in 0..rounds {
        let count = 1 + choices.choose(2, "writes at once");
        let first = choices.choose(places.len() as u64, "first block") as usize;
        let mut requests = Vec::new();
        for n in 0..count as usize {
            let at = places[(first + n) % places.len()];
            *values += 1;
            blocks.submit(at, *values);
            requests.push(IoRequest::write_durable(*values, at * BLOCK, filled(*values)));
        }
        let places: BTreeMap<u64, u64> = requests.iter().map(|one| (one.token, one.offset / BLOCK)).collect();
        device.submit(&mut requests);
        while device.in_flight() > 0 {
            let mut done = Vec::new();
            device.complete(Wait::One, &mut done);
            for done in done {
                done.result?;
                blocks.acknowledge(places[&done.token], done.token);
            }
        }
    }
    Ok(())
}

/// Everything known is there, and reads give the same again.
pub fn check(device: &mut impl BlockDevice, blocks: &mut Blocks) -> Result<(), Violation> {
    for at in blocks.known() {
        let first = read(device, at)?;
        blocks.check(at, &first)?;
        let again = read(device, at)?;
        Violation::unless(*first == *again, || format!("block {at} reads differently the second time"))?;
    }
    Ok(())
}
