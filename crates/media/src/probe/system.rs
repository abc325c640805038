//! What the kernel says about the device under a directory: mount, block device, cache, blocks.

use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tierstone_base::{Error, Result};

/// The kernel's word on a directory's device. What it does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Where the file system is mounted.
    pub mount_point: Option<String>,
    /// What is mounted there: usually a device or a remote path.
    pub mount_source: Option<String>,
    /// The block device's name, without the partition: `nvme0n1`, `vda`.
    pub device: Option<String>,
    /// The device's own name for its model.
    pub model: Option<String>,
    /// Whether it is a disk that turns.
    pub rotational: Option<bool>,
    /// `write back`: a volatile cache that flushes must empty. `write through`: none, or protected.
    pub write_cache: Option<String>,
    /// Whether the device takes writes with forced unit access.
    pub forced_unit_access: Option<bool>,
    /// The smallest addressable unit in bytes.
    pub logical_block_bytes: Option<u64>,
    /// The smallest unit in bytes that is written without reading first.
    pub physical_block_bytes: Option<u64>,
}

impl DeviceFacts {
    /// The facts about `directory`, which must exist.
    ///
    /// # Errors
    /// When the directory cannot be looked at; missing facts are no error.
    pub fn of(directory: &Path) -> Result<DeviceFacts> {
        let directory = directory.canonicalize().map_err(|error| {
            Error::from(error).context(&format!("cannot look at {}", directory.display()))
        })?;
        let number = std::fs::metadata(&directory)?.dev();
        let number = (rustix::fs::major(number), rustix::fs::minor(number));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = find_mount(&mounts, &directory, number);
        let queue = block_device(number, mount.as_ref().map(|mount| mount.source.as_str()));
        let mut facts = DeviceFacts {
            mount_point: mount.as_ref().map(|mount| mount.point.display().to_string()),
            mount_source: mount.map(|mount| mount.source),
            ..DeviceFacts::default()
        };
        if let Some(device) = queue {
            let text = |name: &str| {
                let text = std::fs::read_to_string(device.join(name)).ok()?;
                Some(text.trim().to_string()).filter(|text| !text.is_empty())
            };
            facts.device = device.file_name().map(|name| name.to_string_lossy().into_owned());
            facts.model = text("device/model");
            facts.rotational = text("queue/rotational").map(|flag| flag == "1");
            facts.write_cache = text("queue/write_cache");
            facts.forced_unit_access = text("queue/fua").map(|flag| flag == "1");
            facts.logical_block_bytes = text("queue/logical_block_size").and_then(|n| n.parse().ok());
            facts.physical_block_bytes = text("queue/physical_block_size").and_then(|n| n.parse().ok());
        }
        Ok(facts)
    }
}

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    number: (u32, u32),
    point: PathBuf,
    source: String,
}

/// The mount that holds `path`: the deepest mount point above it, the last one of equals; one with
/// the file system's own number first (it differs on btrfs, where subvolumes have their own).
fn find_mount(table: &str, path: &Path, number: (u32, u32)) -> Option<Mount> {
    table
        .lines()
        .filter_map(parse_mount)
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| (mount.point.components().count(), mount.number == number))
}

fn parse_mount(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ').skip(2);
    let (major, minor) = fields.next()?.split_once(':')?;
    let number = (major.parse().ok()?, minor.parse().ok()?);
    let point = PathBuf::from(unescape(fields.nth(1)?));
    let mut rest = fields.skip_while(|&field| field != "-").skip(2);
    Some(Mount { number, point, source: unescape(rest.next()?) })
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                out.push(char::from(code));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

/// The directory of a block device in `/sys`, of the whole device for a partition.
fn block_device((major, minor): (u32, u32), source: Option<&str>) -> Option<PathBuf> {
    let by_number = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let found = by_number.canonicalize().ok().or_else(|| {
        // File systems over several devices have a number of their own; their source is one of them.
        let node = Path::new(source?).canonicalize().ok()?;
        Path::new("/sys/class/block").join(node.file_name()?).canonicalize().ok()
    })?;
    if found.join("partition").exists() { found.parent().map(Path::to_path_buf) } else { Some(found) }
}

#[cfg(test)]
#[path = "system_test.rs"]
mod system_test;
