//! The kernel's two ways to wait for many sockets, behind one internal trait.
//!
//! Invariants:
//! 1. A buffer that is being sent is owned by the reactor until the kernel is done with it, also when
//!    the connection is closed meanwhile.
//! 2. An index is used again only when nothing of its former connection is under way.
//! 3. After `close` nothing is reported of that connection.

pub(crate) mod epoll;
pub(crate) mod uring;

use crate::service::Service;
use crate::turn::Turn;
use std::os::fd::RawFd;
use tierstone::storage::StorageDevice;
use tierstone_base::Result;
use tierstone_media::file::{DurableMethod, FileDevice, FileStore};
use tierstone_media::{BlockDevice, IoCompletion, IoRequest};

/// What became of a send.
pub(crate) enum Sending {
    /// All bytes are with the kernel; the buffer comes back.
    Done(Vec<u8>),
    /// The buffer comes back with [`Turn::sent`], or [`Turn::broken`] is told.
    UnderWay,
    /// The connection is broken.
    Broken,
}

/// Moves bytes between the kernel and a [`Turn`].
pub(crate) trait Reactor {
    /// Hands everything to the kernel that has gathered, and waits for something to happen: at most
    /// `timeout_us` microseconds, for ever without it.
    fn wait(&mut self, timeout_us: Option<u64>) -> Result<()>;

    /// Tells `turn` what has happened.
    fn dispatch<S: Service>(&mut self, turn: &mut Turn<S>);

    /// Sends all of `buffer`, which is not empty; one send a connection at a time.
    fn send(&mut self, index: u32, buffer: Vec<u8>) -> Sending;

    /// Goes on receiving after [`crate::turn::Flow::Pause`].
    fn resume_receive(&mut self, index: u32);

    /// Closes the connection.
    fn close(&mut self, index: u32);

    /// Takes no more clients.
    fn stop_listening(&mut self);

    /// Starts device requests; what finishes at once goes to `completions`.
    fn submit(&mut self, requests: &mut Vec<IoRequest>, completions: &mut Vec<IoCompletion>);
}

/// A block device that can wake an event loop.
pub trait WakingDevice: BlockDevice {
    /// A descriptor that becomes readable when requests finish; [`BlockDevice::complete`] resets it.
    /// `None` when the device only finishes requests inside its own calls.
    fn wake_descriptor(&self) -> Option<RawFd>;
}

impl WakingDevice for FileDevice {
    fn wake_descriptor(&self) -> Option<RawFd> {
        FileDevice::wake_descriptor(self)
    }
}

impl WakingDevice for StorageDevice {
    fn wake_descriptor(&self) -> Option<RawFd> {
        StorageDevice::wake_descriptor(self)
    }
}

/// The device of a driver thread.
pub enum Device {
    /// None: the service makes no requests.
    None,
    /// A device with a mechanism of its own. A request completes in one system call more than with
    /// [`Device::Files`].
    Own(Box<dyn WakingDevice>),
    /// Files of a store: on the driver's own ring where it has one (file requests and sends then enter
    /// the kernel together), through a device of their own otherwise.
    Files {
        /// The store.
        store: FileStore,
        /// How durable writes are made.
        method: DurableMethod,
    },
}

impl std::fmt::Debug for Device {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Device::None => "Device::None",
            Device::Own(_) => "Device::Own",
            Device::Files { .. } => "Device::Files",
        })
    }
}
