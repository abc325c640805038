//! What a store lies on: files in directories, a volume, or a region of persistent memory.

use crate::nvm::{NvmDevice, NvmStore};
use crate::volume::{Description, VolumeCaller, VolumeDevice, VolumeHost, open_volume};
use std::os::fd::RawFd;
use std::path::PathBuf;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::file::{
    CallingThread, DirectIo, DurableMethod, FileDevice, FileStore, FileStoreSettings,
};
use tierstone_media::probe::filesystem::FileSystem;
use tierstone_media::{BlockDevice, DurableWriteScope, Geometry, Guarantee, IoCompletion, IoRequest, Wait};

/// What a store lies on, opened once a process; clones share it.
#[derive(Clone, Debug)]
pub enum Storage {
    /// Segment files in one or several directories.
    Files(FileStore),
    /// A volume over files or block devices.
    Volume(VolumeHost),
    /// A region of persistent memory.
    Nvm(NvmStore),
}

/// A directory of a store, a member of its volume, or its region.
#[derive(Clone, Debug)]
pub struct StoragePlace {
    /// Where it is.
    pub path: PathBuf,
    /// Its file system's name; `block device` for one, `emulated memory` for a region without a file.
    pub file_system: &'static str,
    /// What durable writes to it survive.
    pub guarantee: Guarantee,
    /// Whether it bypasses the page cache.
    pub direct_io: bool,
}

impl Storage {
    /// Opens what `settings` name: a description of a volume, or directories.
    ///
    /// # Errors
    /// As [`FileStore::open`] and [`open_volume`].
    pub fn open(settings: &FileStoreSettings) -> Result<Storage> {
        if NvmStore::among(&settings.directories)?.is_some() {
            let message = "a store that lies wholly in persistent memory is not opened as one of segments is, nor repaired: \
                           restore its region from a copy, or open it with the loss accepted (--nvm-loss accept)";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        match Description::among(&settings.directories)? {
            Some(description) => Self::open_volume(description, settings.direct_io),
            None => FileStore::open(settings).map(Storage::Files),
        }
    }

    pub(crate) fn open_volume(description: &std::path::Path, direct_io: DirectIo) -> Result<Storage> {
        Ok(Storage::Volume(VolumeHost::start(open_volume(description, direct_io)?)?))
    }

    /// The most files that grow in number with what is stored, and are open at a time; those of volumes and regions are
    /// all open from the beginning.
    pub fn files_max(&self) -> u64 {
        match self {
            Storage::Files(files) => files.files_max(),
            Storage::Volume(_) | Storage::Nvm(_) => 0,
        }
    }

    /// A handle for one thread. Durable writes to files use `method`; volumes have their own.
    ///
    /// # Errors
    /// As [`FileStore::device`].
    pub fn device(&self, method: DurableMethod) -> Result<StorageDevice> {
        match self {
            Storage::Files(files) => files.device(method).map(StorageDevice::Files),
            Storage::Volume(volume) => Ok(StorageDevice::Volume(volume.device())),
            Storage::Nvm(region) => region.device().map(StorageDevice::Nvm),
        }
    }

    /// What does single requests for threads that would only wait.
    pub(crate) fn caller(&self, method: DurableMethod) -> Result<StorageCaller> {
        Ok(match self {
            Storage::Files(files) => StorageCaller::Files(CallingThread::new(files, method)),
            Storage::Volume(volume) => StorageCaller::Volume(volume.caller()),
            Storage::Nvm(region) => StorageCaller::Nvm(region.device()?),
        })
    }

    /// The shape of the space.
    pub fn geometry(&self) -> Geometry {
        match self {
            Storage::Files(files) => files.geometry(),
            Storage::Volume(volume) => volume.geometry(),
            Storage::Nvm(region) => region.geometry(),
        }
    }

    /// What durable writes survive.
    pub fn guarantee(&self) -> Guarantee {
        match self {
            Storage::Files(files) => files.guarantee(),
            Storage::Volume(volume) => volume.guarantee(),
            Storage::Nvm(region) => region.guarantee(),
        }
    }

    /// The segments that have files; `None` where all are there from the beginning.
    pub fn existing_segments(&self) -> Option<Vec<u32>> {
        match self {
            Storage::Files(files) => Some(files.existing_segments()),
            Storage::Volume(_) | Storage::Nvm(_) => None,
        }
    }

    /// The volume, if it is one.
    pub fn volume(&self) -> Option<&VolumeHost> {
        match self {
            Storage::Files(_) | Storage::Nvm(_) => None,
            Storage::Volume(volume) => Some(volume),
        }
    }

    /// The region, if it is one.
    pub fn nvm(&self) -> Option<&NvmStore> {
        match self {
            Storage::Files(_) | Storage::Volume(_) => None,
            Storage::Nvm(region) => Some(region),
        }
    }

    /// The longest value that a record holds, in bytes.
    pub fn value_bytes_max(&self) -> u64 {
        match self {
            Storage::Files(_) | Storage::Volume(_) => tierstone_logstore::value_bytes_max(self.geometry()),
            Storage::Nvm(_) => tierstone_pmstore::settings::VALUE_BYTES_MAX,
        }
    }

    /// The directories or members.
    pub fn places(&self) -> Vec<StoragePlace> {
        match self {
            Storage::Files(files) => files
                .properties()
                .members
                .into_iter()
                .map(|member| StoragePlace {
                    path: member.directory,
                    file_system: member.file_system,
                    guarantee: member.guarantee,
                    direct_io: member.direct_io,
                })
                .collect(),
            Storage::Volume(volume) => volume
                .places()
                .iter()
                .map(|member| {
                    let on = FileSystem::of(&member.path).ok();
                    let (file_system, guarantee) = match (member.is_block_device, on) {
                        (true, _) => ("block device", Guarantee::PowerFail),
                        (false, Some(on)) => (on.name, on.guarantee()),
                        (false, None) => ("missing", Guarantee::Unknown),
                    };
                    let (path, direct_io) = (member.path.clone(), member.is_direct);
                    StoragePlace { path, file_system, guarantee, direct_io }
                })
                .collect(),
            Storage::Nvm(region) => vec![region.storage_place()],
        }
    }
}

/// One handle on what a store lies on, for one thread.
#[derive(Debug)]
pub enum StorageDevice {
    /// On files.
    Files(FileDevice),
    /// On a volume.
    Volume(VolumeDevice),
    /// In a region of persistent memory.
    Nvm(NvmDevice),
}

impl StorageDevice {
    /// See [`FileDevice::wake_descriptor`].
    pub fn wake_descriptor(&self) -> Option<RawFd> {
        match self {
            StorageDevice::Files(device) => device.wake_descriptor(),
            StorageDevice::Volume(device) => device.wake_descriptor(),
            // Everything is done when it has been submitted.
            StorageDevice::Nvm(_) => None,
        }
    }
}

impl BlockDevice for StorageDevice {
    fn geometry(&self) -> Geometry {
        match self {
            StorageDevice::Files(device) => device.geometry(),
            StorageDevice::Volume(device) => device.geometry(),
            StorageDevice::Nvm(device) => device.geometry(),
        }
    }

    fn guarantee(&self) -> Guarantee {
        match self {
            StorageDevice::Files(device) => device.guarantee(),
            StorageDevice::Volume(device) => device.guarantee(),
            StorageDevice::Nvm(device) => device.guarantee(),
        }
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        match self {
            StorageDevice::Files(device) => device.durable_write_scope(),
            StorageDevice::Volume(device) => device.durable_write_scope(),
            StorageDevice::Nvm(device) => device.durable_write_scope(),
        }
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        match self {
            StorageDevice::Files(device) => device.submit(requests),
            StorageDevice::Volume(device) => device.submit(requests),
            StorageDevice::Nvm(device) => device.submit(requests),
        }
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        match self {
            StorageDevice::Files(device) => device.complete(wait, completions),
            StorageDevice::Volume(device) => device.complete(wait, completions),
            StorageDevice::Nvm(device) => device.complete(wait, completions),
        }
    }

    fn carry_out(&mut self, requests: &mut Vec<IoRequest>, completions: &mut Vec<IoCompletion>) -> usize {
        match self {
            StorageDevice::Files(device) => device.carry_out(requests, completions),
            StorageDevice::Volume(device) => device.carry_out(requests, completions),
            StorageDevice::Nvm(device) => device.carry_out(requests, completions),
        }
    }

    fn in_flight(&self) -> usize {
        match self {
            StorageDevice::Files(device) => device.in_flight(),
            StorageDevice::Volume(device) => device.in_flight(),
            StorageDevice::Nvm(device) => device.in_flight(),
        }
    }
}

/// Does single requests in threads that would only wait for them.
#[derive(Clone, Debug)]
pub(crate) enum StorageCaller {
    /// On files.
    Files(CallingThread),
    /// On a volume.
    Volume(VolumeCaller),
    /// In a region of persistent memory.
    Nvm(NvmDevice),
}

impl StorageCaller {
    /// Does `request` before it returns.
    pub fn carry_out(&self, request: IoRequest) -> IoCompletion {
        match self {
            StorageCaller::Files(files) => files.carry_out(request),
            StorageCaller::Volume(volume) => volume.carry_out(request),
            StorageCaller::Nvm(device) => crate::nvm::carry_out(&mut device.clone(), request),
        }
    }
}
