//! A mixed load for hours that knows what it must be answered: writes, deletes, expiries, increments, batches and
//! reads of them all, with a walk over all keys beside, in a closed or an open loop; second by second.
//!
//! Invariants:
//! 1. Every reply is judged against what was written (`object`): nothing stale, nothing lost, nothing that was
//!    never written, no half of a batch, nothing long after its expiry or long before it.
//! 2. The judgement outlives the server: what was acknowledged before it was killed is looked for by
//!    [`Soak::verify`] in the next one.
//! 3. Memory: 8 bytes an object, 24 for each lease, a bit for each lasting key; it does not grow with time.
//! 4. A walk (SCAN from cursor 0 to cursor 0) gives every key that is there all the time.
//!
//! One thread, so that all connections see one state of what was sent and acknowledged.

mod drive;
mod object;
mod seconds;
mod walk;

use serde::Serialize;
use tierstone_base::{Error, ErrorKind, Result, SeededRandom, SystemClock};

use crate::key::SizeDistribution;
use crate::pacing::Pacing;
use crate::redis_load::{self, Server};
use crate::value::{HEADED_SIZE_MIN_BYTES, ValueMaker, ValueSettings};
use drive::Drive;
use object::{Kind, LeaseTimes, Objects, ROUND, State, kind};
pub use seconds::{Second, Whole};
use walk::Walk;

/// Faults of which the text is kept.
const TEXTS_MAX: usize = 20;
/// The most objects: their number must fit where the walk notes them.
const OBJECTS_MAX: u64 = 1 << 32;
/// The most connections.
const CONNECTIONS_MAX: usize = 1_000;
/// Without a reply for so long a run is given up.
const SILENCE_MAX_US: u64 = 30_000_000;

/// What a soak is made of.
#[derive(Clone, Debug)]
pub struct SoakSettings {
    /// Objects, 64 to 2^32; about one in sixteen has three keys.
    pub objects: u64,
    /// Connections beside that of the walk, 1 to 1,000.
    pub connections: usize,
    /// Operations under way on one connection at most.
    pub pipeline: usize,
    /// Sizes of values, 24 bytes at least.
    pub sizes: SizeDistribution,
    /// Keys of a page of the walk; 0: no walk.
    pub page: u32,
    /// The seed of everything.
    pub seed: u64,
}

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each connection has so many operations under way at all times, no more than its pipeline.
    Closed(usize),
    /// So many operations a second at random, whether answers come or not; latencies count from the
    /// intended time.
    Open(f64),
}

/// How long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// So many seconds, and until everything is answered.
    After(f64),
    /// Until every connection is lost, which is no fault; so many seconds at most.
    Killed(f64),
    /// When every object was written once.
    Filled,
}

/// What was wrong so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// How many answers were wrong.
    pub faults: u64,
    /// What was wrong with the first twenty.
    pub texts: Vec<String>,
}

impl Findings {
    fn add(&mut self, text: String) {
        self.faults += 1;
        if self.texts.len() < TEXTS_MAX {
            self.texts.push(text);
        }
    }
}

/// What a verification read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Objects.
    pub objects: u64,
    /// Of them, those whose keys were there.
    pub present: u64,
    /// Objects with writes that were never answered.
    pub in_doubt: u64,
}

/// The state of all objects.
#[derive(Debug)]
pub struct Soak {
    settings: SoakSettings,
    clock: SystemClock,
    objects: Objects,
    states: Vec<State>,
    leases: Vec<LeaseTimes>,
    walk: Walk,
    random: SeededRandom,
    findings: Findings,
}

impl Soak {
    /// Nothing is written yet. Errors: `InvalidInput` for settings out of their ranges.
    pub fn new(settings: SoakSettings) -> Result<Soak> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidInput, format!("soak: {what}")));
        if !(ROUND..=OBJECTS_MAX).contains(&settings.objects) {
            return refuse("objects must be 64 to 2^32");
        }
        if !(1..=CONNECTIONS_MAX).contains(&settings.connections)
            || settings.connections as u64 > settings.objects
        {
            return refuse("connections must be 1 to 1,000, and no more than objects");
        }
        if !(1..=65_536).contains(&settings.pipeline) {
            return refuse("the pipeline must be 1 to 65,536 deep");
        }
        settings.sizes.validate()?;
        let smallest = match &settings.sizes {
            SizeDistribution::Fixed(size) => Some(*size),
            SizeDistribution::Uniform { min, .. } => Some(*min),
            SizeDistribution::List(sizes) => sizes.iter().copied().min(),
        };
        if smallest.is_none_or(|size| (size as usize) < HEADED_SIZE_MIN_BYTES) {
            return refuse("values must have 24 bytes at least, to carry what they are checked by");
        }
        let values = ValueSettings { size: settings.sizes.clone(), ..ValueSettings::default() };
        let count = settings.objects as usize;
        Ok(Soak {
            clock: SystemClock::new(),
            objects: Objects::new(ValueMaker::new(values, settings.seed)),
            states: vec![State::default(); count],
            leases: vec![LeaseTimes::default(); lease_place(settings.objects) + 2],
            walk: Walk::new(settings.objects, settings.page),
            random: SeededRandom::new(settings.seed ^ 0x736f_616b),
            findings: Findings::default(),
            settings,
        })
    }

    /// What was wrong so far.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Asks the server at `address` until `end`; `each` gets every second as it ends.
    ///
    /// Errors: `Retry` where no connection can be made, where one is lost although nobody was to be killed, and
    /// where no reply comes for half a minute. What was answered wrongly is in [`Soak::findings`].
    pub fn run(
        &mut self,
        address: &str,
        pace: Pace,
        end: End,
        each: &mut dyn FnMut(&Second),
    ) -> Result<Whole> {
        if let Pace::Open(rate) = pace
            && !(rate > 0.0 && rate <= 1e8)
        {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "soak: the rate must be above 0 and at most 10^8",
            ));
        }
        let sockets = self.connect(address)?;
        let whole = Drive::new(self, sockets, end, false)?.run(pace, each);
        // A walk that was broken off begins anew.
        self.walk.restart();
        whole
    }

    /// Reads every object, on a server that was started anew, and judges it; its state is then what was found.
    ///
    /// Errors: as of [`Soak::run`]. What was lost is in [`Soak::findings`].
    pub fn verify(&mut self, address: &str) -> Result<Verified> {
        let in_doubt = self.states.iter().filter(|state| state.sent > state.acknowledged).count() as u64;
        let objects = self.settings.objects;
        let sockets = self.connect(address)?;
        let mut drive = Drive::new(self, sockets, End::Filled, true)?;
        drive.run_all()?;
        Ok(Verified { objects, present: drive.present, in_doubt })
    }

    /// The connections of the load, and that of the walk.
    fn connect(&self, address: &str) -> Result<Vec<tierstone_client::Stream>> {
        let server = Server { address: address.into(), ..Server::default() };
        let pacing = Pacing { timeout_seconds: SILENCE_MAX_US as f64 / 1e6, ..Pacing::default() };
        (0..=self.settings.connections).map(|_| redis_load::connect(&server, None, &pacing)).collect()
    }

    /// What a read of an object may show from now on, at the least.
    fn oldest(&self, number: u64, is_own: bool) -> u32 {
        let state = self.states[number as usize];
        if is_own { state.sent } else { state.acknowledged }
    }

    /// When the newest write of a lease was asked for.
    fn times(&self, number: u64) -> Option<LeaseTimes> {
        (kind(number) == Kind::Lease).then(|| self.leases[lease_place(number)])
    }
}

/// Where the times of a lease are kept: two of each round of numbers are leases.
fn lease_place(number: u64) -> usize {
    (number / ROUND * 2 + (number % ROUND).min(1)) as usize
}

#[cfg(test)]
#[path = "soak_test.rs"]
mod soak_test;
