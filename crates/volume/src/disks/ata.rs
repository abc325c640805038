//! ATA commands in SCSI envelopes: ATA PASS-THROUGH (16) of SAT, and what comes back in the sense data.

use std::fmt;

/// Bytes of the envelope.
pub(super) const CDB_BYTES: usize = 16;

/// The commands that are ever sent. Neither moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Empties the cache and stops the disk.
    StandbyImmediate,
    /// Asks whether it turns, without starting it.
    CheckPowerMode,
}

impl Command {
    /// The envelope: protocol non-data, registers asked back.
    pub(super) fn envelope(self) -> [u8; CDB_BYTES] {
        let mut bytes = [0; CDB_BYTES];
        bytes[0] = 0x85;
        bytes[1] = 3 << 1;
        bytes[2] = 0x20;
        bytes[14] = match self {
            Command::StandbyImmediate => 0xe0,
            Command::CheckPowerMode => 0xe5,
        };
        bytes
    }
}

/// The registers of the disk after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: u8,
    pub error: u8,
    pub count: u8,
}

impl Answer {
    /// The registers in sense data, in either of its forms; `None` when they are not there.
    pub(super) fn of(sense: &[u8]) -> Option<Answer> {
        match sense.first()? & 0x7f {
            0x72 => {
                let mut rest = sense.get(8..8 + usize::from(*sense.get(7)?))?;
                loop {
                    let len = usize::from(*rest.get(1)?) + 2;
                    let descriptor = rest.get(..len)?;
                    if descriptor[0] == 0x09 && len >= 14 {
                        return Some(Answer {
                            error: descriptor[3],
                            count: descriptor[5],
                            status: descriptor[13],
                        });
                    }
                    rest = rest.get(len..)?;
                }
            }
            // "ATA pass-through information available".
            0x70 if sense.get(12..14)? == [0x00, 0x1d] => {
                Some(Answer { error: sense[3], status: sense[4], count: sense[6] })
            }
            _ => None,
        }
    }

    /// Whether the disk did what it was told.
    pub(super) fn is_good(&self) -> bool {
        const READY: u8 = 0x40;
        const FAULTS: u8 = 0x21;
        self.status & READY != 0 && self.status & FAULTS == 0
    }
}

/// What a disk says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerMode {
    /// It stands.
    Standby,
    /// It turns and rests, perhaps with its heads parked.
    Idle,
    /// It turns.
    Active,
    /// A code that no standard names.
    Unknown(u8),
}

impl PowerMode {
    /// By the count register of CHECK POWER MODE (ACS-4).
    pub(super) fn of(count: u8) -> PowerMode {
        match count {
            0x00 | 0x01 => PowerMode::Standby,
            0x80..=0x83 => PowerMode::Idle,
            0x40 | 0x41 | 0xff => PowerMode::Active,
            other => PowerMode::Unknown(other),
        }
    }
}

impl fmt::Display for PowerMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PowerMode::Standby => formatter.write_str("in standby"),
            PowerMode::Idle => formatter.write_str("idle"),
            PowerMode::Active => formatter.write_str("active or idle"),
            PowerMode::Unknown(code) => write!(formatter, "in unknown mode {code:#04x}"),
        }
    }
}
