//! A region as a block device: what every device promises, and what a crash leaves of its blocks.

use super::*;
use crate::conformance::{self, ConformanceMedium};
use crate::region::region_test::Scratch;
use crate::region::{MappedRegion, RegionSettings, SimRegion};
use crate::{BLOCK_BYTES, IoBuffer};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use tierstone_crash::{
    Choices, ExploreSettings, Mutations, Report, SurvivorSettings, Violation, assert_all_caught, explore,
};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The device does not begin at the region's start, nor at a block.
const START: u64 = 192;

fn geometry() -> Geometry {
    Geometry { meta_bytes: 4 * BLOCK, segment_bytes: 64 * 1024, segment_limit: 4 }
}

/// Room before and behind the device.
fn region_bytes() -> u64 {
    START + geometry().end() + BLOCK
}

/// Whether nothing was written outside the device.
fn edges_are_zeros(region: &dyn Region) -> bool {
    let mut edges = vec![0; START as usize];
    region.load(0, &mut edges);
    let mut behind = vec![0; BLOCK_BYTES];
    region.load(START + geometry().end(), &mut behind);
    edges.iter().chain(&behind).all(|byte| *byte == 0)
}

/// Reopening takes the power away; the choices keep as little as they may.
struct Simulated<const UNIT: usize>(Rc<SimRegion<UNIT>>);

impl<const UNIT: usize> ConformanceMedium for Simulated<UNIT> {
    type Device = RegionDevice<Rc<SimRegion<UNIT>>>;

    fn device(&mut self) -> Self::Device {
        RegionDevice::new(Rc::clone(&self.0), START, geometry()).unwrap()
    }

    fn reopen(&mut self) {
        self.0.lose_power(&Choices::quiet(), &SurvivorSettings::default());
    }
}

impl<const UNIT: usize> Drop for Simulated<UNIT> {
    fn drop(&mut self) {
        assert!(edges_are_zeros(&*self.0), "a device stays in its range");
    }
}

/// A file that is mapped anew.
struct Filed {
    scratch: Scratch,
    region: Option<Arc<MappedRegion>>,
}

impl ConformanceMedium for Filed {
    type Device = RegionDevice<Arc<dyn Region + Send + Sync>>;

    fn device(&mut self) -> Self::Device {
        let path = self.scratch.path().join("region");
        let region = self.region.get_or_insert_with(|| {
            let settings = RegionSettings::default();
            let region = match path.exists() {
                true => MappedRegion::open(&path, &settings),
                false => MappedRegion::create(&path, region_bytes(), &settings),
            };
            Arc::new(region.unwrap())
        });
        let region: Arc<dyn Region + Send + Sync> = Arc::<MappedRegion>::clone(region);
        RegionDevice::new(region, START, geometry()).unwrap()
    }

    fn reopen(&mut self) {
        let region = self.region.take().expect("it was open");
        assert!(edges_are_zeros(&*region), "a device stays in its range");
        assert!(Arc::into_inner(region).is_some(), "all handles are gone");
    }
}

#[test]
fn a_device_in_a_region_passes_the_suite_of_all_devices() {
    conformance::run(|_| Simulated::<64>(Rc::new(SimRegion::new(region_bytes()))));
    conformance::run(|_| Simulated::<8>(Rc::new(SimRegion::new(region_bytes()))));
    conformance::run(|name| {
        let scratch = Scratch::new(&format!("region-device-{}", name.replace(' ', "-")));
        Filed { scratch, region: None }
    });
}

#[test]
fn a_handle_may_go_to_another_thread_where_its_region_may() {
    fn goes<T: Send>(device: T) -> T {
        device
    }
    let region = MappedRegion::anonymous(region_bytes(), &RegionSettings::default()).unwrap();
    let device = goes(RegionDevice::new(Arc::new(region), START, geometry()).unwrap());
    assert_eq!(
        (device.guarantee(), device.durable_write_scope()),
        (Guarantee::Emulated, DurableWriteScope::WholeDevice)
    );
}

fn run_one(device: &mut impl BlockDevice, request: IoRequest) -> IoCompletion {
    device.submit(&mut vec![request]);
    let mut completions = Vec::new();
    assert_eq!(device.complete(Wait::One, &mut completions), 1);
    completions.remove(0)
}

fn filled(value: u64, blocks: usize) -> IoBuffer {
    let mut buffer = IoBuffer::zeroed(blocks * BLOCK_BYTES);
    buffer.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    buffer
}

/// A durable write over an older one, power cut anywhere; `seen` gets what words of the block were left.
fn overwritten<const UNIT: usize>(
    how: ExploreSettings,
    rules: &Mutations,
    second: fn(u64, u64, IoBuffer) -> IoRequest,
    seen: &mut BTreeSet<BTreeSet<u64>>,
) -> Report {
    explore(how, |choices| {
        let region = Rc::new(SimRegion::<UNIT>::new(region_bytes()).with_cuts(choices, 4));
        let mut device =
            RegionDevice::new(Rc::clone(&region), START, geometry()).unwrap().with_mutations(rules.clone());
        let old = run_one(&mut device, IoRequest::write_durable(1, 2 * BLOCK, filled(1, 1))).result.is_ok();
        let new = run_one(&mut device, second(2, 2 * BLOCK, filled(2, 1))).result.is_ok();
        region.lose_power(choices, &SurvivorSettings::default());
        let found = run_one(&mut device, IoRequest::read(3, 2 * BLOCK, filled(9, 1)));
        let block = found.buffer.ok_or("a read lost its buffer")?;
        let words: BTreeSet<u64> =
            block.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let legal: &[u64] = match (old, new) {
            (_, true) => &[2],
            (true, false) => &[1, 2],
            // The power was gone before the first completed, so that the second did nothing.
            (false, false) => &[0, 1],
        };
        let holds = words.iter().all(|word| legal.contains(word));
        seen.insert(words.clone());
        Violation::unless(holds, || format!("{words:?} where {legal:?} may be; completed: {old}, {new}"))
    })
}

#[test]
fn a_write_that_completed_is_whole_and_one_that_did_not_is_torn_by_words() {
    // The crash mark region-block-torn.
    for second in [IoRequest::write_durable, IoRequest::write] {
        let mut seen = BTreeSet::new();
        let how = || ExploreSettings::random(77, 400);
        assert_all_caught(&["writes are fenced before they complete"], |rules| {
            overwritten::<8>(how(), rules, second, &mut seen)
        });
        overwritten::<64>(how(), &Mutations::none(), second, &mut seen).assert_clean();
        for expected in [&[1][..], &[2], &[1, 2], &[0, 1]] {
            assert!(seen.contains(&expected.iter().copied().collect()), "{expected:?} in {seen:?}");
        }
    }
}

#[test]
fn after_the_loss_of_power_nothing_completes_well_but_reads() {
    let all = explore(ExploreSettings::exhaustive(), |choices| {
        let region = Rc::new(SimRegion::<64>::new(region_bytes()).with_cuts(choices, 1));
        let mut device = RegionDevice::new(Rc::clone(&region), START, geometry()).unwrap();
        let mut requests = vec![
            IoRequest::write(0, 0, filled(1, 1)),
            IoRequest::read(1, 0, filled(9, 1)),
            IoRequest::flush(2),
            IoRequest { token: 3, kind: IoKind::Prepare { len: BLOCK }, offset: 4 * BLOCK, buffer: None },
        ];
        device.submit(&mut requests);
        assert_eq!(device.in_flight(), 4);
        assert_eq!(device.clone().in_flight(), 0, "a clone has nothing in flight");
        let mut completions = Vec::new();
        device.complete(Wait::Poll, &mut completions);
        let good: Vec<bool> = completions.iter().map(|done| done.result.is_ok()).collect();
        let on = region.power_is_on();
        Violation::unless(good == [on, true, on, true], || format!("{good:?} with power {on}"))?;
        let flush = run_one(&mut device, IoRequest::flush(4)).result;
        let kind = flush.map_err(|error| error.kind);
        let expected = if region.power_is_on() { Ok(()) } else { Err(DeviceErrorKind::Failed) };
        Violation::unless(kind == expected, || format!("a flush: {kind:?}"))
    });
    assert!(all.assert_exhausted().runs > 2);
}

#[test]
fn a_geometry_that_does_not_fit_is_refused() {
    let region = Rc::new(SimRegion::<64>::new(region_bytes()));
    let made = |start, geometry| RegionDevice::new(Rc::clone(&region), start, geometry).map(|_| ());
    let good = geometry();
    assert!(made(START, good).is_ok());
    let wrong = [
        (START + 8, good),
        (START + BLOCK + 64, good),
        (u64::MAX - 63, good),
        (START, Geometry { meta_bytes: 100, ..good }),
        (START, Geometry { segment_bytes: 0, ..good }),
        (START, Geometry { segment_bytes: BLOCK + 512, ..good }),
        (START, Geometry { segment_limit: 0, ..good }),
        (START, Geometry { segment_limit: 5, ..good }),
        (START, Geometry { segment_bytes: 1 << 40, segment_limit: u32::MAX, ..good }),
        (START, Geometry { meta_bytes: u64::MAX - BLOCK + 1, ..good }),
    ];
    for (start, geometry) in wrong {
        let error = made(start, geometry).expect_err(&format!("{start} {geometry:?}"));
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}
