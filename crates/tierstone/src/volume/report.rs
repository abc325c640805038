//! What is told of a volume that is open: its state now, and what has happened to it.

use super::open::OpenedVolume;
use super::orders::OrderReport;
use super::part::VolumePart;
use super::stopping::DiskStopping;
use serde::Serialize;
use std::path::PathBuf;
use tierstone_volume::{FlashBuffer, Health, PairState, Status, Volume};

/// The state of a volume. Plain data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeReport {
    /// `raid0`, `raid1`, `raid5`, `raid10` or `raid50`.
    pub level: &'static str,
    /// Bytes that the volume holds.
    pub bytes: u64,
    /// The file that describes it.
    pub description: PathBuf,
    /// How far the newest order of an operator is.
    pub order: OrderReport,
    /// How often its records of members have changed.
    pub generation: u64,
    /// Whether some member does not count, or not yet.
    pub is_degraded: bool,
    /// Of each member, in their order.
    pub members: Vec<MemberReport>,
    /// The share of the flash buffer in use, if disks may sleep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_fill: Option<f64>,
    /// Where the flash buffer stages, and what that survives; empty where no disk sleeps.
    pub staging: String,
    /// Of each pair whose second disk may sleep.
    pub pairs: Vec<PairReport>,
    /// What stops disks; empty where none sleeps.
    pub spindle: String,
}

/// The state of a member.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberReport {
    /// Its file or block device.
    pub path: PathBuf,
    /// `in-sync`, `failed`, `filling` or `behind` (asleep).
    pub state: &'static str,
    /// While it is filled: how much of it is, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filled_percent: Option<u64>,
    /// Reads that failed since the opening.
    pub read_errors: u32,
}

/// The state of a pair of mirrors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PairReport {
    /// `awake`, `asleep`, `flushing` or `degraded`.
    pub state: &'static str,
    /// How often its disks have slept since the opening.
    pub cycles: [u64; 2],
}

/// What has happened to a volume, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeEvent {
    /// Whether somebody should do something.
    pub is_warning: bool,
    /// What has happened.
    pub text: String,
}

/// The name of a member's state.
pub fn state_name(health: Health) -> &'static str {
    match health {
        Health::InSync => "in-sync",
        Health::Failed => "failed",
        Health::Rebuilding { .. } => "filling",
        Health::Behind => "behind",
    }
}

fn pair_name(state: PairState) -> &'static str {
    match state {
        PairState::Awake => "awake",
        PairState::Asleep => "asleep",
        PairState::Flushing => "flushing",
        PairState::Degraded => "degraded",
    }
}

/// What reports are made of.
pub(super) struct Reporter {
    description: PathBuf,
    level: &'static str,
    bytes: u64,
    rows: u64,
    paths: Vec<PathBuf>,
    buffer: Option<FlashBuffer<VolumePart>>,
    stopping: Option<DiskStopping>,
    staging: String,
    last: Option<Seen>,
}

/// What decides whether something has changed.
#[derive(PartialEq)]
struct Seen {
    status: Status,
    pairs: Vec<(PairState, [u64; 2])>,
    buffer_fill: Option<f64>,
}

impl Reporter {
    pub fn new(opened: &OpenedVolume) -> Reporter {
        Reporter {
            description: opened.description.clone(),
            level: opened.facts.layout.level_name(),
            bytes: opened.facts.geometry.end(),
            rows: opened.facts.layout.rows,
            paths: opened.places.iter().map(|place| place.path.clone()).collect(),
            buffer: opened.buffer.clone(),
            stopping: opened.stopping.clone(),
            staging: opened.staging.clone(),
            last: None,
        }
    }

    /// A report, when something has changed since the one before, with what has happened. Cost: a few hundred
    /// nanoseconds.
    pub fn look(&mut self, volume: &Volume<VolumePart>) -> Option<(VolumeReport, Vec<VolumeEvent>)> {
        let buffer_fill = self.buffer.as_ref().map(FlashBuffer::fill);
        let now = Seen { status: volume.status(), pairs: volume.pairs(), buffer_fill };
        if self.last.as_ref() == Some(&now) {
            return None;
        }
        let events = match &self.last {
            Some(before) => self.events(before, &now),
            None => Vec::new(),
        };
        let report = self.report(&now);
        self.last = Some(now);
        Some((report, events))
    }

    /// Another member stands in a place.
    pub fn replaced(&mut self, member: usize, path: PathBuf) {
        if let Some(place) = self.paths.get_mut(member) {
            *place = path;
        }
    }

    fn report(&self, Seen { status, pairs, buffer_fill }: &Seen) -> VolumeReport {
        let member = |((path, health), &read_errors): ((&PathBuf, &Health), &u32)| MemberReport {
            path: path.clone(),
            state: state_name(*health),
            filled_percent: match health {
                Health::Rebuilding { row } => Some(row * 100 / self.rows.max(1)),
                _ => None,
            },
            read_errors,
        };
        VolumeReport {
            level: self.level,
            bytes: self.bytes,
            description: self.description.clone(),
            order: OrderReport::default(),
            generation: status.generation,
            is_degraded: status.is_degraded,
            members: self.paths.iter().zip(&status.members).zip(&status.read_errors).map(member).collect(),
            buffer_fill: *buffer_fill,
            staging: self.staging.clone(),
            pairs: pairs
                .iter()
                .map(|(state, cycles)| PairReport { state: pair_name(*state), cycles: *cycles })
                .collect(),
            spindle: self.stopping.as_ref().map_or_else(String::new, DiskStopping::text),
        }
    }

    fn events(&self, before: &Seen, after: &Seen) -> Vec<VolumeEvent> {
        let (old, new) = (&before.status, &after.status);
        let mut events = Vec::new();
        let mut tell = |is_warning: bool, text: String| events.push(VolumeEvent { is_warning, text });
        for (index, path) in self.paths.iter().enumerate() {
            let path = path.display();
            match (old.members[index], new.members[index]) {
                (before, Health::Failed) if before != Health::Failed => {
                    tell(true, format!("member {index} ({path}) has failed and is left out; replace it"));
                }
                (Health::Rebuilding { .. }, Health::InSync) => {
                    tell(false, format!("member {index} ({path}) is filled and counts"));
                }
                _ => {}
            }
            if old.read_errors[index] == 0 && new.read_errors[index] > 0 {
                tell(true, format!("member {index} ({path}) cannot be read everywhere"));
            }
        }
        for (pair, (before, after)) in before.pairs.iter().zip(&after.pairs).enumerate() {
            if before.0 != after.0 {
                tell(false, format!("pair {pair} is {}", pair_name(after.0)));
            }
        }
        events
    }
}
