//! The records of the sort benchmark, byte for byte as its generator gensort makes them (version 1.5; keys and ASCII
//! records as since 1.0, the rest of binary records as since 1.3).
//!
//! Record `n` follows from the number `X(n + 1)` of a linear congruential generator modulo 2^128 that begins with
//! `X(0) = 0`; any record can be reached in a few steps, so threads and parts of files need nothing of each other.
//! Published sums and records that this was compared with stand in the tests.

use serde::Serialize;
use std::str::FromStr;
use tierstone_base::{Error, ErrorKind};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 100;
/// Bytes of its key, which is its beginning.
pub const KEY_BYTES: usize = 10;

/// Factor and addend of the generator, as its source publishes them.
const FACTOR: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
const ADDEND: u128 = 0x4a69_6d47_7261_7952_4950_2020_2020_2001;

/// A binary record is made of ten numbers in order, the upper 80 bits of each after this.
const MASKS: [u128; PARTS] = [
    0,
    0xf0e8_e4e2_e1d8_d4d2_d1cc,
    0xcac9_c6c5_c3b8_b4b2_b1ac,
    0xaaa9_a6a5_a39c_9a99_9695,
    0x938e_8d8b_8778_7472_716c,
    0x6a69_6665_635c_5a59_5655,
    0x534e_4d4b_473c_3a39_3635,
    0x332e_2d2b_271e_1d1b_170f,
    0xc8c4_c2c1_9894_9291_8ce0,
    0x170f_332e_2d2b_271e_1d1b,
];
const PARTS: usize = RECORD_BYTES / KEY_BYTES;
const HEX_DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// What records look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Lines of printable characters that end in `\r\n` (gensort's `-a`).
    #[default]
    Ascii,
    /// Bytes that do not compress (gensort without `-a`).
    Binary,
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Format, Error> {
        match text {
            "ascii" => Ok(Format::Ascii),
            "binary" => Ok(Format::Binary),
            _ => {
                let message = format!("records '{text}': write ascii or binary");
                Err(Error::new(ErrorKind::InvalidInput, message))
            }
        }
    }
}

/// Makes records in order.
#[derive(Clone, Debug)]
pub struct Generator {
    format: Format,
    /// Of the next record.
    number: u64,
    /// Its number and those of the nine behind it, from `head` on and round.
    window: [u128; PARTS],
    head: usize,
}

fn next(number: u128) -> u128 {
    number.wrapping_mul(FACTOR).wrapping_add(ADDEND)
}

/// `X(steps)`: the map is composed with itself, a bit of `steps` at a time.
fn skip(mut steps: u64) -> u128 {
    let (mut factor, mut addend) = (FACTOR, ADDEND);
    let mut number = 0u128;
    while steps > 0 {
        if steps & 1 == 1 {
            number = number.wrapping_mul(factor).wrapping_add(addend);
        }
        addend = addend.wrapping_mul(factor).wrapping_add(addend);
        factor = factor.wrapping_mul(factor);
        steps >>= 1;
    }
    number
}

impl Generator {
    /// From record `first` on. Cost: some 64 steps.
    pub fn new(format: Format, first: u64) -> Generator {
        let mut window = [0; PARTS];
        let mut number = skip(first);
        for place in &mut window {
            number = next(number);
            *place = number;
        }
        Generator { format, number: first, window, head: 0 }
    }

    /// Fills `records` with whole records; what is left at the end stays as it is.
    pub fn fill(&mut self, records: &mut [u8]) {
        for record in records.as_chunks_mut::<RECORD_BYTES>().0 {
            match self.format {
                Format::Ascii => self.ascii(record),
                Format::Binary => self.binary(record),
            }
            let last = self.window[(self.head + PARTS - 1) % PARTS];
            self.window[self.head] = next(last);
            self.head = (self.head + 1) % PARTS;
            self.number = self.number.wrapping_add(1);
        }
    }

    /// Key of ten digits to the base 95, number of the record in hexadecimal, thirteen digits of the random number, each
    /// four times.
    fn ascii(&self, record: &mut [u8; RECORD_BYTES]) {
        let random = self.window[self.head];
        let (mut upper, mut lower) = ((random >> 64) as u64, random as u64);
        for (place, letter) in record[..KEY_BYTES].iter_mut().enumerate() {
            let rest = if place < 8 { &mut upper } else { &mut lower };
            *letter = b' ' + (*rest % 95) as u8;
            *rest /= 95;
        }
        record[10..12].fill(b' ');
        for (place, letter) in record[12..44].iter_mut().enumerate() {
            let shift = 4 * (31 - place);
            *letter = HEX_DIGITS[(u128::from(self.number) >> shift & 15) as usize];
        }
        record[44..46].fill(b' ');
        for (place, letters) in record[46..98].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            letters.fill(HEX_DIGITS[(random as u64 >> (48 - 4 * place) & 15) as usize]);
        }
        record[98..].copy_from_slice(b"\r\n");
    }

    fn binary(&self, record: &mut [u8; RECORD_BYTES]) {
        for (part, (bytes, mask)) in record.as_chunks_mut::<KEY_BYTES>().0.iter_mut().zip(MASKS).enumerate() {
            let number = self.window[(self.head + part) % PARTS] >> 48 ^ mask;
            bytes.copy_from_slice(&number.to_be_bytes()[16 - KEY_BYTES..]);
        }
    }
}

#[cfg(test)]
#[path = "gensort_test.rs"]
mod gensort_test;
