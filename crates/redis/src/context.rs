//! What a data command works with: a view of the databases, its arguments, and its reply.

use crate::args::Args;
use crate::events::Events;
use crate::fold::Fold;
use crate::making::Plan;
use crate::number;
use crate::recipe::{Bytes, Mix, Recipe, Source};
use crate::stream::{ReplyPart, STREAM_ABOVE_BYTES};
use crate::work;
use std::borrow::Cow;
use std::ops::Range;
use tierstone_base::{Error, ErrorKind};
use tierstone_engine::ValueKind;
use tierstone_store::{LargeMap, Record, Stop, View};
use tierstone_wire::resp::ReplyWriter;

/// Bytes of a large value that a command copies at a time where it goes through the value.
const WINDOW_BYTES: u64 = 1 << 20;

/// Uploaded arguments up to this many bytes change an existing value where it lies, in one batch with its map;
/// of longer ones and the value a new one is made.
const PATCH_BYTES_MAX: u64 = 4 << 20;

/// What a large value takes that will be sent piece by piece: its map twice, one of 512 MiB.
const PART_BYTES: u64 = 2_300;

/// Why a command ended early.
#[derive(Clone, Debug)]
pub enum Halt {
    /// Records must be fetched: it is run again.
    Suspend,
    /// It answers with this error and changes nothing.
    Error(Cow<'static, str>),
}

/// The result of a command.
pub type Run = Result<(), Halt>;

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Suspend => Halt::Suspend,
            Stop::Failed(error) => Halt::Error(error_text(&error)),
        }
    }
}

/// An error with a fixed text.
pub fn fail<T>(text: &'static str) -> Result<T, Halt> {
    Err(Halt::Error(Cow::Borrowed(text)))
}

/// An error with a text of its own.
pub fn fail_with<T>(text: String) -> Result<T, Halt> {
    Err(Halt::Error(Cow::Owned(text)))
}

/// The error of a wrong number of arguments.
pub fn wrong_arity(name: &str) -> Halt {
    Halt::Error(format!("ERR wrong number of arguments for '{name}' command").into())
}

/// `ERR syntax error`.
pub const SYNTAX: &str = "ERR syntax error";
/// What is no integer.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// What is no float.
pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";
/// A key that is not there.
pub const NO_SUCH_KEY: &str = "ERR no such key";
/// A value of another type.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// An uploaded value of which nothing is left.
pub const EMPTIED: &str = "ERR the database was emptied while the value came: send it again";
/// A value over the limit.
pub const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// What is no number of a database.
pub(crate) const NO_DATABASE: &str = "ERR DB index is out of range";

/// The number of one of so many databases. Redis reads an integer of 32 bits.
pub(crate) fn database(text: &[u8], databases: u32) -> Result<u32, Halt> {
    const BEYOND: &str = "ERR value is out of range, value must between -2147483648 and 2147483647";
    let Some(number) = number::integer(text) else { return fail(NOT_AN_INTEGER) };
    let Ok(number) = i32::try_from(number) else { return fail(BEYOND) };
    match u32::try_from(number) {
        Ok(number) if number < databases => Ok(number),
        _ => fail(NO_DATABASE),
    }
}

/// How an error of the store reads for a Redis client.
pub fn error_text(error: &Error) -> Cow<'static, str> {
    let prefix = match error.kind() {
        // Of a value Redis's words are expected; of a key, or of a batch, the engine says more.
        ErrorKind::InvalidInput if !error.message().starts_with("a batch") => return TOO_LONG.into(),
        ErrorKind::NoMemory => "OOM command not allowed when used memory > 'maxmemory': ",
        ErrorKind::NoSpace => "ERR no space left on the device: ",
        ErrorKind::Corrupt => "ERR corrupt record: ",
        ErrorKind::DeviceFailed => "MISCONF the device failed, nothing is acknowledged any more: ",
        _ => "ERR ",
    };
    format!("{prefix}{}", error.message()).into()
}

/// The whole reply that says so, after `prefix`. Texts of others may have lines of their own, as those about settings files
/// do: they are one line here.
pub fn error_line(prefix: &str, error: &Error) -> Vec<u8> {
    format!("-{prefix}{}\r\n", error_text(error).replace(['\r', '\n'], " ")).into_bytes()
}

/// Hits and misses of reads, and the work of the run that has made them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Keys that were found.
    pub hits: u64,
    /// Keys that were not.
    pub misses: u64,
    /// The run's work, in units of about a nanosecond.
    pub work: u64,
}

impl ReadCounts {
    /// Counts one read.
    pub fn count(&mut self, found: bool) {
        self.hits += u64::from(found);
        self.misses += u64::from(!found);
    }
}

/// One run of one data command.
pub struct Context<'c, 's> {
    /// The databases.
    pub view: &'c mut View<'s>,
    /// The arguments, the command's name first.
    pub args: Args<'c>,
    /// The reply.
    pub reply: ReplyWriter<'c>,
    /// The database that the connection has selected.
    pub db: u32,
    /// The longest value in bytes.
    pub value_size_max_bytes: u64,
    /// A buffer for values that are being made; empty at the start.
    pub scratch: &'c mut Vec<u8>,
    /// What reads have found.
    pub reads: &'c mut ReadCounts,
    /// Takes what happens to keys.
    pub(crate) events: &'c mut Events,
    /// Takes what belongs into the reply and is sent piece by piece; none where the reply must be whole.
    pub(crate) parts: Option<&'c mut Vec<ReplyPart>>,
    /// Takes what must be made before the command can end; none where everything is made at once.
    pub(crate) plan: Option<&'c mut Plan>,
}

impl Context<'_, '_> {
    /// Argument `index` as an integer.
    pub fn integer(&self, index: usize) -> Result<i64, Halt> {
        match number::integer(self.args.at(index)) {
            Some(value) => Ok(value),
            None => fail(NOT_AN_INTEGER),
        }
    }

    /// The milliseconds since 1970 of this run.
    pub fn now_ms(&self) -> u64 {
        self.view.now().wall_ms
    }

    /// The string at `key`, for a command that only reads.
    pub fn read(&mut self, key: &[u8]) -> Result<Option<Text<'_>>, Halt> {
        let record = self.view.get(self.db, key)?;
        match record {
            Some(_) => self.reads.hits += 1,
            None => {
                self.reads.misses += 1;
                self.events.note_miss(self.db, key);
            }
        }
        Text::of(record)
    }

    /// The string at `key`, for a command that goes on to write.
    pub fn load(&mut self, key: &[u8]) -> Result<Option<Text<'_>>, Halt> {
        Text::of(self.view.get(self.db, key)?)
    }

    /// Whether the string at `key` is `wanted`.
    pub fn is_equal(&mut self, key: &[u8], wanted: &[u8]) -> Result<bool, Halt> {
        match self.load(key)? {
            None => Ok(false),
            Some(text) if text.len() != wanted.len() as u64 => Ok(false),
            Some(Text::Whole(record)) => Ok(record.value == wanted),
            Some(Text::Large(map, _)) => {
                self.read_scratch(key, &map, 0..map.len())?;
                Ok(*self.scratch == wanted)
            }
        }
    }

    /// Copies the string at `key` into the scratch buffer: its expiry, or `None` when there is none.
    /// Commands that touch a part of a large value do not use it.
    pub fn load_scratch(&mut self, key: &[u8]) -> Result<Option<u64>, Halt> {
        self.scratch.clear();
        match Text::of(self.view.get(self.db, key)?)? {
            None => Ok(None),
            Some(Text::Whole(record)) => {
                self.scratch.extend_from_slice(record.value);
                self.reads.work += work::of_bytes(record.value.len());
                Ok(Some(record.meta.expiry_ms))
            }
            Some(Text::Large(map, expiry_ms)) => {
                self.read_scratch(key, &map, 0..map.len())?;
                Ok(Some(expiry_ms))
            }
        }
    }

    /// Replaces the scratch buffer by a part of the large value at `key`.
    pub fn read_scratch(&mut self, key: &[u8], map: &LargeMap, range: Range<u64>) -> Run {
        self.scratch.clear();
        let place = self.view.place(self.db, key)?;
        self.view.read_large(place, map, range, self.scratch)?;
        self.reads.work += work::of_bytes(self.scratch.len());
        Ok(())
    }

    /// Overwrites a part of the string at `key` (`text`, if there is one), which may lie beyond its
    /// end, and keeps its expiry; gives the new length. Only the chunks in question of a large value
    /// are touched.
    pub fn patch(&mut self, key: &[u8], text: Option<Extent>, offset: u64, part: &[u8]) -> Result<u64, Halt> {
        let end = offset.saturating_add(part.len() as u64);
        if end > self.value_size_max_bytes {
            return fail(TOO_LONG);
        }
        let (old_len, expiry_ms) = text.as_ref().map_or((0, 0), |text| (text.len, text.expiry_ms));
        let len = old_len.max(end);
        let is_large = text.as_ref().is_some_and(|text| text.map.is_some());
        if !is_large && len <= self.view.record_bytes_max() {
            self.load_scratch(key)?;
            self.scratch.resize(len as usize, 0);
            self.scratch[offset as usize..end as usize].copy_from_slice(part);
            self.store_scratch(key, expiry_ms)?;
            return Ok(len);
        }
        let place = self.view.place(self.db, key)?;
        let mut map = match text.and_then(|text| text.map) {
            Some(map) => map,
            // It becomes large, with what it was.
            None => {
                self.load_scratch(key)?;
                let mut map = self.view.new_large(0);
                self.view.write_large(place, &mut map, 0, self.scratch)?;
                map
            }
        };
        self.view.write_large(place, &mut map, offset, part)?;
        self.view.put_map(self.db, key, &map, expiry_ms)?;
        Ok(len)
    }

    /// The length and expiry of the string at `key`, and its map if it is a large value.
    pub fn extent(&mut self, key: &[u8]) -> Result<Option<Extent>, Halt> {
        Ok(self.load(key)?.map(|text| match text {
            Text::Whole(record) => {
                Extent { len: record.value.len() as u64, expiry_ms: record.meta.expiry_ms, map: None }
            }
            Text::Large(map, expiry_ms) => Extent { len: map.len(), expiry_ms, map: Some(map) },
        }))
    }

    /// Gives the string at `key` another expiry; only the map of a large value is written.
    pub fn set_expiry(&mut self, key: &[u8], expiry_ms: u64) -> Run {
        match self.load(key)? {
            None => Ok(()),
            Some(Text::Large(map, _)) => Ok(self.view.put_map(self.db, key, &map, expiry_ms)?),
            Some(Text::Whole(_)) => {
                self.load_scratch(key)?;
                self.store_scratch(key, expiry_ms)
            }
        }
    }

    /// Writes a string. One that has expired already is not written but deleted.
    pub fn store(&mut self, key: &[u8], value: &[u8], expiry_ms: u64) -> Run {
        if value.len() as u64 > self.value_size_max_bytes {
            return fail(TOO_LONG);
        }
        if expiry_ms != 0 && expiry_ms <= self.now_ms() {
            return Ok(self.view.delete(self.db, key)?);
        }
        Ok(self.view.put_string(self.db, key, value, expiry_ms)?)
    }

    /// Writes argument `index` as a string. One that was uploaded only gets its name, if the key's
    /// database is still the one that it was uploaded to.
    pub fn store_arg(&mut self, key: &[u8], index: usize, expiry_ms: u64) -> Run {
        let Some(staged) = self.args.staged(index) else {
            return self.store(key, self.args.at(index), expiry_ms);
        };
        if staged.map.len() > self.value_size_max_bytes {
            return fail(TOO_LONG);
        }
        if expiry_ms != 0 && expiry_ms <= self.now_ms() {
            return Ok(self.view.delete(self.db, key)?);
        }
        if staged.place == self.view.place(self.db, key)? {
            return Ok(self.view.put_map(self.db, key, &staged.map, expiry_ms)?);
        }
        self.load_arg(index)?;
        self.store_scratch(key, expiry_ms)
    }

    /// Copies argument `index` into the scratch buffer.
    pub fn load_arg(&mut self, index: usize) -> Run {
        self.scratch.clear();
        match self.args.staged(index) {
            None => self.scratch.extend_from_slice(self.args.at(index)),
            Some(staged) => {
                let (place, map) = (staged.place, &staged.map);
                if !self.view.holds(place) {
                    return fail(EMPTIED);
                }
                self.view.read_large(place, map, 0..map.len(), self.scratch)?;
            }
        }
        Ok(())
    }

    /// The length of argument `index` in bytes.
    pub fn arg_len(&self, index: usize) -> u64 {
        self.args.staged(index).map_or(self.args.at(index).len() as u64, |staged| staged.map.len())
    }

    /// As [`Context::patch`], with argument `index`.
    pub fn patch_arg(
        &mut self,
        key: &[u8],
        text: Option<Extent>,
        offset: u64,
        index: usize,
    ) -> Result<u64, Halt> {
        if self.args.staged(index).is_none() {
            return self.patch(key, text, offset, self.args.at(index));
        }
        if text.is_none() && offset == 0 {
            self.store_arg(key, index, 0)?;
            return Ok(self.arg_len(index));
        }
        if self.arg_len(index) > PATCH_BYTES_MAX
            && let Some(len) = self.patch_making(key, text.as_ref(), offset, index)?
        {
            return Ok(len);
        }
        self.load_arg(index)?;
        let part = std::mem::take(self.scratch);
        self.patch(key, text, offset, &part)
    }

    /// As [`Context::patch_arg`] for an uploaded argument that is too long to be held: a new value is made of
    /// the old one and the argument. None where values are made at once.
    fn patch_making(
        &mut self,
        key: &[u8],
        text: Option<&Extent>,
        offset: u64,
        index: usize,
    ) -> Result<Option<u64>, Halt> {
        let Some(staged) = self.args.staged(index) else { return Ok(None) };
        let end = offset.saturating_add(staged.map.len());
        if end > self.value_size_max_bytes {
            return fail(TOO_LONG);
        }
        let target = self.view.place(self.db, key)?;
        let mut sources = Vec::new();
        match text {
            None => {}
            Some(Extent { map: Some(map), .. }) => {
                sources.push(Source::new(Bytes::Large(target, map.clone())));
            }
            Some(_) => {
                self.load_scratch(key)?;
                sources.push(Source::new(Bytes::Short(self.scratch.clone())));
            }
        }
        sources.push(Source { at: offset, bytes: Bytes::Large(staged.place, staged.map.clone()) });
        let (old_len, expiry_ms) = text.map_or((0, 0), |text| (text.len, text.expiry_ms));
        let len = old_len.max(end);
        let Some(map) = self.make(Recipe { target, len, mix: Mix::Overlay, sources })? else {
            return Ok(None);
        };
        self.view.put_map(self.db, key, &map, expiry_ms)?;
        Ok(Some(len))
    }

    /// The large value that `recipe` describes, without a name yet; none where the command must put it
    /// together at once. Ends the run until the value was made.
    pub(crate) fn make(&mut self, recipe: Recipe) -> Result<Option<LargeMap>, Halt> {
        let Some(plan) = &mut self.plan else { return Ok(None) };
        // Of other sources something else would have become: a database may have been swapped.
        if let Some(made) = plan.made.as_ref().filter(|made| made.recipe == recipe) {
            return Ok(Some(made.staged.map.clone()));
        }
        plan.wanted = Some(recipe);
        Err(Halt::Suspend)
    }

    /// Writes the scratch buffer as a string.
    pub fn store_scratch(&mut self, key: &[u8], expiry_ms: u64) -> Run {
        if self.scratch.len() as u64 > self.value_size_max_bytes {
            return fail(TOO_LONG);
        }
        Ok(self.view.put_string(self.db, key, self.scratch, expiry_ms)?)
    }

    /// Answers with a part of the large value at `key`.
    pub fn reply_large(&mut self, key: &[u8], map: &LargeMap, range: Range<u64>) -> Run {
        let len = range.end - range.start;
        if let Some(parts) = &mut self.parts
            && len > STREAM_ABOVE_BYTES
        {
            let place = self.view.place(self.db, key)?;
            self.reply.bulk_header(len as usize);
            parts.push(ReplyPart { at: self.reply.len(), place, map: map.clone(), range, fold: None });
            self.reply.bulk_end();
            return Ok(());
        }
        self.read_scratch(key, map, range)?;
        self.reply.bulk(self.scratch);
        Ok(())
    }

    /// Answers with what `fold` finds in the large value at `key`.
    pub(crate) fn reply_fold(&mut self, key: &[u8], map: &LargeMap, mut fold: Fold) -> Run {
        let range = fold.bytes();
        if let Some(parts) = &mut self.parts
            && range.end - range.start > STREAM_ABOVE_BYTES
        {
            let place = self.view.place(self.db, key)?;
            let at = self.reply.len();
            parts.push(ReplyPart { at, place, map: map.clone(), range, fold: Some(fold) });
            return Ok(());
        }
        let mut start = range.start;
        let mut found = None;
        while start < range.end && found.is_none() {
            let end = (start / WINDOW_BYTES * WINDOW_BYTES + WINDOW_BYTES).min(range.end);
            self.read_scratch(key, map, start..end)?;
            found = fold.take(start, self.scratch);
            start = end;
        }
        self.reply.integer(found.unwrap_or_else(|| fold.end()));
        Ok(())
    }

    /// Whether the reply, which began at byte `start`, may be as long as it is: of what is sent piece by piece its maps count.
    ///
    /// # Errors
    /// As [`View::check_held`].
    pub fn check_reply(&mut self, start: usize) -> Run {
        let parts = self.parts.as_ref().map_or(0, |parts| parts.len() as u64);
        let bytes = (self.reply.len() - start) as u64 + parts * PART_BYTES;
        if self.view.check_held(bytes).is_err() {
            // From then on nothing may be applied.
            self.view.hold(bytes)?;
        }
        Ok(())
    }

    /// Answers with the string at `key`, or null; gives its expiry.
    pub fn reply_string(&mut self, key: &[u8]) -> Result<Option<u64>, Halt> {
        match Text::of(self.view.get(self.db, key)?)? {
            None => {
                self.reply.null();
                Ok(None)
            }
            Some(Text::Whole(record)) => {
                self.reply.bulk(record.value);
                Ok(Some(record.meta.expiry_ms))
            }
            Some(Text::Large(map, expiry_ms)) => {
                self.reply_large(key, &map, 0..map.len())?;
                Ok(Some(expiry_ms))
            }
        }
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: &[u8]) -> Run {
        Ok(self.view.delete(self.db, key)?)
    }
}

/// A string as it is stored.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// In one record.
    Whole(Record<'a>),
    /// As chunks: its map and expiry.
    Large(LargeMap, u64),
}

impl<'a> Text<'a> {
    /// The string that `record` is.
    ///
    /// # Errors
    /// [`WRONG_TYPE`].
    pub fn of(record: Option<Record<'a>>) -> Result<Option<Text<'a>>, Halt> {
        match record {
            None => Ok(None),
            Some(record) if record.meta.kind == ValueKind::STRING => Ok(Some(Text::Whole(record))),
            Some(record) if record.meta.kind == ValueKind::CHUNKED => match LargeMap::decode(record.value) {
                Ok(map) => Ok(Some(Text::Large(map, record.meta.expiry_ms))),
                Err(error) => Err(Halt::Error(error_text(&error))),
            },
            Some(_) => fail(WRONG_TYPE),
        }
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Text::Whole(record) => record.value.len() as u64,
            Text::Large(map, _) => map.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When it expires; 0: never.
    pub fn expiry_ms(&self) -> u64 {
        match self {
            Text::Whole(record) => record.meta.expiry_ms,
            Text::Large(_, expiry_ms) => *expiry_ms,
        }
    }
}

/// What is known of a string without its bytes.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Its length in bytes.
    pub len: u64,
    /// When it expires; 0: never.
    pub expiry_ms: u64,
    /// Its map, if it is a large value.
    pub map: Option<LargeMap>,
}

impl std::fmt::Debug for Context<'_, '_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Context").field("args", &self.args).field("db", &self.db).finish()
    }
}
