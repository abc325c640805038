//! Whole transfers between memory and a file: what the kernel cuts short goes on.

use crate::BLOCK_BYTES;
use rustix::io::{Errno, ReadWriteFlags, pread, pwritev2};
use std::fs::File;
use std::io::IoSlice;

/// Tries after interruptions before a transfer is given up.
const TRIES: u8 = 100;

fn whole_blocks(count: usize) -> usize {
    count - count % BLOCK_BYTES
}

/// Writes all `bytes` at `offset`; `durable`: each write with `RWF_DSYNC`.
///
/// # Errors
/// The error number, and where it happened.
pub(super) fn write_all(file: &File, bytes: &[u8], offset: u64, durable: bool) -> Result<(), (i32, u64)> {
    let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    let (mut done, mut tries) = (0, 0);
    while done < bytes.len() {
        let at = offset + done as u64;
        match pwritev2(file, &[IoSlice::new(&bytes[done..])], at, flags) {
            // Direct transfers go on at whole blocks; the bytes of a broken block are done again.
            Ok(count) if whole_blocks(count) > 0 => done += whole_blocks(count),
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) if tries < TRIES => tries += 1,
            Ok(_) => return Err((libc::EIO, at)),
            Err(error) => return Err((error.raw_os_error(), at)),
        }
    }
    Ok(())
}

/// Fills `bytes` from `offset`.
///
/// # Errors
/// The error number, `None` at the end of the file, and where it happened.
pub(super) fn read_all(file: &File, bytes: &mut [u8], offset: u64) -> Result<(), (Option<i32>, u64)> {
    let (mut done, mut tries) = (0, 0);
    while done < bytes.len() {
        let at = offset + done as u64;
        match pread(file, &mut bytes[done..], at) {
            Ok(count) if whole_blocks(count) > 0 => done += whole_blocks(count),
            Ok(count) if count > 0 && tries < TRIES => tries += 1,
            Err(Errno::INTR | Errno::AGAIN) if tries < TRIES => tries += 1,
            Ok(_) => return Err((None, at)),
            Err(error) => return Err((Some(error.raw_os_error()), at)),
        }
    }
    Ok(())
}
