//! The staging logs in persistent memory: a device of their own, that lies in a region.
//!
//! Source: Snyder et al., *QMD*, DaMoN 2011, section 3.2: what waits to be written to flash waits in non-volatile memory.
//! Departure: the map of the extents stays on the flash, so that the memory holds the logs and a signature only.
//!
//! Invariants:
//! 1. The signature names the flash buffer, and an epoch that rises with every opening; the buffer's map names the same
//!    epoch, or after a crash between the two the one before. Anything else is a memory that is lost, of another buffer,
//!    or older than the flash, and is refused: what was staged there is gone.
//! 2. The memory is signed before the map names the epoch, and both before a block is staged.
//! 3. A memory that holds anything else is never written to.
//!
//! Crash: blocks are torn by words, so both slots of the signature, and every record of a log, have checksums over all
//! that counts.

use crate::superblock::{Slot, refuse_newer};
use tierstone_base::checksum::{checksum, salt};
use tierstone_base::codec::Reader;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::{BLOCK_BYTES, BlockDevice, IoBuffer, IoRequest};

use super::buffer::{BLOCK, perform, read_of};

const MAGIC: &[u8; 8] = b"TIERSREG";
const VERSION: u32 = 1;
const SALT: u64 = 0x7374_6167_6572_6731;
/// Both slots of the signature.
const HEAD_BYTES: u64 = 2 * BLOCK;
/// What a checksum goes over.
const SIGNED_BYTES: usize = 48;

/// Whose logs these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    pub buffer: u128,
    pub epoch: u64,
    pub volumes: u32,
    pub unit_blocks: u32,
}

impl Signature {
    fn encode(&self) -> IoBuffer {
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.unit_blocks.to_le_bytes());
        bytes.extend_from_slice(&self.buffer.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.volumes.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&checksum(salt(SALT, self.epoch), &bytes).to_le_bytes());
        IoBuffer::from_slice(&bytes)
    }

    /// A signature whose checksum fits, and its version: where these are is the same in all versions.
    fn whole(block: &[u8]) -> Option<(u32, Signature)> {
        let mut reader = Reader::new(block);
        if reader.bytes(8)? != MAGIC {
            return None;
        }
        let (version, unit_blocks) = (reader.u32()?, reader.u32()?);
        let buffer = u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64;
        let (epoch, volumes) = (reader.u64()?, reader.u32()?);
        reader.bytes(4)?;
        let signed = block.get(..SIGNED_BYTES)?;
        (reader.u64()? == checksum(salt(SALT, epoch), signed))
            .then_some((version, Signature { buffer, epoch, volumes, unit_blocks }))
    }

    fn decode(block: &[u8]) -> Option<Signature> {
        Self::whole(block).filter(|(version, _)| *version == VERSION).map(|(_, signature)| signature)
    }
}

/// Bytes that the logs of `volumes` volumes take, with the signature.
pub(super) fn bytes_needed(volumes: u32, unit_blocks: u32) -> u64 {
    HEAD_BYTES + u64::from(volumes) * 2 * u64::from(unit_blocks) * BLOCK
}

/// The device of the logs.
#[derive(Debug)]
pub(super) struct Staging<D> {
    pub device: D,
    slot: Slot,
}

fn refuse<T>(what: String) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidInput, format!("the staging memory of the flash buffer {what}")))
}

impl<D: BlockDevice> Staging<D> {
    /// A device of zeros, or one that `own` buffers have used, with the signature.
    ///
    /// # Errors
    /// `InvalidInput` for one that is too small or holds anything else; `Incompatible` for one of a newer program; failed device.
    pub fn fresh(mut device: D, signature: Signature, own: &[u128]) -> Result<Self> {
        refuse_small(&device, signature)?;
        let head = read_of(&mut device, 0, HEAD_BYTES)?;
        refuse_signed_newer(&head)?;
        match newest(&head) {
            Some((_, found)) if !own.contains(&found.buffer) => {
                return refuse(format!(
                    "belongs to flash buffer {:032x}, not to {:032x}: name the right one, or remove it if nobody needs it",
                    found.buffer, signature.buffer
                ));
            }
            None if !is_unused(&head, &signature) => {
                return refuse("holds something else: name another, or remove it if nobody needs it".into());
            }
            _ => {}
        }
        let slot = newest(&head).map_or(Slot::default(), |(slot, _)| slot);
        let mut staging = Staging { device, slot };
        staging.sign(signature)?;
        // crash here [staging-signed-once]: words of the signature are there, and nothing else.
        // Once more: no signature from before may count when a later one is torn.
        staging.sign(signature)?;
        Ok(staging)
    }

    /// The device that `expected` names, by its epoch or the one behind it.
    ///
    /// # Errors
    /// `InvalidInput` that says why what was staged is lost; `Incompatible` for one of a newer program; failed device.
    pub fn open(mut device: D, expected: Signature) -> Result<Self> {
        refuse_small(&device, expected)?;
        let head = read_of(&mut device, 0, HEAD_BYTES)?;
        refuse_signed_newer(&head)?;
        let Some((slot, found)) = newest(&head) else {
            return refuse("holds no staging log: it is new, another one, or damaged".into());
        };
        if found.buffer != expected.buffer {
            return refuse(format!(
                "belongs to flash buffer {:032x}, not to {:032x}: name the right one",
                found.buffer, expected.buffer
            ));
        }
        if (found.volumes, found.unit_blocks) != (expected.volumes, expected.unit_blocks) {
            return refuse("has logs of another shape".into());
        }
        if found.epoch != expected.epoch && found.epoch != expected.epoch + 1 {
            let age = if found.epoch < expected.epoch { "older" } else { "newer" };
            return refuse(format!(
                "is {age} than the flash: it is of opening {}, the flash of {}",
                found.epoch, expected.epoch
            ));
        }
        Ok(Staging { device, slot })
    }

    /// Writes the signature of an epoch, durably.
    pub fn sign(&mut self, signature: Signature) -> Result<()> {
        perform(&mut self.device, IoRequest::write_durable(0, self.slot.next(), signature.encode()))?;
        self.slot.taken(true);
        Ok(())
    }
}

/// Whether a head without a whole signature holds nothing but words of `signature`, which a crash cut off.
fn is_unused(head: &[u8], signature: &Signature) -> bool {
    let words = signature.encode();
    let fits = |(word, own): (&[u8; 8], &[u8; 8])| *word == [0; 8] || word == own;
    head.chunks(BLOCK_BYTES).all(|block| block.as_chunks().0.iter().zip(words.as_chunks().0).all(fits))
}

/// Where the log of a volume begins.
pub(super) fn log_start(volume: u32, unit_blocks: u32) -> u64 {
    bytes_needed(volume, unit_blocks)
}

/// Refuses a memory that a newer program has signed, in either slot.
fn refuse_signed_newer(head: &[u8]) -> Result<()> {
    let versions = head.chunks(BLOCK_BYTES).filter_map(Signature::whole).map(|(version, _)| version);
    match versions.filter(|&version| version > VERSION).max() {
        Some(version) => refuse_newer(format!(
            "the staging memory of the flash buffer has format version {version}, written by a newer program: this one knows \
             version {VERSION}, open the volume with that one"
        )),
        None => Ok(()),
    }
}

fn refuse_small<D: BlockDevice>(device: &D, signature: Signature) -> Result<()> {
    let (has, needed) = (device.geometry().end(), bytes_needed(signature.volumes, signature.unit_blocks));
    if has < needed {
        return refuse(format!("has {has} bytes, {needed} are needed: give a larger one"));
    }
    Ok(())
}

/// The whole slot of the highest epoch.
fn newest(head: &[u8]) -> Option<(Slot, Signature)> {
    let whole = head.chunks(BLOCK_BYTES).enumerate();
    whole
        .filter_map(|(slot, block)| Some((Slot(slot), Signature::decode(block)?)))
        .max_by_key(|(_, signature)| signature.epoch)
}

/// What a program of another version would write in place of a signature.
#[cfg(test)]
pub(super) fn signed_as(signature: &[u8], version: u32) -> Vec<u8> {
    let mut bytes = signature.to_vec();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let epoch = Reader::new(&bytes[32..]).u64().unwrap();
    let sum = checksum(salt(SALT, epoch), &bytes[..SIGNED_BYTES]);
    bytes[SIGNED_BYTES..SIGNED_BYTES + 8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[cfg(test)]
#[path = "staging_test.rs"]
mod staging_test;
