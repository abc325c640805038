//! Which disk lies under a path, and whether it may be stopped, by what `/sys` says.

use super::ata::{Answer, CDB_BYTES, Command};
use super::pass;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why a disk cannot be stopped, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The path is not there, or cannot be looked at.
    NotFound,
    /// No block device lies under it.
    NoBlockDevice,
    /// Others use the disk too: further partitions, devices made of it, the root file system.
    Shared,
    /// A device of software, or of a virtual machine.
    Virtual,
    /// An NVMe device.
    Nvme,
    /// It does not turn.
    Flash,
    /// It answers no ATA commands.
    NotAta,
    /// The caller may not command it.
    NoPermission,
    /// The command failed.
    Failed,
}

/// Why a disk cannot be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub kind: RefusalKind,
    /// For people.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(kind: RefusalKind, message: impl Into<String>) -> Refusal {
        Refusal { kind, message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

/// A disk that may be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub name: String,
    pub model: Option<String>,
    /// Its device number.
    pub number: (u32, u32),
    /// Where it lies in `/sys`.
    directory: PathBuf,
    /// Where its partition lies that was asked for, or itself.
    place: PathBuf,
}

/// A path's device number, and whether it is the device itself and not a file on it.
pub(super) type Under = ((u32, u32), bool);
type Send = dyn Fn(&Path, (u32, u32), &[u8; CDB_BYTES]) -> io::Result<Vec<u8>> + std::marker::Send;
type Look = dyn Fn(&Path) -> io::Result<Under> + std::marker::Send;

/// What stands for the machine; tests put their own in.
pub(super) struct Machine {
    /// `/sys`.
    pub sys: PathBuf,
    /// The device under a path.
    pub look: Box<Look>,
    /// Sends an envelope to the node at a path, which must have this number.
    pub send: Box<Send>,
}

impl Machine {
    pub(super) fn this() -> Machine {
        Machine { sys: PathBuf::from("/sys"), look: Box::new(look), send: Box::new(send) }
    }

    /// The disk under `path`, if it may be stopped; else its name where known, and why not.
    pub(super) fn find(&self, path: &Path) -> Result<Found, (Option<String>, Refusal)> {
        let refuse = |kind, message: String| Err((None, Refusal::new(kind, message)));
        let (number, is_device) = match (self.look)(path) {
            Ok(under) => under,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return refuse(RefusalKind::NoBlockDevice, error.to_string());
            }
            Err(error) => return refuse(RefusalKind::NotFound, format!("cannot be looked at: {error}")),
        };
        let (major, minor) = number;
        let link = self.sys.join("dev/block").join(format!("{major}:{minor}"));
        let Ok(place) = link.canonicalize() else {
            let message = format!(
                "no block device has its number {major}:{minor}: the file system is in memory, on a network, or over \
                 several devices"
            );
            return refuse(RefusalKind::NoBlockDevice, message);
        };
        let is_partition = place.join("partition").exists();
        let directory = match place.parent() {
            Some(parent) if is_partition => parent.to_owned(),
            _ => place.clone(),
        };
        let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let judged = self.judge(&directory, &name).and_then(|()| {
            self.judge_others(&directory, &place, &name)?;
            if !is_device && (self.look)(Path::new("/")).is_ok_and(|(root, _)| root == number) {
                return Err(Refusal::new(
                    RefusalKind::Shared,
                    format!("{name} also holds the root file system, which would start it again at once"),
                ));
            }
            self.number_of(&directory, &name)
        });
        match judged {
            Ok(number) => {
                let model = text(&directory.join("device/model"));
                Ok(Found { name, model, number, directory, place })
            }
            Err(refusal) => Err((Some(name), refusal)),
        }
    }

    fn number_of(&self, directory: &Path, name: &str) -> Result<(u32, u32), Refusal> {
        let number = text(&directory.join("dev"));
        let number = number.as_deref().and_then(|number| number.split_once(':'));
        let parsed = number.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        parsed.ok_or_else(|| Refusal::new(RefusalKind::NotFound, format!("/sys tells no number of {name}")))
    }

    /// What kind of device it is.
    fn judge(&self, directory: &Path, name: &str) -> Result<(), Refusal> {
        let refuse = |kind, message: String| Err(Refusal::new(kind, message));
        let is_under = |part: &str| {
            directory.components().any(|component| component.as_os_str().to_string_lossy().starts_with(part))
        };
        if name.starts_with("nvme") {
            return refuse(RefusalKind::Nvme, format!("{name} is an NVMe device: it has nothing that turns"));
        }
        if is_under("virtual") {
            return refuse(
                RefusalKind::Virtual,
                format!("{name} is a device of software: give the disks below it to the volume"),
            );
        }
        let model = text(&directory.join("device/model")).unwrap_or_default();
        let imitations = ["QEMU", "VBOX", "VMware", "Virtual"];
        if is_under("virtio")
            || name.starts_with("xvd")
            || imitations.iter().any(|imitation| model.starts_with(imitation))
        {
            return refuse(
                RefusalKind::Virtual,
                format!("{name} is the disk of a virtual machine: stopping it stops nothing"),
            );
        }
        if name.starts_with("mmcblk") {
            return refuse(RefusalKind::Flash, format!("{name} is a flash card"));
        }
        match text(&directory.join("queue/rotational")).as_deref() {
            Some("1") => Ok(()),
            Some("0") => refuse(RefusalKind::Flash, format!("{name} does not turn: it is flash")),
            _ => refuse(RefusalKind::Flash, format!("/sys does not say that {name} turns")),
        }
    }

    /// Whether something else uses it.
    fn judge_others(&self, directory: &Path, place: &Path, name: &str) -> Result<(), Refusal> {
        let is_partition = place != directory;
        let refuse = |message: String| Err(Refusal::new(RefusalKind::Shared, message));
        let partitions: Vec<PathBuf> =
            entries(directory).into_iter().filter(|entry| entry.join("partition").exists()).collect();
        let others = partitions.iter().filter(|other| *other != place).count();
        if is_partition && others > 0 {
            return refuse(format!(
                "{name} has {others} other partitions: who uses them would start it again"
            ));
        }
        if !is_partition && others > 0 {
            return refuse(format!("{name} has {others} partitions: give a disk without any"));
        }
        for place in [directory, place] {
            if let Some(holder) =
                entries(&place.join("holders")).first().and_then(|holder| holder.file_name())
            {
                let holder = holder.to_string_lossy();
                return refuse(format!("{holder} is made of {name}: it would start it again"));
            }
        }
        Ok(())
    }

    /// Judges the disk again and sends it a command.
    pub(super) fn command(&self, found: &Found, command: Command) -> Result<Answer, Refusal> {
        let Found { name, number, directory, place, .. } = found;
        self.judge(directory, name)?;
        self.judge_others(directory, place, name)?;
        if self.number_of(directory, name)? != *number {
            return Err(Refusal::new(RefusalKind::NotFound, format!("{name} is another device by now")));
        }
        let node = text(&directory.join("uevent")).and_then(|lines| {
            lines.lines().find_map(|line| line.strip_prefix("DEVNAME=").map(str::to_owned))
        });
        let node = Path::new("/dev").join(node.as_deref().unwrap_or(name));
        let sense = (self.send)(&node, *number, &command.envelope()).map_err(|error| {
            let (kind, why) = match error.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => {
                    (RefusalKind::NoPermission, "commands to disks need CAP_SYS_RAWIO and access to the node")
                }
                Some(libc::ENOTTY | libc::EINVAL | libc::EOPNOTSUPP) => {
                    (RefusalKind::NotAta, "its driver passes no ATA commands on")
                }
                _ => (RefusalKind::Failed, "the command failed"),
            };
            Refusal::new(kind, format!("{name}: {why}: {error}"))
        })?;
        match Answer::of(&sense) {
            Some(answer) if answer.is_good() => Ok(answer),
            Some(answer) => Err(Refusal::new(
                RefusalKind::Failed,
                format!(
                    "{name} refused the command: status {:#04x}, error {:#04x}",
                    answer.status, answer.error
                ),
            )),
            None => Err(Refusal::new(
                RefusalKind::NotAta,
                format!("{name} gives no ATA registers back: it is no ATA disk, or its bridge hides them"),
            )),
        }
    }
}

/// Trimmed, and of bounded length; `None` when it is not there or empty.
fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text: String = text.trim().chars().take(4096).collect();
    Some(text).filter(|text| !text.is_empty())
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let read = std::fs::read_dir(directory);
    let mut entries: Vec<PathBuf> = read.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

fn number_of(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

fn look(path: &Path) -> io::Result<Under> {
    let meta = std::fs::metadata(path)?;
    let kind = meta.file_type();
    if kind.is_block_device() {
        return Ok((number_of(meta.rdev()), true));
    }
    if kind.is_file() || kind.is_dir() {
        return Ok((number_of(meta.dev()), false));
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "is neither a block device nor a file on one"))
}

fn send(node: &Path, number: (u32, u32), envelope: &[u8; CDB_BYTES]) -> io::Result<Vec<u8>> {
    let file: File =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(node)?;
    let meta = file.metadata()?;
    if !meta.file_type().is_block_device() || number_of(meta.rdev()) != number {
        return Err(io::Error::other(format!("{} is another device by now", node.display())));
    }
    pass::send(&file, envelope)
}
