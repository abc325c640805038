//! The bytes of one connection that arrived and were not consumed.
//!
//! Invariants:
//! 1. Memory follows the bytes that came: a declared size is believed up to [`TRUSTED_BYTES`], or up
//!    to four times what has come, whichever is more.
//! 2. An empty buffer keeps at most [`KEPT_BYTES`].

/// What a peer may make us reserve by declaring it.
const TRUSTED_BYTES: usize = 64 << 10;
/// What an empty buffer keeps.
pub(crate) const KEPT_BYTES: usize = 16 << 10;

#[derive(Debug, Default)]
pub(crate) struct InputBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl InputBuffer {
    /// The bytes that are not consumed.
    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends `data`; `missing` more bytes are expected behind it.
    pub fn extend(&mut self, data: &[u8], missing: usize) {
        if self.start > 0 && self.bytes.len() + data.len() > self.bytes.capacity() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let come = self.bytes.len() + data.len();
        let declared = come.saturating_add(missing);
        if declared > self.bytes.capacity() && declared <= TRUSTED_BYTES.max(4 * come) {
            self.bytes.reserve_exact(declared - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
    }

    /// Drops the first `count` unread bytes.
    pub fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.bytes.len());
        if self.start == self.bytes.len() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES {
                self.bytes = Vec::new();
            }
        }
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Bytes of it that hold something, or have held what was consumed.
    pub fn touched_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Gives the memory back if nothing is unread.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            *self = InputBuffer::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_size_is_believed_only_as_far_as_bytes_came() {
        let mut input = InputBuffer::default();
        input.extend(&[1; 100], 512 << 20);
        assert!(input.memory_bytes() <= TRUSTED_BYTES);
        input.extend(&[2; 60_000], 150_000);
        let capacity = input.memory_bytes();
        assert!(capacity >= 210_100, "one reservation for the whole request: {capacity}");
        input.extend(&[3; 150_000], 0);
        assert_eq!(input.memory_bytes(), capacity);
        assert_eq!((input.unread()[0], input.unread()[100], input.unread()[210_099]), (1, 2, 3));
    }

    #[test]
    fn an_emptied_buffer_gives_a_burst_back() {
        let mut input = InputBuffer::default();
        input.extend(&[7; 1 << 20], 0);
        input.consume((1 << 20) - 1);
        assert_eq!(input.unread(), [7]);
        input.extend(&[8; 10], 0);
        assert_eq!(input.unread()[..2], [7, 8]);
        input.consume(11);
        assert!(input.is_empty());
        assert_eq!(input.memory_bytes(), 0);
    }
}
