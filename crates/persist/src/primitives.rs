//! The steps that structures in a region are made of: publish, persist, append, and the two of a database.
//!
//! Every one is generic over the region. What is durable when it returns, and what a crash inside it leaves, is
//! said at each; the tests lose power before every store, write-back and fence, on lines and on words.
//!
//! Sources: Pelley 2014, section 4.2.2 (`persist_wal` with two barriers, `persist_page` with four). Departures: a
//! log position never comes back, so that what an earlier life of the log left is never valid; a page log names
//! its page, so that recovery knows where it belongs; one page log serves one thread at a time.

use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::Mutations;
use tierstone_media::region::{LINE_BYTES, Region, WORD_BYTES};

/// Stores one word and makes it durable. A crash inside leaves the old word or the new one. One barrier.
///
/// # Errors
/// When the region could not make it durable.
#[inline]
pub fn publish<R: Region + ?Sized>(region: &R, offset: u64, value: u64) -> Result<()> {
    publish_by(region, offset, value, &Mutations::none())
}

/// The same by rules that tests break, as all below.
#[inline]
fn publish_by<R: Region + ?Sized>(region: &R, offset: u64, value: u64, rules: &Mutations) -> Result<()> {
    region.store_word(offset, value);
    persist_by(region, offset, WORD_BYTES, rules)
}

/// Makes what was stored in a range durable. One barrier.
///
/// # Errors
/// When the region could not make it durable.
#[inline]
pub fn persist<R: Region + ?Sized>(region: &R, offset: u64, len: u64) -> Result<()> {
    persist_by(region, offset, len, &Mutations::none())
}

#[inline]
fn persist_by<R: Region + ?Sized>(region: &R, offset: u64, len: u64, rules: &Mutations) -> Result<()> {
    region.write_back(offset, len);
    barrier(region, rules, "what was stored before the answer")
}

/// The fence that keeps `rule`.
#[inline]
fn barrier<R: Region + ?Sized>(region: &R, rules: &Mutations, rule: &str) -> Result<()> {
    if rules.is_on(rule) { Ok(()) } else { region.fence() }
}

/// Stores `bytes` past the caches, whole, and then publishes `value` at `published`: a reader that finds `value`
/// after a crash finds the bytes. Durable when it returns. Two barriers.
///
/// # Errors
/// When the region could not make them durable.
pub fn append_streaming<R: Region>(
    region: &R,
    offset: u64,
    bytes: &[u8],
    published: u64,
    value: u64,
    rules: &Mutations,
) -> Result<()> {
    region.store_streaming(offset, bytes);
    barrier(region, rules, "the bytes before the word that publishes them")?;
    region.store_word(published, value);
    region.write_back(published, WORD_BYTES);
    barrier(region, rules, "the word that publishes before the answer")
}

/// A log of records in part of a region, each followed by its own position: a record is valid when the position
/// behind it is its own and its checksum, seeded with the position, fits (old bodies could look like positions).
///
/// Invariants:
/// 1. Positions only grow, so that bytes of an earlier life of the ring are never valid.
/// 2. Recovery takes records from a start that the caller keeps and stops at the first that is not valid. What
///    looks valid behind it is destroyed before anything is appended.
#[derive(Debug)]
pub struct PersistentLog<'a, R> {
    region: &'a R,
    start: u64,
    bytes: u64,
    /// Where the next record begins.
    end: u64,
    /// The first position that is still needed.
    needed: u64,
    rules: Mutations,
}

/// Bytes around the body of a record: its length and checksum before it, its position behind it.
const LOG_OVERHEAD: u64 = 24;

impl<'a, R: Region> PersistentLog<'a, R> {
    /// An empty log in `bytes` bytes from `start`, whole lines, at position `position`. Whatever the bytes are, they
    /// hold no record of a position from there on. No barrier.
    ///
    /// # Errors
    /// `InvalidInput` when the range is not of whole lines in the region.
    pub fn new(region: &'a R, start: u64, bytes: u64, position: u64, rules: &Mutations) -> Result<Self> {
        let whole = start.is_multiple_of(LINE_BYTES) && bytes.is_multiple_of(LINE_BYTES) && bytes > 0;
        if !whole || start + bytes > region.bytes() || !position.is_multiple_of(WORD_BYTES) {
            let message =
                format!("a log cannot lie at {start} with {bytes} bytes: use whole lines of the region");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(PersistentLog { region, start, bytes, end: position, needed: position, rules: rules.clone() })
    }

    /// Reads the log from `position` on: gives the records in order. What lies behind the first that is not valid
    /// is destroyed, durably, so that it cannot become valid again. One barrier if there is any.
    ///
    /// # Errors
    /// As [`PersistentLog::new`], and when the region fails.
    pub fn recover(
        region: &'a R,
        start: u64,
        bytes: u64,
        position: u64,
        rules: &Mutations,
    ) -> Result<(Self, Vec<Vec<u8>>)> {
        let mut log = Self::new(region, start, bytes, position, rules)?;
        let mut records = Vec::new();
        while let Some(body) = log.read(log.end) {
            log.end += LOG_OVERHEAD + padded(body.len() as u64);
            records.push(body);
            if log.end - log.needed >= bytes {
                break;
            }
        }
        log.destroy_behind()?;
        Ok((log, records))
    }

    /// Where the next record begins.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Records before `position` are not needed any more; their room is used again. The caller keeps `position`
    /// durably first.
    pub fn release(&mut self, position: u64) {
        self.needed = self.needed.max(position.min(self.end));
    }

    /// Appends `records`; all are durable when it returns. A crash inside leaves a prefix of them. Two barriers,
    /// however many records (`persist_wal`).
    ///
    /// # Errors
    /// `NoSpace` when they do not fit beside what is needed; when the region fails.
    pub fn persist_wal(&mut self, records: &[&[u8]]) -> Result<()> {
        let total: u64 = records.iter().map(|body| LOG_OVERHEAD + padded(body.len() as u64)).sum();
        if self.end - self.needed + total > self.bytes {
            let message =
                format!("{total} bytes of records do not fit the log of {} bytes; release some", self.bytes);
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        let mut at = self.end;
        for body in records {
            let len = body.len() as u64;
            self.put(at, &len.to_le_bytes());
            self.put(at + 8, &checksum(self.name(at), body).to_le_bytes());
            self.put(at + 16, body);
            at += LOG_OVERHEAD + padded(len);
        }
        barrier(self.region, &self.rules, "the bodies before their positions")?;
        let mut at = self.end;
        for body in records {
            let len = padded(body.len() as u64);
            let place = self.place(at + 16 + len);
            self.region.store_word(place, self.name(at) + 1);
            self.region.write_back(place, WORD_BYTES);
            at += LOG_OVERHEAD + len;
        }
        barrier(self.region, &self.rules, "the positions before the answer")?;
        self.end = at;
        Ok(())
    }

    /// The record at `position`, if there is a valid one.
    fn read(&self, position: u64) -> Option<Vec<u8>> {
        let len = self.word(position);
        if len > self.bytes.checked_sub(LOG_OVERHEAD)? || padded(len) + LOG_OVERHEAD > self.bytes {
            return None;
        }
        let mut body = vec![0; len as usize];
        self.get(position + 16, &mut body);
        let is_valid = self.word(position + 16 + padded(len)) == self.name(position) + 1;
        let is_whole = self.rules.is_on("the checksum of a body")
            || self.word(position + 8) == checksum(self.name(position), &body);
        (is_valid && is_whole).then_some(body)
    }

    /// Overwrites every word behind the end that could be the position of a record to come.
    fn destroy_behind(&mut self) -> Result<()> {
        if self.rules.is_on("what lies behind the end is destroyed") {
            return Ok(());
        }
        let mut destroyed = false;
        let free = self.bytes.saturating_sub(self.end - self.needed);
        for position in (self.end..self.end + free).step_by(WORD_BYTES as usize) {
            let word = self.word(position);
            if word > self.end && word <= self.end + self.bytes {
                let place = self.place(position);
                self.region.store_word(place, 0);
                self.region.write_back(place, WORD_BYTES);
                destroyed = true;
            }
        }
        if !destroyed {
            return Ok(());
        }
        barrier(self.region, &self.rules, "what is destroyed before recovery ends")
    }

    /// What stands behind a record for its position: a name that no other record of the ring has or had.
    #[inline]
    fn name(&self, position: u64) -> u64 {
        if self.rules.is_on("positions never come back") { position % self.bytes } else { position }
    }

    fn place(&self, position: u64) -> u64 {
        self.start + position % self.bytes
    }

    fn word(&self, position: u64) -> u64 {
        self.region.load_word(self.place(position))
    }

    fn get(&self, position: u64, into: &mut [u8]) {
        let first = (self.bytes - position % self.bytes).min(into.len() as u64) as usize;
        let (head, rest) = into.split_at_mut(first);
        self.region.load(self.place(position), head);
        self.region.load(self.start, rest);
    }

    /// Stores past the caches, around the end of the ring.
    fn put(&self, position: u64, bytes: &[u8]) {
        let first = (self.bytes - position % self.bytes).min(bytes.len() as u64) as usize;
        let (head, rest) = bytes.split_at(first);
        self.region.store_streaming(self.place(position), head);
        self.region.store_streaming(self.start, rest);
    }
}

#[inline]
fn padded(len: u64) -> u64 {
    len.next_multiple_of(WORD_BYTES)
}

/// Where one thread keeps the old bytes of a page while it overwrites the page: a line for the mark, then a page.
#[derive(Clone, Copy, Debug)]
pub struct PageLog {
    /// Where the mark is; the old bytes follow one line later.
    pub offset: u64,
    /// Bytes of a page, whole lines.
    pub page_bytes: u64,
}

impl PageLog {
    /// Bytes of the region that it takes.
    pub fn bytes(&self) -> u64 {
        LINE_BYTES + self.page_bytes
    }

    /// Replaces the page at `page` by `fresh`; durable when it returns. A crash at any point leaves the old page or
    /// the new one, once [`PageLog::recover`] has run. Four barriers (`persist_page`).
    ///
    /// # Errors
    /// When the region could not make it durable: then the page must not be used before recovery.
    pub fn persist_page<R: Region>(
        &self,
        region: &R,
        page: u64,
        fresh: &[u8],
        rules: &Mutations,
    ) -> Result<()> {
        let barrier = |rule: &str| barrier(region, rules, rule);
        let mut old = vec![0; self.page_bytes as usize];
        region.load(page, &mut old);
        region.store_streaming(self.offset + LINE_BYTES, &old);
        barrier("the old page before the mark")?;
        region.store_word(self.offset, page + 1);
        region.write_back(self.offset, WORD_BYTES);
        barrier("the mark before the new page")?;
        region.store(page, &fresh[..self.page_bytes as usize]);
        region.write_back(page, self.page_bytes);
        barrier("the new page before the mark is taken away")?;
        region.store_word(self.offset, 0);
        region.write_back(self.offset, WORD_BYTES);
        barrier("the mark is away before the page log is used again")
    }

    /// Puts the old page back if a crash came while it was overwritten. Returns its place. Two barriers.
    ///
    /// # Errors
    /// `Corrupt` when the mark names no page, and when the region fails.
    pub fn recover<R: Region>(&self, region: &R, rules: &Mutations) -> Result<Option<u64>> {
        let Some(page) = region.load_word(self.offset).checked_sub(1) else {
            return Ok(None);
        };
        if !page.is_multiple_of(LINE_BYTES) || page.saturating_add(self.page_bytes) > region.bytes() {
            let message = format!(
                "the page log at {} names the page {page}, which is none; restore the region",
                self.offset
            );
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let mut old = vec![0; self.page_bytes as usize];
        region.load(self.offset + LINE_BYTES, &mut old);
        region.store(page, &old);
        region.write_back(page, self.page_bytes);
        barrier(region, rules, "the page is back before the mark is taken away")?;
        region.store_word(self.offset, 0);
        region.write_back(self.offset, WORD_BYTES);
        barrier(region, rules, "the mark is away before recovery ends")?;
        Ok(Some(page))
    }
}

#[cfg(test)]
#[path = "primitives_test.rs"]
mod primitives_test;
