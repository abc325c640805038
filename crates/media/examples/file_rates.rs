//! Measures both back-ends on one directory: durable writes and random reads at several depths and lengths.
//!
//! `cargo run --release -p tierstone-media --example file_rates -- DIRECTORY [SECONDS]`; the
//! directory must not exist; it is made and removed. CPU time is that of the whole process.

use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::path::PathBuf;
use tierstone_base::{SeededRandom, SystemClock};
use tierstone_media::file::{DurableMethod, FileBackend, FileDevice, FileStore, FileStoreSettings};
use tierstone_media::probe::load::{Load, run};
use tierstone_media::{BlockDevice, IoKind, IoRequest, Wait};

const SEGMENT_BYTES: u64 = 64 << 20;
const SEGMENTS: u32 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("name a directory that does not exist yet")?);
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    std::fs::create_dir(&directory)?;
    let measured = measure(&directory, (seconds * 1e6) as u64);
    std::fs::remove_dir_all(&directory)?;
    measured
}

fn measure(directory: &std::path::Path, budget_us: u64) -> Result<(), Box<dyn Error>> {
    println!("back-end  method          request         KiB depth  per second  p50 us  p99 us  CPU-us");
    let settings = |backend| FileStoreSettings {
        segment_bytes: SEGMENT_BYTES,
        segment_limit: SEGMENTS,
        backend,
        ..FileStoreSettings::new(vec![directory.to_path_buf()])
    };
    fill(&mut FileStore::open(&settings(FileBackend::Auto))?.device(DurableMethod::DurableWrite)?)?;
    for backend in [FileBackend::IoUring, FileBackend::Threads] {
        let store = FileStore::open(&settings(backend))?;
        for method in [DurableMethod::DurableWrite, DurableMethod::WriteThenFlush] {
            let mut device = store.device(method)?;
            for depth in [1, 4, 16] {
                report(&mut device, method, IoKind::WriteDurable, 4096, depth, budget_us)?;
            }
            for bytes in [64 << 10, 512 << 10] {
                report(&mut device, method, IoKind::WriteDurable, bytes, 1, budget_us)?;
                report(&mut device, method, IoKind::Read, bytes, 1, budget_us)?;
            }
            for depth in [1, 32, 128] {
                if method == DurableMethod::DurableWrite {
                    report(&mut device, method, IoKind::Read, 4096, depth, budget_us)?;
                }
            }
        }
    }
    Ok(())
}

/// Prepares all segments and writes them full.
fn fill(device: &mut FileDevice) -> Result<(), Box<dyn Error>> {
    let geometry = device.geometry();
    let len = SEGMENT_BYTES * u64::from(SEGMENTS);
    let (mut completions, offset) = (Vec::new(), geometry.segment_offset(0));
    device.submit(&mut vec![IoRequest { token: 0, kind: IoKind::Prepare { len }, offset, buffer: None }]);
    device.complete(Wait::All, &mut completions);
    completions.into_iter().try_for_each(|done| done.result)?;
    let load = Load {
        kind: IoKind::Write,
        start: offset,
        len,
        request_bytes: 1 << 20,
        random: false,
        depth: 4,
        budget_us: u64::MAX,
        most_requests: len >> 20,
    };
    let rate = run(device, &SystemClock::new(), &mut SeededRandom::new(1), &load)?;
    println!("filled at {:.0} MiB/s", rate.per_second);
    Ok(())
}

fn report(
    device: &mut FileDevice,
    method: DurableMethod,
    kind: IoKind,
    request_bytes: usize,
    depth: u32,
    budget_us: u64,
) -> Result<(), Box<dyn Error>> {
    let load = Load {
        kind,
        start: device.geometry().segment_offset(0),
        len: SEGMENT_BYTES * u64::from(SEGMENTS),
        request_bytes,
        random: true,
        depth,
        budget_us,
        most_requests: u64::MAX,
    };
    let before = cpu_us();
    let rate = run(device, &SystemClock::new(), &mut SeededRandom::new(u64::from(depth)), &load)?;
    let cpu = (cpu_us() - before) / rate.requests as f64;
    println!(
        "{:9} {:15} {:14} {:4} {:5} {:11.0} {:7} {:7} {cpu:7.1}",
        format!("{:?}", device.backend()),
        format!("{method:?}"),
        format!("{kind:?}"),
        request_bytes >> 10,
        depth,
        rate.per_second,
        rate.p50_us,
        rate.p99_us
    );
    Ok(())
}

/// CPU time of this process in microseconds.
fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
