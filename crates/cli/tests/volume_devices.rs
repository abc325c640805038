//! Volumes on block devices: loop devices over files, one of which dies under a server. Needs root and loop devices; where
//! there are none it says so and is skipped.

use crate::common::{Folder, Server, program, seed, spawn_command};
use crate::load::{Load, Round};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tierstone_base::SeededRandom;
use tierstone_media::file::{Discards, SingleFile, SingleFileSettings};
use tierstone_media::{BlockDevice, IoBuffer, IoCompletion, IoKind, IoRequest, Wait};

const BYTES: u64 = 24 << 20;

/// A loop device over a file of its own.
struct Loop {
    file: PathBuf,
    device: String,
}

impl Loop {
    fn new(folder: &Folder, name: &str) -> Result<Loop, String> {
        let file = folder.path(name);
        let made = std::fs::File::create(&file).and_then(|made| made.set_len(BYTES));
        made.map_err(|error| error.to_string())?;
        let output = Command::new("losetup").args(["--show", "-f"]).arg(&file).output();
        let output = output.map_err(|error| format!("losetup: {error}"))?;
        let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match output.status.success() && Path::new(&device).exists() {
            true => Ok(Loop { file, device }),
            false => Err(format!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// The disk dies: all but its first MiB is gone, and what is written there fails.
    fn die(&self) {
        let file = std::fs::File::options().write(true).open(&self.file).expect("it is there");
        file.set_len(1 << 20).expect("it is cut");
        let told = Command::new("losetup").arg("-c").arg(&self.device).status().expect("losetup runs");
        assert!(told.success());
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

/// So many loop devices, or the reason why there are none.
fn loops(folder: &Folder, count: usize) -> Option<Vec<Loop>> {
    match (0..count).map(|at| Loop::new(folder, &format!("backing-{at}"))).collect() {
        Ok(loops) => Some(loops),
        Err(reason) => {
            println!("SKIP: volumes on loop devices ({reason})");
            None
        }
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn volume(folder: &Folder, command: &str, more: &[&str]) -> Output {
    let mut program = program();
    program.args(["volume", command]).arg(folder.path("volume.toml")).args(more);
    program.output().expect("the program runs")
}

fn well(folder: &Folder, command: &str, more: &[&str]) -> String {
    let output = volume(folder, command, more);
    assert_eq!(output.status.code(), Some(0), "{command}: {}", text(&output));
    text(&output)
}

fn server(folder: &Folder) -> Server {
    let mut command = program();
    command.arg("server").arg("--data").arg(folder.path("volume.toml"));
    command.args(["--listen", "127.0.0.1:0", "--memory", "32MiB", "--shards", "2"]);
    match spawn_command(folder, command).listening() {
        Ok(server) => server,
        Err(status) => panic!("the server ended before it listened: {status}"),
    }
}

#[test]
fn a_mirror_on_block_devices_loses_one_under_load_and_takes_another_while_it_serves() {
    let folder = Folder::new();
    let Some(disks) = loops(&folder, 3) else { return };
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    let [first, second, spare] = [0, 1, 2].map(|at: usize| disks[at].device.as_str());
    well(&folder, "create", &[first, second, "--level", "1", "--segment-size", "128KiB"]);
    let server = server(&folder);
    let address = server.address.to_string();
    let mut load = Load::new(random.next_u64());
    load.run(server.address, &Round::whole(1_000), &|| {});
    let busy = volume(&folder, "check", &[]);
    assert_eq!(busy.status.code(), Some(2), "another process has it: {}", text(&busy));
    disks[1].die();
    load.run(server.address, &Round::whole(1_500), &|| {});
    let info = server.info_text("volume");
    assert!(
        info.contains("volume_state:degraded") && info.contains("volume_failed:1"),
        "seed {seed}: {info}"
    );
    let said = well(&folder, "replace", &["1", spare, "--server", &address]);
    assert!(said.contains("the volume is whole"), "seed {seed}: {said}");
    load.run(server.address, &Round::whole(500), &|| {});
    server.stop();
    assert!(well(&folder, "check", &[]).contains(" 0 differ"), "seed {seed}");
    disks[0].die();
    let server = self::server(&folder);
    load.verify(server.address).assert_clean(&format!("seed {seed}, on the new disk alone"));
}

#[test]
fn discarded_space_of_a_block_device_goes_back_and_reads_as_zeros() {
    let folder = Folder::new();
    let Some(disks) = loops(&folder, 1) else { return };
    let settings = SingleFileSettings { discards: Discards::Devices, ..SingleFileSettings::default() };
    let file = SingleFile::open(Path::new(&disks[0].device), &settings).expect("it opens");
    let mut device = file.device().expect("a handle");
    if !device.discards_to_zeros() {
        println!("SKIP: discards of loop devices (the kernel says that this one leaves no zeros)");
        return;
    }
    let mut perform = |request: IoRequest| -> IoCompletion {
        device.submit(&mut vec![request]);
        let mut done = Vec::new();
        device.complete(Wait::All, &mut done);
        done.pop().expect("it completes")
    };
    let mut bytes = IoBuffer::zeroed(8 << 20);
    bytes.fill(7);
    perform(IoRequest::write_durable(0, 1 << 20, bytes)).result.expect("it is written");
    let blocks = || std::fs::metadata(&disks[0].file).expect("it is there").blocks();
    let before = blocks();
    let kind = IoKind::Discard { len: 4 << 20 };
    perform(IoRequest { token: 1, kind, offset: 2 << 20, buffer: None }).result.expect("it is discarded");
    assert!(blocks() < before, "{} blocks of {before}", blocks());
    let read = perform(IoRequest::read(2, 1 << 20, IoBuffer::zeroed(8 << 20))).buffer.expect("it is read");
    let gone = 1 << 20..5 << 20;
    assert!(read.iter().enumerate().all(|(at, byte)| *byte == if gone.contains(&at) { 0 } else { 7 }));
}
