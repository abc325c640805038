//! Where a run happened, in words that do not name the machine: no paths, hosts or users.

use serde::{Deserialize, Serialize};
use std::path::Path;
use tierstone_base::Result;
use tierstone_media::probe::{DeviceFacts, FileSystem};

/// The machine and the device below the run's data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name for itself.
    pub cpu: String,
    /// The architecture.
    pub architecture: String,
    /// Hardware threads that the program may use.
    pub cores: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The kernel's name and release.
    pub kernel: String,
    /// Whether the processor says that it is a guest's.
    pub virtual_machine: bool,
    /// The file system below the data.
    pub file_system: String,
    /// The device below the file system.
    pub device: String,
    /// Processes that wanted to run in the last minute, on average, when the run began: above 0.5 it
    /// had company.
    pub load_average: f64,
}

impl Machine {
    /// The machine, and the device below `directory`. What the kernel does not say is left empty.
    ///
    /// # Errors
    /// When `directory` cannot be looked at.
    pub fn of(directory: &Path) -> Result<Machine> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo");
        let kernel = rustix::system::uname();
        let facts = DeviceFacts::of(directory)?;
        Ok(Machine {
            cpu: field(&processor, &["model name", "Processor", "cpu model"]).unwrap_or("unknown").to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            cores: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
            memory_bytes: field(&read("/proc/meminfo"), &["MemTotal"]).and_then(kibibytes).unwrap_or(0),
            kernel: format!("{} {}", kernel.sysname().to_string_lossy(), kernel.release().to_string_lossy()),
            virtual_machine: field(&processor, &["flags", "Features"])
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            file_system: FileSystem::of(directory)?.name.to_owned(),
            device: describe(&facts),
            load_average: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|one| one.parse().ok())
                .unwrap_or(0.0),
        })
    }

    /// All of it in one line.
    pub fn summary(&self) -> String {
        format!(
            "{} ({}, {} hardware threads{}), {:.0} GiB of memory, {}, {} on {}; load average {:.1} at the start",
            self.cpu,
            self.architecture,
            self.cores,
            if self.virtual_machine { ", a virtual machine" } else { "" },
            self.memory_bytes as f64 / f64::from(1 << 30),
            self.kernel,
            self.file_system,
            self.device,
            self.load_average
        )
    }
}

/// The value of the first line of `text` that begins with one of `names` and a colon.
fn field<'t>(text: &'t str, names: &[&str]) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        names.contains(&name.trim()).then(|| value.trim())
    })
}

fn kibibytes(value: &str) -> Option<u64> {
    value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn describe(facts: &DeviceFacts) -> String {
    let mut parts = Vec::new();
    match facts.rotational {
        Some(true) => parts.push("a disk that turns (by its own word)".to_owned()),
        Some(false) => parts.push("a device without moving parts".to_owned()),
        None => parts.push("a device that says nothing of itself".to_owned()),
    }
    // A virtual device's name tells its kind; a model's name tells no more than a catalogue.
    if facts.device.as_deref().is_some_and(|name| name.starts_with("vd")) {
        parts.push("virtual (virtio)".to_owned());
    }
    parts.extend(facts.model.clone());
    parts.extend(facts.write_cache.as_ref().map(|cache| format!("write cache: {cache}")));
    parts.extend(
        facts.forced_unit_access.map(|has| format!("forced unit access: {}", if has { "yes" } else { "no" })),
    );
    parts.extend(facts.physical_block_bytes.map(|bytes| format!("blocks of {bytes} B")));
    parts.join(", ")
}

/// Milliseconds since 1970 as `2026-11-22T01:30:00Z`.
pub fn utc_text(wall_ms: u64) -> String {
    let seconds = wall_ms / 1_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day is a year's last (Hinnant, "chrono-compatible
    // low-level date algorithms").
    let shifted = days + 719_468;
    let era_day = shifted % 146_097;
    let era_year = (era_day - era_day / 1_460 + era_day / 36_524 - era_day / 146_096) / 365;
    let year_day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
    let march_month = (5 * year_day + 2) / 153;
    let day = year_day - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = shifted / 146_097 * 400 + era_year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc_text(seconds * 1_000), text);
        }
    }

    #[test]
    fn this_machine_is_described_without_paths() {
        let machine = Machine::of(&std::env::temp_dir()).unwrap();
        assert!(machine.cores > 0 && machine.memory_bytes > 0);
        assert!(!machine.summary().contains("/tmp") && !machine.device.contains("/dev"), "{machine:?}");
    }
}
