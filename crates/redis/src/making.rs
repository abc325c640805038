//! Large values that a command makes from others: window by window, between the shards that have them.
//!
//! The shard that coordinates the command holds the locks of all its keys. It asks the sources' shards for
//! pieces, combines them, and sends the result to the target's shard as an upload. The command is run when
//! all of it lies there, and gives it its name.
//!
//! Invariants:
//! 1. Of one making at most a window of each of a piece, the result and what the operation remembers is in
//!    memory here, and [`IN_FLIGHT_BYTES`] on their way to the target: whatever the sources' lengths.
//! 2. While the locks are held nobody changes a source. One that is lost all the same (it expired, its
//!    database was emptied) fails the making, and the command looks at its keys again.
//! 3. Nobody sees the result before the command's batch names it. What no batch has named is given up: by
//!    the coordinator, or after a crash by the ledger, in which an upload is listed from its beginning.
//! 4. Each window is a turn of its own: other requests are served in between.
//! 5. What goes from shard to shard goes in blocks of [`BLOCK_BYTES`]. mimalloc gets longer ones that another
//!    thread frees back only once in a hundred allocations: windows of this length made 50 MiB a shard of it.

use crate::control::Output;
use crate::executor::Executor;
use crate::recipe::{Bytes, Mixed, Recipe};
use crate::remote::Message;
use crate::run::{RUNS_MAX, Ran};
use crate::task::{Origin, Task, Work};
use crate::upload::{Staged, Ticket, UploadMessage};
use std::ops::Range;
use tierstone_base::{Error, ErrorKind, Now, ShardId};
use tierstone_engine::Engine;
use tierstone_store::{LargeMap, Place, RunOutcome, TaskId};
use tierstone_wire::resp::Version;

/// Bytes of the result that are made at a time: eight chunks of 64 KiB.
const WINDOW_BYTES: u64 = 512 << 10;
/// Bytes in one block of memory that goes to another shard: at most 128 KiB (invariant 5).
const BLOCK_BYTES: usize = 64 << 10;
/// Bytes on their way to the target's shard at most.
const IN_FLIGHT_BYTES: u64 = 1 << 20;

/// What a command that makes a large value wants, and has got.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// What is to be made before the command can end.
    pub wanted: Option<Recipe>,
    /// What was made.
    pub made: Option<Made>,
}

/// A large value that was made and has no name yet.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub recipe: Recipe,
    pub staged: Staged,
}

/// A value that is being made, at the shard that coordinates the command.
#[derive(Debug)]
pub(crate) struct Making {
    /// The command.
    task: TaskId,
    recipe: Recipe,
    to: ShardId,
    window: Range<u64>,
    /// The window's bytes so far, of the sources before `next`.
    mixed: Mixed,
    next: usize,
    is_reading: bool,
    in_flight_bytes: u64,
    has_ended: bool,
}

/// What a making is told, or tells.
#[derive(Clone, Debug)]
pub enum PieceMessage {
    /// These bytes of a large value are wanted.
    Read {
        /// Where it lies.
        place: Place,
        /// Its map.
        map: LargeMap,
        /// Which bytes.
        range: Range<u64>,
    },
    /// Back: the bytes in blocks, or why there are none.
    Came(tierstone_base::Result<Vec<Vec<u8>>>),
}

/// A piece that another shard's making wants.
#[derive(Debug)]
pub(crate) struct Reading {
    place: Place,
    map: LargeMap,
    range: Range<u64>,
}

/// What a making does next.
enum Step {
    /// Asks for a part of a source.
    Read(Place, LargeMap, Range<u64>),
    /// Tells the target's shard.
    Send(UploadMessage),
}

impl Making {
    /// Takes the parts of short sources; the next part that must be read, if there is one.
    fn take_short(&mut self) -> Option<(Place, LargeMap, Range<u64>)> {
        while let Some(source) = self.recipe.sources.get(self.next) {
            let part = source.part(&self.window);
            match &source.bytes {
                Bytes::Large(place, map) if !part.is_empty() => return Some((*place, map.clone(), part)),
                Bytes::Large(..) => self.mixed.add(self.next, 0, &[]),
                Bytes::Short(bytes) => {
                    let at = source.offset(&self.window, &part);
                    self.mixed.add(self.next, at, &bytes[part.start as usize..part.end as usize]);
                }
            }
            self.next += 1;
        }
        None
    }

    /// Takes the piece that was read.
    fn take_piece(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.is_reading = false;
        let offset = self.recipe.sources.get(self.next).map(|source| {
            let part = source.part(&self.window);
            (source.offset(&self.window, &part), part.end - part.start)
        });
        match offset {
            Some((at, len)) if len == bytes.len() as u64 => self.mixed.add(self.next, at, bytes),
            _ => return Err(Error::new(ErrorKind::Corrupt, "a piece of a large value has another length")),
        }
        self.next += 1;
        Ok(())
    }

    /// The bytes of the window, all of whose sources were taken; goes on to the next one.
    fn finish_window(&mut self) -> UploadMessage {
        let start = self.window.end;
        let len = start - self.window.start;
        self.window = start..(start + WINDOW_BYTES).min(self.recipe.len);
        let next = Mixed::new(self.recipe.mix, (self.window.end - start) as usize);
        let bytes = std::mem::replace(&mut self.mixed, next).finish();
        self.next = 0;
        self.in_flight_bytes += len;
        if bytes.iter().all(|byte| *byte == 0) {
            UploadMessage::Zeros(len)
        } else {
            UploadMessage::Piece(bytes)
        }
    }

    /// What is to be done next; nothing while it waits for a shard.
    fn next_step(&mut self) -> Option<Step> {
        let has_room = self.in_flight_bytes + (self.window.end - self.window.start) <= IN_FLIGHT_BYTES;
        if self.is_reading || self.has_ended || !has_room {
            return None;
        }
        if self.window.is_empty() {
            self.has_ended = true;
            return Some(Step::Send(UploadMessage::End));
        }
        match self.take_short() {
            Some((place, map, range)) => {
                self.is_reading = true;
                Some(Step::Read(place, map, range))
            }
            None => Some(Step::Send(self.finish_window())),
        }
    }
}

/// The same bytes in blocks that another shard can free.
fn blocks_of(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    bytes.chunks(BLOCK_BYTES).map(<[u8]>::to_vec)
}

impl<E: Engine> Executor<E> {
    /// Begins to make what the command of `task` wants; [`Executor::made`] gets it.
    pub(crate) fn begin_making(&mut self, task: TaskId, recipe: Recipe) {
        let ticket = self.shard.next_id();
        let (place, len) = (recipe.target, recipe.len);
        let to = place.shard(self.shard.count());
        let window = 0..WINDOW_BYTES.min(len);
        let making = Making {
            task,
            mixed: Mixed::new(recipe.mix, window.end as usize),
            recipe,
            to,
            window,
            next: 0,
            is_reading: false,
            in_flight_bytes: 0,
            has_ended: false,
        };
        self.makings.insert(ticket, making);
        self.send_upload(to, ticket, UploadMessage::Begin { place, len });
        self.go_on_making(ticket);
    }

    /// Does what can be done for a making until it waits for a shard.
    fn go_on_making(&mut self, ticket: Ticket) {
        while let Some(making) = self.makings.get_mut(&ticket) {
            let to = making.to;
            match making.next_step() {
                None => return,
                Some(Step::Send(UploadMessage::Piece(bytes))) => {
                    for block in blocks_of(&bytes) {
                        self.send_upload(to, ticket, UploadMessage::Piece(block));
                    }
                }
                Some(Step::Send(message)) => self.send_upload(to, ticket, message),
                Some(Step::Read(place, map, range)) => {
                    let message = PieceMessage::Read { place, map, range };
                    self.send_piece(place.shard(self.shard.count()), ticket, message);
                }
            }
        }
    }

    /// Takes what the target's shard says, if it says it of a making; what it says otherwise comes back.
    pub(crate) fn making_told(
        &mut self,
        now: Now,
        ticket: Ticket,
        message: UploadMessage,
    ) -> Option<UploadMessage> {
        let Some(making) = self.makings.get_mut(&ticket) else { return Some(message) };
        match message {
            UploadMessage::Taken(bytes) => {
                making.in_flight_bytes = making.in_flight_bytes.saturating_sub(bytes as u64);
                self.go_on_making(ticket);
                None
            }
            UploadMessage::Ended(result) => {
                let Making { task, recipe, .. } = self.makings.remove(&ticket)?;
                let place = recipe.target;
                let made = result.map(|map| Made { recipe, staged: Staged { place, map } });
                self.made(now, task, made);
                None
            }
            message => Some(message),
        }
    }

    /// Takes a message about a piece: of a making here, or of another shard's.
    pub(crate) fn piece_message(
        &mut self,
        now: Now,
        (from, ticket): (ShardId, Ticket),
        message: PieceMessage,
    ) {
        match message {
            PieceMessage::Read { place, map, range } => {
                let id = self.shard.next_id();
                let work = Work::Read(Box::new(Reading { place, map, range }));
                self.tasks.insert(id, Task::new(Origin::Shard(from, ticket), 0, Version::Resp2, work));
                self.run_reading(now, id);
            }
            PieceMessage::Came(result) => {
                let Some(making) = self.makings.get_mut(&ticket) else { return };
                match result.and_then(|blocks| making.take_piece(&blocks.concat())) {
                    Ok(()) => self.go_on_making(ticket),
                    Err(error) => self.fail_making(now, ticket, error),
                }
            }
        }
    }

    fn fail_making(&mut self, now: Now, ticket: Ticket, error: Error) {
        if let Some(making) = self.makings.remove(&ticket) {
            self.send_upload(making.to, ticket, UploadMessage::Drop);
            self.made(now, making.task, Err(error));
        }
    }

    /// Reads a piece for a making, at once or when its chunks have been fetched.
    pub(crate) fn run_reading(&mut self, now: Now, id: TaskId) {
        let Some(mut task) = self.tasks.remove(&id) else { return };
        let Work::Read(reading) = &task.work else {
            self.tasks.insert(id, task);
            return;
        };
        let failures = std::mem::take(&mut task.failures);
        let Reading { place, map, range } = &**reading;
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let outcome = self.shard.run(now, &mut self.workspace, &failures, |view| {
            view.read_large(*place, map, range.clone(), &mut bytes)
        });
        let result = match outcome {
            RunOutcome::Suspended if task.runs < RUNS_MAX => {
                task.runs += 1;
                return self.park(now, id, task, Ran::Suspended);
            }
            RunOutcome::Suspended => {
                let text = "the chunks that are needed do not stay in memory together";
                Err(Error::new(ErrorKind::NoMemory, text))
            }
            RunOutcome::Failed(error) => Err(error),
            RunOutcome::Done { .. } => Ok(blocks_of(&bytes).collect()),
        };
        self.shard.release(&mut task.tokens);
        if let Origin::Shard(to, ticket) = task.origin {
            self.send_piece(to, ticket, PieceMessage::Came(result));
        }
    }

    fn send_piece(&mut self, to: ShardId, ticket: Ticket, message: PieceMessage) {
        let message = Message::Piece { ticket, message };
        self.host.outputs.push(Output::Send { to, message });
    }
}

/// Whether a value that was there may be gone.
pub(crate) fn is_about_loss(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corrupt | ErrorKind::Unsupported)
}
