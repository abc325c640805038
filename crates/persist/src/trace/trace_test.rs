//! Traces through their two file formats, whole, cut and damaged.

use super::*;
use tierstone_base::{ErrorKind, SeededRandom};

fn random_trace(seed: u64) -> Trace {
    let mut random = SeededRandom::new(seed);
    let mut trace = Trace::new();
    for _ in 0..random.below(60) + 1 {
        let thread = random.below(4) as u16;
        let space = if random.chance(0.5) { Space::Persistent } else { Space::Volatile };
        let mut bytes = vec![0; random.below(20) as usize + 1];
        random.fill(&mut bytes);
        match random.below(5) {
            0 => trace.mark(thread, Kind::Barrier),
            1 => trace.mark(thread, Kind::Strand),
            2 => trace.mark(thread, Kind::Sync),
            3 => trace.access(thread, Kind::Load, space, random.below(1 << 40), &bytes),
            _ => trace.access(thread, Kind::Store, space, random.below(1 << 40), &bytes),
        }
    }
    trace
}

#[test]
fn a_trace_comes_back_from_text_and_from_bytes() {
    for seed in 0..200 {
        let trace = random_trace(seed);
        assert_eq!(text::read(&text::write(&trace)).unwrap(), trace, "seed {seed}");
        assert_eq!(binary::read(&binary::write(&trace)).unwrap(), trace, "seed {seed}");
    }
}

#[test]
fn a_trace_that_is_cut_anywhere_is_refused() {
    let trace = random_trace(7);
    let bytes = binary::write(&trace);
    for cut in 0..bytes.len() {
        let error = binary::read(&bytes[..cut]).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible),
            "cut at {cut}: {error}"
        );
    }
    let text = text::write(&trace);
    for (cut, _) in text.char_indices() {
        // Only the last line feed may be missing.
        let kind = text::read(&text[..cut]).map_err(|error| error.kind());
        match cut {
            _ if cut + 1 == text.len() => assert_eq!(kind, Ok(trace.clone())),
            _ if cut < text::TITLE.len() => assert_eq!(kind, Err(ErrorKind::Incompatible), "cut at {cut}"),
            _ => assert_eq!(kind, Err(ErrorKind::Corrupt), "cut at {cut}: {:?}", &text[..cut]),
        }
    }
    let error = text::read("persist-trace 1\n0 barrier\n0 sto").unwrap_err();
    assert!(error.message().contains("cut: no 'end' after 1 steps, its last line is '0 sto'"), "{error}");
    let error = text::read("persist-trace 1\n0 barrier\n").unwrap_err();
    assert!(error.message().contains("cut"), "{error}");
    let error = text::read("persist-trace 1\n0 barrier\nend 2\n").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn what_follows_the_end_of_a_trace_is_refused() {
    let trace = random_trace(7);
    let text = text::write(&trace);
    for rest in ["\n", "  \n\n# a comment\n"] {
        assert_eq!(text::read(&format!("{text}{rest}")).unwrap(), trace, "{rest:?}");
    }
    for rest in ["0 barrier\n", "\nhello\n", "end 0\n", "persist-trace 1\nend 0\n"] {
        let error = text::read(&format!("{text}{rest}")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{rest:?}");
        let line = text.lines().count() + 1 + usize::from(rest.starts_with('\n'));
        let names =
            error.message().contains(&format!("line {line} ")) && error.message().contains("behind 'end'");
        assert!(names, "{rest:?}: {error}");
    }
    for more in [1, 20, 25] {
        let error = binary::read(&[binary::write(&trace), vec![0; more]].concat()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let says =
            format!("longer than its head says: {more} bytes follow its {} steps", trace.events().len());
        assert!(error.message().contains(&says), "{error}");
    }
}

/// What the text of the same trace could not say.
#[test]
fn a_mark_with_a_place_or_a_value_is_refused() {
    for kind in [2, 3, 4] {
        let bare = [&[1, 0, kind], &[0; 17][..]].concat();
        assert_eq!(binary::read(&binary::framed(&bare)).unwrap().events().len(), 1);
        for (at, bits) in [(2, 0x80), (3, 1), (4, 1), (12, 1)] {
            let mut bytes = bare.clone();
            bytes[at] |= bits;
            let error = binary::read(&binary::framed(&bytes)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.message().contains("step 0 makes no sense"), "{error}");
        }
    }
}

#[test]
fn damage_in_a_binary_trace_is_found() {
    let bytes = binary::write(&random_trace(3));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        // Bytes 12..16 are not used.
        assert!(binary::read(&damaged).is_err(), "byte {at}");
    }
}

#[test]
fn a_line_that_is_no_step_is_named() {
    for line in [
        "0 stare p:0 8 1",
        "0 store q:0 8 1",
        "0 store p:0 9 1",
        "0 store p:4 8 1",
        "0 store p:0 1 0x100",
        "x barrier",
    ] {
        let error = text::read(&format!("persist-trace 1\n{line}\nend 1\n")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("line 2") && error.message().contains(line), "{error}");
    }
    assert_eq!(text::read("valgrind\n").unwrap_err().kind(), ErrorKind::Incompatible);
}

#[test]
fn an_access_is_cut_at_words() {
    let mut trace = Trace::new();
    trace.access(0, Kind::Store, Space::Persistent, 6, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    let pieces: Vec<_> = trace.events().iter().map(|event| (event.address, event.len, event.value)).collect();
    assert_eq!(pieces, [(6, 2, 0x201), (8, 8, 0xa09_0807_0605_0403), (16, 1, 11)]);
}

#[test]
fn text_and_bytes_that_are_mangled_give_an_error_or_a_trace_and_no_panic() {
    let (text, bytes) = (text::write(&random_trace(5)), binary::write(&random_trace(5)));
    let mut random = SeededRandom::new(2);
    for _ in 0..5_000 {
        let (mut letters, mut mangled) = (text.clone().into_bytes(), bytes.clone());
        for _ in 0..=random.below(3) {
            let at = random.below(letters.len() as u64) as usize;
            letters[at] = b"0x:pv8 \n9ae"[random.below(11) as usize];
            let at = random.below(mangled.len() as u64) as usize;
            mangled[at] = random.next_u64() as u8;
        }
        let _ = text::read(&String::from_utf8(letters).unwrap());
        let _ = binary::read(&mangled);
    }
}
