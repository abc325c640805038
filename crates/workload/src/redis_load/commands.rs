//! Operations as commands, written straight into the send buffer: `encode_command` of `wire` would
//! copy every key and value once more.

use crate::key::KeyFormat;
use crate::value::ValueMaker;

/// Writes commands for the records of one workload.
#[derive(Clone, Debug)]
pub(super) struct CommandWriter {
    pub(super) key: KeyFormat,
    pub(super) values: ValueMaker,
}

impl CommandWriter {
    #[inline]
    pub(super) fn get(&self, id: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
        self.push_key(id, out);
    }

    #[inline]
    pub(super) fn set(&self, id: u64, version: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
        self.push_key(id, out);
        push_header(b'$', self.values.size_of(id, version), out);
        self.values.append(id, version, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Reads `count` records from `id` on.
    pub(super) fn scan(&self, id: u64, count: u32, out: &mut Vec<u8>) {
        push_header(b'*', count as usize + 1, out);
        out.extend_from_slice(b"$4\r\nMGET\r\n");
        for offset in 0..u64::from(count) {
            self.push_key(id + offset, out);
        }
    }

    #[inline]
    fn push_key(&self, id: u64, out: &mut Vec<u8>) {
        push_header(b'$', self.key.size_of(id), out);
        self.key.append(id, out);
        out.extend_from_slice(b"\r\n");
    }
}

/// A marker and a count, with the line's end.
#[inline]
pub(crate) fn push_header(marker: u8, count: usize, out: &mut Vec<u8>) {
    let mut text = [0u8; 20];
    let (mut at, mut rest) = (text.len(), count);
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.push(marker);
    out.extend_from_slice(&text[at..]);
    out.extend_from_slice(b"\r\n");
}

/// The byte strings of a whole reply that is one, or an array of them; `None` for a missing one. A
/// reply of another shape ends the iteration.
pub(crate) fn bodies(reply: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = reply;
    if rest.first() == Some(&b'*') {
        rest = line(rest).map_or(&[][..], |(_, behind)| behind);
    }
    std::iter::from_fn(move || {
        let (header, behind) = line(rest)?;
        match header.split_first()? {
            // Null of protocol 2 and 3.
            (b'$', b"-1") | (b'_', _) => {
                rest = behind;
                Some(None)
            }
            (b'$', digits) => {
                let len: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
                let body = behind.get(..len)?;
                rest = behind.get(len.checked_add(2)?..)?;
                Some(Some(body))
            }
            _ => None,
        }
    })
}

/// The first line without its end, and what is behind it.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    Some((&bytes[..end], bytes.get(end + 2..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierstone_wire::resp::{ReplyWriter, Version, encode_command};

    use super::{CommandWriter, bodies};
    use crate::key::KeyFormat;
    use crate::value::{ValueMaker, ValueSettings};

    #[test]
    fn commands_are_those_that_wire_encodes() {
        let writer =
            CommandWriter { key: KeyFormat::default(), values: ValueMaker::new(ValueSettings::default(), 1) };
        let (mut got, mut expected, mut value) = (Vec::new(), Vec::new(), Vec::new());
        writer.get(7, &mut got);
        writer.set(8, 3, &mut got);
        writer.scan(9, 10, &mut got);
        encode_command(&[b"GET", &writer.key.key(7)], &mut expected);
        writer.values.append(8, 3, &mut value);
        encode_command(&[b"SET", &writer.key.key(8), &value], &mut expected);
        let keys: Vec<Vec<u8>> = (9..19).map(|id| writer.key.key(id)).collect();
        let mut arguments: Vec<&[u8]> = vec![b"MGET"];
        arguments.extend(keys.iter().map(Vec::as_slice));
        encode_command(&arguments, &mut expected);
        assert_eq!(got, expected);
    }

    proptest! {
        #[test]
        fn bodies_are_found_in_replies(
            values in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..40)), 0..9),
            is_third in any::<bool>(),
        ) {
            let mut reply = Vec::new();
            let version = if is_third { Version::Resp3 } else { Version::Resp2 };
            let mut writer = ReplyWriter::new(&mut reply, version);
            writer.array(values.len());
            for value in &values {
                match value {
                    Some(value) => writer.bulk(value),
                    None => writer.null(),
                }
            }
            let found: Vec<Option<Vec<u8>>> = bodies(&reply).map(|body| body.map(<[u8]>::to_vec)).collect();
            prop_assert_eq!(found, values);
        }

        #[test]
        fn any_bytes_can_be_searched(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(bodies(&bytes).count() <= bytes.len());
        }
    }
}
