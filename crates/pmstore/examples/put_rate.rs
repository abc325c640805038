//! What a durable put costs on one thread: `put_rate REGION VALUE_BYTES PUTS KEYS`, each put followed by its fence.
//!
//! REGION is `PATH` or `emulated:SIZE[:PRESET]`, as everywhere. Prints percentiles in nanoseconds, then those of gets.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result, SeededRandom};
use tierstone_engine::{Engine, Key, Lookup, Write, WriteKind};
use tierstone_media::region::{Region, RegionSettings, RegionSource};
use tierstone_pmstore::{Keyspace, OpenSettings, PmShard};

const KEYSPACE: KeyspaceId = KeyspaceId(1);

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

fn number(text: Option<String>, otherwise: u64) -> Result<u64> {
    text.map_or(Ok(otherwise), |text| text.parse().map_err(|_| wrong(format!("{text} is no number"))))
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let source: RegionSource = arguments.next().unwrap_or_else(|| "emulated:1GiB".to_owned()).parse()?;
    let value_bytes = number(arguments.next(), 128)? as usize;
    let puts = number(arguments.next(), 1_000_000)?;
    let keys = number(arguments.next(), 100_000)?.max(1);
    let region: Arc<dyn Region + Send + Sync> =
        Arc::new(source.open_or_create(1 << 30, &RegionSettings::default())?.0);
    let keyspaces = vec![Keyspace { id: KEYSPACE, index: Default::default() }];
    let opened = tierstone_pmstore::open(region, &OpenSettings { keyspaces, ..OpenSettings::default() })?;
    let plan = opened.plans.into_iter().next().ok_or_else(|| wrong("no shard".to_owned()))?;
    let (mut shard, _) = plan.build()?;
    let clock = SystemClock::new();
    let mut random = SeededRandom::new(7);
    let value = vec![7; value_bytes];
    let (mut put_ns, mut get_ns) = (Vec::new(), Vec::new());
    let name = |number: u64| format!("key:{number:012}");
    for count in 0..puts + keys {
        let name = name(if count < keys { count } else { random.below(keys) });
        let key = Key {
            keyspace: KEYSPACE,
            position: opened.hasher.position(name.as_bytes()),
            bytes: name.as_bytes(),
        };
        let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
        let begun = std_now();
        put(&mut shard, &clock, &[Write { key, kind }])?;
        if count >= keys {
            put_ns.push(begun.elapsed().as_nanos() as u64);
        }
    }
    for _ in 0..puts {
        let name = name(random.below(keys));
        let key = Key {
            keyspace: KEYSPACE,
            position: opened.hasher.position(name.as_bytes()),
            bytes: name.as_bytes(),
        };
        let begun = std_now();
        let found =
            matches!(shard.lookup(clock.now(), key), Lookup::Found(view) if view.value.len() == value_bytes);
        get_ns.push(begun.elapsed().as_nanos() as u64);
        if !found {
            return Err(wrong(format!("{name} is not there")));
        }
    }
    print("put and fence", &mut put_ns);
    print("get", &mut get_ns);
    println!("{:?}", shard.statistics());
    Ok(())
}

/// A put whose answer may leave when this returns.
fn put(shard: &mut PmShard, clock: &SystemClock, writes: &[Write<'_>]) -> Result<()> {
    let mut now = clock.now();
    loop {
        match shard.write(now, writes) {
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::Retry => {}
            Err(error) => return Err(error),
        }
        shard.step(now, &mut Vec::new(), &mut Vec::new());
        now = clock.now();
    }
    shard.step(now, &mut Vec::new(), &mut Vec::new());
    match shard.durable_seq() == shard.applied_seq() {
        true => Ok(()),
        false => Err(wrong("a step made nothing durable".to_owned())),
    }
}

#[expect(clippy::disallowed_methods, reason = "single calls are timed, shorter than the house's clock tells")]
fn std_now() -> std::time::Instant {
    std::time::Instant::now()
}

fn print(what: &str, all: &mut [u64]) {
    all.sort_unstable();
    let at = |part: f64| all.get((all.len() as f64 * part) as usize).copied().unwrap_or(0);
    println!("{what}: p50 {} ns, p99 {} ns, p99.9 {} ns, {} calls", at(0.5), at(0.99), at(0.999), all.len());
}
