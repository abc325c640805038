//! Every primitive loses power before each of its steps, and again inside recovery; every rule is needed.

use super::*;
use std::cell::Cell;
use tierstone_crash::{
    Choices, ExploreSettings, Report, SurvivorSettings, Violation, assert_all_caught, explore,
};
use tierstone_media::region::SimRegion;

/// Runs a life that works and one that recovers, with cuts in both, and a third one that looks.
fn lives<const UNIT: usize>(
    settings: ExploreSettings,
    bytes: u64,
    work: impl Fn(&SimRegion<UNIT>),
    recover: impl Fn(&SimRegion<UNIT>) -> std::result::Result<(), Violation>,
) -> Report {
    explore(settings, |choices: &Choices| {
        let region = SimRegion::<UNIT>::new(bytes).with_cuts(choices, 8);
        work(&region);
        region.lose_power(choices, &SurvivorSettings::default());
        let first = recover(&region);
        if region.power_is_on() {
            first?;
        }
        region.lose_power(choices, &SurvivorSettings::default());
        let quiet = SimRegion::<UNIT>::new(bytes);
        quiet.store(0, &region.image());
        quiet.write_back(0, bytes);
        quiet.fence().map_err(|error| Violation::new(error.to_string()))?;
        recover(&quiet)
    })
}

fn violation(error: tierstone_base::Error) -> Violation {
    Violation::new(error.to_string())
}

/// Two words are published one after the other; recovery publishes elsewhere which one it found.
fn published<const UNIT: usize>(rules: &Mutations) -> Report {
    let (acknowledged, noted) = (Cell::new(0), Cell::new(false));
    lives::<UNIT>(
        ExploreSettings::exhaustive(),
        128,
        |region| {
            acknowledged.set(0);
            noted.set(false);
            for value in 1..=2 {
                if publish_by(region, 8, value, rules).is_err() {
                    return;
                }
                acknowledged.set(value);
            }
        },
        |region| {
            let (found, note) = (region.load_word(8), region.load_word(64));
            let is_noted = note == found + 10 || note == 0 && !noted.get();
            Violation::unless((acknowledged.get()..=2).contains(&found) && is_noted, || {
                format!("{found} after {}, noted {note} after {}", acknowledged.get(), noted.get())
            })?;
            noted.set(publish_by(region, 64, found + 10, rules).is_ok());
            Ok(())
        },
    )
}

#[test]
fn a_published_word_is_old_or_new_and_new_once_acknowledged() {
    let rules = ["what was stored before the answer"];
    assert_all_caught(&rules, published::<8>).assert_exhausted();
    assert_all_caught(&rules, published::<64>).assert_exhausted();
}

/// Five words over two lines, from inside the first: two versions of them are persisted one after the other, of which
/// `len` bytes from the first word are asked for. Recovery persists elsewhere what it found.
fn ranged<const UNIT: usize>(rules: &Mutations, len: u64) -> Report {
    const RANGE: u64 = 40;
    let words = |region: &SimRegion<UNIT>| [0, 8, 16, 24, 32].map(|word| region.load_word(RANGE + word));
    let (acknowledged, noted) = (Cell::new(0), Cell::new(0));
    lives::<UNIT>(
        ExploreSettings::exhaustive(),
        192,
        |region| {
            acknowledged.set(0);
            noted.set(0);
            for version in 1..=2u64 {
                (0..5).for_each(|word| region.store_word(RANGE + 8 * word, version));
                if persist_by(region, RANGE, len, rules).is_err() {
                    return;
                }
                acknowledged.set(version);
            }
        },
        |region| {
            let (found, note) = (words(region), region.load_word(128));
            let least = acknowledged.get();
            // Every word is there in the version acknowledged or a later one that was stored.
            let legal = found.iter().all(|word| (least..=2.min(least + 1)).contains(word));
            Violation::unless(legal && note >= noted.get(), || {
                format!("{found:?} after {least}, noted {note} after {}", noted.get())
            })?;
            region.store_word(128, 1 + found.iter().sum::<u64>());
            if persist_by(region, 128, WORD_BYTES, rules).is_ok() {
                noted.set(1 + found.iter().sum::<u64>());
            }
            Ok(())
        },
    )
}

#[test]
fn every_word_of_a_range_over_two_lines_is_durable_once_acknowledged() {
    let rules = ["what was stored before the answer"];
    assert_all_caught(&rules, |rules| ranged::<8>(rules, 40)).assert_exhausted();
    assert_all_caught(&rules, |rules| ranged::<64>(rules, 40)).assert_exhausted();
    // The last two words lie in the second line: a range that ends before it forgets them.
    for len in [8, 24] {
        assert!(ranged::<8>(&Mutations::none(), len).found.is_some(), "{len} bytes, words");
        assert!(ranged::<64>(&Mutations::none(), len).found.is_some(), "{len} bytes, lines");
    }
    // Lines are written back whole.
    ranged::<64>(&Mutations::none(), 32).assert_exhausted();
}

/// One append, published by a bit; recovery makes another one, published by the next.
fn appended<const UNIT: usize>(rules: &Mutations) -> Report {
    let acknowledged = Cell::new(0);
    lives::<UNIT>(
        ExploreSettings::exhaustive(),
        256,
        |region| {
            let is_done = append_streaming(region, 64, &[7; 20], 0, 1, rules).is_ok();
            acknowledged.set(u64::from(is_done));
        },
        |region| {
            let found = region.load_word(0);
            let bytes = [64, 128].map(|at| {
                let mut bytes = [0; 20];
                region.load(at, &mut bytes);
                bytes
            });
            let are_whole =
                (found & 1 == 0 || bytes[0] == [7; 20]) && (found & 2 == 0 || bytes[1] == [8; 20]);
            Violation::unless(are_whole && found & acknowledged.get() == acknowledged.get(), || {
                format!("{found} after {}: {bytes:?}", acknowledged.get())
            })?;
            if append_streaming(region, 128, &[8; 20], 0, found | 2, rules).is_ok() {
                acknowledged.set(found | 2);
            }
            Ok(())
        },
    )
}

#[test]
fn a_streaming_append_is_whole_where_it_is_published_and_published_once_acknowledged() {
    let rules =
        ["the bytes before the word that publishes them", "the word that publishes before the answer"];
    assert_all_caught(&rules, appended::<8>).assert_exhausted();
    assert_all_caught(&rules, appended::<64>).assert_exhausted();
}

const BODIES: [&[u8]; 4] = [b"the first", b"second", b"third record", b"4th"];

/// Appends one record, then two, releases the first, appends the last: with wrap, on a ring of two lines.
fn log_work<const UNIT: usize>(region: &SimRegion<UNIT>, rules: &Mutations, acknowledged: &Cell<usize>) {
    let mut log = PersistentLog::new(region, 64, 128, 0, rules).unwrap();
    acknowledged.set(0);
    for (records, count) in [(&BODIES[..1], 1), (&BODIES[1..3], 3)] {
        if log.persist_wal(records).is_err() {
            return;
        }
        acknowledged.set(count);
    }
    // The caller keeps the start durably before the room is used again.
    if publish(region, 0, 40).is_err() {
        return;
    }
    log.release(40);
    if log.persist_wal(&BODIES[3..]).is_ok() {
        acknowledged.set(4);
    }
}

fn log_check<const UNIT: usize>(
    region: &SimRegion<UNIT>,
    rules: &Mutations,
    acknowledged: usize,
) -> std::result::Result<(), Violation> {
    let start = region.load_word(0);
    let skipped = usize::from(start == 40);
    let (_, records) = PersistentLog::recover(region, 64, 128, start, rules).map_err(violation)?;
    let wanted: Vec<Vec<u8>> = BODIES[skipped..].iter().map(|body| body.to_vec()).collect();
    Violation::unless(wanted.starts_with(&records), || format!("from {start}: {records:?}"))?;
    let found = skipped + records.len();
    Violation::unless(found >= acknowledged, || format!("{acknowledged} acknowledged, {found} found"))
}

fn logged<const UNIT: usize>(rules: &Mutations, settings: ExploreSettings) -> Report {
    let acknowledged = Cell::new(0);
    // Without the checksum, the order alone must do.
    let rules = rules.clone().and("the checksum of a body");
    lives::<UNIT>(
        settings,
        192,
        |region| log_work(region, &rules, &acknowledged),
        |region| log_check(region, &rules, acknowledged.get()),
    )
}

#[test]
fn a_log_recovers_a_prefix_with_everything_acknowledged() {
    let rules = ["the bodies before their positions", "the positions before the answer"];
    let bounded = || ExploreSettings::bounded(3).with_max_runs(60_000);
    let random = || ExploreSettings::random(11, 20_000);
    assert_all_caught(&rules, |rules| logged::<8>(rules, bounded()));
    assert_all_caught(&rules, |rules| logged::<8>(rules, random()));
    assert_all_caught(&rules, |rules| logged::<64>(rules, bounded()));
    assert_all_caught(&rules, |rules| logged::<64>(rules, random()));
}

/// Three records in one call: the second's position is lost, the third's survives. Another record of the second's
/// length is appended after recovery: without destroying, the third would follow it.
fn behind_a_gap<const UNIT: usize>(rules: &Mutations) -> Report {
    explore(ExploreSettings::exhaustive().with_max_runs(200_000), |choices: &Choices| {
        let region = SimRegion::<UNIT>::new(256).with_cuts(choices, 8);
        let mut log = PersistentLog::new(&region, 64, 192, 0, rules).map_err(violation)?;
        let _ = log.persist_wal(&[b"one", b"two", b"three"]);
        region.lose_power(choices, &SurvivorSettings::default());
        let quiet = SimRegion::<UNIT>::new(256);
        quiet.store(0, &region.image());
        let (mut log, before) = PersistentLog::recover(&quiet, 64, 192, 0, rules).map_err(violation)?;
        if before.len() == 3 {
            return Ok(());
        }
        log.persist_wal(&[b"new"]).map_err(violation)?;
        let (_, after) = PersistentLog::recover(&quiet, 64, 192, 0, rules).map_err(violation)?;
        Violation::unless(after.len() == before.len() + 1, || format!("{before:?}, then {after:?}"))
    })
}

/// Recovery, which power is lost in, and again behind it; where it has come to its end nothing behind the end of the
/// log looks like a position.
fn destroyed<const UNIT: usize>(rules: &Mutations) -> Report {
    let end = Cell::new(None);
    lives::<UNIT>(
        ExploreSettings::random(17, 20_000),
        256,
        |region| {
            end.set(None);
            if let Ok(mut log) = PersistentLog::new(region, 64, 192, 0, rules) {
                let _ = log.persist_wal(&[b"one", b"two", b"three"]);
            }
        },
        |region| {
            if let Some(end) = end.get() {
                let is_position = |word| word > end && word <= end + 192;
                let is_clear = !(64 + end..256).step_by(8).any(|at| is_position(region.load_word(at)));
                return Violation::unless(is_clear, || format!("something is left behind {end}"));
            }
            let recovered = PersistentLog::recover(region, 64, 192, 0, rules);
            end.set(recovered.ok().filter(|_| region.power_is_on()).map(|(log, _)| log.end()));
            Ok(())
        },
    )
}

#[test]
fn a_record_behind_a_gap_never_comes_back() {
    assert_all_caught(&["what lies behind the end is destroyed"], behind_a_gap::<8>);
    // On lines a position is never lost where a later one in its line survives.
    behind_a_gap::<64>(&Mutations::none()).assert_clean();
}

#[test]
fn what_recovery_destroys_is_durable_when_it_returns() {
    assert_all_caught(&["what is destroyed before recovery ends"], destroyed::<8>);
    destroyed::<64>(&Mutations::none()).assert_clean();
}

/// The word where the next record's position will stand has that position already, from an old body.
fn over_an_old_body<const UNIT: usize>(rules: &Mutations) -> Report {
    let mut old = [7; 80];
    old[..8].copy_from_slice(&105u64.to_le_bytes());
    let fresh = [9; 24];
    explore(ExploreSettings::random(13, 20_000), |choices: &Choices| {
        let region = SimRegion::<UNIT>::new(192).with_cuts(choices, 8);
        let mut log = PersistentLog::new(&region, 64, 128, 0, rules).map_err(violation)?;
        if log.persist_wal(&[&old]).is_err() {
            return Ok(());
        }
        log.release(104);
        let acknowledged = log.persist_wal(&[&fresh]).is_ok();
        region.lose_power(choices, &SurvivorSettings::default());
        let quiet = SimRegion::<UNIT>::new(192);
        quiet.store(0, &region.image());
        let (_, found) = PersistentLog::recover(&quiet, 64, 128, 104, rules).map_err(violation)?;
        let legal = found.is_empty() && !acknowledged || found == [fresh.to_vec()];
        Violation::unless(legal, || format!("acknowledged: {acknowledged}, found {found:?}"))
    })
}

#[test]
fn an_old_body_that_looks_like_a_position_makes_no_record() {
    assert_all_caught(&["the checksum of a body"], over_an_old_body::<8>);
    assert_all_caught(&["the checksum of a body"], over_an_old_body::<64>);
}

/// A ring of one record, which is released; another of its length goes there, so that the old one's position stands where
/// its own will. What is found is the new one, or nothing.
fn on_a_reused_ring<const UNIT: usize>(rules: &Mutations) -> Report {
    explore(ExploreSettings::exhaustive().with_max_runs(200_000), |choices: &Choices| {
        let used = SimRegion::<UNIT>::new(128);
        let mut log = PersistentLog::new(&used, 64, 64, 0, rules).map_err(violation)?;
        log.persist_wal(&[&[1; 40]]).map_err(violation)?;
        let region = used.with_cuts(choices, 8);
        let mut log = PersistentLog::new(&region, 64, 64, 64, rules).map_err(violation)?;
        let acknowledged = log.persist_wal(&[&[2; 40]]).is_ok();
        region.lose_power(choices, &SurvivorSettings::default());
        let quiet = SimRegion::<UNIT>::new(128);
        quiet.store(0, &region.image());
        let (_, found) = PersistentLog::recover(&quiet, 64, 64, 64, rules).map_err(violation)?;
        let legal = found.is_empty() && !acknowledged || found == [vec![2; 40]];
        Violation::unless(legal, || format!("acknowledged: {acknowledged}, found {found:?}"))
    })
}

#[test]
fn what_an_earlier_round_of_the_ring_left_is_no_record() {
    // With the checksum: the old record is whole. Without it, where a body is torn under an old position.
    for checksum in [Mutations::none(), Mutations::one("the checksum of a body")] {
        let explored = |rules: &Mutations| match rules.is_on("positions never come back") {
            true => checksum.clone().and("positions never come back"),
            false => checksum.clone(),
        };
        assert_all_caught(&["positions never come back"], |rules| on_a_reused_ring::<8>(&explored(rules)));
        assert_all_caught(&["positions never come back"], |rules| on_a_reused_ring::<64>(&explored(rules)));
    }
}

const PAGES: PageLog = PageLog { offset: 0, page_bytes: 64 };

/// Pages of two lines.
const WIDE_PAGES: PageLog = PageLog { offset: 0, page_bytes: 128 };

/// A page in which `words` words, line by line in turn, are of `version` and the others zeros: with few of them all
/// states can be tried.
fn page_of(pages: PageLog, words: usize, version: u8) -> Vec<u8> {
    let mut page = vec![0; pages.page_bytes as usize];
    let lines = page.len() / 64;
    for word in 0..words {
        let at = word % lines * 64 + word / lines * 8;
        page[at..at + 8].fill(version);
    }
    page
}

/// Two versions of one page; after recovery another page, through the same page log.
fn paged<const UNIT: usize>(
    rules: &Mutations,
    settings: ExploreSettings,
    pages: PageLog,
    words: usize,
) -> Report {
    let (acknowledged, other) = (Cell::new(0u8), Cell::new(0u8));
    let page_of = |version| page_of(pages, words, version);
    lives::<UNIT>(
        settings,
        512,
        |region| {
            acknowledged.set(0);
            other.set(0);
            region.store_streaming(384, &page_of(3));
            if region.fence().is_err() {
                return;
            }
            other.set(3);
            for version in 1..=2u8 {
                if pages.persist_page(region, 256, &page_of(version), rules).is_err() {
                    return;
                }
                acknowledged.set(version);
            }
        },
        |region| {
            pages.recover(region, rules).map_err(violation)?;
            let found = [256, 384].map(|page| {
                let mut bytes = vec![0; pages.page_bytes as usize];
                region.load(page, &mut bytes);
                bytes
            });
            let is_whole = |bytes: &[u8], versions: std::ops::RangeInclusive<u8>| {
                bytes == page_of(bytes[0]) && versions.contains(&bytes[0])
            };
            let are_whole = is_whole(&found[0], acknowledged.get()..=2)
                && (other.get() == 0 || is_whole(&found[1], other.get()..=4));
            Violation::unless(are_whole, || {
                format!("{} and {} acknowledged, found {found:?}", acknowledged.get(), other.get())
            })?;
            if other.get() > 0 && pages.persist_page(region, 384, &page_of(4), rules).is_ok() {
                other.set(4);
            }
            Ok(())
        },
    )
}

const PAGE_RULES: [&str; 6] = [
    "the old page before the mark",
    "the mark before the new page",
    "the new page before the mark is taken away",
    "the mark is away before the page log is used again",
    "the page is back before the mark is taken away",
    "the mark is away before recovery ends",
];

#[test]
fn a_page_is_old_or_new_after_a_crash_anywhere_and_each_of_the_barriers_is_needed() {
    let random = || ExploreSettings::random(5, 30_000);
    assert_all_caught(&PAGE_RULES, |rules| paged::<8>(rules, random(), PAGES, 8));
    assert_all_caught(&PAGE_RULES, |rules| paged::<64>(rules, random(), PAGES, 8));
}

/// Every loss of power, in recovery too, and everything that it may leave, of pages of which few words change: five
/// where the order is that of words, eight where it is that of lines. Of more it takes minutes.
#[test]
fn a_page_over_two_lines_is_old_or_new_after_every_crash() {
    let all = ExploreSettings::exhaustive;
    assert_all_caught(&PAGE_RULES, |rules| paged::<8>(rules, all(), WIDE_PAGES, 5)).assert_exhausted();
    assert_all_caught(&PAGE_RULES, |rules| paged::<64>(rules, all(), WIDE_PAGES, 8)).assert_exhausted();
}

#[test]
fn the_primitives_need_as_many_barriers_as_published() {
    /// Counts the fences of a region.
    struct Counted(SimRegion<8>, Cell<u64>);
    impl Region for Counted {
        fn bytes(&self) -> u64 {
            self.0.bytes()
        }
        fn guarantee(&self) -> tierstone_media::Guarantee {
            self.0.guarantee()
        }
        fn load_word(&self, offset: u64) -> u64 {
            self.0.load_word(offset)
        }
        fn store_word(&self, offset: u64, value: u64) {
            self.0.store_word(offset, value);
        }
        fn compare_exchange_word(&self, offset: u64, old: u64, new: u64) -> std::result::Result<u64, u64> {
            self.0.compare_exchange_word(offset, old, new)
        }
        fn load(&self, offset: u64, into: &mut [u8]) {
            self.0.load(offset, into);
        }
        fn store(&self, offset: u64, bytes: &[u8]) {
            self.0.store(offset, bytes);
        }
        fn store_streaming(&self, offset: u64, bytes: &[u8]) {
            self.0.store_streaming(offset, bytes);
        }
        fn write_back(&self, offset: u64, len: u64) {
            self.0.write_back(offset, len);
        }
        fn fence(&self) -> Result<()> {
            self.1.set(self.1.get() + 1);
            self.0.fence()
        }
    }
    let region = Counted(SimRegion::new(8192), Cell::new(0));
    let rules = Mutations::none();
    let mut log = PersistentLog::new(&region, 1024, 4096, 0, &rules).unwrap();
    for records in 1..20usize {
        region.1.set(0);
        log.persist_wal(&vec![b"body".as_slice(); records]).unwrap();
        assert_eq!(region.1.get(), 2, "{records} records");
        log.release(log.end());
    }
    region.1.set(0);
    PAGES.persist_page(&region, 128, &[1; 64], &rules).unwrap();
    assert_eq!(region.1.get(), 4);
    region.1.set(0);
    publish(&region, 128, 1).unwrap();
    assert_eq!(region.1.get(), 1);
}

#[test]
fn a_log_that_is_full_refuses_and_goes_on_once_room_is_released() {
    let region = SimRegion::<64>::new(4096);
    let rules = Mutations::none();
    let mut log = PersistentLog::new(&region, 0, 256, 0, &rules).unwrap();
    let mut kept = 0;
    for round in 0..100u8 {
        let body = vec![round; usize::from(round) % 60 + 1];
        if log.persist_wal(&[&body]).is_err() {
            kept = log.end();
            log.release(kept);
            log.persist_wal(&[&body]).unwrap();
        }
    }
    let (recovered, records) = PersistentLog::recover(&region, 0, 256, kept, &rules).unwrap();
    assert_eq!(recovered.end(), log.end());
    assert_eq!(records.last().map(|body| body[0]), Some(99));
    assert!(log.persist_wal(&[&[0; 300]]).is_err());
    assert!(PersistentLog::new(&region, 8, 256, 0, &rules).is_err());
}

#[test]
fn a_page_log_that_names_no_page_is_refused() {
    let region = SimRegion::<64>::new(512);
    publish(&region, 0, 4_000_001).unwrap();
    assert_eq!(PAGES.recover(&region, &Mutations::none()).unwrap_err().kind(), ErrorKind::Corrupt);
}
