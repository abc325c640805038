//! Settings of the redo log in persistent memory, and of what is done about losses.

use super::{ServerSettings, Setting};
use crate::region::kept_shards;
use crate::values::wrong;
use tierstone::RedoOptions;
use tierstone_base::Result;
use tierstone_base::units::parse_size;
use tierstone_media::region::RegionSource;

/// In the order of `--help`.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "nvm",
        variable: "TIERSTONE_NVM",
        value: "PATH or emulated:SIZE[:PRESET]",
        help: "Persistent memory for a redo log: the file of a region on a DAX mount (made if it is not there), a DAX device, or memory of the process that is as slow as a published device. Writes are then acknowledged after a fence there, and the data follow in large blocks",
        default: "none: writes wait for the device",
        trade_off: "The newest writes lie in that memory alone for up to half a second: a store that was not stopped in good order opens only with it. Emulated memory survives nothing and is for measurements; INFO says what is guaranteed",
        redis: "",
        apply: |all, text| {
            let source: RegionSource = text.parse()?;
            redo(all).region = source.to_string();
            Ok(())
        },
    },
    Setting {
        name: "nvm-size",
        variable: "TIERSTONE_NVM_SIZE",
        value: "SIZE",
        help: "Size of the region's file, when --nvm names one that is not there; one that is there keeps its size, and the log warns",
        default: "64MiB",
        trade_off: "A group of up to 1 MiB takes a slot, at least four a shard; more absorb bursts that the device cannot follow, up to 64 a shard",
        redis: "",
        apply: |all, text| {
            redo(all).new_bytes = Some(parse_size(text)?);
            Ok(())
        },
    },
    Setting {
        name: "nvm-guarantee",
        variable: "TIERSTONE_NVM_GUARANTEE",
        value: "WHICH",
        help: "What the region of --nvm, or of a store at nvm:…, must survive: power-fail (else it is refused) or any",
        default: "power-fail",
        trade_off: "A file that is not on DAX lies in the page cache: it survives the process, and with any a loss of power costs acknowledged writes",
        redis: "",
        apply: |all, text| {
            all.node.database.any_guarantee = match text {
                "power-fail" => false,
                "any" => true,
                _ => return Err(wrong("write power-fail or any".into())),
            };
            Ok(())
        },
    },
    Setting {
        name: "nvm-flush",
        variable: "TIERSTONE_NVM_FLUSH",
        value: "METHOD",
        help: "How the region of --nvm, or of a store at nvm:…, is made durable: auto (the processor's instructions and a fence) or msync",
        default: "auto",
        trade_off: "msync makes a file that is not on DAX as durable as its file system is, by a system call and a write of the device where else there is a fence",
        redis: "",
        apply: |all, text| {
            all.node.database.msync = match text {
                "auto" => false,
                "msync" => true,
                _ => return Err(wrong("write auto or msync".into())),
            };
            Ok(())
        },
    },
    Setting {
        name: "nvm-keys",
        variable: "TIERSTONE_NVM_KEYS",
        value: "WHICH",
        help: "What ordered indexes (--index ordered) of a store at nvm:… hold of each key in memory: whole keys, or a part of 8 bytes, the rest being read in place; may change from start to start",
        default: "whole",
        trade_off: "part takes less memory, the less the longer keys are, and reads persistent memory more often",
        redis: "",
        apply: |all, text| {
            all.node.database.nvm_partial_keys = match text {
                "whole" => false,
                "part" => true,
                _ => return Err(wrong("write whole or part".into())),
            };
            Ok(())
        },
    },
    Setting {
        name: "disk-loss",
        variable: "TIERSTONE_DISK_LOSS",
        value: "WHAT",
        help: "What is done when segments of a store on disks are missing or damaged: refuse to open it, or accept the loss of the writes that lay there",
        default: "refuse",
        trade_off: "accept serves what is left: of keys whose newest version was lost an older one, or none, and deleted keys may come back; INFO, metrics and the log name it. A missing segment is missed once, a damaged one stays as it is and is told at each start",
        redis: "",
        apply: |all, text| {
            all.node.database.disk_loss_accepted = refuse_or_accept(text)?;
            Ok(())
        },
    },
    Setting {
        name: "nvm-loss",
        variable: "TIERSTONE_NVM_LOSS",
        value: "WHAT",
        help: "What is done when a store's redo log is not there any more or is damaged, or a store at nvm:… is damaged: refuse to open it, or accept the loss of the writes that only the lost part had",
        default: "refuse",
        trade_off: "accept leaves, of each shard, all writes up to some moment, less batches over several shards of which a part is lost; of a damaged redo log, or store at nvm:…, everything that is whole, so that old values and deleted keys may come back; INFO and the log say that writes were lost",
        redis: "",
        apply: |all, text| {
            redo(all).loss_accepted = refuse_or_accept(text)?;
            Ok(())
        },
    },
];

/// Unless a number is given: as many shards as a store at `nvm:…` has that is there.
pub(super) fn take_over_shards(all: &mut ServerSettings, is_given: bool) {
    let database = &mut all.node.database;
    if !is_given && let Some(shards) = kept_shards(&database.directories) {
        database.shards = shards;
    }
}

fn refuse_or_accept(text: &str) -> Result<bool> {
    match text {
        "refuse" => Ok(false),
        "accept" => Ok(true),
        _ => Err(wrong("write refuse or accept".into())),
    }
}

fn redo(all: &mut ServerSettings) -> &mut RedoOptions {
    all.node.database.redo.get_or_insert_default()
}
