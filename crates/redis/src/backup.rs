//! `DEBUG BACKUP START [base]`, `NEXT` and `END`: one connection takes a backup of all databases, frame by frame, while the
//! others are served.
//!
//! The shard of the connection coordinates. A cut needs one moment in which nothing is half done on several
//! shards:
//!
//! 1. **Freeze.** Every shard puts off new requests, and batches that it coordinates before they send their writes. It
//!    answers when what it had begun before is at its end: batches, and changes of the databases.
//! 2. **Cut.** When all have answered, each takes its part of the cut; one that holds a part of a batch which is decided
//!    waits for that to reach it.
//! 3. **Thaw.** When all have taken theirs, requests go on.
//!
//! Then each shard gives its frames when it is asked, one at a time.
//!
//! Invariants:
//! 1. A write whose answer was sent before another request came is in the cut if what that request wrote is
//!    (from the first part of the cut to the last no request begins).
//! 2. A batch over several shards is in the cut on all of them or on none; so is a change of the databases.
//! 3. A freeze ends after [`FREEZE_US`], with the backup if that has not made its cut.
//! 4. A backup ends with its connection, and when nothing was asked of it for [`IDLE_US`]. One that is given up while its
//!    connection asks nothing ends at once, and holds nothing up; the connection is told when it asks next.
//! 5. One frame of each shard waits at most.

use crate::args::Args;
use crate::context::{Halt, SYNTAX, error_text, fail};
use crate::control::Output;
use crate::executor::{Executor, Outcome};
use crate::remote::Message;
use crate::session::ConnectionId;
use crate::task::Work;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, Now, Result, ShardId};
use tierstone_engine::{BackupCut, BackupStep, Engine, IndexKind};
use tierstone_store::TaskId;
use tierstone_store::backup::since::BackupBase;
use tierstone_store::backup::{BackupStart, ShardFramer};
use tierstone_wire::resp::{ReplyWriter, Version};

/// How long requests are put off at most for the cut, in microseconds.
const FREEZE_US: u64 = 1_000_000;
/// A backup of which nothing is asked for so long is given up, in microseconds.
const IDLE_US: u64 = 60_000_000;

/// What shards tell each other about a backup; its number is the coordinator's.
#[derive(Clone, Debug)]
pub enum BackupMessage {
    /// Put off what is new, and tell when what was begun is at its end.
    Freeze,
    /// It is; or no backup can begin here.
    Frozen(Result<()>),
    /// Take your part of the cut. The backup's id, and the one that it is made since.
    Cut(u64, Option<Arc<BackupBase>>),
    /// It is taken.
    Taken(Result<BackupCut>),
    /// Go on.
    Thaw,
    /// Give your next frame.
    Next,
    /// It is this one; `None`: there are no more.
    Frame(Result<Option<Vec<u8>>>),
    /// The backup has ended.
    End,
}

/// This shard's part of a backup.
#[derive(Debug)]
struct Part {
    coordinator: ShardId,
    ticket: TaskId,
    stage: PartStage,
    /// The coordinator waits for a frame.
    is_asked: bool,
}

#[derive(Debug)]
enum PartStage {
    /// What was begun comes to its end.
    Freezing,
    Frozen,
    /// The cut is to be taken, with this id, since this one.
    Cutting(u64, Option<Arc<BackupBase>>),
    Reading(ShardFramer),
}

/// A backup that this shard coordinates.
#[derive(Debug)]
struct Coordinated {
    /// The backup's own, in all of its frames.
    id: u64,
    ticket: TaskId,
    connection: ConnectionId,
    stage: Stage,
    /// The request that waits for an answer.
    waiting: Option<TaskId>,
    /// Shards that have not answered, or not given everything.
    missing: usize,
    cuts: BTreeMap<ShardId, BackupCut>,
    base: Option<Arc<BackupBase>>,
    frames: VecDeque<(ShardId, Vec<u8>)>,
    /// When the stage began, or something was last asked.
    since_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Freezing,
    Cutting,
    Giving,
}

/// Backups of an executor: its part of one, and one that it coordinates.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    part: Option<Part>,
    coordinated: Option<Coordinated>,
    /// Why backups were given up whose connections were not asking: what these are told when they ask.
    given_up: BTreeMap<ConnectionId, Cow<'static, str>>,
    /// Batches that send their writes after the freeze.
    put_off: Vec<TaskId>,
    /// Whether new requests are put off.
    pub is_frozen: bool,
}

impl Backups {
    /// Puts a batch off that would send its writes, if there is a freeze.
    pub fn puts_off(&mut self, batch: TaskId) -> bool {
        if self.is_frozen {
            self.put_off.push(batch);
        }
        self.is_frozen
    }

    /// When a step is wanted to give a backup up, by the monotonic clock.
    pub fn next_step_at_us(&self) -> Option<u64> {
        let coordinated = self.coordinated.as_ref()?;
        let is_served = coordinated.stage == Stage::Giving && coordinated.waiting.is_some();
        (!is_served).then_some(coordinated.since_us + coordinated.patience_us())
    }
}

impl Coordinated {
    fn patience_us(&self) -> u64 {
        if self.stage == Stage::Giving { IDLE_US } else { FREEZE_US }
    }
}

fn busy(what: &str) -> Error {
    Error::new(ErrorKind::Busy, what)
}

impl<E: Engine> Executor<E> {
    pub(crate) fn debug_backup(
        &mut self,
        now: Now,
        connection: ConnectionId,
        args: Args<'_>,
    ) -> std::result::Result<Outcome, Halt> {
        let is_its = self.backups.coordinated.as_ref().is_some_and(|backup| backup.connection == connection);
        let word = args.at(2).to_ascii_uppercase();
        if args.len() > if word == b"START" { 4 } else { 3 } {
            return fail(SYNTAX);
        }
        match word.as_slice() {
            b"START" if self.backups.coordinated.is_some() => {
                Err(Halt::Error(error_text(&busy("a backup is under way"))))
            }
            b"START" => {
                let base = (args.len() > 3).then(|| BackupBase::decode(args.at(3)));
                let base = base.transpose().and_then(|base| {
                    base.iter().try_for_each(|base| base.check_shards(usize::from(self.shard.count())))?;
                    Ok(base.map(Arc::new))
                });
                self.backups.given_up.remove(&connection);
                match base {
                    Ok(base) => Ok(self.start_backup(now, connection, base)),
                    Err(error) => Err(Halt::Error(format!("ERR {}", error.message()).into())),
                }
            }
            b"NEXT" | b"END" if !is_its => match self.backups.given_up.remove(&connection) {
                Some(why) => Err(Halt::Error(why)),
                None => fail("ERR this connection has no backup under way"),
            },
            b"NEXT" => {
                let id = self.shard.next_id();
                let outcome = self.suspend(connection, id, Work::Forwarded);
                if let Some(backup) = &mut self.backups.coordinated {
                    (backup.waiting, backup.since_us) = (Some(id), now.monotonic_us);
                }
                self.give_frame(now);
                Ok(outcome)
            }
            b"END" => {
                let id = self.shard.next_id();
                let outcome = self.suspend(connection, id, Work::Forwarded);
                if let Some(backup) = &mut self.backups.coordinated {
                    backup.waiting = Some(id);
                }
                self.end_backup(now, b"+OK\r\n".to_vec());
                Ok(outcome)
            }
            _ => fail(SYNTAX),
        }
    }

    fn start_backup(&mut self, now: Now, connection: ConnectionId, base: Option<Arc<BackupBase>>) -> Outcome {
        let id = self.shard.next_id();
        let outcome = self.suspend(connection, id, Work::Forwarded);
        // Another at each start of the server, at each shard, which counts its tasks by itself, and at each backup.
        let told = [u64::from(self.shard.index()), now.wall_ms, now.monotonic_us].map(u64::to_le_bytes);
        let told = [self.host.facts.run_id.as_bytes(), told.as_flattened()].concat();
        self.backups.coordinated = Some(Coordinated {
            id: checksum(id, &told),
            ticket: id,
            connection,
            stage: Stage::Freezing,
            waiting: Some(id),
            missing: usize::from(self.shard.count()),
            cuts: BTreeMap::new(),
            base,
            frames: VecDeque::new(),
            since_us: now.monotonic_us,
        });
        self.tell_backup(id, &BackupMessage::Freeze);
        outcome
    }

    /// Tells every shard, this one included, something about the backup `ticket`.
    fn tell_backup(&mut self, ticket: TaskId, message: &BackupMessage) {
        self.send_everywhere(|_| Message::Backup { ticket, message: message.clone() });
    }

    /// The backup that this shard coordinates has come to its end, whole or not: all shards learn it, and who
    /// waits gets `reply`.
    fn end_backup(&mut self, now: Now, reply: Vec<u8>) {
        let Some(backup) = self.backups.coordinated.take() else { return };
        self.tell_backup(backup.ticket, &BackupMessage::End);
        if let Some(id) = backup.waiting {
            self.finish(now, id, reply, 0, false);
        }
    }

    /// The backup is given up: who waits for an answer gets the error, or else who asks next.
    fn fail_backup(&mut self, now: Now, error: &Error) {
        // What is wrong with a base is no value that is too long.
        let text = match error.kind() {
            ErrorKind::InvalidInput => format!("ERR {}", error.message()).into(),
            _ => error_text(error),
        };
        let reply = format!("-{text}\r\n").into_bytes();
        if let Some(backup) = &self.backups.coordinated
            && backup.waiting.is_none()
        {
            self.backups.given_up.insert(backup.connection, text);
        }
        self.end_backup(now, reply);
    }

    /// A connection has gone.
    pub(crate) fn abandon_backup(&mut self, connection: ConnectionId) {
        self.backups.given_up.remove(&connection);
        if self.backups.coordinated.as_ref().is_some_and(|backup| backup.connection == connection) {
            self.end_backup(Now::default(), Vec::new());
        }
    }

    /// Goes on with this shard's part, and gives up what has lasted too long. To be called with every step.
    pub(crate) fn poll_backup(&mut self, now: Now) {
        self.advance_part(now);
        let Some(backup) = &self.backups.coordinated else { return };
        if now.monotonic_us < backup.since_us + backup.patience_us() {
            return;
        }
        match backup.stage {
            Stage::Giving if backup.waiting.is_none() => {
                let message = "the backup was given up: nothing was asked of it for a minute";
                self.fail_backup(now, &Error::new(ErrorKind::SnapshotLost, message));
            }
            // The shards are asked; they read, or a full store ends it.
            Stage::Giving => {}
            _ => self.fail_backup(now, &busy("batches went on for too long to begin a backup between them")),
        }
    }

    /// Takes a message about the backup `ticket` of the shard `from`, or to this one about its own.
    pub(crate) fn backup_message(
        &mut self,
        now: Now,
        (from, ticket): (ShardId, TaskId),
        message: BackupMessage,
    ) {
        match message {
            BackupMessage::Frozen(_) | BackupMessage::Taken(_) | BackupMessage::Frame(_) => {
                if self.backups.coordinated.as_ref().is_some_and(|backup| backup.ticket == ticket) {
                    self.part_has_answered(now, from, message);
                }
            }
            BackupMessage::Freeze if self.backups.part.is_some() => {
                let error = busy("a backup is under way");
                self.answer_backup(from, ticket, BackupMessage::Frozen(Err(error)));
            }
            BackupMessage::Freeze => {
                let stage = PartStage::Freezing;
                self.backups.part = Some(Part { coordinator: from, ticket, stage, is_asked: false });
                self.backups.is_frozen = true;
                self.advance_part(now);
            }
            message => {
                let is_its = |part: &&mut Part| (part.coordinator, part.ticket) == (from, ticket);
                let Some(part) = self.backups.part.as_mut().filter(is_its) else { return };
                match message {
                    BackupMessage::Cut(id, base) => part.stage = PartStage::Cutting(id, base),
                    BackupMessage::Next => part.is_asked = true,
                    BackupMessage::Thaw => return self.thaw(now),
                    _ => {
                        self.backups.part = None;
                        self.shard.engine_mut().end_backup();
                        return self.thaw(now);
                    }
                }
                self.advance_part(now);
            }
        }
    }

    fn answer_backup(&mut self, to: ShardId, ticket: TaskId, message: BackupMessage) {
        self.host.outputs.push(Output::Send { to, message: Message::Backup { ticket, message } });
    }

    fn thaw(&mut self, now: Now) {
        if !std::mem::take(&mut self.backups.is_frozen) {
            return;
        }
        for batch in std::mem::take(&mut self.backups.put_off) {
            self.scatter(now, batch);
        }
        self.resume_blocked();
    }

    /// Does what this shard's part waits for, if it can be done now.
    fn advance_part(&mut self, now: Now) {
        let Some(part) = &mut self.backups.part else { return };
        let (coordinator, ticket) = (part.coordinator, part.ticket);
        let answer = match &mut part.stage {
            PartStage::Freezing => {
                if !self.has_come_to_rest() {
                    return;
                }
                self.set_part(PartStage::Frozen);
                BackupMessage::Frozen(Ok(()))
            }
            PartStage::Cutting(id, base) => {
                let (id, base) = (*id, base.clone());
                if self.participant.has_writes() {
                    return;
                }
                let now = self.shard_now(now);
                let since = base.map(|base| base.of_shard(self.shard.index()));
                let taken = self.shard.engine_mut().begin_backup(now, since);
                self.set_part(PartStage::Reading(ShardFramer::new(id, self.shard.index())));
                BackupMessage::Taken(taken)
            }
            PartStage::Reading(framer) if part.is_asked => {
                let frame = match self.shard.engine_mut().take_backup() {
                    Ok(BackupStep::Later) => return,
                    Ok(BackupStep::Piece(piece)) => Ok(Some(framer.frame(&piece))),
                    Ok(BackupStep::End) => Ok(None),
                    Err(error) => Err(error),
                };
                part.is_asked = false;
                BackupMessage::Frame(frame)
            }
            PartStage::Frozen | PartStage::Reading(_) => return,
        };
        self.answer_backup(coordinator, ticket, answer);
    }

    fn set_part(&mut self, stage: PartStage) {
        if let Some(part) = &mut self.backups.part {
            part.stage = stage;
        }
    }

    /// Whether no batch that has sent its writes, and no change of the databases, is under way that this shard
    /// coordinates or takes part in.
    fn has_come_to_rest(&self) -> bool {
        let is_under_way = |id: &TaskId| match self.tasks.get(id).map(|task| &task.work) {
            Some(Work::Coordinated(coordination)) => coordination.has_sent_writes(),
            _ => false,
        };
        !self.participant.has_writes()
            && !self.batches.values().any(is_under_way)
            && !self.tasks.values().any(|task| matches!(task.work, Work::ChangeMap))
    }

    /// A shard has answered the backup that this one coordinates.
    fn part_has_answered(&mut self, now: Now, from: ShardId, message: BackupMessage) {
        let Some(backup) = &mut self.backups.coordinated else { return };
        match message {
            BackupMessage::Frozen(Ok(())) => {
                backup.missing -= 1;
                if backup.missing == 0 {
                    self.begin_cut();
                }
            }
            BackupMessage::Taken(Ok(cut)) => {
                backup.missing -= 1;
                backup.cuts.insert(from, cut);
                if backup.missing == 0 {
                    self.cut_is_whole(now);
                }
            }
            BackupMessage::Frame(Ok(frame)) => {
                match frame {
                    Some(frame) => backup.frames.push_back((from, frame)),
                    None => backup.missing -= 1,
                }
                self.give_frame(now);
            }
            BackupMessage::Frozen(Err(error))
            | BackupMessage::Taken(Err(error))
            | BackupMessage::Frame(Err(error)) => self.fail_backup(now, &error),
            _ => {}
        }
    }

    fn begin_cut(&mut self) {
        let Some(backup) = &mut self.backups.coordinated else { return };
        backup.stage = Stage::Cutting;
        backup.missing = usize::from(self.shard.count());
        let (ticket, base) = (backup.ticket, backup.base.clone());
        let id = backup.id;
        self.tell_backup(ticket, &BackupMessage::Cut(id, base));
    }

    /// Every shard has taken its part: the client gets the first frame, and requests go on.
    fn cut_is_whole(&mut self, now: Now) {
        let count = self.shard.count();
        let map = self.shard.map().clone();
        let Some(backup) = &mut self.backups.coordinated else { return };
        (backup.stage, backup.missing, backup.since_us) =
            (Stage::Giving, usize::from(count), now.monotonic_us);
        let most = |of: fn(&BackupCut) -> u64| backup.cuts.values().map(of).max().unwrap_or(0);
        let first = backup.cuts.values().next();
        if let (Some(base), Some(cut)) = (&backup.base, first)
            && let Err(error) = base.check_cut(cut)
        {
            return self.fail_backup(now, &error);
        }
        let is_ordered = self.host.facts.index == IndexKind::Ordered.name();
        let start = BackupStart {
            id: backup.id,
            taken_at_ms: most(|cut| cut.wall_ms),
            shards: count,
            segment_bytes: most(|cut| cut.segment_bytes),
            seq: most(|cut| cut.seq),
            past_ms: most(|cut| cut.past_ms),
            bytes: backup.cuts.values().map(|cut| cut.bytes).sum(),
            map,
            index: if is_ordered { IndexKind::Ordered } else { IndexKind::Hash },
            store: most(|cut| cut.store),
            opening: most(|cut| cut.opening),
            base: backup.base.as_ref().map(|base| base.name),
        };
        let (ticket, waiting) = (backup.ticket, backup.waiting.take());
        self.tell_backup(ticket, &BackupMessage::Thaw);
        match start.encode() {
            Ok(frame) => {
                self.tell_backup(ticket, &BackupMessage::Next);
                if let Some(id) = waiting {
                    self.finish(now, id, bulk(&frame), 0, false);
                }
            }
            Err(error) => {
                if let Some(backup) = &mut self.backups.coordinated {
                    backup.waiting = waiting;
                }
                self.fail_backup(now, &error);
            }
        }
    }

    /// Answers who waits for a frame, if there is one, or if all were given.
    fn give_frame(&mut self, now: Now) {
        let Some(backup) = &mut self.backups.coordinated else { return };
        let Some(id) = backup.waiting else { return };
        let ticket = backup.ticket;
        if let Some((from, frame)) = backup.frames.pop_front() {
            backup.waiting = None;
            self.answer_backup(from, ticket, BackupMessage::Next);
            self.finish(now, id, bulk(&frame), 0, false);
        } else if backup.missing == 0 {
            let mut reply = Vec::new();
            ReplyWriter::new(&mut reply, Version::Resp2).ok();
            self.end_backup(now, reply);
        }
    }
}

fn bulk(frame: &[u8]) -> Vec<u8> {
    let mut reply = Vec::with_capacity(frame.len() + 32);
    ReplyWriter::new(&mut reply, Version::Resp2).bulk(frame);
    reply
}
