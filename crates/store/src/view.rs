//! What a command sees: records, its own pending writes, and the list of what must be fetched.
//!
//! Invariants:
//! 1. A view lives for one run of one command or transaction, in which nothing else happens: what
//!    it reads is one state of the shard.
//! 2. A read that needs the device notes its key and gives [`Stop::Suspend`]; the run is then thrown
//!    away and begun again when the noted keys are in memory.
//! 3. [`View::observed`] is at least the sequence of every write that a read has seen, the absence
//!    of a record included: a delete may be what it saw.

use crate::database_map::DatabaseMap;
use crate::key_events::Expiring;
use crate::large::ValueIds;
use crate::overlay::{Mark, Overlay};
use crate::shard::FetchFailure;
use tierstone_base::{Error, ErrorKind, KeyHasher, KeyspaceId, Now, Position, Seq};
use tierstone_engine::{Engine, Key, Lookup, PREFETCHED_KEYS, RecordMeta, RecordView, ValueKind, WriteKind};

/// Wanted keys up to which a key is searched before it is added.
const SEARCHED_WANTED: usize = 32;

/// Why a command stopped before its end.
#[derive(Clone, Debug)]
pub enum Stop {
    /// It is run again when what it wants is in memory.
    Suspend,
    /// It cannot be carried out.
    Failed(Error),
}

/// A record that a command reads.
pub type Record<'a> = RecordView<'a>;

/// Where a view's records come from: an engine, or what a coordinator has gathered.
pub trait Records {
    /// As [`Engine::prefetch`].
    fn prefetch(&mut self, places: &[(KeyspaceId, Position)]) {
        let _ = places;
    }
    /// As [`Engine::lookup`].
    fn lookup(&mut self, now: Now, key: Key<'_>) -> Lookup<'_>;
    /// As [`Engine::peek`].
    fn peek(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        self.lookup(now, key)
    }
    /// As [`Engine::applied_seq`].
    fn applied_seq(&self) -> Seq;
    /// As [`Engine::len`].
    fn len(&self, keyspace: KeyspaceId) -> u64;
    /// As [`Engine::uses`].
    fn uses(&self, key: Key<'_>) -> Option<u8> {
        let _ = key;
        None
    }
}

impl<E: Engine> Records for E {
    fn prefetch(&mut self, places: &[(KeyspaceId, Position)]) {
        Engine::prefetch(self, places);
    }

    fn lookup(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        Engine::lookup(self, now, key)
    }

    fn peek(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        Engine::peek(self, now, key)
    }

    fn applied_seq(&self) -> Seq {
        Engine::applied_seq(self)
    }

    fn len(&self, keyspace: KeyspaceId) -> u64 {
        Engine::len(self, keyspace)
    }

    fn uses(&self, key: Key<'_>) -> Option<u8> {
        Engine::uses(self, key)
    }
}

/// A key whose record must be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// Its position.
    pub position: Position,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// One run's view of the databases.
pub struct View<'s> {
    pub(crate) records: &'s mut dyn Records,
    pub(crate) map: &'s DatabaseMap,
    pub(crate) hasher: KeyHasher,
    pub(crate) overlay: &'s mut Overlay,
    pub(crate) wanted: &'s mut Vec<Wanted>,
    pub(crate) failures: &'s [FetchFailure],
    pub(crate) now: Now,
    /// Whether what is looked up counts as used.
    pub(crate) is_use: bool,
    /// What was used last: looked up again by the same command, it is used once.
    pub(crate) used: Option<(KeyspaceId, Position)>,
    pub(crate) observed: Seq,
    /// A key was missing: everything applied so far was observed.
    pub(crate) has_missed: bool,
    pub(crate) ids: &'s ValueIds,
    /// Takes the expiries that are seen; none while nobody wants to be told.
    pub(crate) expiring: Option<&'s mut Expiring>,
    /// Bytes that this run needs in memory together, as far as it has come, and the most that it may.
    pub(crate) held: u64,
    pub(crate) held_max: u64,
    /// Whether chunks of large values count.
    pub(crate) counts_chunks: bool,
}

impl<'s> View<'s> {
    /// A view of `records`. Pending writes go to `overlay`, keys to be fetched to `wanted`; keys in
    /// `failures` are not wanted again but fail. New large values get ids of `ids`.
    pub fn new(
        records: &'s mut dyn Records,
        map: &'s DatabaseMap,
        (hasher, ids): (KeyHasher, &'s ValueIds),
        (overlay, wanted): (&'s mut Overlay, &'s mut Vec<Wanted>),
        failures: &'s [FetchFailure],
        now: Now,
    ) -> Self {
        View {
            records,
            map,
            hasher,
            overlay,
            wanted,
            failures,
            now,
            is_use: true,
            used: None,
            observed: 0,
            has_missed: false,
            ids,
            expiring: None,
            held: 0,
            held_max: u64::MAX,
            counts_chunks: true,
        }
    }

    /// The time of this run; expired records are missing by it.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Whether what is read from now on counts as used, as it does at first ([`Engine::peek`]).
    pub fn count_as_use(&mut self, is_use: bool) {
        (self.is_use, self.used) = (is_use, None);
    }

    /// How many databases there are.
    pub fn databases(&self) -> u32 {
        self.map.databases()
    }

    /// Allows this run `bytes` of what [`View::hold`] counts.
    pub fn limit_held(&mut self, bytes: u64) {
        self.held_max = bytes;
    }

    /// Whether chunks of large values count from now on, as they do at first.
    pub fn count_chunks(&mut self, counts: bool) {
        self.counts_chunks = counts;
    }

    /// Counts `bytes` that must be in memory until the run has come to its end: chunks of large values count
    /// themselves, before they are fetched.
    ///
    /// # Errors
    /// As [`View::check_held`].
    pub fn hold(&mut self, bytes: u64) -> Result<(), Stop> {
        self.held = self.held.saturating_add(bytes);
        self.check_held(0)
    }

    /// Whether what was counted, and `more` bytes beside it, are allowed.
    ///
    /// # Errors
    /// `NoMemory`: more than [`View::limit_held`] allows. From then on it stays so: nothing of the run may be
    /// applied.
    pub fn check_held(&self, more: u64) -> Result<(), Stop> {
        check_held(self.held.saturating_add(more), self.held_max)
    }

    /// The newest sequence that a read has observed.
    pub fn observed(&self) -> Seq {
        if self.has_missed { self.observed.max(self.records.applied_seq()) } else { self.observed }
    }

    /// The record of `bytes` in `database`, its own pending writes included (their sequence is 0).
    /// Cost: one hash of the key and one lookup, no allocation unless it suspends.
    ///
    /// # Errors
    /// [`Stop::Suspend`] when the record must be fetched; [`Stop::Failed`] when that was tried in
    /// vain, or when there is no such database.
    pub fn get(&mut self, database: u32, bytes: &[u8]) -> Result<Option<Record<'_>>, Stop> {
        let key = self.key(database, bytes)?;
        self.get_key(key)
    }

    /// As [`View::get`], for a key that is known already.
    pub(crate) fn get_key(&mut self, key: Key<'_>) -> Result<Option<Record<'_>>, Stop> {
        if let Some(pending) = self.overlay.find(key) {
            return Ok(match pending {
                WriteKind::Put { expiry_ms, .. } if expiry_ms != 0 && expiry_ms <= self.now.wall_ms => None,
                WriteKind::Put { value, expiry_ms, kind } => {
                    Some(RecordView { meta: RecordMeta { seq: 0, expiry_ms, kind }, value })
                }
                WriteKind::Delete => None,
            });
        }
        let place = Some((key.keyspace, key.position));
        let found = match self.is_use && self.used != place {
            true => self.records.lookup(self.now, key),
            false => self.records.peek(self.now, key),
        };
        match found {
            Lookup::Found(record) => {
                self.used = if self.is_use { place } else { self.used };
                self.observed = self.observed.max(record.meta.seq);
                if let (Some(expiring), true) = (&mut self.expiring, key.keyspace.is_user()) {
                    expiring.note(key.keyspace, key.bytes, record.meta.expiry_ms);
                }
                Ok(Some(record))
            }
            Lookup::Missing => {
                // Not the sequence before the lookup: it may have noted that the key has expired.
                self.has_missed = true;
                Ok(None)
            }
            Lookup::Fetch => Err(want(self.wanted, self.failures, key)),
        }
    }

    /// As [`Engine::uses`].
    ///
    /// # Errors
    /// The database does not exist.
    pub fn uses(&self, database: u32, bytes: &[u8]) -> Result<Option<u8>, Stop> {
        Ok(self.records.uses(self.key(database, bytes)?))
    }

    /// Looks at all of `keys`, so that one suspension fetches them together. No use of them: that is what follows.
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn prefetch<'k>(
        &mut self,
        database: u32,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<(), Stop> {
        let is_use = std::mem::replace(&mut self.is_use, false);
        let found = self.look_at_all(database, keys);
        self.is_use = is_use;
        found
    }

    fn look_at_all<'k>(
        &mut self,
        database: u32,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<(), Stop> {
        let mut suspends = false;
        let mut keys = keys.into_iter().peekable();
        while let Some(first) = keys.peek() {
            let mut some = [self.key(database, first)?; PREFETCHED_KEYS];
            let mut count = 0;
            for (slot, bytes) in some.iter_mut().zip(&mut keys) {
                *slot = self.key(database, bytes)?;
                count += 1;
            }
            let places = some.map(|key| (key.keyspace, key.position));
            self.records.prefetch(&places[..count]);
            for &key in &some[..count] {
                match self.get_key(key) {
                    Ok(_) => {}
                    Err(Stop::Suspend) => suspends = true,
                    Err(failed) => return Err(failed),
                }
            }
        }
        if suspends { Err(Stop::Suspend) } else { Ok(()) }
    }

    /// Collects a new value.
    ///
    /// # Errors
    /// When there is no such database.
    pub fn put(
        &mut self,
        database: u32,
        bytes: &[u8],
        value: &[u8],
        expiry_ms: u64,
        kind: ValueKind,
    ) -> Result<(), Stop> {
        let key = self.key(database, bytes)?;
        self.overlay.put(key, value, expiry_ms, kind);
        Ok(())
    }

    /// Collects the loss of a key.
    ///
    /// # Errors
    /// When there is no such database.
    pub fn delete(&mut self, database: u32, bytes: &[u8]) -> Result<(), Stop> {
        let key = self.key(database, bytes)?;
        self.overlay.delete(key);
        Ok(())
    }

    /// Live keys of `database`, pending writes included; those expired and not met since are counted.
    /// Cost: one lookup a pending write.
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn len(&mut self, database: u32) -> Result<u64, Stop> {
        let keyspace = self.keyspace(database)?;
        self.observed = self.observed.max(self.records.applied_seq());
        let base = self.records.len(keyspace);
        if self.overlay.is_empty() {
            return Ok(base);
        }
        let mut latest = std::collections::BTreeMap::new();
        for write in self.overlay.iter().filter(|write| write.key.keyspace == keyspace) {
            let lives = matches!(write.kind, WriteKind::Put { .. });
            latest.insert((write.key.position, write.key.bytes.to_vec()), lives);
        }
        let mut total = base as i64;
        let mut suspends = false;
        for ((position, bytes), lives) in &latest {
            let key = Key { keyspace, position: *position, bytes };
            match self.records.peek(self.now, key) {
                Lookup::Found(_) => total -= i64::from(!lives),
                Lookup::Missing => total += i64::from(*lives),
                Lookup::Fetch => {
                    if let failed @ Stop::Failed(_) = want(self.wanted, self.failures, key) {
                        return Err(failed);
                    }
                    suspends = true;
                }
            }
        }
        if suspends { Err(Stop::Suspend) } else { Ok(total.max(0) as u64) }
    }

    /// A place to which [`View::roll_back`] can return: the start of a command of a transaction.
    pub fn mark(&self) -> Mark {
        self.overlay.mark()
    }

    /// Forgets the writes collected since `mark`.
    pub fn roll_back(&mut self, mark: Mark) {
        self.overlay.roll_back(mark);
    }

    /// The keyspace and position of `bytes` in `database`.
    ///
    /// # Errors
    /// When there is no such database.
    #[inline]
    pub fn key<'a>(&self, database: u32, bytes: &'a [u8]) -> Result<Key<'a>, Stop> {
        Ok(Key { keyspace: self.keyspace(database)?, position: self.hasher.position(bytes), bytes })
    }

    #[inline]
    fn keyspace(&self, database: u32) -> Result<KeyspaceId, Stop> {
        self.map.keyspace(database).ok_or_else(|| {
            let message = format!("there is no database {database}");
            Stop::Failed(Error::new(ErrorKind::InvalidInput, message))
        })
    }
}

/// Whether a run may need `held` bytes in memory, of which `max` are allowed.
///
/// # Errors
/// `NoMemory`: it may not.
pub fn check_held(held: u64, max: u64) -> Result<(), Stop> {
    if held <= max {
        return Ok(());
    }
    let message = format!("its values and replies together take more than {max} bytes of memory");
    Err(Stop::Failed(Error::new(ErrorKind::NoMemory, message)))
}

/// Notes that `key` must be fetched, unless that was tried in vain.
#[cold]
fn want(wanted: &mut Vec<Wanted>, failures: &[FetchFailure], key: Key<'_>) -> Stop {
    let is_it =
        |failure: &&FetchFailure| failure.keyspace == key.keyspace && failure.position == key.position;
    if let Some(failure) = failures.iter().find(is_it) {
        return Stop::Failed(failure.error.clone());
    }
    let want = Wanted { keyspace: key.keyspace, position: key.position, bytes: key.bytes.to_vec() };
    // Fetching a key twice does no harm: only short lists are searched for it.
    if wanted.len() > SEARCHED_WANTED || !wanted.contains(&want) {
        wanted.push(want);
    }
    Stop::Suspend
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("View").field("overlay", &self.overlay).field("wanted", &self.wanted).finish()
    }
}
