//! The setting of the library that has stores scrubbed, through both handles, on real files.

use crate::support::{TemporaryDirectory, backends};
use tierstone::{DatabaseOptions, SharedStore, Store};

#[test]
fn both_handles_scrub_as_fast_as_they_are_told() {
    for backend in backends() {
        for (rate, expected) in [(0, 0), (3 << 20, 3 << 20), (1, 2)] {
            let directory = TemporaryDirectory::new();
            let options = directory.options(backend);
            let options = DatabaseOptions { shards: 2, scrub_bytes_per_second: rate, ..options };
            let store = Store::open(&options).unwrap();
            // A part for each shard, rounded up.
            assert_eq!(store.statistics().scrub.rate, expected);
            store.close().unwrap();
            let store = SharedStore::open(&options).unwrap();
            assert_eq!(store.statistics().unwrap().scrub.rate, expected);
            store.close().unwrap();
        }
    }
}
