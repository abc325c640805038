//! Foreign traces: a real one of Valgrind, its map, and both mangled.

use super::*;
use crate::observer::{Failure, Observer};
use crate::order::Model;
use crate::trace::text;
use tierstone_base::SeededRandom;

const LACKEY: &str = include_str!("../../tests/lackey/publish.lackey");
const MAP: &str = include_str!("../../tests/lackey/publish.map");

fn imported(lackey: &str, map: &str) -> Result<Import> {
    lackey::read(lackey.as_bytes(), &AddressMap::parse(map)?, &ImportSettings::default())
}

/// Of two slots the flag and the value: at 0 and 64, and at 512 and 576.
fn flags_without_values(import: &Import, model: Model) -> u64 {
    let initial = vec![0; import.persistent_bytes as usize];
    let observer = Observer::new(&import.trace, model, Failure::Anywhere, initial).unwrap();
    let mut broken = 0;
    let seen = observer.enumerate(100_000, |state| {
        let set = |at: usize| state.image[at..at + 8] != [0; 8];
        broken += u64::from(set(0) && !set(64) || set(512) && !set(576));
        Ok(())
    });
    assert!(seen.unwrap().exhausted);
    broken
}

#[test]
fn a_trace_of_valgrind_becomes_steps_of_its_threads_with_barriers_where_the_map_has_them() {
    let import = imported(LACKEY, MAP).unwrap();
    let wanted = "persist-trace 1\n\
        1 store p:0x240 8 0x1\n1 barrier\n1 store p:0x200 8 0x2\n1 sync\n\
        0 store p:0x40 8 0x3\n0 barrier\n0 store p:0x0 8 0x4\n0 sync\nend 8\n";
    // The stores of the C library, which are ignored, have numbers too.
    let renumbered = text::write(&import.trace);
    let mut stores = 0;
    let renumbered: String = renumbered
        .lines()
        .map(|line| match line.rsplit_once(' ').filter(|_| line.contains("store")) {
            Some((rest, _)) => {
                stores += 1;
                format!("{rest} {stores:#x}\n")
            }
            None => format!("{line}\n"),
        })
        .collect();
    assert_eq!(renumbered, wanted);
    assert_eq!((import.persists, import.marks, import.persistent_bytes), (4, 4, 4096));
    assert_eq!((import.accesses, import.ignored), (16, 8));
}

#[test]
fn the_observer_finds_the_order_that_an_imported_trace_lacks() {
    let whole = imported(LACKEY, MAP).unwrap();
    assert_eq!(flags_without_values(&whole, Model::Epoch), 0);
    let without = imported(LACKEY, &MAP.replace("barrier 0x406040", "")).unwrap();
    assert!(flags_without_values(&without, Model::Epoch) > 0);
    assert_eq!(flags_without_values(&without, Model::Strict), 0);
}

#[test]
fn what_lackey_does_not_write_is_refused_with_its_line() {
    for (line, why) in [
        ("hello", "line 1"),
        (" S 407000", "line 1"),
        (" S 407000,0", "1 to 4096"),
        (" S 407000,4097", "1 to 4096"),
        (" S +407000,8", "line 1"),
        (" S fffffffffffffffc,8", "line 1"),
        ("--1--   SCHED[0]:  acquired lock (x)", "no thread"),
        ("--1--   SCHED[99999]:  acquired lock (x)", "no thread"),
        ("\u{e9}", "line 1"),
    ] {
        let error = imported(line, MAP).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{line}");
        assert!(error.message().contains(why), "{line}: {error}");
    }
    assert!(imported(&"=".repeat(20_000), MAP).unwrap_err().message().contains("16 KiB"));
}

#[test]
fn a_trace_that_is_cut_is_refused_unless_that_is_allowed() {
    let cut = &LACKEY[..LACKEY.find("==16829== Counted").unwrap()];
    assert_eq!(imported(cut, MAP).unwrap_err().kind(), ErrorKind::Corrupt);
    let settings = ImportSettings { allow_cut: true, ..ImportSettings::default() };
    let map = AddressMap::parse(MAP).unwrap();
    assert_eq!(lackey::read(cut.as_bytes(), &map, &settings).unwrap(), imported(LACKEY, MAP).unwrap());
}

#[test]
fn a_trace_that_does_not_tell_its_threads_is_refused_unless_it_is_said_to_be_of_one() {
    let silent: String =
        LACKEY.lines().filter(|line| !line.contains("SCHED")).map(|line| format!("{line}\n")).collect();
    let error = imported(&silent, MAP).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(["--trace-sched=yes", "--one-thread"].iter().all(|way| error.message().contains(way)), "{error}");
    let settings = ImportSettings { one_thread: true, ..ImportSettings::default() };
    let read =
        |lackey: &str| lackey::read(lackey.as_bytes(), &AddressMap::parse(MAP).unwrap(), &settings).unwrap();
    assert_eq!(read(&silent).trace.threads(), 1);
    // It takes nothing away from a trace that tells them.
    assert_eq!(read(LACKEY), imported(LACKEY, MAP).unwrap());
    // A map may tell them too.
    assert!(imported(&silent, &format!("{MAP}\nthread 1 0x9000\n")).is_ok());
}

#[test]
fn a_trace_of_more_steps_than_allowed_is_refused() {
    let map = AddressMap::parse(MAP).unwrap();
    let read = |steps_max| {
        let settings = ImportSettings { steps_max, ..ImportSettings::default() };
        lackey::read(LACKEY.as_bytes(), &map, &settings)
    };
    assert!(read(8).is_ok());
    assert!(read(7).unwrap_err().message().contains("more than 7 steps"));
}

#[test]
fn a_wide_access_is_cut_at_words_and_at_the_ends_of_ranges() {
    let map = "persist-map 1\npersistent 0x1008 0x1010\nignore 0x1010 0x1018\nthread 3 0x2000\n";
    let lackey = " S 00001000,32\n S 00002000,1\n M 00001008,1\n==1== Exit code: 0\n";
    let import = imported(lackey, map).unwrap();
    let wanted = "persist-trace 1\n\
        0 store v:0x1000 8 0x1\n0 store p:0x8 8 0x1\n0 store v:0x1018 8 0x1\n\
        3 load p:0x8 1 0x0\n3 store p:0x8 1 0x2\nend 5\n";
    assert_eq!(text::write(&import.trace), wanted);
    assert_eq!((import.accesses, import.ignored, import.persistent_bytes), (3, 1, 16));
}

#[test]
fn a_map_keeps_the_places_of_ranges_in_their_blocks_and_ranges_apart() {
    let text = "persist-map 1\npersistent 0x30040 0x30080\npersistent 0x10000 0x12000\n";
    let map = AddressMap::parse(text).unwrap();
    assert_eq!(map.meaning(0x10008), Meaning::Persistent(8));
    assert_eq!(map.meaning(0x30040), Meaning::Persistent(0x2040));
    assert_eq!((map.meaning(0x3_0080), map.persistent_bytes()), (Meaning::Volatile, 0x2080));
}

#[test]
fn a_map_that_is_wrong_is_refused_with_its_line() {
    for (line, why) in [
        ("persistent 8 16 24", "not one of"),
        ("persistent 16 8", "multiples of 8"),
        ("persistent 4 16", "multiples of 8"),
        ("barrier x", "no address"),
        ("thread 70000 8", "no thread"),
        ("barrier 8\nsync 8", "line 3"),
        ("persistent 8 32\nignore 16 24", "overlap"),
        ("persistent 0 0xfffffffffffffff8\npersistent 0xfffffffffffffff8 0xffffffffffffffff", "multiples"),
        (
            "persistent 0 0xfffffffffffff008\npersistent 0xfffffffffffff010 0xfffffffffffffff8",
            "address space",
        ),
    ] {
        let error = AddressMap::parse(&format!("persist-map 1\n{line}\n")).unwrap_err();
        assert!(error.message().contains(why), "{line}: {error}");
    }
    assert_eq!(AddressMap::parse("persist-trace 1\n").unwrap_err().kind(), ErrorKind::Incompatible);
    let many = format!("persist-map 1\n{}", "persistent 0 8\n".repeat(5_000));
    assert!(AddressMap::parse(&many).unwrap_err().message().contains("at most"));
}

#[test]
fn a_trace_of_our_own_takes_the_meaning_of_a_map() {
    let own = "persist-trace 1\n2 store v:0x407040 8 0x7\n2 store v:0x406040 1 0x1\n2 sync\nend 3\n";
    let map = AddressMap::parse(MAP).unwrap();
    let import = remap(&text::read(own).unwrap(), &map, &ImportSettings::default()).unwrap();
    let wanted = "persist-trace 1\n2 store p:0x40 8 0x7\n2 barrier\n2 sync\nend 3\n";
    assert_eq!(text::write(&import.trace), wanted);
}

/// None of its accesses is left out without a word, as none of a recording is.
#[test]
fn a_trace_of_our_own_that_reaches_the_end_of_all_addresses_is_refused() {
    let own = "persist-trace 1\n0 sync\n0 store v:0xfffffffffffffff8 8 0x1\nend 2\n";
    let map = AddressMap::parse(MAP).unwrap();
    let error = remap(&text::read(own).unwrap(), &map, &ImportSettings::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let names = error.message().contains("step 1") && error.message().contains("0xfffffffffffffff8");
    assert!(names, "{error}");
    let below = text::read(&own.replace("fff8 8", "fff0 8")).unwrap();
    assert_eq!(remap(&below, &map, &ImportSettings::default()).unwrap().trace, below);
}

#[test]
fn mangled_traces_and_maps_give_an_error_or_a_trace_and_no_panic() {
    let mut random = SeededRandom::new(3);
    for _ in 0..5_000 {
        let (mut lackey, mut map) = (LACKEY.as_bytes().to_vec(), MAP.as_bytes().to_vec());
        for _ in 0..=random.below(4) {
            let at = random.below(lackey.len() as u64) as usize;
            lackey[at] = b"0f,SLMI \n=-[]x"[random.below(14) as usize];
            let at = random.below(map.len() as u64) as usize;
            map[at] = b"0fx \n#pbs"[random.below(9) as usize];
        }
        if let Ok(map) = AddressMap::parse(&String::from_utf8(map).unwrap())
            && let Ok(import) = lackey::read(&lackey[..], &map, &ImportSettings::default())
        {
            let persists = import.trace.events().iter().filter(|event| event.is_persist());
            let inside = |event: &&Event| event.address + u64::from(event.len) <= map.persistent_bytes();
            assert_eq!(persists.filter(inside).count() as u64, import.persists);
        }
    }
}
