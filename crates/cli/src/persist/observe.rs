//! `tierstone persist observe`.

use super::{counter, model, read_trace};
use crate::output::{print_json, print_line, table};
use clap::Args;
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_persist::observer::{Failure, Observer, Seen, State};
use tierstone_persist::order::Model;
use tierstone_persist::trace::{Trace, WORD, text::number};

/// Bytes of persistent memory at most: each state is an image of it.
const IMAGE_BYTES_MAX: u64 = 64 << 20;
/// Persists that are enumerated at most: the search goes as deep.
const ENUMERATED_MAX: usize = 4_096;
/// Different outcomes that are kept at most, and words of all of them: 32 MB.
const OUTCOMES_MAX: usize = 100_000;
const OUTCOME_WORDS_MAX: usize = 4 << 20;

#[derive(Debug, Args)]
pub struct ObserveArgs {
    /// The trace: text or binary, see docs/formats/persist-trace.md; at most 30,000 steps
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The model: strict, buffered, epoch, strand, bpfs
    #[arg(long, value_name = "MODEL", default_value = "epoch", value_parser = model)]
    model: Model,
    /// The failure comes after the last step, so that what a sync waited for is there [default: at any moment]
    #[arg(long)]
    at_end: bool,
    /// Only states in which the word at ADDRESS, which the trace persists to, holds VALUE; repeat it for several words
    #[arg(long = "where", value_name = "ADDRESS=VALUE", value_parser = word)]
    wanted: Vec<(u64, u64)>,
    /// States to try at most; with more, not all are tried, and the output says so
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Try so many random states instead of all
    #[arg(long, value_name = "N", conflicts_with = "telling", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// Seed of the random states
    #[arg(long, value_name = "N", default_value_t = 1, requires = "sample", conflicts_with = "telling")]
    seed: u64,
    /// Try for each persist the least state with it and the greatest without it: shows a missing order whose damage is
    /// there when one persist survives with as little else as possible, or is lost with as much else as possible; for
    /// damage that takes more use --sample, or all states of a shorter trace
    #[arg(long)]
    telling: bool,
    /// Different outcomes to show at most; JSON has all that are kept: 100,000, or fewer where the trace persists to more
    /// than 40 words
    #[arg(long, value_name = "N", default_value_t = 20)]
    show: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Told<'a> {
    model: &'static str,
    persists: usize,
    /// Legal states tried.
    states: u64,
    /// Whether those are all.
    all: bool,
    /// States of them that have the wanted values.
    matching: u64,
    /// What the words hold that the trace persists to, in those states; by address.
    outcomes: Outcomes<'a>,
    /// Whether there were more outcomes than are kept.
    outcomes_cut: bool,
}

/// Outcomes, whose words get their names one outcome at a time: with its names an outcome takes ten times as much.
#[derive(Debug)]
struct Outcomes<'a> {
    words: &'a [u64],
    kept: &'a BTreeSet<Vec<u64>>,
}

/// One of them.
struct Outcome<'a> {
    words: &'a [u64],
    values: &'a [u64],
}

impl Serialize for Outcomes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.kept.iter().map(|values| Outcome { words: self.words, values }))
    }
}

impl Serialize for Outcome<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let named = self.words.iter().zip(self.values);
        serializer.collect_map(named.map(|(word, value)| (format!("{word:#x}"), format!("{value:#x}"))))
    }
}

pub fn run(args: &ObserveArgs) -> Result<()> {
    let trace = read_trace(&args.trace)?;
    let words = persisted_words(&trace);
    refuse_untouched(args, &words)?;
    let bytes = words.last().map_or(0, |last| last.saturating_add(WORD));
    if bytes > IMAGE_BYTES_MAX {
        let message = format!(
            "persistent memory reaches to {bytes:#x}, at most 64 MiB are observed; import the trace with a map that \
             names its ranges"
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let failure = if args.at_end { Failure::AtEnd } else { Failure::Anywhere };
    let observer = Observer::new(&trace, args.model, failure, vec![0; bytes as usize])?;
    let mut outcomes: BTreeSet<Vec<u64>> = BTreeSet::new();
    let outcomes_max = OUTCOMES_MAX.min(OUTCOME_WORDS_MAX / words.len().max(1));
    let (mut tried, mut matching, mut outcomes_cut) = (0u64, 0, false);
    let mut outcome: Vec<u64> = Vec::new();
    let bar = counter("states");
    let visit = |state: &State<'_>| {
        tried += 1;
        if tried.is_multiple_of(1 << 8) {
            bar.set_position(tried);
        }
        if args.wanted.iter().all(|&(address, value)| held(state.image, address) == value) {
            matching += 1;
            outcome.clear();
            outcome.extend(words.iter().map(|&address| held(state.image, address)));
            if !outcomes.contains(&outcome) {
                match outcomes.len() < outcomes_max {
                    true => _ = outcomes.insert(outcome.clone()),
                    false => outcomes_cut = true,
                }
            }
        }
        Ok(())
    };
    let seen = try_states(args, &observer, visit)?;
    bar.finish_and_clear();
    let told = Told {
        model: args.model.name(),
        persists: observer.persists(),
        states: seen.states,
        all: seen.exhausted,
        matching,
        outcomes: Outcomes { words: &words, kept: &outcomes },
        outcomes_cut,
    };
    if args.json { print_json(&told) } else { print(args, &told) }
}

fn try_states(
    args: &ObserveArgs,
    observer: &Observer,
    visit: impl FnMut(&State<'_>) -> Result<()>,
) -> Result<Seen> {
    if let Some(count) = args.sample {
        return observer.sample(args.seed, count, visit);
    }
    if args.telling {
        return observer.telling(visit);
    }
    if observer.persists() > ENUMERATED_MAX {
        let message = format!(
            "the trace has {} persists, all states are tried of at most {ENUMERATED_MAX}; use --telling or --sample",
            observer.persists()
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    observer.enumerate(args.limit, visit)
}

/// Refuses a wanted word that no persist changes: every state would match, or none.
fn refuse_untouched(args: &ObserveArgs, words: &[u64]) -> Result<()> {
    let Some((address, _)) = args.wanted.iter().find(|(address, _)| words.binary_search(address).is_err())
    else {
        return Ok(());
    };
    let there = match words {
        [] => "it persists nothing".to_owned(),
        [one] => format!("it persists to {one:#x} only"),
        [first, .., last] => format!("it persists to {} words from {first:#x} to {last:#x}", words.len()),
    };
    let message = format!(
        "{}: --where {address:#x}: the trace never persists to that word ({there}); addresses are those of the trace, \
         which an import counts from zero",
        args.trace.display()
    );
    Err(Error::new(ErrorKind::InvalidInput, message))
}

/// The words that the trace persists to.
fn persisted_words(trace: &Trace) -> Vec<u64> {
    let persists = trace.events().iter().filter(|event| event.is_persist());
    let words: BTreeSet<u64> = persists.map(|event| event.address / WORD * WORD).collect();
    words.into_iter().collect()
}

/// The value of a word that the trace persists to: it lies in the image.
fn held(image: &[u8], address: u64) -> u64 {
    let at = address as usize;
    let mut word = [0; WORD as usize];
    word.copy_from_slice(&image[at..at + WORD as usize]);
    u64::from_le_bytes(word)
}

fn word(text: &str) -> std::result::Result<(u64, u64), String> {
    let (address, value) = text.split_once('=').ok_or("write ADDRESS=VALUE, for example 0x40=1")?;
    let parse = |text: &str| number(text.trim()).ok_or_else(|| format!("'{text}' is no number"));
    let address = parse(address)?;
    match address.is_multiple_of(WORD) {
        true => Ok((address, parse(value)?)),
        false => Err(format!("{address:#x} is no word: its address is a multiple of 8")),
    }
}

fn print(args: &ObserveArgs, told: &Told<'_>) -> Result<()> {
    let Outcomes { words, kept: outcomes } = told.outcomes;
    let all = if told.all { "all" } else { "not all" };
    print_line(&format!(
        "{} persists under {} persistency: {} states tried ({all} that are legal), {} with the wanted values",
        told.persists, told.model, told.states, told.matching
    ))?;
    if outcomes.is_empty() || words.is_empty() {
        return Ok(());
    }
    let mut rows = vec![words.iter().map(|address| format!("{address:#x}")).collect::<Vec<_>>()];
    rows.extend(
        outcomes
            .iter()
            .take(args.show)
            .map(|outcome| outcome.iter().map(|value| format!("{value:#x}")).collect()),
    );
    print_line(table(&rows).trim_end())?;
    let hidden = outcomes.len().saturating_sub(args.show);
    match (hidden, told.outcomes_cut) {
        (0, false) => Ok(()),
        (hidden, false) => print_line(&format!("{hidden} more outcomes; --show N shows more")),
        (hidden, true) => print_line(&format!("{hidden} more outcomes, and others that were not kept")),
    }
}
