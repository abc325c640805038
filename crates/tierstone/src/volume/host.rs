//! The thread that a volume lives on, and the handles of everybody else.
//!
//! Steps of a volume wait for its members: marks of regions, parity, the flash buffer, filling. On a thread of its own
//! they hold up neither a shard nor its clients; requests that come meanwhile go on together.
//!
//! Invariants:
//! 1. Every request that a handle has sent is answered once, also when the thread ends or panics.
//! 2. The volume is closed, and its members are free, when the last handle is gone.
//! 3. The thread sleeps only when nothing has come, nothing is finished, and nothing is to be filled or flushed now.
//! 4. Members are filled no faster than the description says, so that clients are served beside it.

use super::open::{MemberPlace, OpenedVolume};
use super::orders::{self, OrderReport, Prepared, VolumeOrder};
use super::part::VolumePart;
use super::report::{Reporter, VolumeEvent, VolumeReport};
use crate::shared::sleep::{Sleeper, Waker};
use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_base::collections::Map;
use tierstone_base::{Error, ErrorKind, Result, Token};
use tierstone_media::file::{Completions, Finished};
use tierstone_media::{
    BlockDevice, DeviceError, DeviceErrorKind, DurableWriteScope, Geometry, Guarantee, IoCompletion,
    IoRequest, Wait,
};
use tierstone_volume::inspect::MemberFacts;
use tierstone_volume::{Health, Redundancy, Volume};

/// Rows of a new member of a parity group that are filled between two looks at requests: each is read from all others.
const ROWS_A_STEP: u64 = 4;
/// Bytes of a new mirror that are.
const MIRROR_BYTES_A_STEP: u64 = 1 << 20;
/// How often the time is told to a volume whose disks may sleep.
const TICK: Duration = Duration::from_millis(100);
/// After a step of filling that found no room.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(1);
/// Events that are kept for whoever watches later.
const EVENTS_MAX: usize = 64;

/// What a volume's events are told to.
pub type Watcher = Box<dyn FnMut(&VolumeEvent) + Send>;

/// An open volume; clones share it.
#[derive(Clone, Debug)]
pub struct VolumeHost {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    to_thread: Sender<Message>,
    waker: Arc<Waker>,
    told: Arc<Mutex<Told>>,
    places: Vec<MemberPlace>,
    geometry: Geometry,
    guarantee: Guarantee,
    thread: Option<JoinHandle<()>>,
}

/// What the thread has told last.
struct Told {
    report: Option<VolumeReport>,
    order: OrderReport,
    /// Not told to anybody yet.
    events: Vec<VolumeEvent>,
    watcher: Option<Watcher>,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Told").field("report", &self.report).finish_non_exhaustive()
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Message {
    Requests(Finished, Vec<IoRequest>),
    Order(VolumeOrder),
    /// Boxed: rare, and larger than requests.
    Prepared(Box<Result<Prepared>>),
    End,
}

impl VolumeHost {
    /// Starts the thread of a volume.
    ///
    /// # Errors
    /// When the system gives no thread or no descriptor.
    pub fn start(opened: OpenedVolume) -> Result<VolumeHost> {
        let (mut sleeper, waker) = Sleeper::new()?;
        opened.wakes.iter().try_for_each(|&descriptor: &RawFd| sleeper.watch(descriptor))?;
        let (to_thread, messages) = unbounded();
        let mut reporter = Reporter::new(&opened);
        let (geometry, guarantee) = (opened.store_geometry(), opened.volume.guarantee());
        let report = reporter.look(&opened.volume).map(|(report, _)| report);
        let told = Arc::new(Mutex::new(Told {
            report,
            order: OrderReport { state: "none", ..OrderReport::default() },
            events: first_events(&opened),
            watcher: None,
        }));
        let host = HostThread {
            is_sleeping_volume: opened.buffer.is_some(),
            volume: Some(opened.volume),
            messages,
            sleeper,
            reporter,
            told: Arc::clone(&told),
            owed: Map::default(),
            next_token: 0,
            clock: SystemClock::new(),
            is_filling: true,
            is_without_room: false,
            next_fill_us: 0,
            rows_a_step: rows_a_step(&opened.facts),
            step_us: step_us(&opened.facts, opened.fill_bytes_per_second),
            to_self: (to_thread.clone(), Arc::clone(&waker)),
            description: opened.description.clone(),
            facts: opened.facts.clone(),
        };
        let builder = std::thread::Builder::new().name("tierstone-volume".into());
        let thread = builder
            .spawn(move || host.run())
            .map_err(|error| Error::from(error).context("starting the thread of a volume"))?;
        let inner = Inner {
            to_thread,
            waker,
            told,
            places: opened.places,
            geometry,
            guarantee,
            thread: Some(thread),
        };
        Ok(VolumeHost { inner: Arc::new(inner) })
    }

    /// A handle for one thread.
    pub fn device(&self) -> VolumeDevice {
        VolumeDevice { inner: Arc::clone(&self.inner), completions: Completions::default() }
    }

    /// The shape of the space that a store uses.
    pub fn geometry(&self) -> Geometry {
        self.inner.geometry
    }

    /// What its durable writes survive: what the weakest member gives.
    pub fn guarantee(&self) -> Guarantee {
        self.inner.guarantee
    }

    /// Where its members are.
    pub fn places(&self) -> &[MemberPlace] {
        &self.inner.places
    }

    /// Its state, as it was a moment ago.
    pub fn report(&self) -> VolumeReport {
        self.teller().report()
    }

    /// What tells its state without keeping it open.
    pub fn teller(&self) -> VolumeTeller {
        let Inner { told, to_thread, waker, .. } = &*self.inner;
        VolumeTeller { told: Arc::clone(told), to_thread: to_thread.clone(), waker: Arc::clone(waker) }
    }

    /// Tells `watcher` what has happened so far, and what happens from now on; on the volume's thread.
    pub fn watch(&self, mut watcher: Watcher) {
        let mut told = lock(&self.inner.told);
        std::mem::take(&mut told.events).iter().for_each(&mut watcher);
        told.watcher = Some(watcher);
    }
}

/// Tells the state of a volume, also when it is closed, and takes orders for it. Clones tell the same.
#[derive(Clone, Debug)]
pub struct VolumeTeller {
    told: Arc<Mutex<Told>>,
    to_thread: Sender<Message>,
    waker: Arc<Waker>,
}

impl VolumeTeller {
    /// See [`VolumeHost::report`].
    pub fn report(&self) -> VolumeReport {
        let (report, order) = {
            let told = lock(&self.told);
            (told.report.clone(), told.order.clone())
        };
        match report {
            Some(report) => VolumeReport { order, ..report },
            None => unreachable!("the first report is made before the thread"),
        }
    }

    /// Gives an order and returns its number; [`VolumeReport::order`] tells what becomes of it.
    ///
    /// # Errors
    /// `Busy` while another is under way; `DeviceFailed` when the volume is closed.
    pub fn order(&self, order: VolumeOrder) -> Result<u64> {
        let mut told = lock(&self.told);
        if told.order.state == UNDER_WAY {
            let message = format!("order {} is under way: {}", told.order.number, told.order.text);
            return Err(Error::new(ErrorKind::Busy, message));
        }
        let text = match &order {
            VolumeOrder::Fail { member } => format!("member {member} is taken out"),
            VolumeOrder::Replace { member, .. } => format!("a new member {member} is prepared"),
        };
        if self.to_thread.send(Message::Order(order)).is_err() {
            return Err(Error::new(ErrorKind::DeviceFailed, "the volume is closed"));
        }
        told.order = OrderReport { number: told.order.number + 1, state: UNDER_WAY, text };
        self.waker.wake();
        Ok(told.order.number)
    }
}

/// The state of an order that is not done.
const UNDER_WAY: &str = "under-way";

fn rows_a_step(facts: &MemberFacts) -> u64 {
    match facts.layout.redundancy {
        Redundancy::Parity => ROWS_A_STEP,
        _ => (MIRROR_BYTES_A_STEP / facts.layout.chunk_bytes.max(1)).max(1),
    }
}

/// How long a step of filling is to take, in microseconds.
fn step_us(facts: &MemberFacts, bytes_per_second: u64) -> u64 {
    let bytes = rows_a_step(facts) * facts.layout.chunk_bytes;
    bytes.saturating_mul(1_000_000) / bytes_per_second.max(1)
}

/// What opening has found, in words.
fn first_events(opened: &OpenedVolume) -> Vec<VolumeEvent> {
    let mut events = Vec::new();
    let mut tell = |is_warning: bool, text: String| events.push(VolumeEvent { is_warning, text });
    opened.faults.iter().for_each(|fault| tell(true, fault.clone()));
    let recovery = &opened.recovery;
    if opened.volume.status().is_degraded {
        tell(true, "the volume is degraded: another failure may lose data".into());
    }
    if !recovery.was_clean {
        let text = format!(
            "the volume was not closed in good order: {} regions were copied between mirrors, {} rows written again, \
             {} pairs brought up to date",
            recovery.regions_copied, recovery.rows_replayed, recovery.pairs_flushed
        );
        tell(false, text);
    }
    if let Some(stopping) = &opened.stopping {
        tell(false, stopping.text());
    }
    events
}

impl Inner {
    fn send(&self, finished: &Finished, requests: Vec<IoRequest>) {
        match self.to_thread.send(Message::Requests(finished.clone(), requests)) {
            Ok(()) => self.waker.wake(),
            Err(unsent) => {
                if let Message::Requests(finished, requests) = unsent.into_inner() {
                    requests.into_iter().for_each(|request| finished.put(gone(request)));
                }
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // It has ended by itself only after a panic, which has been printed.
        let _ = self.to_thread.send(Message::End);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The completion of a request that the volume will not answer.
fn gone(request: IoRequest) -> IoCompletion {
    let IoRequest { token, kind, offset, buffer } = request;
    let error = DeviceError::new(DeviceErrorKind::Failed, "the thread of the volume has ended");
    IoCompletion { token, kind, offset, buffer, result: Err(error) }
}

/// One handle on a volume, for one thread.
#[derive(Debug)]
pub struct VolumeDevice {
    inner: Arc<Inner>,
    completions: Completions,
}

impl VolumeDevice {
    /// See [`tierstone_media::file::FileDevice::wake_descriptor`].
    pub fn wake_descriptor(&self) -> Option<RawFd> {
        self.completions.wake_descriptor()
    }
}

impl BlockDevice for VolumeDevice {
    fn geometry(&self) -> Geometry {
        self.inner.geometry
    }

    fn guarantee(&self) -> Guarantee {
        self.inner.guarantee
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        DurableWriteScope::OwnSectors
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        if !requests.is_empty() {
            requests.iter().for_each(|_| self.completions.owe());
            self.inner.send(self.completions.finished(), std::mem::take(requests));
        }
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        self.completions.complete(wait, completions)
    }

    fn in_flight(&self) -> usize {
        self.completions.in_flight()
    }
}

/// Does single requests for threads that would only wait.
#[derive(Clone, Debug)]
pub struct VolumeCaller {
    inner: Arc<Inner>,
}

impl VolumeHost {
    /// What does single requests for threads that would only wait.
    pub fn caller(&self) -> VolumeCaller {
        VolumeCaller { inner: Arc::clone(&self.inner) }
    }
}

impl VolumeCaller {
    /// Does `request` before it returns.
    pub fn carry_out(&self, request: IoRequest) -> IoCompletion {
        let (token, kind, offset) = (request.token, request.kind, request.offset);
        let mut device = VolumeDevice { inner: Arc::clone(&self.inner), completions: Completions::default() };
        device.submit(&mut vec![request]);
        let mut done = Vec::new();
        device.complete(Wait::One, &mut done);
        done.pop().unwrap_or_else(|| gone(IoRequest { token, kind, offset, buffer: None }))
    }
}

struct HostThread {
    /// `None` once it is closed.
    volume: Option<Volume<VolumePart>>,
    is_sleeping_volume: bool,
    messages: Receiver<Message>,
    sleeper: Sleeper,
    reporter: Reporter,
    told: Arc<Mutex<Told>>,
    /// Whose a request is, and what it was called there.
    owed: Map<Token, (Finished, Token)>,
    next_token: Token,
    clock: SystemClock,
    /// Whether something may be left to fill or to flush.
    is_filling: bool,
    /// The last step of filling found no room, and that is told.
    is_without_room: bool,
    /// When the next step of filling may begin, and how long one is to take.
    next_fill_us: u64,
    rows_a_step: u64,
    step_us: u64,
    /// For those who prepare members.
    to_self: (Sender<Message>, Arc<Waker>),
    description: PathBuf,
    facts: MemberFacts,
}

impl HostThread {
    fn run(mut self) {
        let Some(mut volume) = self.volume.take() else { return };
        let mut completions = Vec::new();
        loop {
            let (mut requests, is_end) = self.receive(&volume);
            let mut moved = !requests.is_empty();
            if moved {
                volume.submit(&mut requests);
            }
            moved |= self.deliver(&mut volume, Wait::Poll, &mut completions);
            if is_end {
                self.deliver(&mut volume, Wait::All, &mut completions);
                if let Err(error) = volume.close() {
                    let text = format!(
                        "the volume was not closed in good order, the next opening repairs it: {error}"
                    );
                    self.happened(vec![VolumeEvent { is_warning: true, text }]);
                }
                return;
            }
            let (is_more, pause) = self.maintain(&volume);
            moved |= is_more;
            self.tell(&volume);
            let tick = self.is_sleeping_volume.then_some(TICK);
            let timeout = [tick, pause].into_iter().flatten().min();
            // Without sleep the thread could only spin; handles hear of it from the drop.
            if !moved && self.sleeper.sleep(timeout).is_err() {
                return;
            }
        }
    }

    fn receive(&mut self, volume: &Volume<VolumePart>) -> (Vec<IoRequest>, bool) {
        let mut requests = Vec::new();
        loop {
            match self.messages.try_recv() {
                Ok(Message::Requests(finished, more)) => {
                    for mut request in more {
                        self.next_token += 1;
                        self.owed.insert(self.next_token, (finished.clone(), request.token));
                        request.token = self.next_token;
                        requests.push(request);
                    }
                }
                Ok(Message::Order(order)) => self.begin_order(volume, order),
                Ok(Message::Prepared(prepared)) => self.end_order(volume, *prepared),
                Err(TryRecvError::Empty) => return (requests, false),
                Ok(Message::End) | Err(TryRecvError::Disconnected) => return (requests, true),
            }
        }
    }

    /// Gives back what is finished; whether there was something.
    fn deliver(
        &mut self,
        volume: &mut Volume<VolumePart>,
        wait: Wait,
        completions: &mut Vec<IoCompletion>,
    ) -> bool {
        let some = volume.complete(wait, completions) > 0;
        for mut done in completions.drain(..) {
            if let Some((finished, token)) = self.owed.remove(&done.token) {
                done.token = token;
                finished.put(done);
            }
        }
        some
    }

    /// One bounded step of filling and flushing: whether there is more to do now, and when there will be.
    fn maintain(&mut self, volume: &Volume<VolumePart>) -> (bool, Option<Duration>) {
        let now_us = self.clock.now().monotonic_us;
        if self.is_sleeping_volume {
            volume.tick(now_us / 1_000);
        } else if !self.is_filling {
            return (false, None);
        }
        let fills = volume.status().members.iter().any(|health| matches!(health, Health::Rebuilding { .. }));
        let wait_us = if fills { self.next_fill_us.saturating_sub(now_us) } else { 0 };
        let result = match wait_us {
            0 => volume.maintain(self.rows_a_step),
            _ => volume.maintain_without_filling(self.rows_a_step),
        };
        if fills && wait_us == 0 {
            self.next_fill_us = self.next_fill_us.max(now_us) + self.step_us;
        }
        match result {
            Ok(is_more) => {
                self.is_without_room &= wait_us > 0;
                self.is_filling = is_more || fills;
                (is_more, (wait_us > 0).then(|| Duration::from_micros(wait_us)))
            }
            // There may be room later.
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                if !std::mem::replace(&mut self.is_without_room, true) {
                    self.warn(format!("a member cannot be filled as long as it has no room: {error}"));
                }
                self.next_fill_us = now_us + NO_ROOM_PAUSE.as_micros() as u64;
                (false, Some(NO_ROOM_PAUSE))
            }
            Err(error) => {
                if std::mem::replace(&mut self.is_filling, false) {
                    self.warn(format!("a member cannot be filled: {error}"));
                }
                (false, None)
            }
        }
    }

    fn warn(&self, text: String) {
        self.happened(vec![VolumeEvent { is_warning: true, text }]);
    }

    fn tell(&mut self, volume: &Volume<VolumePart>) {
        if let Some((report, events)) = self.reporter.look(volume) {
            lock(&self.told).report = Some(report);
            self.happened(events);
        }
    }

    fn happened(&self, events: Vec<VolumeEvent>) {
        let mut told = lock(&self.told);
        match &mut told.watcher {
            Some(watcher) => events.iter().for_each(watcher),
            None => {
                told.events.extend(events);
                let spare = told.events.len().saturating_sub(EVENTS_MAX);
                told.events.drain(..spare);
            }
        }
    }
}

/// Orders.
impl HostThread {
    fn begin_order(&mut self, volume: &Volume<VolumePart>, order: VolumeOrder) {
        let begun = match order {
            VolumeOrder::Fail { member } => volume.fail(member).map(|()| {
                self.tell(volume);
                self.order_ends(Ok(format!("member {member} is taken out; put another in its place")));
            }),
            VolumeOrder::Replace { member, path } => self.begin_replacing(volume, member, path),
        };
        if let Err(error) = begun {
            self.order_ends(Err(error));
        }
    }

    fn begin_replacing(
        &mut self,
        volume: &Volume<VolumePart>,
        member: usize,
        path: Option<PathBuf>,
    ) -> Result<()> {
        // Its file may have the new one's name. A disk that does not answer must hold nobody up here.
        let old = volume.release(member)?;
        let (description, facts) = (self.description.clone(), self.facts.clone());
        let (to_thread, waker) = (self.to_self.0.clone(), Arc::clone(&self.to_self.1));
        let prepare = move || {
            drop(old);
            let prepared = orders::prepare(&description, &facts, member, path.as_deref());
            // When the volume is closed meanwhile, the next opening finds a new member that holds nothing.
            let _ = to_thread.send(Message::Prepared(Box::new(prepared)));
            waker.wake();
        };
        let builder = std::thread::Builder::new().name("tierstone-volume-member".into());
        builder.spawn(prepare).map(drop).map_err(|error| Error::from(error).context("preparing a member"))
    }

    fn end_order(&mut self, volume: &Volume<VolumePart>, prepared: Result<Prepared>) {
        let ended = prepared.and_then(|Prepared { member, path, device, wake }| {
            wake.iter().try_for_each(|&descriptor| self.sleeper.watch(descriptor))?;
            volume.replace(member, device)?;
            let text = format!("member {member} is replaced by {} and is being filled", path.display());
            self.reporter.replaced(member, path);
            self.is_filling = true;
            Ok(text)
        });
        // The state that the order has made is told before the order is.
        self.tell(volume);
        self.order_ends(ended);
    }

    fn order_ends(&self, result: Result<String>) {
        let (state, text) = match result {
            Ok(text) => ("done", text),
            Err(error) => ("refused", error.to_string()),
        };
        self.happened(vec![VolumeEvent { is_warning: state != "done", text: text.clone() }]);
        let mut told = lock(&self.told);
        (told.order.state, told.order.text) = (state, text);
    }
}

impl Drop for HostThread {
    fn drop(&mut self) {
        let lost = |finished: &Finished, token: Token| finished.put(gone(IoRequest::flush(token)));
        self.owed.values().for_each(|(finished, token)| lost(finished, *token));
        for message in self.messages.try_iter() {
            if let Message::Requests(finished, requests) = message {
                requests.iter().for_each(|request| lost(&finished, request.token));
            }
        }
    }
}
