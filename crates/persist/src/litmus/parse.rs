//! The text of a litmus test.

use super::{Check, Claim, Litmus, Step, Values};
use crate::order::Model;
use crate::trace::text::number;
use crate::trace::{Event, Kind, Space};
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{Error, ErrorKind, Result};

/// Bytes between names that share no cache line.
const APART: u64 = 64;
/// Steps of a test at most, and as many threads, and claims, each counted under every model: the walk goes as deep.
const STEPS_MAX: usize = 1_000;

#[derive(Default)]
struct Parser {
    name: Option<String>,
    source: String,
    names: BTreeMap<String, (Space, u64)>,
    next_line: u64,
    threads: Vec<Vec<Step>>,
    thread_names: BTreeSet<String>,
    labels: BTreeSet<String>,
    sees: Vec<(String, String)>,
    out_of_order: bool,
    models: Vec<Model>,
    checks: Vec<Check>,
}

/// Reads the whole text.
pub(super) fn parse(text: &str) -> Result<Litmus> {
    let mut parser = Parser::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or("").trim();
        if !line.is_empty() {
            parser.line(number, line).map_err(|why| refused(number, line, &why))?;
        }
    }
    let whole = |why: &str| Error::new(ErrorKind::InvalidInput, format!("the litmus test {why}"));
    let name = parser.name.ok_or_else(|| whole("has no first line 'litmus NAME'"))?;
    if parser.threads.is_empty() || parser.checks.is_empty() {
        return Err(whole("needs a thread and a claim"));
    }
    let steps: usize = parser.threads.iter().map(Vec::len).sum();
    let claims: usize = parser.checks.iter().map(|check| check.models.len()).sum();
    if [steps, claims, parser.threads.len(), parser.sees.len()].into_iter().any(|count| count > STEPS_MAX) {
        return Err(whole(&format!(
            "has more than {STEPS_MAX} steps, threads, claims or lines 'sees'; make several of it"
        )));
    }
    let known = |label: &String| parser.labels.contains(label);
    for (first, second) in &parser.sees {
        if !known(first) || !known(second) {
            return Err(whole(&format!(
                "sees '{first}' before '{second}', one of which no access is labelled with"
            )));
        }
    }
    for check in &parser.checks {
        if let Claim::Before(first, second) | Claim::Concurrent(first, second) = &check.claim
            && !(known(first) && known(second))
        {
            return Err(refused(check.line, &check.text, "no access has that label"));
        }
    }
    let persistent = parser
        .names
        .into_iter()
        .filter(|(_, (space, _))| *space == Space::Persistent)
        .map(|(n, (_, at))| (n, at));
    Ok(Litmus {
        name,
        source: parser.source,
        persistent: persistent.collect(),
        threads: parser.threads,
        sees: parser.sees,
        out_of_order: parser.out_of_order,
        checks: parser.checks,
    })
}

fn refused(number: usize, line: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("litmus line {number} ('{line}'): {why}"))
}

impl Parser {
    fn line(&mut self, number: usize, line: &str) -> std::result::Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["litmus", name @ ..] if !name.is_empty() => self.name = Some(name.join(" ")),
            ["source", source @ ..] => self.source = source.join(" "),
            ["persistent", names @ ..] => self.declare(Space::Persistent, names, APART)?,
            ["packed", names @ ..] => self.declare(Space::Persistent, names, 8)?,
            ["volatile", names @ ..] => self.declare(Space::Volatile, names, APART)?,
            ["thread", names @ ..] => self.thread(names)?,
            ["sees", first, "before", second] => self.sees.push(((*first).into(), (*second).into())),
            ["visible", "out", "of", "order"] => self.out_of_order = true,
            ["under", models @ ..] => {
                let models = models.iter().map(|name| name.trim_end_matches([',', ':']));
                let named =
                    |name: &str| Model::named(name).ok_or_else(|| format!("there is no model '{name}'"));
                self.models = models.map(named).collect::<std::result::Result<_, _>>()?;
                if self.models.is_empty() {
                    return Err("it names no model".into());
                }
            }
            _ if !self.models.is_empty() => {
                let claim = self.claim(&words).ok_or("not a claim; see docs/persist.md")?;
                let (models, text) = (self.models.clone(), line.to_owned());
                self.checks.push(Check { line: number, text, models, claim });
            }
            _ => self.step(&words)?,
        }
        Ok(())
    }

    /// A thread begins: it has a number, counted from one, or a name of its own.
    fn thread(&mut self, names: &[&str]) -> std::result::Result<(), String> {
        let [name] = names else {
            return Err("a thread has one number".into());
        };
        let next = self.threads.len() as u64 + 1;
        let is_known = !self.thread_names.insert((*name).to_owned());
        if is_known {
            return Err(format!("thread {name} is there twice; the next is thread {next}"));
        }
        if number(name).is_some_and(|number| number != next) {
            return Err(format!("threads are numbered 1, 2, 3 in their order; the next is thread {next}"));
        }
        self.threads.push(Vec::new());
        Ok(())
    }

    fn declare(&mut self, space: Space, names: &[&str], apart: u64) -> std::result::Result<(), String> {
        let mut at = self.next_line;
        for name in names {
            if self.names.insert((*name).to_owned(), (space, at)).is_some() {
                return Err(format!("'{name}' is there twice"));
            }
            at += apart;
        }
        self.next_line = at.next_multiple_of(APART);
        Ok(())
    }

    fn step(&mut self, words: &[&str]) -> std::result::Result<(), String> {
        let (label, words) = match words.split_first() {
            Some((first, rest)) if first.ends_with(':') => {
                (Some(first.trim_end_matches(':').to_owned()), rest)
            }
            _ => (None, words),
        };
        let thread = self.threads.len().checked_sub(1).ok_or("a step before the first 'thread'")? as u16;
        if let Some(label) = &label
            && !self.labels.insert(label.clone())
        {
            return Err(format!("the label '{label}' is there twice"));
        }
        let names = &self.names;
        let access = |kind, name: &str, value| {
            let (space, address) = *names.get(name).ok_or_else(|| format!("'{name}' is not declared"))?;
            Ok::<Event, String>(Event { thread, kind, space, len: 8, address, value })
        };
        let value = |text: &str| number(text).ok_or_else(|| format!("'{text}' is no number"));
        let events = match words {
            ["load", name] => vec![access(Kind::Load, name, 0)?],
            ["store", name, text] => vec![access(Kind::Store, name, value(text)?)?],
            ["rmw", name, text] => {
                vec![access(Kind::Load, name, 0)?, access(Kind::Store, name, value(text)?)?]
            }
            ["barrier"] => vec![Event::mark(thread, Kind::Barrier)],
            ["strand"] => vec![Event::mark(thread, Kind::Strand)],
            ["sync"] => vec![Event::mark(thread, Kind::Sync)],
            _ => return Err("not a step; see docs/persist.md".into()),
        };
        if label.is_some() && !events[0].is_access() {
            return Err("only accesses have labels".into());
        }
        // The label of a read-modify-write is that of its store.
        let last = events.len() - 1;
        let steps = events.into_iter().enumerate();
        let steps = steps.map(|(at, event)| Step {
            label: label.clone().filter(|_| at == last),
            event,
            joined: at > 0,
        });
        self.threads[usize::from(thread)].extend(steps);
        Ok(())
    }

    fn claim(&self, words: &[&str]) -> Option<Claim> {
        let state = |words: &[&str], allowed| {
            let (at_end, words) = match words {
                ["at", "end", words @ ..] => (true, words),
                words => (false, words),
            };
            let values: Option<Values> = words.iter().map(|word| self.value(word)).collect();
            Some(Claim::State { values: values.filter(|values| !values.is_empty())?, allowed, at_end })
        };
        match words {
            ["before", first, second] => Some(Claim::Before((*first).into(), (*second).into())),
            ["concurrent", first, second] => Some(Claim::Concurrent((*first).into(), (*second).into())),
            ["allowed", values @ ..] => state(values, true),
            ["forbidden", values @ ..] => state(values, false),
            ["cycle"] => Some(Claim::Cycle(true)),
            ["no", "cycle"] => Some(Claim::Cycle(false)),
            ["deadlock"] => Some(Claim::Deadlock(true)),
            ["no", "deadlock"] => Some(Claim::Deadlock(false)),
            _ => None,
        }
    }

    fn value(&self, word: &str) -> Option<(String, u64)> {
        let (name, value) = word.split_once('=')?;
        self.names.get(name).filter(|(space, _)| *space == Space::Persistent)?;
        Some((name.to_owned(), number(value)?))
    }
}
