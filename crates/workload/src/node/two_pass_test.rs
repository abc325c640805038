use super::merge::Losers;
use super::*;
use proptest::prelude::*;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A new folder, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tierstone-two-pass-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn settings(directory: &Path, records: u64, memory_bytes: u64) -> Settings {
    Settings { directory: directory.into(), records, memory_bytes, threads: 2, format: Format::Ascii }
}

fn go_on(_: Phase, _: f64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn records_of_many_times_the_memory_are_sorted_and_the_files_removed() {
    let folder = Folder::new();
    // Seven runs, the last of which and the last piece are short.
    for (records, format) in [(250_001, Format::Ascii), (4_096, Format::Binary), (1, Format::Ascii)] {
        let settings = Settings { format, ..settings(&folder.0, records, 10 << 20) };
        let work = run(&settings, &go_on, &mut ()).unwrap();
        assert_eq!(work.amount, records as f64);
        let device = work.device.unwrap();
        assert_eq!(device.bytes_read, device.bytes_written);
        assert!(device.bytes_read >= 2 * 100 * records, "{device:?}");
        assert!(device.bound.is_some_and(|bound| bound.part > 0.0));
        assert!(folder.is_empty());
    }
}

#[test]
fn an_interruption_in_any_phase_removes_the_files() {
    use Phase::{Making, Measuring, Merging, Sorting, Verifying};
    for last in [Making, Measuring, Sorting, Merging, Verifying] {
        let folder = Folder::new();
        let stop = |phase: Phase, _: f64| {
            if phase == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let refused = run(&settings(&folder.0, 60_000, 7 << 20), &stop, &mut ()).unwrap_err();
        assert!(refused.message().contains("interrupted"), "{last:?}: {refused}");
        assert!(folder.is_empty(), "{last:?}");
    }
}

/// Runs every phase, but changes something between the passes.
fn spoilt(spoil: impl FnOnce(&Disk, &Layout)) -> Error {
    let folder = Folder::new();
    let settings = settings(&folder.0, 60_000, 7 << 20);
    let layout = Layout::new(settings.records, settings.memory_bytes, settings.threads).unwrap();
    let disk = Disk::new(&settings.directory, &layout).unwrap();
    let input = make(&disk, &settings, &go_on).unwrap();
    runs::make(&disk, settings.threads, &go_on).unwrap();
    spoil(&disk, &layout);
    merge::merge(&disk, &go_on).unwrap();
    verify(&disk, &go_on).unwrap().judge(&input).unwrap_err()
}

/// Writes piece 0 of the runs anew.
fn rewrite(disk: &Disk, layout: &Layout, change: impl Fn(&mut [u8]) + Sync) {
    let mut first = Vec::new();
    let mut reader = disk.reader(Region::Runs).unwrap();
    let keep = |_: u64, buffer: &tierstone_media::IoBuffer| {
        first = buffer.to_vec();
        Ok(())
    };
    reader.read_in_order(0..1, keep).unwrap();
    change(&mut first[..layout.records_of(0) * RECORD_BYTES]);
    let writer = disk.writer(Region::Runs, 1).unwrap();
    let fill = |_: u64, buffer: &mut tierstone_media::IoBuffer| {
        buffer.copy_from_slice(&first);
        Ok(())
    };
    writer.write_pieces(0..1, 1, fill).unwrap();
    writer.finish().unwrap();
}

#[test]
fn a_changed_byte_and_a_lost_order_are_seen() {
    let error = spoilt(|disk, layout| rewrite(disk, layout, |records| records[99] ^= 1));
    assert!(error.message().contains("not those of the input"), "{error}");
    let backward = |records: &mut [u8]| {
        let all: Vec<u8> = records.chunks(RECORD_BYTES).rev().flatten().copied().collect();
        records.copy_from_slice(&all);
    };
    let error = spoilt(|disk, layout| rewrite(disk, layout, backward));
    assert!(error.message().contains("not in order"), "{error}");
}

#[test]
fn memory_and_room_are_checked_before_anything_is_written() {
    let folder = Folder::new();
    let refused = run(&settings(&folder.0, 1_000_000, 1 << 20), &go_on, &mut ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(refused.message().contains("is too little"), "{refused}");
    let refused = run(&settings(&folder.0, 1 << 40, 1 << 40), &go_on, &mut ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    assert!(folder.is_empty());
    assert!(run(&settings(&folder.0.join("missing"), 10, 8 << 20), &go_on, &mut ()).is_err());
}

proptest! {
    #[test]
    fn layouts_keep_to_their_memory_and_cover_every_record(
        records in 1..1u64 << 34, memory_bytes in 1u64 << 20..1 << 36, threads in 1..64usize,
    ) {
        let Ok(layout) = Layout::new(records, memory_bytes, threads) else { return Ok(()) };
        let piece_bytes = layout.piece_bytes() as u64;
        let chunk = layout.per_run * piece_bytes;
        let taken = 2 * chunk + 40 * layout.per_run * layout.per_piece as u64 + layout.gathered as u64 * piece_bytes;
        prop_assert!(taken <= memory_bytes);
        prop_assert!((2 * layout.runs() + 4) * piece_bytes <= memory_bytes);
        prop_assert!(layout.per_run * layout.per_piece as u64 <= u64::from(u32::MAX) + 1);
        let last = layout.pieces() - 1;
        prop_assert_eq!(last * layout.per_piece as u64 + layout.records_of(last) as u64, records);
        prop_assert_eq!(layout.run(layout.runs() - 1).end, layout.pieces());
        prop_assert!(layout.segments() * layout.per_segment() >= layout.pieces());
    }

    #[test]
    fn the_tree_gives_all_keys_in_order_and_equal_ones_by_leaf(
        runs in prop::collection::vec(prop::collection::vec(0..6u8, 1..20), 1..9),
    ) {
        let key = |byte: u8| u128::from(byte) << 48;
        let runs: Vec<Vec<u8>> = runs.into_iter().map(|mut run| { run.sort_unstable(); run }).collect();
        let mut expected: Vec<(u8, usize)> =
            runs.iter().enumerate().flat_map(|(leaf, run)| run.iter().map(move |byte| (*byte, leaf))).collect();
        expected.sort_unstable();
        let mut used = vec![0; runs.len()];
        let mut losers = Losers::new(&runs.iter().map(|run| key(run[0])).collect::<Vec<_>>());
        let mut merged = Vec::new();
        while let Some(leaf) = losers.winner() {
            merged.push((runs[leaf][used[leaf]], leaf));
            used[leaf] += 1;
            losers.replace(leaf, runs[leaf].get(used[leaf]).map(|byte| key(*byte)));
        }
        prop_assert_eq!(merged, expected);
    }
}
