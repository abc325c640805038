//! `LCS`: the longest common subsequence of two strings.
//!
//! The table of the lengths for all pairs of prefixes is kept as its steps along the longer string, a bit each, and made
//! 64 of them at a time: a sixty-fourth of the work, and a thirty-second of the memory, of a table of numbers. Source:
//! Hyyrö, "Bit-parallel LCS-length computation revisited", 2004. Of all longest subsequences the one is given that Redis
//! gives, whose walk through the table is followed.

use crate::context::{Context, Halt, Run, SYNTAX, fail};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default)]
struct LcsOptions {
    wants_length: bool,
    wants_matches: bool,
    wants_match_lengths: bool,
    match_length_min: i64,
}

impl LcsOptions {
    fn parse(context: &Context<'_, '_>) -> Result<LcsOptions, Halt> {
        let mut options = LcsOptions::default();
        let mut index = 3;
        while let Some(option) = context.args.get(index) {
            match option.to_ascii_uppercase().as_slice() {
                b"IDX" => options.wants_matches = true,
                b"LEN" => options.wants_length = true,
                b"WITHMATCHLEN" => options.wants_match_lengths = true,
                b"MINMATCHLEN" if index + 1 < context.args.len() => {
                    options.match_length_min = context.integer(index + 1)?.max(0);
                    index += 1;
                }
                _ => return fail(SYNTAX),
            }
            index += 1;
        }
        if options.wants_matches && options.wants_length {
            return fail("ERR If you want both the length and indexes, please just use IDX.");
        }
        Ok(options)
    }
}

/// The most pairs of prefixes of one `LCS`: bounds its memory and the time for which it holds up the shard.
const LCS_CELLS_MAX: u64 = 16 << 20;
const LCS_TOO_LARGE: &str = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";

/// Work for one word of the table, in units of about a nanosecond.
const WORK_A_WORD: u64 = 4;

pub(crate) fn lcs(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    context.view.prefetch(context.db, [args.at(1), args.at(2)])?;
    let mut extents = [None, None];
    for (extent, key) in extents.iter_mut().zip([args.at(1), args.at(2)]) {
        *extent = context.extent(key)?;
        match extent {
            Some(_) => context.reads.hits += 1,
            None => {
                context.reads.misses += 1;
                context.note_miss(key);
            }
        }
    }
    let options = LcsOptions::parse(context)?;
    let mut values = [Vec::new(), Vec::new()];
    for ((value, key), extent) in values.iter_mut().zip([args.at(1), args.at(2)]).zip(extents) {
        let Some(extent) = extent else { continue };
        if extent.len > LCS_CELLS_MAX {
            return fail(LCS_TOO_LARGE);
        }
        context.load_scratch(key)?;
        value.extend_from_slice(context.scratch);
    }
    let [left, right] = &values;
    let cells = (left.len() as u64 + 1).saturating_mul(right.len() as u64 + 1);
    if cells > LCS_CELLS_MAX {
        return fail(LCS_TOO_LARGE);
    }
    let table = Table::new(left, right);
    context.reads.work += table.rows.len() as u64 * WORK_A_WORD;
    if options.wants_length {
        context.reply.integer(table.length() as i64);
        return Ok(());
    }
    let matches = table.walk(left, right);
    context.reads.work += (left.len() + right.len()) as u64 * WORK_A_WORD;
    if !options.wants_matches {
        context.scratch.clear();
        for found in matches.iter().rev() {
            context.scratch.extend_from_slice(&left[found.left..found.left + found.len]);
        }
        context.reply.bulk(context.scratch);
        return Ok(());
    }
    reply_matches(context, options, &matches, table.length());
    Ok(())
}

fn reply_matches(context: &mut Context<'_, '_>, options: LcsOptions, matches: &[Match], length: usize) {
    context.reply.map(2);
    context.reply.bulk(b"matches");
    let is_long = |found: &&Match| found.len as i64 >= options.match_length_min;
    context.reply.array(matches.iter().filter(is_long).count());
    for found in matches.iter().filter(is_long) {
        context.reply.array(if options.wants_match_lengths { 3 } else { 2 });
        for start in [found.left, found.right] {
            context.reply.array(2);
            context.reply.integer(start as i64);
            context.reply.integer((start + found.len - 1) as i64);
        }
        if options.wants_match_lengths {
            context.reply.integer(found.len as i64);
        }
    }
    context.reply.bulk(b"len");
    context.reply.integer(length as i64);
}

/// A stretch that both strings share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    left: usize,
    right: usize,
    len: usize,
}

/// The lengths of the longest common subsequences of all pairs of prefixes: a row for each prefix of the shorter string,
/// the empty one included, and in it a bit for each byte of the longer one, which is 0 where the length grows with it.
#[derive(Debug)]
struct Table {
    rows: Vec<u64>,
    /// Words of a row.
    words: usize,
    is_left_longer: bool,
}

impl Table {
    fn new(left: &[u8], right: &[u8]) -> Table {
        let is_left_longer = left.len() > right.len();
        let (longer, shorter) = if is_left_longer { (left, right) } else { (right, left) };
        let words = longer.len().div_ceil(64);
        // Where in the longer string each byte of the shorter one stands.
        let mut places: BTreeMap<u8, Vec<u64>> = shorter.iter().map(|byte| (*byte, vec![0; words])).collect();
        for (place, byte) in longer.iter().enumerate() {
            if let Some(bits) = places.get_mut(byte) {
                bits[place / 64] |= 1 << (place % 64);
            }
        }
        let mut rows = Vec::with_capacity(words * (shorter.len() + 1));
        rows.resize(words, u64::MAX);
        for byte in shorter {
            let start = rows.len() - words;
            let mut carry = false;
            for (word, places) in (start..).zip(&places[byte]) {
                let above = rows[word];
                let (sum, first) = above.overflowing_add(above & places);
                let (sum, second) = sum.overflowing_add(u64::from(carry));
                carry = first || second;
                rows.push(sum | above & !places);
            }
        }
        Table { rows, words, is_left_longer }
    }

    /// The row of the first `count` bytes of the shorter string.
    fn row(&self, count: usize) -> &[u64] {
        &self.rows[count * self.words..(count + 1) * self.words]
    }

    /// The length for the first `row` bytes of the shorter string and the first `column` of the longer one.
    fn length_of(&self, row: usize, column: usize) -> usize {
        let row = self.row(row);
        let (whole, rest) = (column / 64, column % 64);
        let ones = |word: &u64| word.count_zeros() as usize;
        let tail = if rest == 0 { 0 } else { (!row[whole] << (64 - rest)).count_ones() as usize };
        row[..whole].iter().map(ones).sum::<usize>() + tail
    }

    /// Whether the length for the first `row` bytes of the shorter string grows with byte `column` of the longer one,
    /// counted from 1.
    fn grows(&self, row: usize, column: usize) -> usize {
        usize::from(self.row(row)[(column - 1) / 64] >> ((column - 1) % 64) & 1 == 0)
    }

    /// The length for both strings.
    fn length(&self) -> usize {
        let last = self.rows.len() - self.words;
        self.rows[last..].iter().map(|word| word.count_zeros() as usize).sum()
    }

    /// The stretches of one longest common subsequence, from the end to the start.
    fn walk(&self, left: &[u8], right: &[u8]) -> Vec<Match> {
        let (mut in_left, mut in_right) = (left.len(), right.len());
        let mut matches: Vec<Match> = Vec::new();
        let place =
            |left: usize, right: usize| if self.is_left_longer { (right, left) } else { (left, right) };
        // The lengths here, and with one byte less of the shorter string.
        let mut here = self.length();
        let mut above = None;
        while in_left > 0 && in_right > 0 {
            let (row, column) = place(in_left, in_right);
            let less = *above.get_or_insert_with(|| self.length_of(row - 1, column));
            let (with_column, with_row) = (self.grows(row, column), here - less);
            let with_left = if self.is_left_longer { with_column } else { with_row };
            let with_right = if self.is_left_longer { with_row } else { with_column };
            let is_match = left[in_left - 1] == right[in_right - 1];
            let takes_left = is_match || with_left < with_right;
            let takes_right = is_match || !takes_left;
            if is_match {
                note(&mut matches, in_left - 1, in_right - 1);
            }
            in_left -= usize::from(takes_left);
            in_right -= usize::from(takes_right);
            let (takes_row, takes_column) = place(usize::from(takes_left), usize::from(takes_right));
            let less = less - if takes_column == 1 { self.grows(row - 1, column) } else { 0 };
            if takes_row == 1 {
                (here, above) = (less, None);
            } else {
                (here, above) = (here - with_column, Some(less));
            }
        }
        matches
    }
}

/// Adds a byte that both strings share, before those that were noted.
fn note(matches: &mut Vec<Match>, left: usize, right: usize) {
    match matches.last_mut() {
        Some(last) if last.left == left + 1 && last.right == right + 1 => {
            *last = Match { left, right, len: last.len + 1 };
        }
        _ => matches.push(Match { left, right, len: 1 }),
    }
}

#[cfg(test)]
#[path = "lcs_test.rs"]
mod lcs_test;
