//! Large arguments on their way in: each is written to its shard piece by piece while it is received,
//! and the command gets the finished value instead of its bytes.
//!
//! Invariants:
//! 1. Of an argument on its way at most [`WINDOW_BYTES`] are in memory between the connection and the
//!    shard that takes it, and one chunk there.
//! 2. An upload that no command has put under a key is given up: when its request has been answered,
//!    or its connection has gone.
//! 3. What goes wrong on the way is the answer of the request, after all of it has been received.

use crate::args::{Args, OwnedArgs};
use crate::context::error_text;
use crate::control::Output;
use crate::executor::Executor;
use crate::number;
use crate::remote::Message;
use crate::session::{ConnectionId, Session};
use crate::settings::VALUE_LIMIT_MIN_BYTES;
use crate::table;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tierstone_base::{Error, ErrorKind, Now, ShardId};
use tierstone_engine::{Admission, Engine};
use tierstone_store::{LargeMap, Place, TaskId, ValueId};
use tierstone_wire::resp::ReplyWriter;

/// Arguments above this many bytes are uploaded; others wait whole in the connection's input.
pub const UPLOAD_ABOVE_BYTES: usize = 1 << 20;
/// Bytes under way to another shard at most, for each upload.
const WINDOW_BYTES: usize = 1 << 20;

/// An upload of which the engine takes nothing for so long is given up: keys of large values that are under way, or locked by the
/// command that waits, cannot be evicted for each other.
const ROOM_MAX_US: u64 = 5_000_000;
/// How often an engine that had no room is asked again at least, in microseconds.
const STEP_US: u64 = 1_000;

/// An argument that was uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Where its chunks lie.
    pub place: Place,
    /// Its map.
    pub map: LargeMap,
}

/// The name of an upload at the shard of its connection.
pub type Ticket = u64;

/// What became of the wish to upload an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Its bytes are wanted piece by piece.
    Upload(Ticket),
    /// It must be received whole: the command takes no uploads.
    Whole,
    /// It is longer than a value may be.
    TooLong,
    /// Ask again after [`Output::Resume`].
    Wait,
}

#[derive(Debug)]
enum State {
    /// Pieces are taken.
    Open,
    /// All pieces were sent, and the end.
    Ending,
    Ended(LargeMap),
    Failed(Error),
}

/// One upload, at the shard of its connection.
#[derive(Debug)]
pub(crate) struct Upload {
    connection: ConnectionId,
    to: ShardId,
    place: Place,
    state: State,
    /// The value's id, if this shard takes it.
    id: Option<ValueId>,
    in_flight: usize,
}

/// One upload of another shard's connection, at the shard that takes it.
#[derive(Debug)]
pub(crate) struct Taking {
    place: Place,
    len: u64,
    /// None until the engine has had room for its beginning.
    id: Option<ValueId>,
    /// Pieces that the engine had no room for.
    pieces: VecDeque<Piece>,
    has_ended: bool,
    /// Since when nothing was taken.
    stalled_since_us: Option<u64>,
}

impl Taking {
    /// Whether it has something that the engine has not taken.
    fn wants_engine(&self) -> bool {
        self.id.is_none() || !self.pieces.is_empty() || self.has_ended
    }
}

/// A piece of an upload that came from another shard.
#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    Zeros(u64),
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::Zeros(len) => *len,
        }
    }

    /// Drops its first bytes.
    fn pass(&mut self, taken: u64) {
        match self {
            Piece::Bytes(bytes) => drop(bytes.drain(..taken as usize)),
            Piece::Zeros(len) => *len -= taken,
        }
    }
}

/// All that an executor knows about uploads.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    own: BTreeMap<Ticket, Upload>,
    /// The same by their connections.
    tickets: BTreeSet<(ConnectionId, Ticket)>,
    taking: BTreeMap<(ShardId, Ticket), Taking>,
    /// When the next step is wanted while something waits.
    step_at_us: u64,
    /// Connections that wait for the engine.
    waiting: Vec<ConnectionId>,
    /// Since when nothing was taken of what a connection uploads to this shard.
    stalled_since_us: BTreeMap<ConnectionId, u64>,
    /// What connections that have gone leave behind, and their requests until whose ends it stays.
    orphans: Vec<Orphans>,
}

/// Requests that are suspended, and uploads.
type Orphans = (Vec<TaskId>, Vec<(ShardId, ValueId)>);

impl Uploads {
    /// Takes those of a connection out.
    fn take_of(&mut self, connection: ConnectionId) -> Vec<(Ticket, Upload)> {
        let names = self.tickets.range((connection, Ticket::MIN)..=(connection, Ticket::MAX));
        let tickets: Vec<Ticket> = names.map(|(_, ticket)| *ticket).collect();
        let take = |ticket: Ticket| {
            self.tickets.remove(&(connection, ticket));
            Some((ticket, self.own.remove(&ticket)?))
        };
        tickets.into_iter().filter_map(take).collect()
    }

    /// A connection has gone, with these uploads of its requests, of which these are suspended.
    pub(crate) fn leave_behind(&mut self, suspended: Vec<TaskId>, left: Vec<(ShardId, ValueId)>) {
        if !left.is_empty() {
            self.orphans.push((suspended, left));
        }
    }
}

/// A message about an upload, to the shard that takes it or back.
#[derive(Clone, Debug)]
pub enum UploadMessage {
    /// A value of this length is coming.
    Begin {
        /// Where it will lie.
        place: Place,
        /// Its length in bytes.
        len: u64,
    },
    /// Its next bytes.
    Piece(Vec<u8>),
    /// So many zeros: whole chunks, or all that is left.
    Zeros(u64),
    /// That was all.
    End,
    /// It is not wanted any more.
    Drop,
    /// Back: so many bytes were taken.
    Taken(usize),
    /// Back: its end, or why it has failed.
    Ended(tierstone_base::Result<LargeMap>),
}

/// The argument with the key of the value in argument `index`, if that may be uploaded.
fn key_of(args: &OwnedArgs, index: usize) -> Option<usize> {
    let name = args.get(0)?.to_ascii_lowercase();
    let is_value = match name.as_slice() {
        b"set" | b"setnx" | b"getset" | b"append" => index == 2,
        b"setex" | b"psetex" | b"setrange" => index == 3,
        b"msetex" => {
            let pairs = number::integer(args.get(1)?).and_then(|count| usize::try_from(count).ok())?;
            let is_value = index >= 3 && index % 2 == 1 && (index - 1) / 2 <= pairs;
            return is_value.then(|| index - 1);
        }
        b"mset" | b"msetnx" => return (index >= 2 && index.is_multiple_of(2)).then(|| index - 1),
        _ => false,
    };
    is_value.then_some(1)
}

impl<E: Engine> Executor<E> {
    /// The longest value, in bytes (`proto-max-bulk-len`).
    pub fn value_size_max_bytes(&self) -> u64 {
        self.host.settings.value_size_max_bytes
    }

    /// The longest argument of a request, in bytes: what `proto-max-bulk-len` says, but never less than that may be set to.
    #[inline]
    pub fn argument_bytes_max(&self) -> u64 {
        self.host.settings.value_size_max_bytes.max(VALUE_LIMIT_MIN_BYTES)
    }

    /// A connection is about to send argument `args.len()` of a request, `len` bytes long; `args` are
    /// those before it.
    pub fn begin_upload(&mut self, now: Now, connection: ConnectionId, args: &OwnedArgs, len: u64) -> Begun {
        let Some(session) = self.host.sessions.get(&connection) else { return Begun::Whole };
        let key = key_of(args, args.args().len()).and_then(|index| args.get(index));
        // What will be refused is not taken in piece by piece.
        let (Some(key), true) = (key, self.may_upload(session, args.args())) else { return Begun::Whole };
        if len > self.host.settings.value_size_max_bytes {
            return Begun::TooLong;
        }
        // What waits may select another database.
        if session.has_barrier() {
            self.wait_for_room(connection, false);
            return Begun::Wait;
        }
        let Some(keyspace) = self.shard.map().keyspace(session.db) else { return Begun::Whole };
        let position = self.shard.position(key);
        let place = Place { keyspace, slot: position.slot() };
        let to = position.shard(self.shard.count());
        let mut upload = Upload { connection, to, place, state: State::Open, id: None, in_flight: 0 };
        let ticket = self.shard.next_id();
        if to == self.shard.index() {
            match self.shard.begin_upload(now, place, len) {
                Ok(id) => {
                    upload.id = Some(id);
                    self.uploads.stalled_since_us.remove(&connection);
                }
                Err(error) if error.kind() == ErrorKind::Retry && !self.waits_too_long(now, connection) => {
                    self.wait_for_room(connection, true);
                    return Begun::Wait;
                }
                Err(error) => upload.state = State::Failed(in_the_end(error)),
            }
        } else {
            self.send_upload(to, ticket, UploadMessage::Begin { place, len });
        }
        self.uploads.tickets.insert((connection, ticket));
        self.uploads.own.insert(ticket, upload);
        Begun::Upload(ticket)
    }

    /// Whether a connection may make this request, as far as that is seen before all of it has come.
    fn may_upload(&self, session: &Session, args: Args<'_>) -> bool {
        session.may_do_all
            || !session.must_authenticate(&self.host.users)
                && table::lookup(args.at(0)).is_some_and(|found| {
                    session.user.checker().check(found.index, found.command, args).is_ok()
                })
    }

    /// Takes the next bytes of an upload; gives how many. None: again after [`Output::Resume`].
    pub fn feed_upload(&mut self, now: Now, ticket: Ticket, bytes: &[u8]) -> usize {
        let Some(upload) = self.uploads.own.get_mut(&ticket) else { return bytes.len() };
        let connection = upload.connection;
        if let State::Failed(_) = upload.state {
            return bytes.len();
        }
        if upload.to != self.shard.index() {
            let room = WINDOW_BYTES.saturating_sub(upload.in_flight);
            let come = &bytes[..bytes.len().min(room)];
            upload.in_flight += come.len();
            let to = upload.to;
            if !come.is_empty() {
                self.send_upload(to, ticket, UploadMessage::Piece(come.to_vec()));
            }
            if come.len() < bytes.len() {
                self.wait_for_room(connection, false);
            }
            return come.len();
        }
        let Some(id) = upload.id else { return bytes.len() };
        let error = match self.shard.upload(now, id, bytes) {
            Ok(taken) if taken > 0 || bytes.is_empty() => {
                self.uploads.stalled_since_us.remove(&connection);
                if taken < bytes.len() {
                    self.wait_for_room(connection, true);
                }
                return taken;
            }
            Ok(_) if !self.waits_too_long(now, connection) => {
                self.wait_for_room(connection, true);
                return 0;
            }
            Ok(_) => no_room(),
            Err(error) => error,
        };
        if let Some(upload) = self.uploads.own.get_mut(&ticket) {
            upload.state = State::Failed(error);
        }
        self.shard.drop_upload(id);
        bytes.len()
    }

    /// Whether nothing of what a connection uploads was taken for so long that it is given up; asked when nothing is.
    pub(crate) fn waits_too_long(&mut self, now: Now, connection: ConnectionId) -> bool {
        let since_us = *self.uploads.stalled_since_us.entry(connection).or_insert(now.monotonic_us);
        let is_over = now.monotonic_us > since_us + ROOM_MAX_US;
        if is_over {
            self.uploads.stalled_since_us.remove(&connection);
        }
        is_over
    }

    /// All bytes of an upload have been fed: the value, or why there is none. None: again after
    /// [`Output::Resume`].
    pub fn end_upload(&mut self, now: Now, ticket: Ticket) -> Option<Result<Staged, Error>> {
        let upload = self.uploads.own.get_mut(&ticket)?;
        let (to, connection) = (upload.to, upload.connection);
        if let (State::Open, Some(id), true) = (&upload.state, upload.id, to == self.shard.index()) {
            let state = match self.shard.end_upload(now, id) {
                Ok(map) => State::Ended(map),
                Err(error) if error.kind() == ErrorKind::Retry && !self.waits_too_long(now, connection) => {
                    self.wait_for_room(connection, true);
                    return None;
                }
                Err(error) => {
                    self.shard.drop_upload(id);
                    State::Failed(in_the_end(error))
                }
            };
            self.uploads.stalled_since_us.remove(&connection);
            self.uploads.own.get_mut(&ticket)?.state = state;
        }
        let upload = self.uploads.own.get_mut(&ticket)?;
        match &upload.state {
            State::Ended(map) => Some(Ok(Staged { place: upload.place, map: map.clone() })),
            State::Failed(error) => Some(Err(error.clone())),
            State::Open => {
                upload.state = State::Ending;
                self.send_upload(to, ticket, UploadMessage::End);
                self.wait_for_room(connection, false);
                None
            }
            State::Ending => {
                self.wait_for_room(connection, false);
                None
            }
        }
    }

    /// The request with these arguments has been taken: its uploads are its connection's now.
    pub(crate) fn own_uploads(&mut self, connection: ConnectionId, args: &OwnedArgs) {
        let count = self.shard.count();
        self.uploads.take_of(connection);
        let Some(session) = self.host.sessions.get_mut(&connection) else { return };
        for (_, staged) in args.all_staged() {
            session.uploads.push((staged.place.shard(count), staged.map.id));
        }
    }

    /// Gives up what the answered requests of a connection have left.
    pub(crate) fn drop_leftovers(&mut self, connection: ConnectionId) {
        let Some(session) = self.host.sessions.get_mut(&connection) else { return };
        if session.uploads.is_empty() || session.transaction.is_some() || session.has_suspended() {
            return;
        }
        let left = std::mem::take(&mut session.uploads);
        self.drop_all(left);
    }

    pub(crate) fn drop_all(&mut self, left: Vec<(ShardId, ValueId)>) {
        for (to, id) in left {
            if to == self.shard.index() {
                self.shard.drop_upload(id);
            } else {
                self.host.outputs.push(Output::Send { to, message: Message::DropUpload { id } });
            }
        }
    }

    /// A connection has gone, or the request that it was making.
    pub(crate) fn abandon_uploads(&mut self, connection: ConnectionId) {
        self.uploads.stalled_since_us.remove(&connection);
        for (ticket, upload) in self.uploads.take_of(connection) {
            if let State::Ended(map) = upload.state {
                self.drop_all(vec![(upload.to, map.id)]);
            } else if upload.to != self.shard.index() {
                self.send_upload(upload.to, ticket, UploadMessage::Drop);
            } else if let Some(id) = upload.id {
                self.shard.drop_upload(id);
            }
        }
    }

    /// A request of which an upload has failed has come to its end: answers it.
    pub fn fail_upload(&mut self, connection: ConnectionId, error: &Error, reply: &mut Vec<u8>) {
        self.abandon_uploads(connection);
        let Some(session) = self.host.sessions.get_mut(&connection) else { return };
        if let Some(transaction) = &mut session.transaction {
            transaction.is_broken = true;
        }
        let start = reply.len();
        ReplyWriter::new(reply, session.version).error(error_text(error).as_bytes());
        self.host.counters.note_error(&reply[start..]);
    }

    /// When uploads want a step, by the monotonic clock.
    pub(crate) fn upload_step_at_us(&self) -> Option<u64> {
        let waits =
            !self.uploads.waiting.is_empty() || self.uploads.taking.values().any(Taking::wants_engine);
        waits.then_some(self.uploads.step_at_us)
    }

    /// What each step does for uploads.
    pub(crate) fn poll_uploads(&mut self, now: Now) {
        self.uploads.step_at_us = now.monotonic_us + STEP_US;
        let is_open = self.shard.engine().admission() == Admission::Open;
        if !self.uploads.waiting.is_empty() && is_open {
            for connection in std::mem::take(&mut self.uploads.waiting) {
                self.resume_session(connection);
            }
        }
        if is_open {
            let waiting = self.uploads.taking.iter().filter(|(_, taking)| taking.wants_engine());
            let places: Vec<(ShardId, Ticket)> = waiting.map(|(name, _)| *name).collect();
            places.into_iter().for_each(|(from, ticket)| self.take_pieces(now, from, ticket));
        }
        for (mut suspended, left) in std::mem::take(&mut self.uploads.orphans) {
            while suspended.pop_if(|last| !self.tasks.contains_key(last)).is_some() {}
            if !suspended.is_empty() {
                self.uploads.orphans.push((suspended, left));
            } else {
                self.drop_all(left);
            }
        }
    }

    /// Takes a message about an upload.
    pub(crate) fn upload_message(
        &mut self,
        now: Now,
        (from, ticket): (ShardId, Ticket),
        message: UploadMessage,
    ) {
        let Some(message) = self.making_told(now, ticket, message) else { return };
        match message {
            UploadMessage::Begin { place, len } => {
                let (id, pieces) = (None, VecDeque::new());
                let taking = Taking { place, len, id, pieces, has_ended: false, stalled_since_us: None };
                self.uploads.taking.insert((from, ticket), taking);
                self.take_pieces(now, from, ticket);
            }
            UploadMessage::Piece(bytes) => self.piece_of_upload(now, (from, ticket), Piece::Bytes(bytes)),
            UploadMessage::Zeros(len) => self.piece_of_upload(now, (from, ticket), Piece::Zeros(len)),
            UploadMessage::End => {
                if let Some(taking) = self.uploads.taking.get_mut(&(from, ticket)) {
                    taking.has_ended = true;
                    self.take_pieces(now, from, ticket);
                }
            }
            UploadMessage::Drop => {
                let taking = self.uploads.taking.remove(&(from, ticket));
                if let Some(id) = taking.and_then(|taking| taking.id) {
                    self.shard.drop_upload(id);
                }
            }
            UploadMessage::Taken(bytes) => {
                if let Some(upload) = self.uploads.own.get_mut(&ticket) {
                    upload.in_flight = upload.in_flight.saturating_sub(bytes);
                    let connection = upload.connection;
                    self.resume_session(connection);
                }
            }
            UploadMessage::Ended(result) => {
                if let Some(upload) = self.uploads.own.get_mut(&ticket) {
                    upload.state = match result {
                        Ok(map) => State::Ended(map),
                        Err(error) => State::Failed(error),
                    };
                    let connection = upload.connection;
                    self.resume_session(connection);
                } else if let Ok(map) = result {
                    // Its connection has gone meanwhile.
                    self.drop_all(vec![(from, map.id)]);
                }
            }
        }
    }

    fn piece_of_upload(&mut self, now: Now, name: (ShardId, Ticket), piece: Piece) {
        if let Some(taking) = self.uploads.taking.get_mut(&name) {
            taking.pieces.push_back(piece);
            self.take_pieces(now, name.0, name.1);
        }
    }

    fn take_pieces(&mut self, now: Now, from: ShardId, ticket: Ticket) {
        let mut taken_bytes = 0;
        let result = self.take_on(now, (from, ticket), &mut taken_bytes);
        if taken_bytes > 0 {
            self.send_upload(from, ticket, UploadMessage::Taken(taken_bytes));
        }
        let is_stalled = taken_bytes == 0 && self.waits_for_engine((from, ticket), &result);
        let is_over = self.note_stall(now, (from, ticket), is_stalled);
        let ended = match result {
            Ok(None) if is_over => Err(no_room()),
            Ok(None) => return,
            Err(error) if error.kind() == ErrorKind::Retry && !is_over => return,
            Ok(Some(map)) => Ok(map),
            Err(error) => Err(in_the_end(error)),
        };
        let id = self.uploads.taking.remove(&(from, ticket)).and_then(|taking| taking.id);
        if let (Err(_), Some(id)) = (&ended, id) {
            self.shard.drop_upload(id);
        }
        self.send_upload(from, ticket, UploadMessage::Ended(ended));
    }

    /// Whether it is the engine that another shard's upload waits for.
    fn waits_for_engine(&self, name: (ShardId, Ticket), result: &Result<Option<LargeMap>, Error>) -> bool {
        match result {
            Ok(None) => self.uploads.taking.get(&name).is_some_and(|taking| !taking.pieces.is_empty()),
            Ok(Some(_)) => false,
            Err(error) => error.kind() == ErrorKind::Retry,
        }
    }

    /// Notes whether the engine took nothing of another shard's upload; whether that has been so for too long.
    fn note_stall(&mut self, now: Now, name: (ShardId, Ticket), is_stalled: bool) -> bool {
        let Some(taking) = self.uploads.taking.get_mut(&name) else { return false };
        if !is_stalled {
            taking.stalled_since_us = None;
            return false;
        }
        let since_us = *taking.stalled_since_us.get_or_insert(now.monotonic_us);
        now.monotonic_us > since_us + ROOM_MAX_US
    }

    /// Writes what has come of another shard's upload; its map at the end.
    fn take_on(
        &mut self,
        now: Now,
        name: (ShardId, Ticket),
        taken_bytes: &mut usize,
    ) -> Result<Option<LargeMap>, Error> {
        let Some(taking) = self.uploads.taking.get_mut(&name) else { return Ok(None) };
        let id = match taking.id {
            Some(id) => id,
            None => *taking.id.insert(self.shard.begin_upload(now, taking.place, taking.len)?),
        };
        while let Some(piece) = taking.pieces.front_mut() {
            let taken = match piece {
                Piece::Bytes(bytes) => self.shard.upload(now, id, bytes)? as u64,
                Piece::Zeros(len) => self.shard.upload_zeros(now, id, *len)?,
            };
            *taken_bytes += taken as usize;
            if taken < piece.len() {
                piece.pass(taken);
                return Ok(None);
            }
            taking.pieces.pop_front();
        }
        if taking.has_ended { self.shard.end_upload(now, id).map(Some) } else { Ok(None) }
    }

    pub(crate) fn send_upload(&mut self, to: ShardId, ticket: Ticket, message: UploadMessage) {
        let message = Message::Upload { ticket, message };
        self.host.outputs.push(Output::Send { to, message });
    }

    /// Notes that a connection waits: for the engine, or for a message.
    pub(crate) fn wait_for_room(&mut self, connection: ConnectionId, for_engine: bool) {
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            session.is_blocked = true;
        }
        if for_engine && !self.uploads.waiting.contains(&connection) {
            self.uploads.waiting.push(connection);
        }
    }
}

fn no_room() -> Error {
    Error::new(ErrorKind::NoSpace, "the device is full: cleaning made no room for this value in time")
}

/// What an upload that is given up is told: who has waited in vain is not told to try again.
fn in_the_end(error: Error) -> Error {
    if error.kind() == ErrorKind::Retry { no_room() } else { error }
}
