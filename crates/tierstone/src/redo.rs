//! The redo log in persistent memory: where it lies and what it gives ([`mod@tierstone_logstore::redo`]).

use crate::database::DatabaseOptions;
use crate::nvm::region_settings;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_logstore::{OpenReport, RedoMemory};
use tierstone_media::Guarantee;
use tierstone_media::region::{LINE_BYTES, Region, RegionDemand, RegionReport, RegionSource};

/// A redo log in persistent memory: writes are durable after a fence there, the files follow in large blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedoOptions {
    /// Where: the path of a region's file on a DAX mount, of a DAX device, or `emulated:SIZE[:PRESET]` (memory of the
    /// process, which nothing survives; for measurements).
    pub region: String,
    /// Bytes of a file that is made because there is none; one that is there keeps its size, and the report says so.
    /// Default 64 MiB. A group of up to 1 MiB takes a slot; from four slots a shard on, more absorb a device that falls
    /// behind.
    pub new_bytes: Option<u64>,
    /// Open a store whose redo log is not there any more, or damaged, without the writes that only the lost part had; and
    /// a store wholly in persistent memory (`nvm:`) in which something durable is damaged, without that. Default: no, it is refused.
    pub loss_accepted: bool,
}

impl RedoOptions {
    /// The defaults, in `region`.
    pub fn new(region: impl Into<String>) -> Self {
        RedoOptions { region: region.into(), ..Self::default() }
    }
}

/// Bytes of a new region's file where none are asked for.
const NEW_BYTES: u64 = 64 << 20;

/// What the redo log of an open store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedoReport {
    /// Where the region comes from, as it was asked for.
    pub source: String,
    /// What the region was found to be.
    pub region: RegionReport,
    /// The region is too small, so that the redo log is not used: bytes that it needs; zero when it is used.
    pub bytes_wanted: u64,
    /// Bytes that were asked for, where the region was there already and has another size.
    pub other_bytes_asked: Option<u64>,
    /// Groups that opening took from it.
    pub groups_replayed: u64,
}

impl RedoReport {
    /// What a write survives that is durable in the redo log; `None` when it is not used.
    pub fn guarantee(&self) -> Option<Guarantee> {
        (self.bytes_wanted == 0).then_some(self.region.guarantee)
    }

    /// One line for a person.
    pub fn text(&self) -> String {
        match self.bytes_wanted {
            0 => format!("{}: {}", self.source, self.region.text()),
            wanted => format!(
                "not used: the region has {} bytes, {wanted} are needed for so many shards; every write waits for the \
                 device",
                self.region.bytes
            ),
        }
    }
}

/// Opens the region, or makes it.
///
/// # Errors
/// `InvalidInput`: no such place; `Unsupported`: it would not survive the loss of power, and that was not accepted.
pub(crate) fn open(
    options: &RedoOptions,
    of_store: &DatabaseOptions,
) -> Result<Option<(RedoMemory, RegionReport)>> {
    if options.region.is_empty() {
        return Ok(None);
    }
    let source: RegionSource = options.region.parse()?;
    let settings = region_settings(&source, of_store);
    let (region, _) =
        source.open_or_create(options.new_bytes.unwrap_or(NEW_BYTES), &settings).map_err(|error| {
            let refused = error.kind() == ErrorKind::Unsupported && settings.demand == RegionDemand::Durable;
            let advice = if refused {
                " (for the redo log: accept any guarantee, by --nvm-guarantee any)"
            } else {
                ""
            };
            Error::new(error.kind(), format!("the redo log's region: {}{advice}", error.message()))
        })?;
    let report = region.report().clone();
    let region: Arc<dyn Region + Send + Sync> = Arc::new(region);
    Ok(Some((RedoMemory::new(region), report)))
}

/// Opens a region that is there already, to be looked at.
pub(crate) fn open_closed(region: &str, of_store: &DatabaseOptions) -> Result<RedoMemory> {
    let source: RegionSource = region.parse()?;
    let region = source
        .open(&region_settings(&source, of_store))
        .map_err(|error| Error::new(error.kind(), format!("the redo log's region: {}", error.message())))?;
    Ok(RedoMemory::new(Arc::new(region)))
}

fn is_emulated(options: &RedoOptions) -> bool {
    matches!(options.region.parse(), Ok(RegionSource::Emulated { .. }))
}

/// What became of the region when the store was opened.
pub(crate) fn report(
    options: Option<&RedoOptions>,
    region: Option<RegionReport>,
    open: &OpenReport,
) -> Option<RedoReport> {
    options.zip(region).map(|(options, region)| RedoReport {
        other_bytes_asked: options
            .new_bytes
            .filter(|bytes| bytes.next_multiple_of(LINE_BYTES) != region.bytes && !is_emulated(options)),
        source: options.region.clone(),
        region,
        bytes_wanted: open.redo_bytes_wanted,
        groups_replayed: open.redo_groups,
    })
}
