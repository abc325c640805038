//! Published numbers of storage devices, each with its source.
//!
//! They stand beside what `doctor` measures so that a reader can place a device; nothing computes
//! with them here. A number that a source does not give is `None`, never estimated.

use serde::Serialize;

/// What was published about one device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PublishedProfile {
    /// What kind of device it is.
    pub class: &'static str,
    /// Which device exactly.
    pub device: &'static str,
    /// Who published the numbers, and where.
    pub source: &'static str,
    /// Time of one small random read in microseconds.
    pub random_read_us: Option<f64>,
    /// Small random reads a second, at the source's own depth and size (see `note`).
    pub random_reads_per_second: Option<f64>,
    /// Bytes a second, reading in order.
    pub sequential_read_bytes_per_second: Option<f64>,
    /// Bytes a second, writing in order.
    pub sequential_write_bytes_per_second: Option<f64>,
    /// Time of one small durable write in microseconds.
    pub durable_write_us: Option<f64>,
    /// Small random or durable writes a second, at the source's own depth (see `note`).
    pub writes_per_second: Option<f64>,
    /// How the numbers came about.
    pub note: &'static str,
}

const PELLEY: &str = "Pelley, dissertation, University of Michigan 2014, table 2.1";
const VASUDEVAN: &str = "Vasudevan, dissertation, CMU-CS-11-131, 2011";
const BHATTACHARJEE: &str =
    "Bhattacharjee et al., Enhancing Recovery Using an SSD Buffer Pool Extension, DaMoN 2011";
const SNYDER: &str = "Snyder et al., QMD, DaMoN 2011, simulator defaults";
const LERSCH: &str = "Lersch, dissertation, TU Dresden 2020, device characterisation";

const EMPTY: PublishedProfile = PublishedProfile {
    class: "",
    device: "",
    source: "",
    random_read_us: None,
    random_reads_per_second: None,
    sequential_read_bytes_per_second: None,
    sequential_write_bytes_per_second: None,
    durable_write_us: None,
    writes_per_second: None,
    note: "",
};

const PROFILES: [PublishedProfile; 10] = [
    PublishedProfile {
        class: "disk, 10,000 rpm",
        device: "WD VelociRaptor 300 GB",
        source: PELLEY,
        random_read_us: Some(10_000.0),
        sequential_read_bytes_per_second: Some(120e6),
        ..EMPTY
    },
    PublishedProfile {
        class: "disk, 15,000 rpm",
        device: "Hitachi Ultrastar 15K600 300 GB",
        source: SNYDER,
        random_read_us: Some(5_500.0),
        sequential_read_bytes_per_second: Some(120e6),
        note: "random read: average seek 3.5 ms and rotation 2.0 ms",
        ..EMPTY
    },
    PublishedProfile {
        class: "CompactFlash",
        device: "SanDisk Extreme IV 4 GB",
        source: VASUDEVAN,
        random_reads_per_second: Some(1_424.0),
        sequential_read_bytes_per_second: Some(28.5e6),
        sequential_write_bytes_per_second: Some(24e6),
        writes_per_second: Some(110.0),
        note: "1 KB requests, 3.5 GB file, one at a time",
        ..EMPTY
    },
    PublishedProfile {
        class: "SATA flash",
        device: "Intel X25-M",
        source: SNYDER,
        random_read_us: Some(65.0),
        sequential_read_bytes_per_second: Some(250e6),
        sequential_write_bytes_per_second: Some(70e6),
        note: "write latency 85 us, durability not stated",
        ..EMPTY
    },
    PublishedProfile {
        class: "SATA flash",
        device: "Intel X25, Xeon 2.8 GHz host",
        source: VASUDEVAN,
        random_reads_per_second: Some(87_000.0),
        note: "512-byte reads, 64 in flight",
        ..EMPTY
    },
    PublishedProfile {
        class: "PCIe flash",
        device: "OCZ RevoDrive 120 GB",
        source: PELLEY,
        random_read_us: Some(90.0),
        sequential_read_bytes_per_second: Some(190e6),
        ..EMPTY
    },
    PublishedProfile {
        class: "PCIe flash, SLC",
        device: "Fusion-io 80 GB",
        source: BHATTACHARJEE,
        random_read_us: Some(50.0),
        sequential_read_bytes_per_second: Some(750e6),
        sequential_write_bytes_per_second: Some(500e6),
        note: "32 KB transfers; 89,549 requests/s at 75 % reads of 4 KB",
        ..EMPTY
    },
    PublishedProfile {
        class: "PCIe flash, MLC",
        device: "Fusion-io 320 GB",
        source: BHATTACHARJEE,
        random_read_us: Some(80.0),
        sequential_read_bytes_per_second: Some(700e6),
        sequential_write_bytes_per_second: Some(490e6),
        note: "64 KB transfers; 67,659 requests/s at 75 % reads of 4 KB",
        ..EMPTY
    },
    PublishedProfile {
        class: "PCIe non-volatile memory, emulated",
        device: "PCIe NVM emulator, user-space access",
        source: VASUDEVAN,
        random_read_us: Some(10.0),
        random_reads_per_second: Some(1_800_000.0),
        note: "512-byte requests, four DMA engines",
        ..EMPTY
    },
    PublishedProfile {
        class: "persistent memory",
        device: "Intel Optane DCPMM, 6 x 256 GiB",
        source: LERSCH,
        random_read_us: Some(0.3),
        sequential_read_bytes_per_second: Some(40e9),
        sequential_write_bytes_per_second: Some(10e9),
        note: "loads of one cache line; write latency not measurable (ADR)",
        ..EMPTY
    },
];

/// All published profiles, slowest class first.
pub fn published_profiles() -> &'static [PublishedProfile] {
    &PROFILES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_names_its_source_and_gives_a_number() {
        for profile in published_profiles() {
            assert!(!profile.class.is_empty() && !profile.device.is_empty() && !profile.source.is_empty());
            let numbers = [
                profile.random_read_us,
                profile.random_reads_per_second,
                profile.sequential_read_bytes_per_second,
                profile.sequential_write_bytes_per_second,
                profile.durable_write_us,
                profile.writes_per_second,
            ];
            assert!(numbers.iter().flatten().count() > 0, "{}", profile.device);
            assert!(numbers.iter().flatten().all(|&number| number > 0.0), "{}", profile.device);
        }
    }
}
