//! Ranges of bytes over atomic words: every access of a mapped region is made of these, so that a race
//! between threads gives one value or the other, word by word, and is never undefined.

use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = 8;

/// Fills `into` from byte `offset` of `words`.
pub(super) fn load(words: &[AtomicU64], offset: usize, into: &mut [u8]) {
    let mut done = 0;
    while done < into.len() {
        let at = offset + done;
        let (skip, len) = piece(at, into.len() - done);
        let word = words[at / WORD].load(Ordering::Relaxed).to_ne_bytes();
        into[done..done + len].copy_from_slice(&word[skip..skip + len]);
        done += len;
    }
}

/// Stores `bytes` at byte `offset` of `words`. `put` stores a whole word; it may be the streaming form.
#[inline]
pub(super) fn store(words: &[AtomicU64], offset: usize, bytes: &[u8], put: impl Fn(&AtomicU64, u64)) {
    let (head, rest) = bytes.split_at(bytes.len().min((WORD - offset % WORD) % WORD));
    store_part(words, offset, head);
    let start = (offset + head.len()) / WORD;
    let (whole, tail) = rest.as_chunks::<WORD>();
    for (word, value) in words[start..start + whole.len()].iter().zip(whole) {
        put(word, u64::from_ne_bytes(*value));
    }
    store_part(words, (start + whole.len()) * WORD, tail);
}

/// Stores less than a word without disturbing what other threads store into the rest of it.
fn store_part(words: &[AtomicU64], offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let skip = offset % WORD;
    let word = &words[offset / WORD];
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let mut new = old.to_ne_bytes();
        new[skip..skip + bytes.len()].copy_from_slice(bytes);
        let new = u64::from_ne_bytes(new);
        match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

/// Where byte `at` lies in its word, and how many of `left` bytes lie there with it.
fn piece(at: usize, left: usize) -> (usize, usize) {
    (at % WORD, (WORD - at % WORD).min(left))
}
