//! Little-endian and variable-length integers, read with bounds checks from hostile bytes.

/// Appends `value` in 1 to 10 bytes, seven bits a byte, low bits first.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads integers and slices from the front of untrusted bytes; every read may fail, none panics.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(count)?;
        self.rest = tail;
        Some(head)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// The next two bytes, little-endian.
    pub fn u16(&mut self) -> Option<u16> {
        let (head, tail) = self.rest.split_first_chunk()?;
        self.rest = tail;
        Some(u16::from_le_bytes(*head))
    }

    /// The next four bytes, little-endian.
    pub fn u32(&mut self) -> Option<u32> {
        let (head, tail) = self.rest.split_first_chunk()?;
        self.rest = tail;
        Some(u32::from_le_bytes(*head))
    }

    /// The next eight bytes, little-endian.
    pub fn u64(&mut self) -> Option<u64> {
        let (head, tail) = self.rest.split_first_chunk()?;
        self.rest = tail;
        Some(u64::from_le_bytes(*head))
    }

    /// The next variable-length integer; `None` too when it does not fit 64 bits.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_come_back(values: Vec<u64>) {
            let mut bytes = Vec::new();
            for &value in &values {
                put_varint(&mut bytes, value);
            }
            let mut reader = Reader::new(&bytes);
            for &value in &values {
                prop_assert_eq!(reader.varint(), Some(value));
            }
            prop_assert!(reader.rest().is_empty());
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>, cut: usize) {
            let mut reader = Reader::new(&bytes);
            while reader.varint().is_some() && reader.u16().is_some() {}
            let _ = (reader.u64(), reader.u32(), reader.bytes(cut));
        }
    }

    #[test]
    fn an_overlong_varint_is_refused() {
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None);
        assert_eq!(Reader::new(&[0x80; 9]).varint(), None);
    }
}
