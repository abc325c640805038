//! What a volume is made of: files and block devices, and memory in which its flash buffer stages.

use std::path::Path;
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::file::single::SingleFileDevice;
use tierstone_media::region::{Region, RegionDemand, RegionSettings, RegionSource, SourceRegion};
use tierstone_media::{
    BLOCK_BYTES, BlockDevice, DurableWriteScope, Geometry, Guarantee, IoCompletion, IoRequest, RegionDevice,
    Wait,
};
use tierstone_volume::{BufferSettings, FlashBuffer};

use super::description::Description;

/// A region that several handles share.
type Shared = Arc<SourceRegion>;

/// Blocks of a unit of the flash buffers that are made here: 1 MiB, as published.
pub const UNIT_BLOCKS: u32 = 256;

/// A device that a volume uses.
#[derive(Debug)]
pub enum VolumePart {
    /// A file or a block device.
    File(SingleFileDevice),
    /// A region in persistent memory.
    Memory(RegionDevice<Shared>),
}

impl From<SingleFileDevice> for VolumePart {
    fn from(device: SingleFileDevice) -> Self {
        VolumePart::File(device)
    }
}

/// The same call of whatever part it is.
macro_rules! of_each {
    ($part:expr, $device:ident => $call:expr) => {
        match $part {
            VolumePart::File($device) => $call,
            VolumePart::Memory($device) => $call,
        }
    };
}

impl BlockDevice for VolumePart {
    fn geometry(&self) -> Geometry {
        of_each!(self, device => device.geometry())
    }

    fn guarantee(&self) -> Guarantee {
        of_each!(self, device => device.guarantee())
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        of_each!(self, device => device.durable_write_scope())
    }

    fn discards_to_zeros(&self) -> bool {
        of_each!(self, device => device.discards_to_zeros())
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        of_each!(self, device => device.submit(requests));
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        of_each!(self, device => device.complete(wait, completions))
    }

    fn in_flight(&self) -> usize {
        of_each!(self, device => device.in_flight())
    }
}

/// The memory in which a flash buffer stages.
#[derive(Debug)]
pub struct StagingMemory {
    device: RegionDevice<Shared>,
    /// What it is, in words.
    pub text: String,
}

impl StagingMemory {
    /// The memory that the description at `at` names, if it names one; a file that is not there is made.
    ///
    /// # Errors
    /// `Unsupported`: it would not survive the loss of power, and the description does not say that this is meant.
    /// Others as [`RegionSource::open_or_create`].
    pub fn open(at: &Path, description: &Description) -> Result<Option<StagingMemory>> {
        let Some(text) = &description.staging else { return Ok(None) };
        let source = match text.parse()? {
            RegionSource::Path(path) => RegionSource::Path(Description::resolve(at, &path)),
            emulated => emulated,
        };
        // Whoever writes `emulated` knows what that is.
        let is_meant = description.staging_any_guarantee || matches!(source, RegionSource::Emulated { .. });
        let demand = if is_meant { RegionDemand::AnyGuarantee } else { RegionDemand::Durable };
        let settings = RegionSettings { demand, ..RegionSettings::default() };
        let (region, _) = source.open_or_create(usual_bytes(), &settings).map_err(|error| {
            let refused = error.kind() == ErrorKind::Unsupported && demand == RegionDemand::Durable;
            let advice = if refused { " (staging_any_guarantee = true says that this is meant)" } else { "" };
            Error::new(error.kind(), format!("the staging memory: {}{advice}", error.message()))
        })?;
        let block = BLOCK_BYTES as u64;
        let blocks = u32::try_from(region.bytes() / block).unwrap_or(u32::MAX);
        if u64::from(blocks) * block < usual_bytes() {
            let (has, needed) = (region.bytes(), usual_bytes());
            let message = format!(
                "the staging memory {source} has {has} bytes, {needed} are needed: give a larger one"
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let geometry =
            Geometry { meta_bytes: 2 * block, segment_bytes: block, segment_limit: blocks.saturating_sub(2) };
        let text = format!("{source}: {}", region.report().text());
        let device = RegionDevice::new(Arc::new(region), 0, geometry)?;
        Ok(Some(StagingMemory { device, text }))
    }

    /// A handle on it.
    pub fn part(&self) -> VolumePart {
        VolumePart::Memory(self.device.clone())
    }
}

/// Bytes that the log of one volume takes.
fn usual_bytes() -> u64 {
    let usual = BufferSettings {
        id: 1,
        volumes: 1,
        pairs_a_volume: 1,
        extent_bytes: u64::from(UNIT_BLOCKS) * BLOCK_BYTES as u64,
        unit_blocks: UNIT_BLOCKS,
    };
    FlashBuffer::<VolumePart>::staging_bytes(&usual)
}
