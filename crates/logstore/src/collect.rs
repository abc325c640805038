//! What a pass over summaries or segments collects: entries of as many positions as its memory allows.

/// Something that a key has, at the position of its hash.
pub(crate) trait AtPosition {
    /// The position.
    fn position(&self) -> u64;
}

/// Records and touches, in ranges of positions: sorting each by itself keeps to the processor's cache.
///
/// Where they would take more than the memory for them, the highest positions are given up, for a later pass: so how
/// positions are spread (keys with one hash tag lie side by side) does not matter. Records of a single position are not
/// divided.
#[derive(Debug)]
pub(crate) struct Buckets<R, T> {
    from: u64,
    to: u64,
    shift: u32,
    bytes: u64,
    bytes_max: u64,
    lists: Vec<Collected<R, T>>,
}

/// Entries of a range of positions.
#[derive(Debug)]
pub(crate) struct Collected<R, T> {
    pub records: Vec<R>,
    pub touches: Vec<T>,
}

impl<R, T> Collected<R, T> {
    fn new() -> Self {
        Collected { records: Vec::new(), touches: Vec::new() }
    }

    /// Memory that it takes, in bytes: more than its entries, since lists double.
    fn bytes(&self) -> u64 {
        let records = self.records.capacity() * size_of::<R>();
        (records + self.touches.capacity() * size_of::<T>()) as u64
    }
}

/// Puts an entry into a list; by how many bytes the list has grown.
fn pushed<E>(list: &mut Vec<E>, entry: E) -> usize {
    let before = list.capacity();
    list.push(entry);
    (list.capacity() - before) * size_of::<E>()
}

/// Ranges of positions, as a power of two.
const BUCKET_BITS: u32 = 9;

impl<R: AtPosition, T: AtPosition> Buckets<R, T> {
    /// For positions from `from` to `to`, or as far as `bytes_max` bytes of entries reach.
    pub fn new((from, to): (u64, u64), bytes_max: u64) -> Self {
        let bits = u64::BITS - (to - from).leading_zeros();
        let shift = bits.saturating_sub(BUCKET_BITS);
        let count = ((to - from) >> shift) as usize + 1;
        let lists = (0..count).map(|_| Collected::new()).collect();
        Buckets { from, to, shift, bytes: 0, bytes_max, lists }
    }

    /// The highest position whose entries are all here, of those that were offered.
    pub fn to(&self) -> u64 {
        self.to
    }

    /// How many entries are here.
    pub fn count(&self) -> u64 {
        self.lists.iter().map(|list| (list.records.len() + list.touches.len()) as u64).sum()
    }

    /// The entries, in ranges from the lowest positions to the highest.
    pub fn into_lists(self) -> Vec<Collected<R, T>> {
        self.lists
    }

    pub fn push(&mut self, entry: R) {
        if let Some(list) = self.list(entry.position()) {
            let more = pushed(&mut list.records, entry);
            self.added(more);
        }
    }

    pub fn push_touch(&mut self, touch: T) {
        if let Some(list) = self.list(touch.position()) {
            let more = pushed(&mut list.touches, touch);
            self.added(more);
        }
    }

    /// `None`: the position is left for another pass.
    fn list(&mut self, position: u64) -> Option<&mut Collected<R, T>> {
        let is_here = (self.from..=self.to).contains(&position);
        is_here.then(|| &mut self.lists[((position - self.from) >> self.shift) as usize])
    }

    fn added(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        while self.bytes > self.bytes_max && self.give_up() {}
    }

    /// Gives the highest range up, or divides the last that there is. False: it is a single position.
    fn give_up(&mut self) -> bool {
        if self.lists.len() > 1 {
            self.bytes -= self.lists.pop().map_or(0, |list| list.bytes());
            self.to = self.from + ((self.lists.len() as u64) << self.shift) - 1;
            return true;
        }
        if self.from == self.to {
            return false;
        }
        let Some(whole) = self.lists.pop() else { return false };
        *self = Buckets::new((self.from, self.to), self.bytes_max);
        // All of them are here; whether they are too many is for the caller to see.
        let bytes_max = std::mem::replace(&mut self.bytes_max, u64::MAX);
        whole.records.into_iter().for_each(|entry| self.push(entry));
        whole.touches.into_iter().for_each(|touch| self.push_touch(touch));
        self.bytes_max = bytes_max;
        true
    }
}

#[cfg(test)]
#[path = "collect_test.rs"]
mod collect_test;
