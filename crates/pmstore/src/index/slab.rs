//! Numbered values in chunks, so that no growth copies all of them at once.
//!
//! Invariants:
//! 1. A number is in use from [`Slab::add`] to [`Slab::take`]; then it may be given again.
//! 2. A chunk never moves and is kept until the slab goes.

/// Values by number, `CHUNK` in an allocation.
pub struct Slab<T, const CHUNK: usize> {
    chunks: Vec<Box<[T]>>,
    used: usize,
    vacant: Vec<u32>,
}

impl<T: Default, const CHUNK: usize> Slab<T, CHUNK> {
    pub fn new() -> Self {
        Slab { chunks: Vec::new(), used: 0, vacant: Vec::new() }
    }

    /// Bytes of the chunks, without what the values own elsewhere.
    pub fn bytes(&self) -> u64 {
        let chunks = self.chunks.len() * CHUNK * size_of::<T>();
        let lists = self.chunks.capacity() * size_of::<Box<[T]>>() + self.vacant.capacity() * 4;
        (chunks + lists) as u64
    }

    /// Numbers in use.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.used - self.vacant.len()
    }

    /// Keeps `value`; its number, below 2^31.
    pub fn add(&mut self, value: T) -> u32 {
        if let Some(id) = self.vacant.pop() {
            *self.get_mut(id) = value;
            return id;
        }
        if self.used == self.chunks.len() * CHUNK {
            self.chunks.push((0..CHUNK).map(|_| T::default()).collect());
        }
        let id = self.used as u32;
        assert!(id < 1 << 31, "a slab holds 2^31 values: more than 2^36 keys");
        self.used += 1;
        *self.get_mut(id) = value;
        id
    }

    /// Takes the value out and gives its number back.
    pub fn take(&mut self, id: u32) -> T {
        self.vacant.push(id);
        std::mem::take(self.get_mut(id))
    }

    #[inline]
    pub fn get(&self, id: u32) -> &T {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    #[inline]
    pub fn get_mut(&mut self, id: u32) -> &mut T {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}
