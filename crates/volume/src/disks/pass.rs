//! The one system call: `SG_IO` with an envelope that moves no data.

use super::ata::CDB_BYTES;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Bytes of sense data that are taken.
pub(super) const SENSE_BYTES: usize = 64;
/// A disk that turns is asked at once; one that empties its cache may take long.
const TIMEOUT_MS: u32 = 30_000;
const SG_IO: libc::c_ulong = 0x2285;
const SG_DXFER_NONE: libc::c_int = -1;

/// `struct sg_io_hdr` of the kernel's `scsi/sg.h`.
#[repr(C)]
struct Header {
    interface_id: libc::c_int,
    transfer_direction: libc::c_int,
    command_len: libc::c_uchar,
    sense_len_max: libc::c_uchar,
    vector_count: libc::c_ushort,
    transfer_len: libc::c_uint,
    transfer: *mut libc::c_void,
    command: *const libc::c_uchar,
    sense: *mut libc::c_uchar,
    timeout_ms: libc::c_uint,
    flags: libc::c_uint,
    pack_id: libc::c_int,
    user: *mut libc::c_void,
    status: libc::c_uchar,
    masked_status: libc::c_uchar,
    message_status: libc::c_uchar,
    sense_len: libc::c_uchar,
    host_status: libc::c_ushort,
    driver_status: libc::c_ushort,
    residue: libc::c_int,
    duration_ms: libc::c_uint,
    info: libc::c_uint,
}

/// Sends `envelope` to the device behind `file` and waits; the sense data that came back.
///
/// # Errors
/// What the system call says; an I/O error when the host or the driver could not deliver it.
pub(super) fn send(file: &File, envelope: &[u8; CDB_BYTES]) -> io::Result<Vec<u8>> {
    let mut sense = [0u8; SENSE_BYTES];
    let mut header = Header {
        interface_id: libc::c_int::from(b'S'),
        transfer_direction: SG_DXFER_NONE,
        command_len: CDB_BYTES as libc::c_uchar,
        sense_len_max: SENSE_BYTES as libc::c_uchar,
        vector_count: 0,
        transfer_len: 0,
        transfer: std::ptr::null_mut(),
        command: envelope.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: TIMEOUT_MS,
        flags: 0,
        pack_id: 0,
        user: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_len: 0,
        host_status: 0,
        driver_status: 0,
        residue: 0,
        duration_ms: 0,
        info: 0,
    };
    // SAFETY: `header` has the layout that SG_IO reads and writes; `envelope` and `sense` outlive the call, which
    // waits for the command, and their lengths are those given. No data moves, so `transfer` is not followed.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), SG_IO as _, &raw mut header) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if header.host_status != 0 {
        let message = format!("the host adapter answered {:#06x}", header.host_status);
        return Err(io::Error::other(message));
    }
    let len = usize::from(header.sense_len).min(SENSE_BYTES);
    Ok(sense[..len].to_vec())
}
