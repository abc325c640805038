//! Bulk loads: puts that are applied one by one, as many as there is room for.
//!
//! A batch counts whole or not at all, so all its keys are searched before anything is written, and all of it
//! waits when the old record of one must be read. With batches of a thousand new keys that was one in three.
//! The puts of a load count each by itself: each is written when it has been searched, while the lines of the
//! index come that the next ones need; one whose old record must be read is put off, and the others go on.
//!
//! Invariants:
//! 1. Puts of one key are applied in their order: with one that is put off, all later ones of its position are.
//! 2. A load puts nothing into the cache, where it would push out what others read; what is there it overwrites.
//! 3. While a load goes on no checkpoint of the index begins: the next one would save the same again. For the same
//!    reason tags that lack bits are completed later, unless very many bits are lacking.
//!
//! Crash: of what a load has written a prefix of the log is there, as of any writes.

use crate::admission::Purpose;
use crate::read_path::{Found, Search};
use crate::reservations::Writer;
use crate::shard::LogShard;
use tierstone_base::collections::Set;
use tierstone_base::{Now, Position, Result, Seq};
use tierstone_engine::{Engine, PREFETCHED_KEYS, Write};

/// Puts of a load that wait for their old records.
#[derive(Debug, Default)]
pub struct PutOff {
    /// Their positions: what has one of them is put off too.
    pub positions: Set<Position>,
    /// The numbers of those that the last call has put off.
    pub numbers: Vec<usize>,
}

impl PutOff {
    /// So many wait at a time, more than are read at once: nothing more is looked at.
    pub const WAITING_MAX: usize = 4_096;
}

/// What a shard remembers of loads.
#[derive(Debug, Default)]
pub struct Loading {
    /// When the last one wrote.
    at_us: Option<u64>,
    /// There was no room for one put: the next one is admitted by itself. What others are asked for on its behalf
    /// must not be asked again for several at once, whose answer would be taken for this one's.
    is_short: bool,
    /// Somebody may wait until everything up to this sequence is durable.
    awaited: Seq,
}

impl LogShard {
    /// Until when a load is taken to go on: what costs more the more has changed can wait.
    pub(crate) fn loading_until_us(&self) -> u64 {
        self.loading.at_us.map_or(0, |at_us| at_us + self.settings.checkpoint_idle_ms * 1_000)
    }

    /// Somebody may wait for what has been written so far.
    pub(crate) fn note_awaited(&mut self) {
        self.loading.awaited = self.applied;
    }

    /// Whether a load goes on, and nobody waits for anything that it, or others, have written.
    pub(crate) fn loads_lazily(&self) -> bool {
        let durable = self.hot.durable_seq();
        self.now.monotonic_us < self.loading_until_us()
            && !self.loading.is_short
            && !self.shutting
            && durable >= self.loading.awaited
            && !self.cleaner.waits_for_writes_from(durable + 1)
            && !self.transfers.wait_for_flash()
    }

    /// Applies `puts` in order, each by itself, until there is no room for more or [`PutOff::WAITING_MAX`] are put off. Gives how many were looked at;
    /// those of `put_off.numbers`, counted in `puts`, were not applied: their old records are being read. They
    /// are to be written by [`LogShard::load_put_off`], each alone and in order, before this is called again; as long
    /// as one of them still waits, its position stays in `put_off.positions`.
    ///
    /// # Errors
    /// As [`Engine::write`](tierstone_engine::Engine::write) for the first of `puts`; nothing was applied.
    pub fn load(&mut self, now: Now, puts: &[Write<'_>], put_off: &mut PutOff) -> Result<usize> {
        self.see(now);
        if let Some(error) = self.refused_by_split(puts) {
            return Err(error);
        }
        self.loading.at_us = Some(self.now.monotonic_us);
        self.hot.pause_redo(true);
        self.hot.set_lazy(self.loads_lazily());
        if puts.is_empty() {
            return Ok(0);
        }
        if self.loading.is_short {
            return self.load_one(&puts[0], put_off);
        }
        let mut done = 0;
        self.prefetch_index(puts[..puts.len().min(PREFETCHED_KEYS)].iter().map(|put| &put.key));
        while done < puts.len() && put_off.numbers.len() < PutOff::WAITING_MAX {
            let (some, next) = puts[done..].split_at(PREFETCHED_KEYS.min(puts.len() - done));
            match self.admit_load(some) {
                Ok(()) => {}
                Err(_) if done > 0 => break,
                // They need less if they are no new keys, and fewer less than all.
                Err(_) => return self.load_one(&puts[0], put_off),
            }
            self.prefetch_index(next.iter().take(PREFETCHED_KEYS).map(|put| &put.key));
            for (number, put) in (done..).zip(some) {
                let search = self.search(&put.key);
                if !self.puts_off((number, put), &search, put_off) {
                    self.apply(put, search, (false, None))?;
                }
            }
            done += some.len();
        }
        Ok(done)
    }

    /// Writes a put that was put off.
    ///
    /// # Errors
    /// As [`Engine::write`](tierstone_engine::Engine::write): `Retry` as long as its old record is being read.
    pub fn load_put_off(&mut self, now: Now, put: &Write<'_>) -> Result<()> {
        let awaited = self.loading.awaited;
        let written = self.write(now, std::slice::from_ref(put));
        self.loading.awaited = awaited;
        written.map(drop)
    }

    /// Whether there is room for all of `puts`, were they all new keys.
    fn admit_load(&mut self, puts: &[Write<'_>]) -> Result<()> {
        self.check_writable()?;
        let searches = [Search::ABSENT; PREFETCHED_KEYS];
        self.admit(puts, &searches[..puts.len()], Purpose::Write).map(drop)
    }

    /// The first put alone, by what is known of its key.
    fn load_one(&mut self, put: &Write<'_>, put_off: &mut PutOff) -> Result<usize> {
        self.check_writable()?;
        let search = self.search(&put.key);
        if !self.puts_off((0, put), &search, put_off) {
            self.loading.is_short = true;
            self.admit(std::slice::from_ref(put), &[search], Purpose::Write)?;
            self.apply(put, search, (false, None))?;
        }
        self.loading.is_short = false;
        Ok(1)
    }

    /// Puts a put off if its old record, or an earlier put of its position, must be waited for.
    fn puts_off(
        &mut self,
        (number, put): (usize, &Write<'_>),
        search: &Search,
        put_off: &mut PutOff,
    ) -> bool {
        let key = &put.key;
        let is_behind = !self.identity.mutations.is_on("load_passes_put_off")
            && put_off.positions.contains(&key.position);
        if search.found == Found::Unknown {
            self.reserve(Writer::of(std::iter::once(key)), std::iter::once(key));
        } else if !is_behind {
            return false;
        }
        if !is_behind {
            put_off.positions.insert(key.position);
        }
        put_off.numbers.push(number);
        true
    }
}
