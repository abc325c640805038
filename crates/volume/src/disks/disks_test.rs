//! Trees as `/sys` has them, and disks that answer as real ones do.

use super::*;
use std::io;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A tree of our own, removed at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let root = std::env::temp_dir().join(format!("tierstone-disks-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("dev/block")).expect("made");
        Tree(root)
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().expect("has one")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    /// A whole disk at `place` with a number.
    fn disk(&self, place: &str, number: &str, rotational: &str, model: &str) {
        self.file(&format!("{place}/dev"), &format!("{number}\n"));
        self.file(&format!("{place}/queue/rotational"), &format!("{rotational}\n"));
        self.file(&format!("{place}/device/model"), &format!("{model}\n"));
        let name = place.rsplit('/').next().expect("a name");
        self.file(&format!("{place}/uevent"), &format!("MAJOR=8\nDEVNAME={name}\n"));
        std::fs::create_dir_all(self.0.join(place).join("holders")).expect("made");
        symlink(self.0.join(place), self.0.join("dev/block").join(number)).expect("linked");
    }

    fn partition(&self, disk: &str, name: &str, number: &str) {
        self.file(&format!("{disk}/{name}/partition"), "1\n");
        symlink(self.0.join(disk).join(name), self.0.join("dev/block").join(number)).expect("linked");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SDA: &str = "devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda";
const SDB: &str = "devices/pci0000:00/0000:00:17.0/ata2/host1/target1:0:0/1:0:0:0/block/sdb";

/// Registers as descriptor sense data.
fn sense(status: u8, error: u8, count: u8) -> Vec<u8> {
    let mut bytes = vec![0x72, 1, 0, 0x1d, 0, 0, 0, 14, 0x09, 12];
    bytes.extend_from_slice(&[0, error, 0, count, 0, 0, 0, 0, 0, 0, 0, status]);
    bytes
}

/// A disk that keeps its mode and counts commands.
#[derive(Clone, Default)]
struct Disk {
    mode: Arc<AtomicU8>,
    commands: Arc<AtomicU64>,
    is_stubborn: bool,
}

impl Disk {
    fn machine(&self, tree: &Tree) -> Machine {
        let disk = self.clone();
        disk.mode.store(0xff, Ordering::Relaxed);
        Machine {
            sys: tree.0.clone(),
            look: Box::new(|path| match path.to_str() {
                Some("/") => Ok(((8, 33), false)),
                Some("/dev/null") => Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "is neither a block device nor a file on one",
                )),
                Some(text) => {
                    let mut parts = text.split(':').map(str::parse);
                    match (parts.next(), parts.next(), parts.next()) {
                        (Some(Ok(major)), Some(Ok(minor)), Some(Ok(is_device))) => {
                            Ok(((major, minor), is_device == 1))
                        }
                        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
                    }
                }
                None => Err(io::Error::from(io::ErrorKind::NotFound)),
            }),
            send: Box::new(move |node, number, envelope| {
                assert_eq!((envelope[0], envelope[1], envelope[2]), (0x85, 6, 0x20));
                assert!(node.starts_with("/dev") && number.0 == 8, "{node:?}");
                disk.commands.fetch_add(1, Ordering::Relaxed);
                match envelope[14] {
                    0xe0 if disk.is_stubborn => {}
                    0xe0 => disk.mode.store(0, Ordering::Relaxed),
                    0xe5 => {}
                    other => panic!("command {other:#x} is never sent"),
                }
                Ok(sense(0x50, 0, disk.mode.load(Ordering::Relaxed)))
            }),
        }
    }
}

/// The path that the machine of these tests takes for a device number, as a device or a file on it.
fn path(number: &str, is_device: bool) -> PathBuf {
    PathBuf::from(format!("{number}:{}", u8::from(is_device)))
}

fn refusal(machine: &Machine, path: &Path) -> (RefusalKind, String) {
    let report = probe_on(machine, path);
    let refusal = report.power.clone().expect_err("refused");
    assert!(report.to_string().contains(&refusal.message), "{report}");
    (refusal.kind, refusal.message)
}

#[test]
fn a_turning_ata_disk_without_other_users_can_be_stopped() {
    let tree = Tree::new("fit");
    tree.disk(SDA, "8:0", "1", "ST1000");
    tree.disk(SDB, "8:16", "1", "ST2000");
    tree.partition(SDB, "sdb1", "8:17");
    let disk = Disk::default();
    let machine = disk.machine(&tree);
    let report = probe_on(&machine, &path("8:0", true));
    assert_eq!((report.disk.as_deref(), report.model.as_deref()), (Some("sda"), Some("ST1000")));
    assert_eq!(report.power, Ok(PowerMode::Active));
    assert!(report.to_string().ends_with("sda can be stopped; it is active or idle now"), "{report}");
    // Its only partition, or a file on a file system there, stands for the disk.
    for is_device in [true, false] {
        assert_eq!(probe_on(&machine, &path("8:17", is_device)).disk.as_deref(), Some("sdb"));
    }
    let mut spindle =
        DiskSpindle::open_on(machine, &[path("8:0", true), path("8:17", true)]).expect("both fit");
    let log = spindle.log();
    spindle.stop(1);
    assert_eq!(disk.mode.load(Ordering::Relaxed), 0);
    let stops = DiskStops { disk: "sdb".into(), stopped: 1, stands: true, ..DiskStops::default() };
    assert_eq!(log.disks()[1], stops);
    spindle.start(1);
    assert_eq!(log.disks()[1], DiskStops { stands: false, ..stops });
    spindle.stop(7);
    assert_eq!(log.disks()[0], DiskStops { disk: "sda".into(), ..DiskStops::default() });
}

#[test]
fn what_cannot_or_may_not_be_stopped_is_refused_in_words_and_gets_no_command() {
    let tree = Tree::new("unfit");
    tree.disk(SDA, "8:0", "1", "ST1000");
    tree.partition(SDA, "sda1", "8:1");
    tree.partition(SDA, "sda2", "8:2");
    tree.disk(SDB, "8:16", "0", "SSD 860");
    let root = "devices/pci0000:00/ata3/host2/block/sdc";
    tree.disk(root, "8:32", "1", "ST3000");
    tree.partition(root, "sdc1", "8:33");
    tree.disk("devices/pci0000:00/nvme/nvme0/nvme0n1", "259:0", "0", "fast");
    tree.disk("devices/virtual/block/dm-0", "253:0", "1", "");
    tree.disk("devices/pci0000:00/virtio1/block/vda", "254:0", "1", "");
    tree.disk("devices/pci0000:00/ata4/block/sdd", "8:48", "1", "QEMU HARDDISK");
    tree.disk("devices/platform/mmc0/block/mmcblk0", "179:0", "0", "card");
    let held = "devices/pci0000:00/ata5/block/sde";
    tree.disk(held, "8:64", "1", "ST5000");
    tree.file(&format!("{held}/holders/md0/x"), "");
    tree.disk("devices/pci0000:00/ata6/block/sdf", "8:80", "perhaps", "ST");
    tree.disk("devices/pci0000:00/ata7/block/sdg", "8:96", "1", "ST");
    tree.file("devices/pci0000:00/ata7/block/sdg/dev", "what");
    let disk = Disk::default();
    let machine = disk.machine(&tree);
    for (number, is_device, kind, word) in [
        ("8:0", true, RefusalKind::Shared, "2 partitions"),
        ("8:1", true, RefusalKind::Shared, "1 other partitions"),
        ("8:16", true, RefusalKind::Flash, "flash"),
        ("8:33", false, RefusalKind::Shared, "root file system"),
        ("259:0", true, RefusalKind::Nvme, "NVMe"),
        ("253:0", true, RefusalKind::Virtual, "software"),
        ("254:0", false, RefusalKind::Virtual, "virtual machine"),
        ("8:48", true, RefusalKind::Virtual, "virtual machine"),
        ("179:0", true, RefusalKind::Flash, "card"),
        ("8:64", true, RefusalKind::Shared, "md0 is made of sde"),
        ("8:80", true, RefusalKind::Flash, "does not say"),
        ("8:96", true, RefusalKind::NotFound, "no number"),
        ("0:40", false, RefusalKind::NoBlockDevice, "0:40"),
    ] {
        let (found, message) = refusal(&machine, &path(number, is_device));
        assert_eq!(found, kind, "{number}: {message}");
        assert!(message.contains(word), "{number}: {message}");
    }
    assert_eq!(refusal(&machine, Path::new("/dev/null")).0, RefusalKind::NoBlockDevice);
    assert_eq!(refusal(&machine, Path::new("elsewhere")).0, RefusalKind::NotFound);
    assert_eq!(disk.commands.load(Ordering::Relaxed), 0);
    let error =
        DiskSpindle::open_on(machine, &[path("8:16", true), path("259:0", true)]).expect_err("refused");
    assert!(error.message().contains("sdb does not turn") && error.message().contains("NVMe"), "{error}");
}

#[test]
fn disks_that_answer_otherwise_are_refused_and_failed_stops_are_told() {
    let tree = Tree::new("answers");
    tree.disk(SDA, "8:0", "1", "ST1000");
    let at = path("8:0", true);
    let answers: [(io::Result<Vec<u8>>, RefusalKind, &str); 6] = [
        (Err(io::Error::from_raw_os_error(libc::EPERM)), RefusalKind::NoPermission, "CAP_SYS_RAWIO"),
        (Err(io::Error::from_raw_os_error(libc::ENOTTY)), RefusalKind::NotAta, "no ATA commands"),
        (Err(io::Error::from_raw_os_error(libc::EIO)), RefusalKind::Failed, "failed"),
        (Ok(sense(0x51, 0x04, 0)), RefusalKind::Failed, "status 0x51, error 0x04"),
        (Ok(vec![0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0]), RefusalKind::NotAta, "no ATA registers"),
        (Ok(Vec::new()), RefusalKind::NotAta, "no ATA registers"),
    ];
    for (answer, kind, word) in answers {
        let answer = Mutex::new(Some(answer));
        let send = move |_: &Path, _, _: &[u8; 16]| {
            let answer = answer.lock().expect("one thread").take();
            answer.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::Other)))
        };
        let machine = Machine { send: Box::new(send), ..Disk::default().machine(&tree) };
        let (found, message) = refusal(&machine, &at);
        assert!(found == kind && message.contains(word), "{message}");
    }
    let stubborn = Disk { is_stubborn: true, ..Disk::default() };
    let mut spindle = DiskSpindle::open_on(stubborn.machine(&tree), std::slice::from_ref(&at)).expect("fits");
    spindle.stop(0);
    let stops = spindle.log().disks().remove(0);
    assert_eq!((stops.stopped, stops.failed, stops.stands), (0, 1, false));
    assert!(stops.last_failure.expect("told").contains("active or idle after it was told to stand"));
    let error = DiskSpindle::open_on(Disk::default().machine(&tree), &[at.clone(), at]).expect_err("refused");
    assert!(error.message().contains("they would stop together"), "{error}");
    // A disk that has become another device since is not commanded.
    let disk = Disk::default();
    let mut spindle = DiskSpindle::open_on(disk.machine(&tree), &[path("8:0", true)]).expect("fits");
    let before = disk.commands.load(Ordering::Relaxed);
    for (nth, (file, text)) in
        [("queue/rotational", "0"), ("dev", "8:112"), ("holders/md1/x", "")].into_iter().enumerate()
    {
        let path = format!("{SDA}/{file}");
        let held = std::fs::read_to_string(tree.0.join(&path)).unwrap_or_default();
        tree.file(&path, text);
        spindle.stop(0);
        let failed = spindle.log().disks()[0].failed;
        assert_eq!((disk.commands.load(Ordering::Relaxed), failed), (before, nth as u64 + 1), "{file}");
        tree.file(&path, &held);
    }
}

#[test]
fn registers_are_read_from_both_forms_of_sense_data_and_hostile_ones_never_panic() {
    let registers =
        |sense: &[u8]| ata::Answer::of(sense).map(|answer| (answer.status, answer.error, answer.count));
    assert_eq!(registers(&sense(0x50, 1, 0x81)), Some((0x50, 1, 0x81)));
    let mut other_first = vec![0x72, 1, 0, 0x1d, 0, 0, 0, 18, 0x00, 2, 7, 7];
    other_first.extend_from_slice(&sense(0x50, 0, 0xff)[8..]);
    assert_eq!(registers(&other_first), Some((0x50, 0, 0xff)));
    let fixed = [0xf0, 0, 1, 4, 0x51, 0, 0x80, 10, 0, 0, 0, 0, 0, 0x1d];
    assert_eq!(registers(&fixed), Some((0x51, 4, 0x80)));
    for len in 0..22 {
        assert_eq!(registers(&sense(0x50, 1, 0x81)[..len]), None, "{len}");
    }
    let modes = [0x00, 0x80, 0xff, 0x33].map(PowerMode::of);
    assert_eq!(modes, [PowerMode::Standby, PowerMode::Idle, PowerMode::Active, PowerMode::Unknown(0x33)]);
}

proptest::proptest! {
    #[test]
    fn hostile_sense_data_never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
        let mut bytes = bytes;
        for form in [0x70, 0x72] {
            if let Some(first) = bytes.first_mut() {
                *first = form;
            }
            let _ = ata::Answer::of(&bytes);
        }
    }
}

#[test]
fn the_disk_under_this_test_is_answered_for_and_nothing_is_stopped() {
    // Whatever machine this is: a verdict in words, or the mode of a disk.
    let report = probe(&std::env::temp_dir());
    assert!(!report.to_string().is_empty());
    assert_eq!(probe(Path::new("/dev/null")).power.expect_err("refused").kind, RefusalKind::NoBlockDevice);
    assert_eq!(probe(Path::new("/no/such/path")).power.expect_err("refused").kind, RefusalKind::NotFound);
}
