//! Which file system a directory lies on, and what that means for durable writes.

use crate::Guarantee;
use std::path::Path;
use tierstone_base::{Error, Result};

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its usual name; `unknown` when its number is not in the table.
    pub name: &'static str,
    /// The number by which the kernel names it (`statfs`).
    pub magic: u64,
    /// Every overwrite goes to a new place: no write in place, metadata with each durable write.
    pub copy_on_write: bool,
    /// The bytes are on another machine, or behind another process, which decides what is durable.
    pub network: bool,
    /// The bytes are in memory: they do not survive the machine.
    pub in_memory: bool,
    /// The bytes are those of another file system, behind a layer such as a container's.
    pub stacked: bool,
}

const PLAIN: u8 = 0;
const COPIES: u8 = 1;
const REMOTE: u8 = 2;
const MEMORY: u8 = 4;
/// Files of another file system, reached through a layer that may be mounted so that flushes do nothing.
const STACKED: u8 = 8;

/// Numbers from the kernel's `include/uapi/linux/magic.h` and the file systems' own headers.
const TABLE: [(u64, &str, u8); 33] = [
    (0xef53, "ext4", PLAIN),
    (0x5846_5342, "xfs", PLAIN),
    (0xf2f5_2010, "f2fs", COPIES),
    (0x3434, "nilfs2", COPIES),
    (0x9123_683e, "btrfs", COPIES),
    (0x2fc1_2fc1, "zfs", COPIES),
    (0xca45_1a4e, "bcachefs", COPIES),
    (0x794c_7630, "overlayfs", COPIES | STACKED),
    (0x6a65_7346, "jfs", PLAIN),
    (0x5265_4973, "reiserfs", PLAIN),
    (0x4d44, "fat", PLAIN),
    (0x2011_bab0, "exfat", PLAIN),
    (0x5346_544e, "ntfs", PLAIN),
    (0x7366_746e, "ntfs3", PLAIN),
    (0x0102_1994, "tmpfs", MEMORY),
    (0x8584_58f6, "ramfs", MEMORY),
    (0x9584_58f6, "hugetlbfs", MEMORY),
    (0x6969, "nfs", REMOTE),
    (0xff53_4d42, "cifs", REMOTE),
    (0xfe53_4d42, "smb2", REMOTE),
    (0x517b, "smb", REMOTE),
    (0x6573_5546, "fuse", REMOTE),
    (0x0102_1997, "9p", REMOTE),
    (0x00c3_6400, "ceph", REMOTE),
    (0x0bd0_0bd0, "lustre", REMOTE),
    (0x0116_1970, "gfs2", REMOTE),
    (0x5346_414f, "afs", REMOTE),
    (0x7375_7245, "coda", REMOTE),
    (0x564c, "ncp", REMOTE),
    (0x7461_636f, "ocfs2", REMOTE),
    (0x786f_4256, "vboxsf", REMOTE),
    (0xf15f, "ecryptfs", STACKED),
    (0x6163_6673, "aufs", COPIES | STACKED),
];

impl FileSystem {
    /// The file system with this number.
    pub fn of_magic(magic: u64) -> FileSystem {
        let known = TABLE.iter().find(|(number, _, _)| *number == magic);
        let (name, kind) = known.map_or(("unknown", PLAIN), |(_, name, kind)| (*name, *kind));
        FileSystem {
            name,
            magic,
            copy_on_write: kind & COPIES != 0,
            network: kind & REMOTE != 0,
            in_memory: kind & MEMORY != 0,
            stacked: kind & STACKED != 0,
        }
    }

    /// What durable writes survive on it. Power-fail durable is said of local file systems over a block
    /// device alone: what cannot be known is not promised.
    pub fn guarantee(&self) -> Guarantee {
        if self.in_memory {
            Guarantee::ProcessCrash
        } else if self.network || self.stacked || self.name == "unknown" {
            Guarantee::Unknown
        } else {
            Guarantee::PowerFail
        }
    }

    /// The file system that holds `path`.
    ///
    /// # Errors
    /// When the kernel cannot say.
    pub fn of(path: &Path) -> Result<FileSystem> {
        let numbers = rustix::fs::statfs(path).map_err(|error| {
            Error::from(std::io::Error::from(error)).context(&format!("cannot look at {}", path.display()))
        })?;
        // The field is 32 or 64 bits wide and signed on some machines; the number has 32 bits.
        Ok(FileSystem::of_magic(numbers.f_type as u64 & 0xffff_ffff))
    }

    /// What the kind means for a store on it; `None` when there is nothing to say.
    pub fn advice(&self) -> Option<String> {
        let name = self.name;
        if self.in_memory {
            return Some(format!("{name} lies in memory: acknowledged writes do not survive the machine"));
        }
        if self.network {
            return Some(format!(
                "{name} reaches its bytes through another machine or process: that one decides what is \
                 durable, locks may not hold between hosts, and latency follows the network; use a local disk"
            ));
        }
        if self.stacked {
            return Some(format!(
                "{name} is a layer over another file system, often the writable one of a container: bytes may \
                 vanish with it, and it may be mounted so that flushes do nothing; mount a volume"
            ));
        }
        if self.copy_on_write {
            return Some(format!(
                "{name} writes every overwrite to a new place: prepared segments give no gain and durable \
                 writes carry metadata; on btrfs set chattr +C on the empty directory, or use ext4 or xfs"
            ));
        }
        (name == "unknown").then(|| {
            format!("file system number {:#x} is not known here: what it guarantees is not known", self.magic)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_in_the_table_once() {
        for (index, (magic, name, _)) in TABLE.iter().enumerate() {
            let first = TABLE.iter().position(|(other, _, _)| other == magic);
            assert_eq!(first, Some(index), "{name}");
        }
    }

    #[test]
    fn kinds_that_matter_are_told_apart() {
        assert_eq!(FileSystem::of_magic(0xef53).advice(), None);
        assert!(FileSystem::of_magic(0x9123_683e).copy_on_write);
        assert!(FileSystem::of_magic(0x6969).network);
        assert!(FileSystem::of_magic(0x0102_1994).in_memory);
        assert!(FileSystem::of_magic(0x1234).advice().is_some_and(|advice| advice.contains("0x1234")));
    }

    #[test]
    fn only_local_disks_are_called_power_fail_durable() {
        let of = |name: &str| {
            let (magic, ..) = TABLE.iter().find(|(_, other, _)| *other == name).expect("it is in the table");
            FileSystem::of_magic(*magic).guarantee()
        };
        for name in ["ext4", "xfs", "f2fs", "btrfs", "zfs"] {
            assert_eq!(of(name), Guarantee::PowerFail, "{name}");
        }
        for name in ["nfs", "cifs", "smb2", "fuse", "9p", "ceph", "vboxsf", "overlayfs", "aufs"] {
            assert_eq!(of(name), Guarantee::Unknown, "{name}");
        }
        for name in ["tmpfs", "ramfs", "hugetlbfs"] {
            assert_eq!(of(name), Guarantee::ProcessCrash, "{name}");
        }
        assert_eq!(FileSystem::of_magic(0x1234).guarantee(), Guarantee::Unknown, "nothing is known of it");
        let weakest = ["ext4", "nfs"].map(of).into_iter().min();
        assert_eq!(weakest, Some(Guarantee::Unknown), "several directories promise what the weakest does");
    }

    #[test]
    fn proc_is_no_disk_and_the_working_directory_is_somewhere() {
        assert_eq!(FileSystem::of(Path::new("/proc")).map(|found| found.name).ok(), Some("unknown"));
        assert!(FileSystem::of(Path::new(".")).is_ok());
    }
}
