//! The file that says which files or disks a volume is made of: TOML, written by `tierstone volume create`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tierstone_base::units::parse_size;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::file::Discards;
use tierstone_media::region::RegionSource;
use tierstone_volume::{CycleBudget, MEMBERS_MAX, SleepPolicy, SleepSettings};

/// The longest description, in bytes.
const BYTES_MAX: u64 = 1 << 20;
/// How fast a server fills new members, if the description does not say.
const FILL_BYTES_PER_SECOND: u64 = 200 << 20;

/// What a volume is made of. Paths are absolute, or begin at the description's directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Files or block devices, in the order of the volume.
    pub members: Vec<PathBuf>,
    /// The file or block device that holds what sleeping disks miss; without it none sleeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<PathBuf>,
    /// Persistent memory in which the buffer stages what it gathers: the path of a region's file or DAX device, or
    /// `emulated:SIZE`; without it the buffer stages on its flash. Only with `buffer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staging: Option<String>,
    /// Take staging memory that does not survive the loss of power.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub staging_any_guarantee: bool,
    /// What is done when members are missing but the others have everything.
    #[serde(default)]
    pub degraded: Degraded,
    /// Whether space that the store discards goes back to the members' disks (TRIM).
    #[serde(default, skip_serializing_if = "is_default")]
    pub discards: Discards,
    /// Bytes a second, as a size, at which a server fills new members beside its clients; default 200MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill_rate: Option<String>,
    /// When disks sleep; only with `buffer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep: Option<Sleeping>,
}

/// What is done when members are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Degraded {
    /// The volume is opened without them, and says so.
    #[default]
    Serve,
    /// It is not opened.
    Refuse,
}

/// When disks sleep; see [`SleepPolicy`] and [`SleepSettings`] for each number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sleeping {
    /// Below this share of busy time of both disks an epoch is quiet.
    pub spin_down_utilisation: f64,
    /// So many quiet epochs in a row send the second disk to sleep.
    pub spin_down_epochs: u32,
    /// Above this share of busy time of the disk that is awake an epoch is busy.
    pub spin_up_utilisation: f64,
    /// So many busy epochs in a row wake the second disk.
    pub spin_up_epochs: u32,
    /// The share of the buffer above which all disks wake.
    pub buffer_fill: f64,
    /// Milliseconds of an epoch.
    pub epoch_ms: u64,
    /// Blocks written back in a step of a flush.
    pub write_backs: u32,
    /// Microseconds that a disk takes to reach a place.
    pub position_us: u64,
    /// Microseconds that a disk takes to pass a MiB.
    pub mib_us: u64,
    /// Stop the disks of members that sleep, where every member's disk can be stopped and may be.
    pub stop_disks: bool,
    /// Starts that a disk is rated for; with `rated_years`, the budget of its starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rated_cycles: Option<f64>,
    /// The years over which it is rated for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rated_years: Option<f64>,
}

impl Default for Sleeping {
    fn default() -> Self {
        let settings = SleepSettings::published();
        let policy = settings.policy;
        Sleeping {
            spin_down_utilisation: policy.spin_down_utilisation,
            spin_down_epochs: policy.spin_down_epochs,
            spin_up_utilisation: policy.spin_up_utilisation,
            spin_up_epochs: policy.spin_up_epochs,
            buffer_fill: policy.buffer_fill,
            epoch_ms: settings.epoch_ms,
            write_backs: settings.write_backs,
            position_us: settings.position_us,
            mib_us: settings.mib_us,
            stop_disks: true,
            rated_cycles: None,
            rated_years: None,
        }
    }
}

impl Sleeping {
    /// What the volume is opened with.
    ///
    /// # Errors
    /// `InvalidInput` that names the field and its range.
    pub fn settings(&self) -> Result<SleepSettings> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let cycles = match (self.rated_cycles, self.rated_years) {
            (None, None) => None,
            (Some(cycles), Some(years))
                if (1.0..=1e9).contains(&cycles) && (0.01..=100.0).contains(&years) =>
            {
                Some(CycleBudget::rated(cycles, years))
            }
            _ => {
                return wrong(
                    "sleep.rated_cycles and sleep.rated_years: give both, 1 to 1e9 and 0.01 to 100",
                );
            }
        };
        if !share(self.spin_down_utilisation) || !share(self.spin_up_utilisation) || !share(self.buffer_fill)
        {
            return wrong("sleep.spin_down_utilisation, spin_up_utilisation and buffer_fill: 0 to 1");
        }
        if self.spin_down_epochs == 0 || self.spin_up_epochs == 0 {
            return wrong("sleep.spin_down_epochs and spin_up_epochs: at least 1");
        }
        if !(10..=3_600_000).contains(&self.epoch_ms) {
            return wrong("sleep.epoch_ms: 10 to 3600000");
        }
        if !(1..=65_536).contains(&self.write_backs) {
            return wrong("sleep.write_backs: 1 to 65536");
        }
        if self.position_us > 1_000_000 || self.mib_us > 10_000_000 {
            return wrong("sleep.position_us: at most 1000000; mib_us: at most 10000000");
        }
        Ok(SleepSettings {
            policy: SleepPolicy {
                spin_down_utilisation: self.spin_down_utilisation,
                spin_down_epochs: self.spin_down_epochs,
                spin_up_utilisation: self.spin_up_utilisation,
                spin_up_epochs: self.spin_up_epochs,
                buffer_fill: self.buffer_fill,
                cycles,
            },
            epoch_ms: self.epoch_ms,
            write_backs: self.write_backs,
            position_us: self.position_us,
            mib_us: self.mib_us,
        })
    }
}

fn is_default(discards: &Discards) -> bool {
    *discards == Discards::default()
}

fn wrong<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidInput, what))
}

impl Description {
    /// The description among directories of a store: a single path that ends in `.toml`.
    ///
    /// # Errors
    /// `InvalidInput` when there are directories beside it.
    pub fn among(directories: &[PathBuf]) -> Result<Option<&Path>> {
        let is_description = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "toml");
        match directories.iter().find(is_description) {
            None => Ok(None),
            Some(path) if directories.len() == 1 => Ok(Some(path)),
            Some(path) => wrong(format!("{} describes a volume, which stands alone", path.display())),
        }
    }

    /// Reads a description.
    ///
    /// # Errors
    /// `InvalidInput` that names the line or field.
    pub fn read(path: &Path) -> Result<Description> {
        let at = |error: std::io::Error| {
            let how = "a path that ends in .toml describes a volume; `tierstone volume create` makes one";
            Error::new(ErrorKind::InvalidInput, format!("cannot read {}: {error}; {how}", path.display()))
        };
        if std::fs::metadata(path).map_err(at)?.len() > BYTES_MAX {
            return wrong(format!(
                "{} is longer than {BYTES_MAX} bytes: it is no description",
                path.display()
            ));
        }
        let text = std::fs::read_to_string(path).map_err(at)?;
        let description = Self::parse(&text);
        description.map_err(|error| error.context(&format!("{}", path.display())))
    }

    /// Understands the text of a description.
    ///
    /// # Errors
    /// `InvalidInput` that names the line or field.
    pub fn parse(text: &str) -> Result<Description> {
        let parsed: std::result::Result<Description, toml::de::Error> = toml::from_str(text);
        let description = match parsed {
            Ok(description) => description,
            Err(error) => return wrong(error.to_string().trim_end().replace('\n', " ")),
        };
        let count = description.members.len();
        if !(1..=MEMBERS_MAX).contains(&count) {
            return wrong(format!("members: {count} are named, 1 to {MEMBERS_MAX} are possible"));
        }
        let mut seen = BTreeSet::new();
        for path in description.members.iter().chain(&description.buffer) {
            if path.as_os_str().is_empty() || !seen.insert(path) {
                return wrong(format!("members, buffer: '{}' is empty or named twice", path.display()));
            }
        }
        if let Some(staging) = &description.staging {
            if description.buffer.is_none() {
                return wrong("staging: without a buffer nothing is staged; name one");
            }
            let source: RegionSource = staging.parse().map_err(|error: Error| error.context("staging"))?;
            if matches!(&source, RegionSource::Path(path) if seen.contains(path)) {
                return wrong(format!("staging: '{source}' is named twice"));
            }
        } else if description.staging_any_guarantee {
            return wrong("staging_any_guarantee: there is no staging; name it");
        }
        description.fill_bytes_per_second()?;
        match (description.sleep, &description.buffer) {
            (Some(_), None) => wrong("sleep: without a buffer no disk sleeps; name one"),
            (Some(sleep), Some(_)) => sleep.settings().map(|_| description),
            (None, _) => Ok(description),
        }
    }

    /// How fast a server fills new members.
    ///
    /// # Errors
    /// `InvalidInput` for what is no size, or below 64 KiB a second.
    pub fn fill_bytes_per_second(&self) -> Result<u64> {
        let Some(text) = &self.fill_rate else { return Ok(FILL_BYTES_PER_SECOND) };
        match parse_size(text).map_err(|error| error.context("fill_rate"))? {
            bytes if bytes >= 64 << 10 => Ok(bytes),
            bytes => wrong(format!("fill_rate: {bytes} bytes a second, at least 64KiB")),
        }
    }

    /// The text of the description.
    ///
    /// # Errors
    /// When a path is not text.
    pub fn text(&self) -> Result<String> {
        toml::to_string_pretty(self)
            .map_err(|error| Error::new(ErrorKind::InvalidInput, format!("the description: {error}")))
    }

    /// A path of the description, which lies at `description`, as the process reaches it.
    pub fn resolve(description: &Path, path: &Path) -> PathBuf {
        match description.parent() {
            Some(parent) if path.is_relative() => parent.join(path),
            _ => path.to_path_buf(),
        }
    }
}

#[cfg(test)]
#[path = "description_test.rs"]
mod description_test;
