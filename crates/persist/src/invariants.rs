//! What holds of traces and of what Valgrind's lackey wrote, whatever bytes they are read from. For fuzzing (`fuzz/`)
//! and for tests.
//!
//! Invariants:
//! 1. Reading never panics and takes memory of the order of what is read, or of the steps allowed.
//! 2. What can be read comes back when it is written and read again, as text and as bytes.
//! 3. Every persist of an import lies in the persistent memory that the import names.
//! 4. The timing of what was read ends, and its critical path is no longer than its persists.

use crate::import::{AddressMap, Import, ImportSettings, lackey, remap};
use crate::order::Model;
use crate::timing::{Timing, TimingSettings};
use crate::trace::{Trace, binary, text};

/// Steps that an import may have here.
const STEPS_MAX: usize = 1 << 14;
/// What stands between the map and the trace in an input of [`check_lackey`].
const DIVIDER: &[u8] = b"\n--\n";

/// Reads `data` as a trace, of bytes and of text.
pub fn check_trace(data: &[u8]) {
    let found = [
        binary::read(data).ok(),
        binary::read(&binary::framed(data)).ok(),
        std::str::from_utf8(data).ok().and_then(|data| text::read(data).ok()),
    ];
    for trace in found.into_iter().flatten() {
        assert_eq!(binary::read(&binary::write(&trace)).ok().as_ref(), Some(&trace));
        assert_eq!(text::read(&text::write(&trace)).ok().as_ref(), Some(&trace));
        check_timing(&trace);
    }
}

/// Reads `data` as a map, a line `--`, and what lackey wrote; without that line all of it is lackey's, by a map that
/// has a range of each kind and a marker. A trace that was read is given the meaning of the map again.
pub fn check_lackey(data: &[u8]) {
    let at = data.windows(DIVIDER.len()).position(|part| part == DIVIDER);
    let (map, source) = match at {
        Some(at) => (std::str::from_utf8(&data[..at]).ok(), &data[at + DIVIDER.len()..]),
        None => {
            (Some("persist-map 1\npersistent 0x1000 0x2000\nignore 0x2000 0x3000\nbarrier 0x3000\n"), data)
        }
    };
    let Some(map) = map.and_then(|map| AddressMap::parse(map).ok()) else { return };
    for allow_cut in [false, true] {
        // What may be cut may be without its threads, too.
        let settings = ImportSettings {
            steps_max: STEPS_MAX,
            allow_cut,
            one_thread: allow_cut,
            ..ImportSettings::default()
        };
        let Ok(import) = lackey::read(source, &map, &settings) else { continue };
        check_import(&import, &map);
        if let Ok(again) = remap(&import.trace, &map, &settings) {
            check_import(&again, &map);
        }
    }
}

fn check_import(import: &Import, map: &AddressMap) {
    let events = import.trace.events();
    assert!(events.len() <= STEPS_MAX && import.ignored <= import.accesses);
    assert_eq!(import.persistent_bytes, map.persistent_bytes());
    let persists = events.iter().filter(|event| event.is_persist());
    let ends = persists.map(|event| event.address + u64::from(event.len));
    assert!(ends.clone().all(|end| end <= import.persistent_bytes));
    assert_eq!(ends.count() as u64, import.persists);
    assert_eq!(events.iter().filter(|event| !event.is_access()).count() as u64, import.marks);
    check_trace(text::write(&import.trace).as_bytes());
}

fn check_timing(trace: &Trace) {
    for model in Model::ALL {
        let report = Timing::of(trace, TimingSettings::of(model));
        let holds = report.is_ok_and(|report| {
            report.critical_path + report.coalesced <= report.persists
                && report.events == trace.events().len() as u64
        });
        assert!(holds, "{}", model.name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random_trace;
    use tierstone_base::SeededRandom;

    const LACKEY: &[u8] = include_bytes!("../tests/lackey/publish.lackey");
    const MAP: &[u8] = include_bytes!("../tests/lackey/publish.map");

    /// Some bytes of `data` become others of `alphabet`, some go, some come twice.
    fn mangled(random: &mut SeededRandom, data: &[u8], alphabet: &[u8]) -> Vec<u8> {
        let mut data = data.to_vec();
        for _ in 0..random.below(4) {
            let at = random.below(data.len() as u64) as usize;
            match random.below(4) {
                0 => data.truncate(at.max(1)),
                1 => data.insert(at, data[at]),
                2 => data[at] = random.below(256) as u8,
                _ => data[at] = alphabet[random.below(alphabet.len() as u64) as usize],
            }
        }
        data
    }

    #[test]
    fn traces_hold_for_any_bytes_and_for_those_that_are_nearly_right() {
        let mut random = SeededRandom::new(5);
        for seed in 0..600 {
            let trace = random_trace(seed, 20);
            let (bytes, text) = (binary::write(&trace), text::write(&trace));
            check_trace(&bytes);
            check_trace(text.as_bytes());
            check_trace(&mangled(&mut random, &bytes, b"\0\x01\x80"));
            // Behind a head that fits.
            check_trace(&mangled(&mut random, &bytes[32..], b"\0\x01\x02\x80"));
            check_trace(&mangled(&mut random, text.as_bytes(), b"0x \npv:#"));
            let mut any = vec![0; random.below(200) as usize];
            random.fill(&mut any);
            check_trace(&any);
        }
    }

    #[test]
    fn imports_hold_for_any_bytes_and_for_those_that_are_nearly_right() {
        let mut random = SeededRandom::new(6);
        let whole = [MAP, DIVIDER, LACKEY].concat();
        check_lackey(&whole);
        check_lackey(LACKEY);
        for _ in 0..1_500 {
            check_lackey(&mangled(&mut random, &whole, b"0f,SLMI \n=-[]x#pbs"));
            check_lackey(&mangled(&mut random, LACKEY, b"0f,SLMI \n=-[]x"));
        }
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn an_import_whose_persists_lie_outside_is_noticed() {
        let map = AddressMap::parse("persist-map 1\npersistent 0x0 0x8\n").unwrap();
        let settings = ImportSettings { allow_cut: true, one_thread: true, ..ImportSettings::default() };
        let mut import = lackey::read(&b" S 00000000,8\n"[..], &map, &settings).unwrap();
        import.persistent_bytes = 4;
        check_import(&import, &map);
    }
}
