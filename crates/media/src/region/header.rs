//! The first page of a region's file: what the file is, and that its creation was finished.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, Result};

/// Bytes of the file before the region's first byte: one page.
pub const REGION_HEADER_BYTES: u64 = 4096;
/// The version of the header that this program writes and reads.
pub const REGION_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"TSREGION";
const SALT: u64 = 0x7265_6769_6f6e_0001;
/// Magic, version, zeros, size of the region.
const SUMMED_BYTES: usize = 24;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The size of the region, the header not counted, in bytes.
    pub region_bytes: u64,
}

/// Whether the file at `path` begins as regions do, whatever comes then.
pub(crate) fn begins_as_region(path: &Path) -> bool {
    let mut magic = [0; 8];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *MAGIC
}

impl Header {
    /// The header's bytes: magic, version, zeros, size, checksum.
    pub fn encode(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&REGION_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.region_bytes.to_le_bytes());
        let sum = checksum(SALT, &bytes[..SUMMED_BYTES]);
        bytes[SUMMED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the header of the file `name` of `file_bytes` bytes.
    ///
    /// # Errors
    /// `Incompatible` for what is no region or one of another version, `Corrupt` for one that is torn or
    /// whose file has another size.
    pub fn decode(bytes: &[u8; 32], file_bytes: u64, name: &str) -> Result<Header> {
        if bytes.iter().all(|byte| *byte == 0) {
            let message = format!(
                "{name} has an empty header: its creation was cut off; remove it and create it again"
            );
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        if bytes[..8] != MAGIC[..] {
            let message =
                format!("{name} is no region of Tierstone (its first bytes are foreign); name another file");
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        let number = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let version = number(8) as u32;
        if version != REGION_VERSION && version != 0 {
            let message = format!(
                "{name} has version {version} of the region format, this program reads {REGION_VERSION}"
            );
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        if number(SUMMED_BYTES) != checksum(SALT, &bytes[..SUMMED_BYTES]) {
            let message =
                format!("the header of {name} is torn or damaged; restore the file, or create it again");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let region_bytes = number(16);
        if region_bytes.checked_add(REGION_HEADER_BYTES) != Some(file_bytes) {
            let message = format!(
                "{name} has {file_bytes} bytes, its header names {region_bytes} and {REGION_HEADER_BYTES} before \
                 them: it was cut or stretched; restore it"
            );
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(Header { region_bytes })
    }
}
