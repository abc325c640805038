//! What a turn of a driver does, whatever the kernel's mechanism: the bookkeeping between a reactor,
//! which moves bytes, and a service, which understands them.
//!
//! Invariants:
//! 1. A reactor calls in here while it polls; here nothing calls back into it before
//!    [`Turn::finish`]. So a connection never ends in the middle of its own event.
//! 2. Each connection has at most one send under way, which owns its bytes.
//! 3. At the end of a turn only connections that were heard, lent, released or sent are looked at.

use crate::connections::{Buffered, Connections, Entry, Hold, Phase};
use crate::gate::ReplyQueue;
use crate::input::InputBuffer;
use crate::line::Line;
use crate::reactor::{Reactor, Sending};
use crate::service::{ConnectionMemory, Peer, Service, Want};
use crate::settings::{OutputLimits, TransportSettings};
use crate::tls::TlsSession;
use crate::together::Together;
use tierstone_base::{Now, Seq};
use tierstone_media::{IoCompletion, IoRequest};

/// How often idle and slow connections are looked for.
const SWEEP_INTERVAL_US: u64 = 1_000_000;
/// Send buffers kept for the next turn, and the largest kept.
const SPARE_BUFFERS: usize = 256;
const SPARE_BUFFER_BYTES: usize = 64 << 10;

/// What a reactor does with a client that has come.
pub(crate) enum Admission {
    Open,
    /// Send these bytes, as far as they go at once, and close.
    Refuse(Vec<u8>),
}

/// Whether a reactor goes on receiving from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Go,
    Pause,
}

/// The state of one driver thread's loop.
pub(crate) struct Turn<S: Service> {
    pub service: S,
    pub connections: Connections<S::Connection>,
    pub settings: TransportSettings,
    pub now: Now,
    /// What devices have finished since the last step.
    pub completions: Vec<IoCompletion>,
    requests: Vec<IoRequest>,
    pub durable: Seq,
    pub spare: Vec<Vec<u8>>,
    /// What the last bytes of an encrypted connection have said.
    pub opened: Vec<u8>,
    /// The list that is being worked through, so that its memory stays.
    scratch: Vec<u32>,
    next_sweep_us: u64,
    is_stopping: bool,
    /// Who waits for memory.
    pub line: Line,
    pub together: Together,
    #[cfg(any(test, feature = "mutations"))]
    pub is_ungated: bool,
}

impl<S: Service> Turn<S> {
    pub fn new(service: S, settings: TransportSettings, now: Now) -> Self {
        let durable = service.durable_seq();
        Turn {
            service,
            connections: Connections::default(),
            settings,
            now,
            completions: Vec::new(),
            requests: Vec::new(),
            durable,
            spare: Vec::new(),
            opened: Vec::new(),
            scratch: Vec::new(),
            next_sweep_us: now.monotonic_us + SWEEP_INTERVAL_US,
            is_stopping: false,
            line: Line::default(),
            together: Together::default(),
            #[cfg(any(test, feature = "mutations"))]
            is_ungated: false,
        }
    }

    /// A client has come; the reactor will call it `index`. With `is_sealed` all that it sends and gets is encrypted.
    pub fn accepted(&mut self, index: u32, peer: &Peer, is_sealed: bool) -> Admission {
        if !is_sealed {
            return self.admit(index, peer, None);
        }
        let config = self.connections.tls.as_ref();
        let session = config.and_then(|config| TlsSession::new(config, self.now.monotonic_us));
        let admission = session.map(|session| self.admit(index, peer, Some(session)));
        match admission {
            Some(Admission::Open) => Admission::Open,
            // In the clear nothing would be understood.
            _ => Admission::Refuse(Vec::new()),
        }
    }

    fn admit(&mut self, index: u32, peer: &Peer, tls: Option<Box<TlsSession>>) -> Admission {
        if self.is_stopping || self.connections.len() >= self.settings.connections_max as usize {
            self.connections.report.connections_refused += 1;
            return Admission::Refuse(self.service.too_many_connections().to_vec());
        }
        let id = self.connections.next_id(index);
        match self.service.connect(self.now, id, peer) {
            Ok(state) => {
                let output = self.new_output();
                let entry = Entry {
                    state,
                    output,
                    tls,
                    input: InputBuffer::default(),
                    needed: 1,
                    hold: Hold::Free,
                    phase: Phase::Open,
                    is_input_ended: false,
                    is_receive_paused: false,
                    is_changed: false,
                    is_gated: false,
                    together_by_us: 0,
                    is_resumed: false,
                    is_in_line: false,
                    is_first_in_line: false,
                    counted: Buffered::default(),
                    beside: ConnectionMemory::default(),
                    sending: 0,
                    sending_since_us: 0,
                    gated_since_us: 0,
                    last_input_us: self.now.monotonic_us,
                    last_sent_us: 0,
                    soft_since_us: u64::MAX,
                };
                self.connections.insert(id, entry);
                self.connections.report.connections_accepted += 1;
                Admission::Open
            }
            Err(farewell) => {
                self.connections.report.connections_refused += 1;
                Admission::Refuse(farewell)
            }
        }
    }

    fn new_output(&self) -> ReplyQueue {
        #[cfg(any(test, feature = "mutations"))]
        if self.is_ungated {
            let mut output = ReplyQueue::new(self.settings.output.full_bytes);
            output.ungate();
            return output;
        }
        ReplyQueue::new(self.settings.output.full_bytes)
    }

    /// Bytes have come from `index`.
    pub fn received(&mut self, index: u32, data: &[u8]) -> Flow {
        self.connections.report.bytes_received += data.len() as u64;
        if self.connections.entry(index).is_some_and(|entry| entry.tls.is_some()) {
            return self.received_sealed(index, data);
        }
        self.received_plain(index, data)
    }

    /// This will come from `index` in this turn. Says whether to go on with what will come next.
    pub fn foresee(&mut self, index: u32, data: &[u8]) -> bool {
        let Some(entry) = self.connections.entry(index) else { return true };
        let is_shown = entry.phase == Phase::Open && entry.hold == Hold::Free && entry.input.is_empty();
        if !is_shown || entry.tls.is_some() || self.is_stopping {
            return true;
        }
        self.service.foresee(&mut entry.state, data)
    }

    /// Bytes for the service have come from `index`. They are shown to it where they lie, unless earlier ones wait or
    /// the connection is held.
    pub(crate) fn received_plain(&mut self, index: u32, data: &[u8]) -> Flow {
        let Some(entry) = self.connections.entry(index) else { return Flow::Pause };
        if entry.phase != Phase::Open || self.is_stopping {
            return Flow::Pause;
        }
        entry.last_input_us = self.now.monotonic_us;
        if entry.hold == Hold::Free && entry.input.is_empty() && !entry.output.is_full() {
            let consumed = self.show(index, data);
            if let Some(entry) = self.connections.entry(index)
                && consumed < data.len()
                && entry.phase == Phase::Open
            {
                let rest = &data[consumed..];
                entry.input.extend(rest, entry.needed.saturating_sub(rest.len()));
            }
        } else {
            let come = entry.input.len() + data.len();
            entry.input.extend(data, entry.needed.saturating_sub(come));
            self.show_buffered(index);
        }
        self.connections.note_changed(index);
        self.connections.recount(index);
        self.flow(index)
    }

    /// Whether `index` should receive, after its input has been looked at.
    pub(crate) fn flow(&mut self, index: u32) -> Flow {
        let limit = self.settings.input_limit_bytes;
        let pause_bytes = self.settings.input_pause_bytes;
        let Some(entry) = self.connections.entry(index) else { return Flow::Pause };
        // What is held up was sent before the sender could be paused: only a request that nothing holds up is too long.
        let is_asked_for = entry.hold == Hold::Free && !entry.output.is_full() && entry.phase == Phase::Open;
        if entry.input.len() > limit && is_asked_for {
            self.refuse_input(index);
            return Flow::Pause;
        }
        let is_held = entry.hold != Hold::Free && entry.input.len() >= pause_bytes;
        let is_held = is_held || entry.phase != Phase::Open || self.waits_in_line(index);
        let flow = if is_held { Flow::Pause } else { Flow::Go };
        let Some(entry) = self.connections.entry(index) else { return Flow::Pause };
        entry.is_receive_paused = flow == Flow::Pause;
        flow
    }

    /// Gives `data` to the service; returns how much it consumed.
    fn show(&mut self, index: u32, data: &[u8]) -> usize {
        let (id, full_bytes) = (self.connections.id(index), self.output_full_bytes());
        let Some(entry) = self.connections.entry(index) else { return 0 };
        entry.output.set_full_bytes(full_bytes);
        let received = self.service.receive(self.now, id, &mut entry.state, data, &mut entry.output);
        let queued_us = self.now.monotonic_us.saturating_sub(entry.last_input_us);
        let consumed = received.consumed.min(data.len());
        apply_want(entry, received.want, data.len() - consumed);
        if consumed > 0 {
            self.connections.stages.queue.record_us(queued_us);
        }
        if received.want == Want::Drain {
            self.close_undrained(index);
        }
        consumed
    }

    /// Gives the buffered input of `index` to the service, if it may have it.
    fn show_buffered(&mut self, index: u32) {
        let (id, full_bytes) = (self.connections.id(index), self.output_full_bytes());
        let Some(entry) = self.connections.entry(index) else { return };
        entry.output.set_full_bytes(full_bytes);
        if entry.hold != Hold::Free || entry.phase != Phase::Open || entry.input.is_empty() {
            return;
        }
        if entry.output.is_full() {
            entry.hold = Hold::Drain;
            return self.close_undrained(index);
        }
        if entry.input.len() < entry.needed {
            return;
        }
        let input = entry.input.unread();
        let received = self.service.receive(self.now, id, &mut entry.state, input, &mut entry.output);
        entry.input.consume(received.consumed);
        let rest = entry.input.len();
        let queued_us = self.now.monotonic_us.saturating_sub(entry.last_input_us);
        apply_want(entry, received.want, rest);
        if received.consumed > 0 {
            self.connections.stages.queue.record_us(queued_us);
        }
        if received.want == Want::Drain {
            self.close_undrained(index);
        }
    }

    /// Closes a connection that waits for its client to take output, and may not.
    fn close_undrained(&mut self, index: u32) {
        let Some(entry) = self.connections.entry(index) else { return };
        if entry.phase == Phase::Open && !self.service.may_drain(&entry.state) {
            entry.phase = Phase::Aborted;
            self.note_over_output();
        }
    }

    /// The peer of `index` has closed its sending half: what it asked is still answered.
    pub fn input_ended(&mut self, index: u32) {
        let Some(entry) = self.connections.entry(index) else { return };
        if !entry.is_input_ended {
            entry.is_input_ended = true;
            self.service.end_of_input(self.now, &mut entry.state, &mut entry.output);
        }
        // What has come but was not shown yet is shown first.
        self.connections.note_resumed(index);
    }

    /// The connection of `index` is broken.
    pub fn broken(&mut self, index: u32) {
        if let Some(entry) = self.connections.entry(index) {
            entry.phase = Phase::Aborted;
        }
        self.connections.note_changed(index);
    }

    /// The send of `index` is done; `buffer` comes back.
    pub fn sent(&mut self, index: u32, buffer: Vec<u8>) {
        self.recycle(buffer);
        let Some(entry) = self.connections.entry(index) else { return };
        (entry.sending, entry.last_sent_us) = (0, self.now.monotonic_us);
        let sent_us = self.now.monotonic_us.saturating_sub(entry.sending_since_us);
        // Not `has_sendable`: the queue is not told of durability while a send is under way, so what
        // waits in it may have become sendable meanwhile.
        let is_wanted = entry.phase != Phase::Open || !entry.output.is_empty() || entry.hold == Hold::Drain;
        if is_wanted || entry.tls.as_ref().is_some_and(|tls| tls.wants_send()) {
            self.connections.note_changed(index);
        }
        self.connections.recount(index);
        self.connections.stages.socket.record_us(sent_us);
    }

    /// Takes back a buffer whose bytes are no longer needed.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS && buffer.capacity() <= SPARE_BUFFER_BYTES {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Whether the next turn has something to do at once.
    pub fn has_work(&self) -> bool {
        !self.connections.resumed.is_empty() || !self.completions.is_empty() || self.has_line_to_move()
    }

    /// The monotonic time of the next turn that is wanted even if nothing happens.
    pub fn next_turn_at_us(&self) -> Option<u64> {
        let sweep = (!self.connections.is_empty()).then_some(self.next_sweep_us);
        let times = [self.service.next_step_at_us(), sweep, self.together.next_turn_at_us()];
        times.into_iter().flatten().min()
    }

    /// The second half of a turn: the step, and what follows from it.
    pub fn finish(&mut self, reactor: &mut impl Reactor) {
        self.show_resumed(reactor);
        self.service.step(self.now, &mut self.completions, &mut self.requests, &mut self.connections);
        for change in self.connections.settings.drain(..) {
            self.settings.change(change);
        }
        if !self.requests.is_empty() {
            reactor.submit(&mut self.requests, &mut self.completions);
        }
        let durable = self.service.durable_seq();
        if durable > self.durable {
            self.durable = durable;
            self.release_gated();
        }
        if self.now.monotonic_us >= self.next_sweep_us {
            self.sweep();
            self.judge_line();
            self.end_late_handshakes();
        }
        self.move_line(reactor);
        self.end_waits();
        let mut changed = std::mem::replace(&mut self.connections.changed, std::mem::take(&mut self.scratch));
        for index in changed.drain(..) {
            self.settle(index, reactor);
        }
        self.scratch = changed;
        self.end_waits();
        // What was sent and heard in this turn is counted now.
        while let Some(id) = self.service.evict(self.now, &mut self.connections) {
            if !self.connections.is_there(id) {
                break;
            }
            self.connections.report.connections_evicted += 1;
            self.end(id.index, reactor);
        }
    }

    fn show_resumed(&mut self, reactor: &mut impl Reactor) {
        let mut resumed = std::mem::take(&mut self.connections.resumed);
        for index in resumed.drain(..) {
            if let Some(entry) = self.connections.entry(index) {
                entry.is_resumed = false;
            }
            if !self.is_stopping {
                self.show_buffered(index);
            }
            self.connections.note_changed(index);
            let Some(entry) = self.connections.entry(index) else { continue };
            if entry.is_input_ended {
                if entry.hold == Hold::Free || entry.input.is_empty() {
                    entry.phase = entry.phase.max_with(Phase::Closing);
                }
                continue;
            }
            let was_paused = entry.is_receive_paused;
            if self.flow(index) == Flow::Go && was_paused {
                reactor.resume_receive(index);
            }
        }
        if self.connections.resumed.is_empty() {
            self.connections.resumed = resumed;
        }
    }

    fn release_gated(&mut self) {
        let mut gated = std::mem::take(&mut self.connections.gated);
        for index in gated.drain(..) {
            let now_us = self.now.monotonic_us;
            let mut gated_us = None;
            if let Some(entry) = self.connections.entry(index) {
                entry.is_gated = false;
                gated_us = Some(now_us.saturating_sub(entry.gated_since_us));
            }
            if let Some(gated_us) = gated_us {
                self.connections.stages.gate.record_us(gated_us);
            }
            self.connections.note_changed(index);
        }
        self.connections.gated = gated;
    }

    /// Brings one connection to rest: sends what may be sent, notes what it waits for, ends it.
    fn settle(&mut self, index: u32, reactor: &mut impl Reactor) {
        let Some(entry) = self.connections.entry(index) else { return };
        entry.is_changed = false;
        let may_send = entry.phase != Phase::Aborted && entry.sending == 0;
        let may_send = may_send && !self.waits_for_more(index);
        let Some(entry) = self.connections.entry(index) else { return };
        if may_send && entry.tls.is_some() {
            self.settle_sealed(index, reactor);
        } else if may_send && entry.output.release(self.durable) {
            let mut buffer = self.spare.pop().unwrap_or_default();
            entry.output.take(&mut buffer);
            if entry.output.wants_part() {
                // The service is asked for it in the next turn, which follows at once.
                self.connections.note_resumed(index);
            }
            self.send(index, buffer, reactor);
        }
        let Some(entry) = self.connections.entry(index) else { return };
        let waits_for_durable = entry.output.waits_for_durable();
        if entry.hold == Hold::Drain && !entry.output.is_full() && entry.phase == Phase::Open {
            entry.hold = Hold::Free;
            self.connections.note_resumed(index);
        }
        let now_us = self.now.monotonic_us;
        if waits_for_durable {
            self.connections.note_gated(index, now_us);
        }
        let limits = self.settings.output;
        let Some(entry) = self.connections.entry(index) else { return };
        let is_over = is_over_limit(entry, &limits, now_us);
        if is_over {
            entry.phase = Phase::Aborted;
        }
        let is_done = match entry.phase {
            Phase::Open => false,
            Phase::Closing => entry.is_all_sent(),
            Phase::Aborted => true,
        };
        if !is_done {
            entry.output.shrink(false);
        }
        entry.beside = self.service.memory(&entry.state, entry.sizes());
        self.connections.recount(index);
        if is_over {
            self.note_over_output();
        }
        if is_done {
            self.end(index, reactor);
        }
    }

    fn note_over_output(&mut self) {
        let ended = &mut self.connections.report.connections_over_output_limit;
        *ended += 1;
        // Told ever more seldom, as in the line.
        if ended.is_power_of_two() {
            tracing::warn!(
                clients = *ended,
                "clients were closed that did not take their replies or messages: client-output-buffer-limit"
            );
        }
    }

    pub(crate) fn send(&mut self, index: u32, buffer: Vec<u8>, reactor: &mut impl Reactor) {
        if buffer.is_empty() {
            return self.recycle(buffer);
        }
        let len = buffer.len();
        self.connections.report.sends += 1;
        self.connections.report.bytes_sent += len as u64;
        let now_us = self.now.monotonic_us;
        let sending = reactor.send(index, buffer);
        let Some(entry) = self.connections.entry(index) else { return };
        match sending {
            Sending::Done(buffer) => {
                entry.last_sent_us = now_us;
                self.connections.stages.socket.record_us(0);
                self.recycle(buffer);
            }
            Sending::UnderWay => (entry.sending, entry.sending_since_us) = (len, now_us),
            Sending::Broken => entry.phase = Phase::Aborted,
        }
    }

    fn end(&mut self, index: u32, reactor: &mut impl Reactor) {
        reactor.close(index);
        if let Some((id, entry)) = self.connections.remove(index) {
            if !entry.output.is_empty() || entry.sending > 0 {
                self.connections.report.connections_unanswered += 1;
            }
            self.connections.report.connections_closed += 1;
            self.service.disconnect(id, entry.state);
        }
    }

    /// Looks at every connection: idle ones are closed or give memory back, slow readers are judged.
    fn sweep(&mut self) {
        self.next_sweep_us = self.now.monotonic_us + SWEEP_INTERVAL_US;
        let idle_us = u64::from(self.settings.idle_timeout_s) * 1_000_000;
        for index in 0..self.connections.place_count() {
            let now_us = self.now.monotonic_us;
            let Some(entry) = self.connections.entry(index) else { continue };
            let silent_us = now_us.saturating_sub(entry.last_input_us.max(entry.last_sent_us));
            let is_waiting = !entry.output.is_empty() || entry.sending > 0 || entry.hold == Hold::Pause;
            if now_us.saturating_sub(entry.last_input_us) >= SWEEP_INTERVAL_US {
                entry.input.shrink();
                entry.output.shrink(true);
            }
            let is_idle = idle_us > 0 && silent_us > idle_us && !is_waiting;
            if is_idle && !self.service.is_listening(&entry.state) {
                entry.phase = Phase::Aborted;
                self.connections.report.connections_idle_closed += 1;
                self.connections.note_changed(index);
            } else if entry.soft_since_us != u64::MAX {
                self.connections.note_changed(index);
            }
        }
    }

    /// Begins to stop: no input is taken any more, and connections end when they are answered.
    pub fn stop(&mut self) {
        self.is_stopping = true;
        self.service.stop(self.now, &mut self.connections);
        for index in 0..self.connections.place_count() {
            if let Some(entry) = self.connections.entry(index) {
                entry.phase = entry.phase.max_with(Phase::Closing);
            }
            self.connections.note_changed(index);
        }
    }

    /// Ends every connection now.
    pub fn abort_all(&mut self, reactor: &mut impl Reactor) {
        for index in 0..self.connections.place_count() {
            self.end(index, reactor);
        }
    }
}

fn apply_want<C>(entry: &mut Entry<C>, want: Want, rest: usize) {
    entry.needed = 1;
    match want {
        Want::More { missing } => entry.needed = rest.saturating_add(missing.max(1)),
        Want::Drain => entry.hold = Hold::Drain,
        Want::Pause => entry.hold = Hold::Pause,
        Want::Close => entry.phase = entry.phase.max_with(Phase::Closing),
    }
}

fn is_over_limit<C>(entry: &mut Entry<C>, limits: &OutputLimits, now_us: u64) -> bool {
    let held = entry.output.len() + entry.sending;
    if limits.soft_bytes == 0 || held <= limits.soft_bytes {
        entry.soft_since_us = u64::MAX;
    } else if entry.soft_since_us == u64::MAX {
        entry.soft_since_us = now_us;
    } else if now_us - entry.soft_since_us > limits.soft_ms * 1000 {
        return true;
    }
    limits.hard_bytes > 0 && held > limits.hard_bytes
}

impl Phase {
    /// The later of two phases.
    pub fn max_with(self, other: Phase) -> Phase {
        match (self, other) {
            (Phase::Aborted, _) | (_, Phase::Aborted) => Phase::Aborted,
            (Phase::Closing, _) | (_, Phase::Closing) => Phase::Closing,
            _ => Phase::Open,
        }
    }
}
