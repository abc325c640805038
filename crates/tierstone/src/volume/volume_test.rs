use super::*;
use crate::{Batch, DatabaseOptions, ErrorKind, FileBackend, SharedStore, Store};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tierstone_base::SeededRandom;
use tierstone_base::checksum::{checksum, salt};
use tierstone_logstore::format::superblock::META_BYTES;
use tierstone_media::file::single::SingleFileDevice;
use tierstone_media::file::{DirectIo, Discards, SingleFile};
use tierstone_media::{BLOCK_BYTES, BlockDevice, IoBuffer, IoRequest, Wait};
use tierstone_volume::{
    BufferSettings, FlashBuffer, KeepTurning, Level, OpenSettings, SleepSetup, Volume, VolumeSettings,
};

static NEXT: AtomicU32 = AtomicU32::new(0);
const MEMBER_BYTES: u64 = 12 << 20;

/// A directory of a test with members and the description of a volume.
struct Place(PathBuf);

impl Place {
    fn new(level: Level, count: usize) -> Place {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tierstone-volume-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let place = Place(path);
        let names: Vec<PathBuf> = (0..count).map(|index| format!("disk-{index}").into()).collect();
        names.iter().for_each(|name| place.make(name));
        let settings = VolumeSettings {
            chunk_bytes: 16 << 10,
            meta_bytes: META_BYTES,
            is_zeroed: true,
            ..VolumeSettings::new(level, u128::from(SeededRandom::system_seed().unwrap()), 128 << 10)
        };
        let devices = names.iter().map(|name| place.member(name).device().unwrap()).collect();
        Volume::create(devices, &settings).unwrap().close().unwrap();
        place.describe(&Description {
            members: names,
            buffer: None,
            staging: None,
            staging_any_guarantee: false,
            degraded: Degraded::Serve,
            discards: Discards::default(),
            fill_rate: None,
            sleep: None,
        });
        place
    }

    fn make(&self, name: &Path) {
        SingleFile::create(&self.0.join(name), MEMBER_BYTES).unwrap();
    }

    fn member(&self, name: &Path) -> SingleFile {
        probe(self.0.join(name), DirectIo::Auto, Discards::Never).file.unwrap()
    }

    fn describe(&self, description: &Description) {
        std::fs::write(self.description(), description.text().unwrap()).unwrap();
    }

    fn description(&self) -> PathBuf {
        self.0.join("volume.toml")
    }

    fn options(&self, shards: u16) -> DatabaseOptions {
        DatabaseOptions { shards, memory_bytes: 16 << 20, ..DatabaseOptions::new(self.description()) }
    }

    fn cut(&self, name: &str) {
        let file = std::fs::OpenOptions::new().write(true).open(self.0.join(name)).unwrap();
        file.set_len(1 << 20).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn fill(store: &mut Store, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut batch = Batch::new();
        batch.put(&key(number), &[number as u8; 2_000]);
        store.write(&batch).unwrap();
    }
}

fn holds(store: &mut Store, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let found = store.get(&key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&[number as u8; 2_000][..]), "key {number}");
    }
}

/// Every epoch is quiet, and none is busy.
fn always_asleep() -> Sleeping {
    Sleeping {
        spin_down_utilisation: 1.0,
        spin_down_epochs: 1,
        spin_up_utilisation: 1.0,
        epoch_ms: 10,
        ..Sleeping::default()
    }
}

/// So many pairs of mirrors whose disks sleep, behind a flash buffer.
fn sleeping(pairs: u32) -> Place {
    let place = Place::new(Level::Raid10, 2 * pairs as usize);
    place.make(Path::new("flash"));
    let settings =
        BufferSettings { id: 9, volumes: 1, pairs_a_volume: pairs, extent_bytes: 1 << 20, unit_blocks: 64 };
    FlashBuffer::create(place.member(Path::new("flash")).device().unwrap(), &settings).unwrap();
    let mut description = Description::read(&place.description()).unwrap();
    description.buffer = Some("flash".into());
    description.sleep = Some(always_asleep());
    place.describe(&description);
    place
}

/// How many keys were written until a disk of every pair slept.
fn fill_until_asleep(store: &mut Store, volume: &VolumeHost) -> u32 {
    let mut number = 0;
    while !volume.report().pairs.iter().all(|pair| pair.state == "asleep") {
        fill(store, number..number + 1);
        number += 1;
        assert!(number < 3_000, "no epoch ended: {:?}", volume.report());
    }
    number
}

#[test]
fn a_store_on_every_level_opens_again_and_is_checked_whole() {
    for (level, count) in [
        (Level::Raid0, 3),
        (Level::Raid1, 2),
        (Level::Raid5, 3),
        (Level::Raid10, 4),
        (Level::Raid50 { groups: 2 }, 6),
    ] {
        let place = Place::new(level, count);
        let mut store = Store::open(&place.options(2)).unwrap();
        fill(&mut store, 0..300);
        drop(store);
        let mut store = Store::open(&place.options(1)).unwrap();
        assert!(!store.database().report().clean, "{level:?}: it was not closed");
        holds(&mut store, 0..300);
        store.close().unwrap();
        let checked = crate::check(&[place.description()], 64 << 20, &mut |_| {}).unwrap();
        assert!(!checked.is_damaged() && checked.live_keys == 300, "{level:?}: {checked:?}");
        let mut store = Store::open(&place.options(3)).unwrap();
        assert!(store.database().report().clean, "{level:?}");
        holds(&mut store, 0..300);
    }
}

#[test]
fn many_threads_share_a_store_on_a_volume() {
    let place = Place::new(Level::Raid5, 3);
    let store = SharedStore::open(&place.options(2)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let store = store.clone();
            scope.spawn(move || {
                for number in thread * 100..thread * 100 + 100 {
                    store.put(&key(number), &[number as u8; 2_000]).unwrap();
                    assert!(store.get(&key(number)).unwrap().is_some());
                }
            });
        }
    });
    store.close().unwrap();
    holds(&mut Store::open(&place.options(1)).unwrap(), 0..400);
}

#[test]
fn a_member_that_is_cut_while_the_store_works_is_left_out_and_told() {
    let place = Place::new(Level::Raid1, 2);
    let mut store = Store::open(&place.options(1)).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let told_here = Arc::clone(&told);
    let volume = store.database().storage().volume().unwrap().clone();
    volume.watch(Box::new(move |event: &VolumeEvent| told_here.lock().unwrap().push(event.clone())));
    fill(&mut store, 0..20);
    assert!(!volume.report().is_degraded);
    place.cut("disk-0");
    fill(&mut store, 20..60);
    holds(&mut store, 0..60);
    let report = volume.report();
    assert!(report.is_degraded && report.members[0].state == "failed", "{report:?}");
    let told = told.lock().unwrap().clone();
    assert!(
        told.iter().any(|event| event.is_warning && event.text.contains("disk-0) has failed")),
        "{told:?}"
    );
    drop((store, volume));
    let mut store = Store::open(&place.options(1)).unwrap();
    holds(&mut store, 0..60);
}

#[test]
fn a_volume_that_cannot_be_closed_in_good_order_says_so() {
    let place = sleeping(1);
    let mut store = Store::open(&place.options(1)).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let told_here = Arc::clone(&told);
    let volume = store.database().storage().volume().unwrap().clone();
    volume.watch(Box::new(move |event: &VolumeEvent| told_here.lock().unwrap().push(event.clone())));
    let number = fill_until_asleep(&mut store, &volume);
    fill(&mut store, number..number + 100);
    // What the sleeping mirror misses lies in the buffer only as far as it is not flushed.
    place.cut("flash");
    place.cut("disk-0");
    place.cut("disk-1");
    drop((store, volume));
    let told = told.lock().unwrap().clone();
    assert!(told.iter().any(|event| event.is_warning && event.text.contains("not closed")), "{told:?}");
}

#[test]
fn a_missing_member_is_said_and_one_too_many_is_refused() {
    let place = Place::new(Level::Raid5, 3);
    let mut store = Store::open(&place.options(1)).unwrap();
    fill(&mut store, 0..50);
    assert_eq!(Store::open(&place.options(1)).map(drop).unwrap_err().kind(), ErrorKind::Busy);
    store.close().unwrap();
    std::fs::remove_file(place.0.join("disk-1")).unwrap();
    let opened = open_volume(&place.description(), DirectIo::Auto).unwrap();
    assert!(opened.faults[0].starts_with("member 1: cannot open"), "{:?}", opened.faults);
    drop(opened);
    holds(&mut Store::open(&place.options(1)).unwrap(), 0..50);
    let mut description = Description::read(&place.description()).unwrap();
    description.degraded = Degraded::Refuse;
    description.buffer = Some("flash".into());
    description.sleep = Some(always_asleep());
    place.describe(&description);
    let refused = Store::open(&place.options(1)).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    description.degraded = Degraded::Serve;
    place.describe(&description);
    place.cut("disk-2");
    let lost = Store::open(&place.options(1)).map(drop).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::DeviceFailed, "{lost}");
}

#[test]
fn settings_that_a_volume_has_itself_are_refused() {
    let place = Place::new(Level::Raid0, 2);
    let options = place.options(1);
    for (options, part) in [
        (DatabaseOptions { capacity_bytes: Some(1 << 30), ..options.clone() }, "capacity"),
        (DatabaseOptions { backend: FileBackend::IoUring, ..options.clone() }, "threads"),
        (DatabaseOptions { segment_bytes: Some(1 << 20), ..options.clone() }, "131072"),
        (
            DatabaseOptions { durable_method: Some(crate::DurableMethod::WriteThenFlush), ..options.clone() },
            "durable",
        ),
    ] {
        let refused = Store::open(&options).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.message().contains(part), "{refused}");
    }
}

#[test]
fn disks_of_a_store_sleep_and_wake_and_what_they_miss_is_there() {
    let place = sleeping(2);
    let mut store = Store::open(&place.options(1)).unwrap();
    let volume = store.database().storage().volume().unwrap().clone();
    let number = fill_until_asleep(&mut store, &volume);
    fill(&mut store, number..number + 100);
    let report = volume.report();
    assert!(
        report.buffer_fill.is_some_and(|fill| fill > 0.0) && report.spindle.contains("keep turning"),
        "{report:?}"
    );
    assert!(report.members.iter().any(|member| member.state == "behind"), "{report:?}");
    holds(&mut store, 0..number + 100);
    drop((store, volume));
    let opened = open_volume(&place.description(), DirectIo::Auto).unwrap();
    let rows = opened.volume.rows();
    assert_eq!(opened.volume.compare(0..rows).unwrap(), [], "awake mirrors hold the same");
    assert!(opened.volume.geometry().segment_limit > 0);
    drop(opened);
    holds(&mut Store::open(&place.options(1)).unwrap(), 0..number + 100);
}

/// A block of the volume, of one byte.
fn put_block(volume: &mut Volume<SingleFileDevice>, at: u64, byte: u8) {
    let bytes = IoBuffer::from_slice(&[byte; BLOCK_BYTES]);
    volume.submit(&mut vec![IoRequest::write_durable(0, at * BLOCK_BYTES as u64, bytes)]);
    let mut done = Vec::new();
    volume.complete(Wait::All, &mut done);
    done.pop().unwrap().result.unwrap();
}

#[test]
fn an_opening_that_is_refused_leaves_what_a_sleeping_disk_lacks() {
    let place = Place::new(Level::Raid1, 2);
    place.make(Path::new("flash"));
    let device = |name: &str| place.member(Path::new(name)).device().unwrap();
    place.make(Path::new("memory"));
    let settings =
        BufferSettings { id: 9, volumes: 1, pairs_a_volume: 1, extent_bytes: 1 << 20, unit_blocks: 64 };
    drop(FlashBuffer::create_staged(device("flash"), device("memory"), &settings).unwrap());
    let open = || {
        let buffer = FlashBuffer::open_staged(device("flash"), device("memory")).unwrap();
        let settings = Sleeping::default().settings().unwrap();
        let setup = SleepSetup { buffer, settings, spindle: Box::new(KeepTurning) };
        let disks = ["disk-0", "disk-1"].map(|name| Some(device(name))).into();
        Volume::open_sleeping(disks, &OpenSettings::default(), setup).unwrap().0
    };
    let mut volume = open();
    put_block(&mut volume, 0, 1);
    drop(volume);
    std::fs::copy(place.0.join("disk-1"), place.0.join("old")).unwrap();
    let mut volume = open();
    assert!(volume.sleep(0));
    put_block(&mut volume, 0, 2);
    drop(volume);
    // The description does not name the memory, and another disk is in the place of the one that sleeps.
    std::fs::rename(place.0.join("disk-1"), place.0.join("right")).unwrap();
    std::fs::rename(place.0.join("old"), place.0.join("disk-1")).unwrap();
    let mut description = Description::read(&place.description()).unwrap();
    description.degraded = Degraded::Refuse;
    description.buffer = Some("flash".into());
    description.sleep = Some(always_asleep());
    place.describe(&description);
    assert!(open_volume(&place.description(), DirectIo::Auto).is_err());
    std::fs::rename(place.0.join("right"), place.0.join("disk-1")).unwrap();
    let volume = open();
    assert_eq!(volume.compare(0..1).unwrap(), vec![]);
    volume.close().unwrap();
}

#[test]
fn members_whose_superblocks_cannot_be_used_are_told() {
    let place = Place::new(Level::Raid1, 2);
    for name in ["disk-0", "disk-1"] {
        let file = std::fs::OpenOptions::new().write(true).open(place.0.join(name)).unwrap();
        for slot in [0, BLOCK_BYTES as u64] {
            file.write_all_at(&[0x5a; 8], slot + 40).unwrap();
        }
    }
    let error = open_volume(&place.description(), DirectIo::Auto).err().unwrap();
    let is_told = |name: &str| error.message().contains(&format!("{name} holds a damaged superblock"));
    assert!(is_told("disk-0") && is_told("disk-1"), "{error}");
}

/// Where a block that ends with a checksum has the number that salts it.
const SALTED_AT: usize = 32;

/// Puts `version` into a block of a file, with the checksum that a program of that version would give it.
fn put_version(path: &Path, offset: u64, version: u32, salt_of: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut block = vec![0; BLOCK_BYTES];
    file.read_exact_at(&mut block, offset).unwrap();
    block[8..12].copy_from_slice(&version.to_le_bytes());
    let number = u64::from_le_bytes(block[SALTED_AT..SALTED_AT + 8].try_into().unwrap());
    let (covered, sum) = block.split_at_mut(BLOCK_BYTES - 8);
    sum.copy_from_slice(&checksum(salt(salt_of, number), covered).to_le_bytes());
    file.write_all_at(&block, offset).unwrap();
}

/// What all files of a place hold.
fn everything(place: &Place) -> Vec<Vec<u8>> {
    ["disk-0", "disk-1", "flash"].map(|name| std::fs::read(place.0.join(name)).unwrap_or_default()).into()
}

#[test]
fn what_a_newer_program_wrote_is_refused_before_anything_is_written() {
    const SUPERBLOCK: u64 = 0x766f_6c75_6d65_7362;
    const MAP: u64 = 0x6275_6666_6572_6d31;
    let newest_slot = |place: &Place| {
        let generation = |slot: usize| {
            let start = std::fs::read(place.0.join("disk-1")).unwrap();
            u64::from_le_bytes(start[slot * BLOCK_BYTES + SALTED_AT..][..8].try_into().unwrap())
        };
        if generation(1) > generation(0) { BLOCK_BYTES as u64 } else { 0 }
    };
    let refused = |place: &Place, name: &str| {
        let before = everything(place);
        let error = open_volume(&place.description(), DirectIo::Auto).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        assert!(error.message().contains("newer program") && error.message().contains(name), "{error}");
        assert!(everything(place) == before, "something was written");
    };
    let place = sleeping(1);
    open_volume(&place.description(), DirectIo::Auto).unwrap().volume.close().unwrap();
    put_version(&place.0.join("disk-1"), newest_slot(&place), 3, SUPERBLOCK);
    refused(&place, "disk-1 holds a superblock of format version 3");
    let description = Description::read(&place.description()).unwrap();
    let probed = probe_members(&place.description(), &description, DirectIo::Auto).unwrap();
    assert_eq!(newest(&probed).unwrap_err().kind(), ErrorKind::Incompatible);
    drop(probed);
    let terms = MemberTerms { bytes: None, flag: "", force: false, discards: Discards::Never, own: None };
    let error = take_member(&place.0.join("disk-1"), terms).unwrap_err();
    assert!(error.message().contains("format version 3"), "{error}");
    let place = sleeping(1);
    open_volume(&place.description(), DirectIo::Auto).unwrap().volume.close().unwrap();
    put_version(&place.0.join("flash"), 0, 3, MAP);
    refused(&place, "the flash buffer has format version 3");
}
