//! `unsafe` lives in a few small modules, named here. Everywhere else, tests included, the token
//! itself is refused, also inside macros.

use crate::Finding;
use crate::modules::Modules;

/// Files, and directories ending in `/`, that may use `unsafe`, each with the reason.
pub const UNSAFE_PLACES: &[(&str, &str)] = &[
    ("crates/media/src/buffer.rs", "block-aligned memory comes from the allocator by hand"),
    ("crates/media/src/buffer/halves.rs", "huge pages are mapped and given in halves by hand"),
    ("crates/media/src/file/", "io_uring takes raw pointers to buffers that it owns until completion"),
    ("crates/media/src/region/mapping.rs", "a mapping is an address that the kernel gave"),
    (
        "crates/media/src/region/mod.rs",
        "reading a region in place is a promise that nobody stores there meanwhile",
    ),
    ("crates/media/src/region/mapped.rs", "implements reading in place"),
    ("crates/media/src/region/source.rs", "hands reading in place on"),
    ("crates/media/src/region/emulated/mod.rs", "hands reading in place on"),
    ("crates/media/src/region/wear/mod.rs", "hands reading in place on"),
    (
        "crates/pmstore/src/memory.rs",
        "records in persistent memory are read in place; the engine keeps the promise",
    ),
    ("crates/media/src/region/instructions.rs", "write-backs, fences and streaming stores have no safe form"),
    (
        "crates/cache/src/record/arena.rs",
        "one mapping holds all cached records, with huge pages where there are",
    ),
    ("crates/volume/src/disks/pass.rs", "commands to disks go by an ioctl that takes raw pointers"),
    ("crates/base/src/prefetch.rs", "prefetch instructions have no safe form"),
    (
        "crates/server/src/reactor/uring/",
        "io_uring takes raw pointers to buffers that it owns until completion",
    ),
    ("bench/peers/src/engines/lmdb.rs", "opening a memory map is a promise that nobody else writes the file"),
    ("bench/peers/src/engines/rocksdb.rs", "RocksDB is called by its C interface"),
];

/// Every `unsafe` outside [`UNSAFE_PLACES`].
pub fn findings(modules: &Modules) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in &modules.sources {
        if UNSAFE_PLACES
            .iter()
            .any(|(place, _)| path == place || place.ends_with('/') && path.starts_with(place))
        {
            continue;
        }
        for line in source.lines_of(&["unsafe"]) {
            let message = "unsafe outside the modules of UNSAFE_PLACES (checks/src/unsafety.rs)";
            findings.push(Finding::new(path.as_str(), line, message));
        }
    }
    findings
}

#[cfg(test)]
#[path = "unsafety_test.rs"]
mod unsafety_test;
