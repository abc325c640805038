//! The load of `bench/soak` with real servers: it finds nothing where all is well, over a SIGKILL too, and
//! finds what a server loses that acknowledges before writes are durable.

use crate::common;
use crate::common::{Folder, Server, seed};
use rustix::process::Signal;
use tierstone_base::SeededRandom;
use tierstone_workload::SizeDistribution;
use tierstone_workload::soak::{End, Pace, Soak, SoakSettings};

const OBJECTS: u64 = 12_800;
const SMALL: [&str; 8] =
    ["--segment-size", "128KiB", "--capacity", "16MiB", "--memory", "16MiB", "--shards", "2"];

fn soak(seed: u64) -> Soak {
    let sizes = SizeDistribution::Uniform { min: 100, max: 1_000 };
    let settings = SoakSettings { objects: OBJECTS, connections: 4, pipeline: 32, sizes, page: 500, seed };
    Soak::new(settings).expect("settings in range")
}

/// Asks until a server is killed that has answered for a while.
fn run_until_killed(soak: &mut Soak, server: &mut Server, rate: f64) -> u64 {
    let kill = server.signaller(Signal::KILL);
    let address = server.address.to_string();
    let whole = soak.run(&address, Pace::Open(rate), End::Killed(60.0), &mut |_| kill());
    server.wait();
    whole.expect("the end of a server that is killed is no fault").latency.count
}

#[test]
fn a_load_with_everything_checked_finds_nothing_wrong_over_a_kill() {
    let seed = seed();
    let folder = Folder::new();
    let mut soak = soak(seed);
    let mut server = Server::start(&folder, &SMALL);
    let address = server.address.to_string();
    let filled = soak.run(&address, Pace::Closed(32), End::Filled, &mut |_| {}).expect("it is filled");
    assert_eq!(filled.latency.count, OBJECTS);
    let mut seconds = 0;
    let whole =
        soak.run(&address, Pace::Closed(32), End::After(2.5), &mut |_| seconds += 1).expect("it runs");
    assert!(whole.latency.count > 1_000 && seconds >= 2 && whole.walks > 0, "{seconds} seconds: {whole:?}");
    let counted: u64 = whole.thirds.iter().map(|third| third.count).sum();
    assert_eq!(counted, whole.latency.count);
    assert!(server.info_of_any("cleaned_bytes_written") > 0, "nothing was cleaned");
    assert!(run_until_killed(&mut soak, &mut server, 2_000.0) > 100);
    let server = Server::start(&folder, &SMALL);
    let verified = soak.verify(&server.address.to_string()).expect("everything can be read");
    assert_eq!(verified.objects, OBJECTS);
    assert!(verified.present > OBJECTS * 8 / 10, "{verified:?}");
    assert_eq!(soak.findings().faults, 0, "seed {seed}: {:?}", soak.findings().texts);
    // A database that was emptied behind its back has lost everything.
    common::ask(&mut server.connect(), &[b"FLUSHALL"]);
    soak.verify(&server.address.to_string()).expect("everything can be read");
    assert!(soak.findings().faults > OBJECTS * 8 / 10, "{} faults only", soak.findings().faults);
    server.stop();
}

#[test]
fn writes_that_were_acknowledged_too_early_are_missed_after_a_kill() {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    let relaxed = [&SMALL[..], &["--durability", "relaxed"]].concat();
    for _ in 0..6 {
        let folder = Folder::new();
        let mut soak = soak(random.next_u64());
        let mut server = Server::start(&folder, &relaxed);
        let address = server.address.to_string();
        soak.run(&address, Pace::Closed(32), End::Filled, &mut |_| {}).expect("it is filled");
        run_until_killed(&mut soak, &mut server, 4_000.0);
        assert_eq!(soak.findings().faults, 0, "seed {seed}, before the restart: {:?}", soak.findings().texts);
        let server = Server::start(&folder, &relaxed);
        soak.verify(&server.address.to_string()).expect("everything can be read");
        if soak.findings().faults > 0 {
            println!("{:?}", soak.findings().texts.first());
            return;
        }
    }
    panic!("seed {seed}: six kills of a relaxed server, and nothing was missed");
}
