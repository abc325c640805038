//! A walk over all keys beside the load: page after page by SCAN, and what must be among them.

use crate::soak::object::Objects;

/// Keys of one object at most.
const PARTS: u64 = 3;

/// Where the walk is and what it has seen.
#[derive(Debug)]
pub(super) struct Walk {
    page: u32,
    objects: u64,
    /// One bit for each key that an object can have.
    seen: Vec<u64>,
    cursor: Vec<u8>,
    /// Whether every lasting key was there when the walk began.
    is_judged: bool,
    pub(super) pages: u64,
    pub(super) walks: u64,
}

impl Walk {
    pub(super) fn new(objects: u64, page: u32) -> Walk {
        let words = if page == 0 { 0 } else { (objects * PARTS).div_ceil(64) };
        Walk {
            page,
            objects,
            seen: vec![0; words as usize],
            cursor: b"0".to_vec(),
            is_judged: false,
            pages: 0,
            walks: 0,
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.page > 0
    }

    /// Begins again at the next page.
    pub(super) fn restart(&mut self) {
        self.cursor = b"0".to_vec();
    }

    /// Appends the next page's request. `is_whole`: every object has been written.
    pub(super) fn ask(&mut self, is_whole: bool, out: &mut Vec<u8>) {
        if self.cursor == b"0" {
            self.seen.fill(0);
            self.is_judged = is_whole;
        }
        let page = self.page.to_string();
        out.extend_from_slice(format!("*4\r\n$4\r\nSCAN\r\n${}\r\n", self.cursor.len()).as_bytes());
        out.extend_from_slice(&self.cursor);
        out.extend_from_slice(format!("\r\n$5\r\nCOUNT\r\n${}\r\n{page}\r\n", page.len()).as_bytes());
    }

    /// Takes a page; what is wrong with it, or with the walk that it ends.
    pub(super) fn take(&mut self, reply: &[u8]) -> Option<String> {
        let mut strings = strings(reply);
        let shown = || format!("SCAN gave {}", reply[..reply.len().min(60)].escape_ascii());
        let Some(cursor) = strings.next() else { return Some(shown()) };
        self.cursor = cursor.to_vec();
        self.pages += 1;
        for key in strings {
            match Objects::of_key(key)
                .filter(|(number, part)| *number < self.objects && (*part as u64) < PARTS)
            {
                Some((number, part)) => {
                    let bit = number * PARTS + part as u64;
                    self.seen[(bit / 64) as usize] |= 1 << (bit % 64);
                }
                None => return Some(format!("SCAN gave a key that nobody wrote: {}", key.escape_ascii())),
            }
        }
        if self.cursor != b"0" {
            return None;
        }
        self.walks += 1;
        if !self.is_judged {
            return None;
        }
        let missed = (0..self.objects).filter(|&number| Objects::is_lasting(number));
        let missed: Vec<u64> = missed.filter(|&number| !self.is_seen(number)).take(5).collect();
        (!missed.is_empty()).then(|| format!("a walk missed keys of objects {missed:?}"))
    }

    fn is_seen(&self, number: u64) -> bool {
        (0..Objects::parts(number) as u64).all(|part| {
            let bit = number * PARTS + part;
            self.seen[(bit / 64) as usize] >> (bit % 64) & 1 == 1
        })
    }
}

/// The strings of a reply of arrays and strings, however they are nested.
fn strings(reply: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = reply;
    std::iter::from_fn(move || {
        loop {
            let end = rest.iter().position(|byte| *byte == b'\r')?;
            let (head, behind) = (&rest[..end], rest.get(end + 2..)?);
            match head.split_first()? {
                (b'*', _) => rest = behind,
                (b'$', digits) => {
                    let len: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
                    rest = behind.get(len.checked_add(2)?..)?;
                    return behind.get(..len);
                }
                _ => return None,
            }
        }
    })
}

#[cfg(test)]
#[path = "walk_test.rs"]
mod walk_test;
