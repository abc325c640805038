//! How much memory there is for this process: what the machine has, or less where a control group bounds it.
//!
//! A container's memory is such a bound, and `/proc/meminfo` does not show it: a server that takes a part of the machine's
//! memory there is killed when its cache has filled.

use std::path::{Component, Path, PathBuf};
use tierstone_base::units::format_size;

/// What a server takes beside `memory`, roughly (docs/design/memory.md).
const BESIDE_BYTES: u64 = 64 << 20;

/// What is taken for the machine's memory where it is not told.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// The most memory that this process may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemoryBound {
    pub bytes: u64,
    /// The file of the control group that says so; `None`: the machine has no more.
    pub group: Option<PathBuf>,
}

impl MemoryBound {
    /// As the kernel tells this process.
    pub fn of_this_process() -> MemoryBound {
        Self::below(Path::new("/"))
    }

    /// As the files `proc/meminfo`, `proc/self/cgroup` and those of `sys/fs/cgroup` below `root` tell. What is not there or
    /// says nothing bounds nothing.
    pub fn below(root: &Path) -> MemoryBound {
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let machine =
            MemoryBound { bytes: machine_bytes(&read("proc/meminfo")).unwrap_or(UNKNOWN_BYTES), group: None };
        let files = limit_files(&read("proc/self/cgroup"), &root.join("sys/fs/cgroup"));
        let groups = files.into_iter().filter_map(|file| {
            // `max` of version 2 is no number; version 1 says a number above any memory.
            let bytes = std::fs::read_to_string(&file).ok()?.trim().parse().ok()?;
            Some(MemoryBound { bytes, group: Some(file) })
        });
        std::iter::once(machine)
            .chain(groups)
            .min_by_key(|bound| bound.bytes)
            .unwrap_or(MemoryBound { bytes: UNKNOWN_BYTES, group: None })
    }

    /// `memory` where nobody says how much: a quarter, for other programs and the page cache want some, too.
    pub fn default_memory_bytes(&self) -> u64 {
        (self.bytes / 4).max(64 << 20)
    }

    /// What is wrong with so much `memory` here, in words, if anything is.
    pub fn told_of(&self, memory_bytes: u64) -> Option<String> {
        if memory_bytes.saturating_add(BESIDE_BYTES) <= self.bytes {
            return None;
        }
        let (memory, bound) = (format_size(memory_bytes), format_size(self.bytes));
        Some(match &self.group {
            Some(file) => format!(
                "memory is {memory}, and some 64 MiB come to it, but the control group of this process has {bound} ({}): \
                 the kernel ends the server when it needs more; give it more, or less memory",
                file.display()
            ),
            None => format!("memory is {memory}, and some 64 MiB come to it, but the machine has {bound}"),
        })
    }
}

/// Bytes of all memory, of a text of `/proc/meminfo`.
fn machine_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// The files below `mount` that bound the memory of the groups in a text of `/proc/self/cgroup` and of those that they lie in.
///
/// Within a container the kernel may name the group as the machine sees it, while only the container's own lies below `mount`:
/// the files of the others are not there then, and that of `mount` itself is the container's.
fn limit_files(groups: &str, mount: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        // Number, controllers, path: `0::/system.slice/…` of version 2, `4:memory:/docker/…` of version 1.
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let is_second = number == "0" && controllers.is_empty();
        let (top, name) = match is_second {
            true => (mount.to_path_buf(), "memory.max"),
            false if controllers.split(',').any(|each| each == "memory") => {
                (mount.join("memory"), "memory.limit_in_bytes")
            }
            false => continue,
        };
        // Above the namespace a path begins with `..`: what lies there cannot be seen.
        let names = Path::new(path).components().filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        });
        let mut folder = top;
        files.push(folder.join(name));
        for group in names {
            folder.push(group);
            files.push(folder.join(name));
        }
    }
    files
}

#[cfg(test)]
#[path = "memory_test.rs"]
mod memory_test;
