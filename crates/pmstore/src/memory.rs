//! The engine's part of a region: offsets from its start, records read in place.
//!
//! Invariant: what [`PmMemory::bytes`] gives is not stored to while it is borrowed. It is used for records, frames
//! and overflow blocks of one shard. They are written once, before anybody can look for them; their places are
//! used again only by calls of the shard that take it exclusively, and no borrowed bytes outlive such a call.

use std::borrow::Cow;
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::Mutations;
use tierstone_media::Guarantee;
use tierstone_media::region::{LINE_BYTES, Region, WORD_BYTES};

/// A region that the engine may use from some offset on; a clone is the same memory.
#[derive(Clone)]
pub(crate) struct PmMemory {
    region: Arc<dyn Region + Send + Sync>,
    base: u64,
    bytes: u64,
    is_in_place: bool,
    rules: Mutations,
}

// What a panic leaves in a region is what a crash of the process leaves: recovery takes it.
impl std::panic::UnwindSafe for PmMemory {}
impl std::panic::RefUnwindSafe for PmMemory {}

impl std::fmt::Debug for PmMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes from {}", self.bytes, self.base)
    }
}

impl PmMemory {
    /// The part of `region` from `base` on.
    pub fn new(region: Arc<dyn Region + Send + Sync>, base: u64) -> Result<Self> {
        let whole = region.bytes();
        if !base.is_multiple_of(LINE_BYTES) || base >= whole {
            let message = format!(
                "the store cannot begin at {base} of {whole} bytes: use whole lines inside the region"
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        // SAFETY: nobody stores to no bytes.
        let is_in_place = unsafe { region.in_place(base, 0) }.is_some();
        Ok(PmMemory { bytes: whole - base, region, base, is_in_place, rules: Mutations::none() })
    }

    /// The same, whose barriers a test may break.
    pub fn with_rules(self, rules: &Mutations) -> Self {
        PmMemory { rules: rules.clone(), ..self }
    }

    /// Whether bytes are given without a copy.
    pub fn is_in_place(&self) -> bool {
        self.is_in_place
    }

    /// Where in the region offsets begin.
    pub fn base(&self) -> u64 {
        self.base
    }

    pub fn len(&self) -> u64 {
        self.bytes
    }

    pub fn guarantee(&self) -> Guarantee {
        self.region.guarantee()
    }

    #[inline]
    pub fn load_word(&self, offset: u64) -> u64 {
        self.region.load_word(self.base + offset)
    }

    #[inline]
    pub fn store_word(&self, offset: u64, value: u64) {
        self.region.store_word(self.base + offset, value);
    }

    /// Whether `expected` was there and is `new` now.
    pub fn exchange_word(&self, offset: u64, expected: u64, new: u64) -> bool {
        self.region.compare_exchange_word(self.base + offset, expected, new).is_ok()
    }

    /// `N` bytes from `offset`, by a copy.
    #[inline]
    pub fn load<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.region.load(self.base + offset, &mut bytes);
        bytes
    }

    /// `len` bytes from `offset`, in place where the region allows it.
    #[inline]
    pub fn bytes(&self, offset: u64, len: usize) -> Cow<'_, [u8]> {
        // SAFETY: the invariant of this module.
        match unsafe { self.region.in_place(self.base + offset, len) } {
            Some(bytes) => Cow::Borrowed(bytes),
            None => {
                let mut bytes = vec![0; len];
                self.region.load(self.base + offset, &mut bytes);
                Cow::Owned(bytes)
            }
        }
    }

    /// Asks for the lines of a range, soon to be read.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: u64) {
        self.region.prefetch(self.base + offset, len);
    }

    #[inline]
    pub fn store(&self, offset: u64, bytes: &[u8]) {
        self.region.store(self.base + offset, bytes);
    }

    /// Past the caches; durable after the next fence.
    #[inline]
    pub fn stream(&self, offset: u64, bytes: &[u8]) {
        self.region.store_streaming(self.base + offset, bytes);
    }

    #[inline]
    pub fn write_back(&self, offset: u64, len: u64) {
        self.region.write_back(self.base + offset, len);
    }

    #[inline]
    pub fn fence(&self) -> Result<()> {
        self.region.fence()
    }

    /// The fence that keeps `rule`.
    pub fn barrier(&self, rule: &str) -> Result<()> {
        if self.rules.is_on(rule) { Ok(()) } else { self.fence() }
    }

    /// Stores a word; durable after the next fence.
    pub fn put_word(&self, offset: u64, value: u64) {
        self.store_word(offset, value);
        self.write_back(offset, WORD_BYTES);
    }
}
