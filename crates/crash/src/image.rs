//! Sparse bytes that stand for what a medium holds.

use std::collections::BTreeMap;
use std::ops::Range;
use tierstone_base::checksum::checksum;

/// Bytes a page of an [`Image`] has.
const PAGE_BYTES: usize = 4096;

/// Bytes by offset; what was never written reads as zero. Cost: one page of 4 KiB for each page
/// that was touched, one tree lookup a page.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
}

impl Image {
    /// Fills `bytes` from `offset`.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (page, within, at) in pieces(offset, bytes.len()) {
            match self.pages.get(&page) {
                Some(held) => bytes[at.clone()].copy_from_slice(&held[within]),
                None => bytes[at].fill(0),
            }
        }
    }

    /// Puts `bytes` at `offset`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, at) in pieces(offset, bytes.len()) {
            let held = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_BYTES]));
            held[within].copy_from_slice(&bytes[at]);
        }
    }

    /// The parts of `range` that may hold something other than zeros, in order.
    pub fn touched(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let page_bytes = PAGE_BYTES as u64;
        let pages = range.start / page_bytes..range.end.div_ceil(page_bytes).max(range.start / page_bytes);
        self.pages.range(pages).map(move |(page, _)| {
            (page * page_bytes).max(range.start)..((page + 1) * page_bytes).min(range.end)
        })
    }

    /// Equal for images that read the same; different, as good as always, for others. Cost: reads
    /// every touched page.
    pub fn digest(&self) -> u64 {
        let held = self.pages.iter().filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0));
        held.fold(0, |digest, (page, bytes)| {
            checksum(digest ^ page.wrapping_mul(0x9e37_79b9_7f4a_7c15), &bytes[..]).wrapping_add(1)
        })
    }
}

/// Cuts `len` bytes at `offset` by page: the page, the bytes within it, the bytes of the buffer.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES as u64) as usize;
        let count = (len - done).min(PAGE_BYTES - within);
        let piece = (at / PAGE_BYTES as u64, within..within + count, done..done + count);
        done += count;
        (count > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_image_reads_like_a_flat_array(
            writes in prop::collection::vec((0usize..20_000, prop::collection::vec(any::<u8>(), 0..9_000)), 0..8),
        ) {
            let mut flat = vec![0u8; 32_000];
            let mut image = Image::default();
            for (offset, bytes) in &writes {
                flat[*offset..offset + bytes.len()].copy_from_slice(bytes);
                image.write(*offset as u64, bytes);
            }
            let mut read = vec![7u8; flat.len() - 13];
            image.read(13, &mut read);
            prop_assert_eq!(&read[..], &flat[13..]);
            let mut whole = Image::default();
            whole.write(0, &flat);
            prop_assert_eq!(whole.digest(), image.digest());
        }
    }

    #[test]
    fn touched_parts_lie_within_the_range() {
        let mut image = Image::default();
        image.write(5000, b"x");
        image.write(20_000, b"x");
        let touched = |range| image.touched(range).collect::<Vec<_>>();
        assert_eq!(touched(0..5001), vec![4096..5001]);
        assert_eq!(touched(4500..30_000), vec![4500..8192, 16_384..20_480]);
        assert_eq!(touched(9000..9000), vec![]);
    }

    #[test]
    fn images_that_differ_in_a_bit_or_a_place_have_other_digests() {
        let mut images: Vec<Image> = (0..4).map(|_| Image::default()).collect();
        images[1].write(0, b"a");
        images[2].write(4096, b"a");
        images[3].write(0, b"b");
        let digests = images.iter().map(Image::digest).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(digests.len(), 4);
    }
}
