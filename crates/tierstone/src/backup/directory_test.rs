//! Power is lost between any two steps of a backup's writer; what its files can be then is what a file system may leave:
//! of bytes that were not synced any part, or zeros in their place; of names that were not synced any.

use super::*;
use crate::{DatabaseOptions, Store};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tierstone_crash::{
    Choices, ExploreSettings, Report, Violation, assert_caught, explore, sampled_runs, sampled_seed,
};
use tierstone_media::file::DurableMethod;

/// Steps of the writer behind the frames.
const STEPS_BEHIND_FRAMES: u64 = 6;

/// A file's bytes: what was written, and how many of them are durable.
#[derive(Default)]
struct Bytes {
    written: Vec<u8>,
    durable: usize,
}

impl Bytes {
    fn sync(&mut self) {
        self.durable = self.written.len();
    }

    /// What a loss of power leaves.
    fn survive(&self, choices: &Choices, what: &'static str) -> Vec<u8> {
        let unsynced = (self.written.len() - self.durable) as u64;
        let mut bytes = self.written.clone();
        match choices.choose(4, what) {
            0 => bytes.truncate(self.durable),
            1 => {}
            2 => bytes.truncate(self.durable + choices.choose(unsynced + 1, "bytes of it survive") as usize),
            // Its length is there, and not its bytes.
            _ => {
                let from = self.durable + choices.choose(unsynced + 1, "bytes of it survive") as usize;
                bytes[from..].fill(0);
            }
        }
        bytes
    }
}

/// A directory that loses power.
struct Disk {
    frames: Bytes,
    manifest: Option<Bytes>,
    /// The manifest has its name.
    is_named: bool,
    are_names_durable: bool,
    is_place_durable: bool,
    /// Steps until power is lost.
    steps_left: u64,
    choices: Choices,
    /// The rule that is switched off.
    broken: Option<&'static str>,
}

impl Disk {
    /// Power may be lost before each step; a step whose rule is off is left out.
    fn step(&mut self, rule: &str, step: impl FnOnce(&mut Disk)) -> Result<()> {
        let Some(left) = self.steps_left.checked_sub(1) else {
            return Err(Error::new(ErrorKind::DeviceFailed, "power is off"));
        };
        self.steps_left = left;
        if self.broken != Some(rule) {
            step(self);
        }
        Ok(())
    }

    /// Puts into `path` what a loss of power leaves.
    fn survive(&self, path: &Path) {
        let choices = &self.choices;
        if !self.is_place_durable && choices.choose(2, "the directory survives") == 0 {
            return;
        }
        std::fs::create_dir_all(path).unwrap();
        let put = |name: &str, bytes: &Bytes, what| {
            let is_there = self.are_names_durable || choices.choose(2, "a name survives") == 1;
            if is_there {
                std::fs::write(path.join(name), bytes.survive(choices, what)).unwrap();
            }
        };
        put(FRAMES_FILE, &self.frames, "frames survive");
        if let Some(manifest) = &self.manifest {
            let has_name = self.is_named && (self.are_names_durable || choices.choose(2, "renamed") == 1);
            put(if has_name { MANIFEST_FILE } else { NEW_MANIFEST_FILE }, manifest, "the manifest survives");
        }
    }
}

/// The writer's handle on it.
struct Files(Arc<Mutex<Disk>>);

impl Files {
    fn step(&self, rule: &str, step: impl FnOnce(&mut Disk)) -> Result<()> {
        self.0.lock().unwrap().step(rule, step)
    }
}

impl BackupFiles for Files {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.step("", |disk| disk.frames.written.extend_from_slice(bytes))
    }

    fn sync_frames(&mut self) -> Result<()> {
        self.step("frames are durable before the manifest has its name", |disk| disk.frames.sync())
    }

    fn write_manifest(&mut self, bytes: &[u8]) -> Result<()> {
        let new = Bytes { written: bytes.to_vec(), durable: 0 };
        self.step("", |disk| disk.manifest = Some(new))
    }

    fn sync_manifest(&mut self) -> Result<()> {
        let sync = |disk: &mut Disk| disk.manifest.iter_mut().for_each(Bytes::sync);
        self.step("the manifest is durable before it has its name", sync)
    }

    fn name_manifest(&mut self) -> Result<()> {
        self.step("", |disk| disk.is_named = true)
    }

    fn sync_names(&mut self) -> Result<()> {
        self.step("names are durable when it is told", |disk| disk.are_names_durable = true)
    }

    fn sync_place(&mut self) -> Result<()> {
        self.step("the directory is durable when it is told", |disk| disk.is_place_durable = true)
    }
}

/// A place of one test, which goes with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("tierstone-backup-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A whole backup, or one since `base`, as frames without the manifest.
struct Frames {
    frames: Vec<Vec<u8>>,
    base: Option<PathBuf>,
}

fn options(path: PathBuf) -> DatabaseOptions {
    DatabaseOptions {
        shards: 2,
        segment_bytes: Some(128 << 10),
        capacity_bytes: Some(16 << 20),
        memory_bytes: 4 << 20,
        durable_method: Some(DurableMethod::DurableWrite),
        ..DatabaseOptions::new(path)
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// What is in the store when the backup of this round is taken.
fn value(round: u8, number: u32) -> Vec<u8> {
    vec![if number < 30 { round } else { 1 }; 900]
}

/// The frames of a backup in a directory.
fn frames_in(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path.join(FRAMES_FILE)).unwrap();
    let (mut frames, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let head = bytes[at..].first_chunk().unwrap();
        let len = HEADER_BYTES + FrameHeader::decode(head).unwrap().len;
        frames.push(bytes[at..at + len].to_vec());
        at += len;
    }
    frames
}

/// A whole backup and one since it, which lie in `place`.
fn taken(place: &Path) -> [Frames; 2] {
    let mut store = Store::open(&options(place.join("store"))).unwrap();
    let (whole, since) = (place.join("whole"), place.join("since"));
    (0..120).for_each(|number| store.put(&key(number), &value(1, number)).unwrap());
    store.backup(&whole, &mut |_| {}).unwrap();
    (0..30).for_each(|number| store.put(&key(number), &value(2, number)).unwrap());
    store.backup_since(&whole, &since, &mut |_| {}).unwrap();
    store.close().unwrap();
    let all = [(&whole, None), (&since, Some(whole.clone()))];
    all.map(|(path, base)| Frames { frames: frames_in(path), base })
}

/// Writes the backup of `round` down while power may be lost, and looks at what is left.
fn written(
    (choices, broken): (&Choices, Option<&'static str>),
    (of, round): (&Frames, u8),
    place: &Path,
) -> std::result::Result<(), Violation> {
    let disk = Disk {
        frames: Bytes::default(),
        manifest: None,
        is_named: false,
        are_names_durable: false,
        is_place_durable: false,
        // Of all runs half lose it when everything is written.
        steps_left: match choices.choose(2, "power is lost on the way") {
            0 => u64::MAX,
            _ => choices.choose(of.frames.len() as u64 + STEPS_BEHIND_FRAMES, "steps before that"),
        },
        choices: choices.clone(),
        broken,
    };
    let disk = Arc::new(Mutex::new(disk));
    let base = of.base.as_ref().map(|base| backup_base(base).unwrap());
    let mut writer = BackupWriter::over(Files(Arc::clone(&disk))).on(base);
    let mut write = || -> Result<BackupReport> {
        of.frames.iter().try_for_each(|frame| writer.frame(frame))?;
        writer.complete()
    };
    let told = write();
    let path = place.join("left");
    let _ = std::fs::remove_dir_all(&path);
    disk.lock().unwrap().survive(&path);
    let bases: Vec<PathBuf> = of.base.iter().cloned().collect();
    match (verify_backup_with(&path, &bases, &mut |_| {}), told) {
        // Whether anybody was told or not: what is taken for whole shows the cut.
        (Ok(_), _) => restored(&path, &bases, round, place),
        (Err(error), Ok(_)) => Err(Violation::new(format!("it was told to be whole: {error}"))),
        (Err(_), Err(_)) => {
            let new = options(place.join("refused"));
            let taken = crate::restore_with(&path, &bases, &new, &mut |_| {}).is_ok();
            let _ = std::fs::remove_dir_all(place.join("refused"));
            Violation::unless(!taken, || "what is not verified was restored".into())
        }
    }
}

/// A backup that was taken for whole: the store that is made of it holds what there was at the cut.
fn restored(path: &Path, bases: &[PathBuf], round: u8, place: &Path) -> std::result::Result<(), Violation> {
    let new = options(place.join("restored"));
    let _ = std::fs::remove_dir_all(place.join("restored"));
    crate::restore_with(path, bases, &new, &mut |_| {})?;
    let mut store = Store::open(&new)?;
    let wrong = (0..120).find(|number| store.get(&key(*number)).unwrap() != Some(value(round, *number)));
    Violation::unless(wrong.is_none() && store.len() == 120, || format!("key {wrong:?} is wrong"))
}

fn explored(name: &str, seed: u64, runs: u64, broken: Option<&'static str>) -> Report {
    let place = Place::new(name);
    let all = taken(&place.0);
    let settings = ExploreSettings { max_minimise_runs: 20, ..ExploreSettings::random(seed, runs) };
    explore(settings, |choices| {
        let which = choices.choose(2, "whole, or since another one") as usize;
        written((choices, broken), (&all[which], which as u8 + 1), &place.0)
    })
}

/// The crash marks `backup_without_manifest` and `backup_without_place` lie on its way.
#[test]
fn what_power_leaves_of_a_backup_is_whole_or_refused() {
    explored("clean", sampled_seed(61), sampled_runs(250), None).assert_clean();
}

#[test]
fn every_step_of_the_writer_is_needed() {
    for rule in [
        "frames are durable before the manifest has its name",
        "the manifest is durable before it has its name",
        "names are durable when it is told",
        "the directory is durable when it is told",
    ] {
        assert_caught(rule, || explored("mutated", 4711, 400, Some(rule)));
    }
}
