//! Walks through the keys of a database: `SCAN`, `KEYS`, `RANDOMKEY`.
//!
//! A cursor is a position: the walk goes through positions in order, shard by shard, and a cursor
//! says by its position which shard goes on. It stays valid for ever, whatever is written meanwhile:
//! a key that exists during the whole walk is given at least once, because its position never changes.
//!
//! Clients keep cursors as signed numbers or as doubles: they are given the upper 53 bits of the position. So an answer
//! of `SCAN` ends where these change, and gives the keys from its cursor's first position up to that of the next one,
//! whatever else a page of the engine has; where a page ends before, the next one belongs to the same answer.
//!
//! A page whose keys are long beside a long pattern is looked at piece by piece, one a step ([`TURN_WORK_MAX`]), so that
//! others are served between.

use crate::args::Args;
use crate::commands::keys::type_name;
use crate::context::{Halt, NOT_AN_INTEGER, SYNTAX, error_line, fail};
use crate::executor::{Executor, Outcome};
use crate::glob::Pattern;
use crate::number;
use crate::request::KEY_SIZE_MAX_BYTES;
use crate::session::ConnectionId;
use crate::table::TaskKind;
use crate::task::{Origin, Task, Work};
use crate::work::{TURN_WORK_MAX, of_bytes};
use tierstone_base::{Error, Now, Position};
use tierstone_engine::{Engine, ScanEntry};
use tierstone_store::TaskId;
use tierstone_wire::resp::{ReplyWriter, Version};

/// Entries of one page when nobody says how many.
const COUNT_DEFAULT: u32 = 10;
/// The most entries of one page: bounds the time and memory of one step. A record is read whole for its key, all those of
/// a page at once, and may have 64 KiB.
const COUNT_MAX: u32 = 512;
/// Entries of the pages of `KEYS`.
const KEYS_PAGE: u32 = COUNT_MAX;

/// What a walk looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// A pattern that keys match.
    pub pattern: Option<Vec<u8>>,
    /// The name of a type, in lower case.
    pub type_name: Option<Vec<u8>>,
}

impl Wanted {
    /// Whether an entry is wanted but for its key.
    fn fits(&self, entry: &ScanEntry, now_ms: u64) -> bool {
        let is_live = entry.meta.expiry_ms == 0 || entry.meta.expiry_ms > now_ms;
        is_live
            && self
                .type_name
                .as_ref()
                .is_none_or(|name| name.eq_ignore_ascii_case(type_name(entry.meta.kind).as_bytes()))
    }
}

/// A page that has come.
#[derive(Debug)]
pub(crate) struct Page {
    /// Its entries that were not looked at.
    entries: std::vec::IntoIter<ScanEntry>,
    /// Where the next page begins, if there is one.
    next: Option<Position>,
    /// The positions of which it gives the keys, the second excluded; `None`: it gives all that it has.
    given: Option<(Position, Option<Position>)>,
}

impl Page {
    /// Whether it gives this key.
    fn gives(&self, key: &[u8], position: impl Fn(&[u8]) -> Position, work: &mut u64) -> bool {
        let Some((first, until)) = self.given else { return true };
        *work += of_bytes(key.len());
        let position = position(key);
        position >= first && until.is_none_or(|until| position < until)
    }
}

/// Where the answer ends that began at `began` when the engine goes on at `next`: where a cursor begins. `None`: there
/// is none between, and the answer goes on.
fn end_of_answer(began: Position, next: Position) -> Option<Position> {
    Some(next.first_of_cursor()).filter(|end| *end > began)
}

/// Which of the walks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkKind {
    /// One page, with the cursor that follows it.
    Scan,
    /// All pages.
    Keys,
    /// Pages from some position on until there is a key.
    RandomKey {
        /// Where it began; it ends here when it has come round.
        start: Position,
        /// Whether it has begun again at the first position.
        has_wrapped: bool,
    },
}

/// One walk.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Which of the walks.
    pub kind: WalkKind,
    /// What it looks for.
    pub wanted: Wanted,
    /// Where the answer begins.
    pub began: Position,
    /// Where it goes on.
    pub cursor: Position,
    /// Entries a page.
    pub count: u32,
    /// The keys found so far.
    pub found: Vec<Vec<u8>>,
    /// What of it is no message to another shard.
    pub(crate) here: Here,
}

/// What a walk has at the shard that walks.
#[derive(Debug, Default)]
pub(crate) struct Here {
    /// The pattern, once it was read.
    pattern: Option<Pattern>,
    /// The page that is being looked at.
    page: Option<Page>,
}

impl Clone for Here {
    fn clone(&self) -> Self {
        Here::default()
    }
}

impl Walk {
    /// A walk that begins at `began`.
    fn new(kind: WalkKind, wanted: Wanted, began: Position, count: u32) -> Walk {
        Walk { kind, wanted, began, cursor: began, count, found: Vec::new(), here: Here::default() }
    }

    /// Takes a page. An answer of `SCAN` gives of its pages what lies from its cursor to the next one, once.
    fn take_page(&mut self, entries: Vec<ScanEntry>, next: Option<Position>) {
        let until = next.map(|next| end_of_answer(self.began, next).unwrap_or(next));
        let given = (self.kind == WalkKind::Scan).then_some((self.cursor, until));
        self.here.page = Some(Page { entries: entries.into_iter(), next, given });
    }

    /// Looks at the entries of the page, until there is no more or that was much work. `position`: of a key.
    fn look(&mut self, now_ms: u64, position: impl Fn(&[u8]) -> Position) {
        let Walk { wanted, found, here: Here { pattern, page }, .. } = self;
        let mut work = 0;
        if let (None, Some(bytes)) = (&pattern, &wanted.pattern) {
            work += pattern.insert(Pattern::new(bytes, false, KEY_SIZE_MAX_BYTES)).work();
        }
        let Some(page) = page else { return };
        while work < TURN_WORK_MAX
            && let Some(entry) = page.entries.next()
        {
            if !wanted.fits(&entry, now_ms) || !page.gives(&entry.key, &position, &mut work) {
                continue;
            }
            if pattern.as_ref().is_none_or(|pattern| pattern.matches(&entry.key, &mut work)) {
                found.push(entry.key);
            }
        }
    }
}

fn parse_scan(args: Args<'_>) -> Result<Walk, Halt> {
    let Some(cursor) = number::cursor(args.at(1)) else { return fail("ERR invalid cursor") };
    let mut wanted = Wanted { pattern: None, type_name: None };
    let mut count = COUNT_DEFAULT;
    let mut index = 2;
    while let Some(option) = args.get(index) {
        let Some(value) = args.get(index + 1) else { return fail(SYNTAX) };
        match option.to_ascii_uppercase().as_slice() {
            b"COUNT" => match number::integer(value) {
                None => return fail(NOT_AN_INTEGER),
                Some(..1) => return fail(SYNTAX),
                Some(number) => count = number.min(i64::from(COUNT_MAX)) as u32,
            },
            b"MATCH" => wanted.pattern = (value != b"*").then(|| value.to_vec()),
            b"TYPE" => wanted.type_name = Some(value.to_ascii_lowercase()),
            _ => return fail(SYNTAX),
        }
        index += 2;
    }
    Ok(Walk::new(WalkKind::Scan, wanted, Position::of_cursor(cursor), count))
}

impl<E: Engine> Executor<E> {
    /// Begins a walk of a connection.
    pub(crate) fn walk(
        &mut self,
        now: Now,
        connection: ConnectionId,
        kind: TaskKind,
        args: Args<'_>,
    ) -> Result<Outcome, Halt> {
        let everything = Wanted { pattern: None, type_name: None };
        let walk = match kind {
            TaskKind::Scan => parse_scan(args)?,
            TaskKind::Keys => {
                let wanted = Wanted { pattern: Some(args.at(1).to_vec()), type_name: None };
                Walk::new(WalkKind::Keys, wanted, Position(0), KEYS_PAGE)
            }
            _ => {
                let start = self.random_position(now);
                Walk::new(WalkKind::RandomKey { start, has_wrapped: false }, everything, start, 1)
            }
        };
        let id = self.shard.next_id();
        if self.shard.count() > 1 {
            return Ok(self.walk_elsewhere(connection, id, walk));
        }
        let outcome = self.suspend(connection, id, Work::Walk(walk));
        self.next_page(now, id);
        Ok(outcome)
    }

    /// A position that nobody can foresee without the store's secret.
    fn random_position(&mut self, now: Now) -> Position {
        let salt = self.shard.next_id();
        let mut bytes = [0u8; 16];
        bytes[..8].copy_from_slice(&salt.to_le_bytes());
        bytes[8..].copy_from_slice(&now.monotonic_us.to_le_bytes());
        let low = self.shard.position(&bytes).0;
        bytes[0] ^= 0xff;
        Position(low ^ self.shard.position(&bytes).0.rotate_left(32))
    }

    /// Asks the engine for the next page of a walk.
    pub(crate) fn next_page(&mut self, now: Now, id: TaskId) {
        let Some(Task { work: Work::Walk(walk), db, .. }) = self.tasks.get(&id).map(Box::as_ref) else {
            return;
        };
        let (cursor, count, db) = (walk.cursor, walk.count, *db);
        match self.shard.map().keyspace(db) {
            Some(keyspace) => self.shard.scan(now, id, keyspace, cursor, count),
            None => self.finish(now, id, b"-ERR DB index is out of range\r\n", 0, false),
        }
    }

    /// A page has come.
    pub(crate) fn scanned(
        &mut self,
        now: Now,
        id: TaskId,
        entries: Vec<ScanEntry>,
        next: Option<Position>,
        error: Option<Error>,
    ) {
        let now = self.shard_now(now);
        // What has expired is left out.
        let expiries = entries.iter().map(|entry| entry.meta.expiry_ms);
        if let Some(past_ms) =
            expiries.filter(|&at_ms| at_ms <= now.wall_ms).max().filter(|&at_ms| at_ms != 0)
        {
            self.shard.engine_mut().note_past(past_ms);
        }
        // What an engine looks at together may reach beyond the shard's positions: the next shard begins at its own first.
        let next = next.filter(|next| self.shard.owns(*next));
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Work::Walk(walk) = &mut task.work else { return };
        if let Some(error) = error {
            self.finish(now, id, error_line("", &error), 0, false);
            return;
        }
        walk.take_page(entries, next);
        self.look_at_page(now, id);
    }

    /// Goes on with the walks whose pages were not looked at whole: each has one turn a step.
    pub(crate) fn go_on_walking(&mut self, now: Now) {
        for id in std::mem::take(&mut self.walking) {
            self.look_at_page(now, id);
        }
    }

    /// Looks at the page that a walk has, or at a part of it.
    fn look_at_page(&mut self, now: Now, id: TaskId) {
        let now = self.shard_now(now);
        let Some(Task { work: Work::Walk(walk), .. }) = self.tasks.get_mut(&id).map(Box::as_mut) else {
            return;
        };
        let shard = &self.shard;
        walk.look(now.wall_ms, |key| shard.position(key));
        match walk.here.page.take_if(|page| page.entries.as_slice().is_empty()) {
            Some(page) => self.page_ended(now, id, page.next),
            None => {
                self.walking.insert(id);
            }
        }
    }

    /// All of a page was looked at.
    fn page_ended(&mut self, now: Now, id: TaskId, next: Option<Position>) {
        // What is not there may have been deleted by what is newest.
        let gate = self.shard.gate(self.shard.engine().applied_seq());
        let (index, count) = (self.shard.index(), self.shard.count());
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Work::Walk(walk) = &mut task.work else { return };
        let is_done = match &mut walk.kind {
            WalkKind::Scan => next.is_none_or(|next| end_of_answer(walk.began, next).is_some()),
            WalkKind::Keys => next.is_none(),
            WalkKind::RandomKey { start, has_wrapped } => {
                let first = Position::first_of_shard(index, count);
                let has_come_round = next.is_none_or(|next| *has_wrapped && next > *start);
                if walk.found.is_empty() && next.is_none() && !*has_wrapped {
                    *has_wrapped = true;
                    walk.cursor = first;
                    false
                } else {
                    !walk.found.is_empty() || has_come_round
                }
            }
        };
        if let Some(next) = next {
            walk.cursor = next;
        }
        if !is_done {
            self.next_page(now, id);
            return;
        }
        let found = std::mem::take(&mut walk.found);
        let next = next.or_else(|| next_shard(index, count).filter(|_| walk.kind == WalkKind::Scan));
        let kind = walk.kind.clone();
        let (version, origin) = (task.version, task.origin);
        let mut reply = Vec::new();
        write_walk(&kind, &found, next, version, &mut reply);
        if let Origin::Shard(..) = origin
            && kind != WalkKind::Scan
        {
            self.answer_walk(id, found, gate);
            return;
        }
        self.finish(now, id, reply, gate, false);
    }
}

/// Where the shard behind `index` begins, if there is one.
pub(crate) fn next_shard(index: u16, count: u16) -> Option<Position> {
    (index + 1 < count).then(|| Position::first_of_shard(index + 1, count))
}

/// Writes the answer of a walk.
pub(crate) fn write_walk(
    kind: &WalkKind,
    found: &[Vec<u8>],
    next: Option<Position>,
    version: Version,
    reply: &mut Vec<u8>,
) {
    let mut writer = ReplyWriter::new(reply, version);
    match kind {
        WalkKind::RandomKey { .. } => match found.first() {
            Some(key) => writer.bulk(key),
            None => writer.null(),
        },
        WalkKind::Keys | WalkKind::Scan => {
            if *kind == WalkKind::Scan {
                writer.array(2);
                let mut buffer = itoa::Buffer::new();
                writer.bulk(buffer.format(next.map_or(0, Position::cursor)).as_bytes());
            }
            writer.array(found.len());
            found.iter().for_each(|key| writer.bulk(key));
        }
    }
}
