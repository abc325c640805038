//! Published memories that a region can be as slow as: data, each figure with its source.
//!
//! What no source gives is `None` and not emulated. Where a source gives a range, words, or a parameter of its experiments in place
//! of a figure of the memory, `place` says so and what was chosen.

use super::Slowness;
use serde::Serialize;

const LERSCH: &str = "Lersch 2020 (TU Dresden), Table 2.1";
const LERSCH_MEASURED: &str = "Lersch 2020 (TU Dresden), section 2.1.4, measured with Intel MLC on 6 modules";
const LERSCH_PCM: &str = "Lersch 2020 (TU Dresden), Table 2.1: of PCM, which it is based on";
const LERSCH_DRAM: &str = "Lersch 2020 (TU Dresden), Table 2.1: of DRAM, which it is made of";

/// A published number, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The number, in the unit of the field that holds it.
    pub value: f64,
    /// Work and table or section, with what had to be chosen.
    pub place: &'static str,
}

const fn figure(value: f64, place: &'static str) -> Option<Figure> {
    Some(Figure { value, place })
}

/// A kind of memory as published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MemoryProfile {
    /// Its name in settings.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// One line read at a random place, nanoseconds.
    pub random_read_ns: Option<Figure>,
    /// One line read behind the one before, nanoseconds.
    pub sequential_read_ns: Option<Figure>,
    /// From a write-back until it is durable, nanoseconds.
    pub persist_ns: Option<Figure>,
    /// Bytes read a second, in order.
    pub read_bytes_per_second: Option<Figure>,
    /// Bytes written a second, in order.
    pub write_bytes_per_second: Option<Figure>,
    /// Bytes read a second at random places.
    pub random_read_bytes_per_second: Option<Figure>,
    /// Bytes written a second at random places.
    pub random_write_bytes_per_second: Option<Figure>,
    /// What the medium reads and writes at once, in bytes.
    pub granule_bytes: Option<Figure>,
    /// How often a cell may be written; the lower end where a range is given.
    pub endurance_writes: Option<Figure>,
    /// Whether it is as fast as this machine's own memory, so that there is nothing to slow down.
    pub is_host_speed: bool,
}

const EMPTY: MemoryProfile = MemoryProfile {
    name: "",
    what: "",
    random_read_ns: None,
    sequential_read_ns: None,
    persist_ns: None,
    read_bytes_per_second: None,
    write_bytes_per_second: None,
    random_read_bytes_per_second: None,
    random_write_bytes_per_second: None,
    granule_bytes: None,
    endurance_writes: None,
    is_host_speed: false,
};

/// All of them.
pub static MEMORY_PROFILES: [MemoryProfile; 8] = [
    MemoryProfile {
        name: "dram",
        what: "DRAM: this machine's own speed",
        random_read_ns: figure(85.0, LERSCH_MEASURED),
        sequential_read_ns: figure(75.0, LERSCH_MEASURED),
        persist_ns: figure(50.0, LERSCH),
        endurance_writes: figure(1e15, LERSCH),
        is_host_speed: true,
        ..EMPTY
    },
    MemoryProfile {
        name: "nvdimm-n",
        what: "DRAM with flash and a capacitor: the speed of DRAM (Lersch 2020, section 2.1)",
        endurance_writes: figure(1e15, LERSCH_DRAM),
        is_host_speed: true,
        ..EMPTY
    },
    MemoryProfile {
        name: "dcpmm",
        what: "Intel Optane DC persistent memory, 6 modules; a write ends in the memory controller, and its latency \
               was not to be measured (same source)",
        random_read_ns: figure(300.0, LERSCH_MEASURED),
        sequential_read_ns: figure(175.0, LERSCH_MEASURED),
        read_bytes_per_second: figure(40e9, LERSCH_MEASURED),
        write_bytes_per_second: figure(10e9, LERSCH_MEASURED),
        random_read_bytes_per_second: figure(7.4e9, LERSCH_MEASURED),
        random_write_bytes_per_second: figure(5.3e9, LERSCH_MEASURED),
        granule_bytes: figure(256.0, LERSCH_MEASURED),
        endurance_writes: figure(1e8, LERSCH_PCM),
        ..EMPTY
    },
    MemoryProfile {
        name: "pcm",
        what: "phase-change memory; Kannan et al. (PACT 2016, section 3) emulate 100 ns a load and 400 ns a store",
        random_read_ns: figure(50.0, LERSCH),
        persist_ns: figure(500.0, LERSCH),
        endurance_writes: figure(1e8, LERSCH),
        ..EMPTY
    },
    MemoryProfile {
        name: "stt-mram",
        what: "spin-torque transfer magnetic memory",
        random_read_ns: figure(10.0, LERSCH),
        persist_ns: figure(50.0, LERSCH),
        endurance_writes: figure(1e15, LERSCH),
        ..EMPTY
    },
    MemoryProfile {
        name: "reram",
        what: "resistive memory",
        random_read_ns: figure(10.0, LERSCH),
        persist_ns: figure(50.0, LERSCH),
        endurance_writes: figure(1e11, LERSCH),
        ..EMPTY
    },
    MemoryProfile {
        name: "cxl",
        what: "DRAM behind CXL, made durable by its device; no bandwidth published in the source",
        random_read_ns: figure(
            165.0,
            "Li et al., Pond, ASPLOS 2023: 70 to 90 ns above local DRAM, the middle; DRAM of 85 ns as Lersch 2020",
        ),
        endurance_writes: figure(1e15, LERSCH_DRAM),
        ..EMPTY
    },
    MemoryProfile {
        name: "mlc-pcm",
        what: "phase-change memory with several bits a cell, written step by step: as slow as published experiments \
               set their emulated memory, which are no figures of such cells; no reading time published in the source",
        persist_ns: figure(
            3_000.0,
            "Pelley 2014 (University of Michigan), Figure 5.5: the barrier of an experiment, a parameter; of such cells \
             section 2.1 says \"several microseconds\"",
        ),
        write_bytes_per_second: figure(
            1.5e9,
            "Pelley 2014 (University of Michigan), chapter 5: the bandwidth that its experiments are held to, a parameter",
        ),
        endurance_writes: figure(
            1e6,
            "Kannan et al., PACT 2016, section 2: \"a few million\" writes a cell, of which one million was chosen",
        ),
        ..EMPTY
    },
];

impl MemoryProfile {
    /// The profile of this name.
    pub fn find(name: &str) -> Option<&'static MemoryProfile> {
        MEMORY_PROFILES.iter().find(|profile| profile.name == name)
    }

    /// How a region has to be slowed down to be like it; `None` for what is as fast as this machine's memory.
    pub fn slowness(&self) -> Option<Slowness> {
        if self.is_host_speed {
            return None;
        }
        let value = |figure: Option<Figure>| figure.map(|figure| figure.value);
        Some(Slowness {
            random_read_ns: value(self.random_read_ns),
            sequential_read_ns: value(self.sequential_read_ns),
            persist_ns: value(self.persist_ns),
            read_bytes_per_second: value(self.read_bytes_per_second),
            write_bytes_per_second: value(self.write_bytes_per_second),
            random_read_bytes_per_second: value(self.random_read_bytes_per_second),
            random_write_bytes_per_second: value(self.random_write_bytes_per_second),
            granule_bytes: value(self.granule_bytes).map_or(super::super::LINE_BYTES, |bytes| bytes as u64),
            cached_lines: 0,
        })
    }
}

#[cfg(test)]
#[path = "profiles_test.rs"]
mod profiles_test;
