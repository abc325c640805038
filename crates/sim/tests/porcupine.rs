//! The checker of histories beside Porcupine (a Go module): both get the same random histories, right ones and such
//! with a stale read, a lost write or a read of the future in them, and must say the same of each. `SEED=…` repeats
//! a run. Without Go, or where its module cannot be had, this is skipped with the reason.

use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tierstone_base::SeededRandom;
use tierstone_crash::Mutations;
use tierstone_sim::content::Content;
use tierstone_sim::history::{Event, History, Seen};
use tierstone_sim::linearize::{Verdict, check};
use tierstone_sim::model::{Evicts, ObjectId, ObjectState, Step, Verb, WallSpan};
use tierstone_sim::{Simulation, SimulationSettings};
use tierstone_wire::resp::Value;

const CLIENTS: u64 = 4;
const OBJECTS: u64 = 2;
const EVENTS: usize = 36;
/// Histories of each sort.
const HISTORIES: usize = 200;
const BUDGET: u64 = 5_000_000;
/// An object of so many bytes, all its writes together, has no value that is told by its checksum.
const SHORT_BYTES: usize = 512;
const SPAN: WallSpan = WallSpan { from_ms: 0, to_ms: 0 };

/// What is wrong with a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Nothing,
    /// A read shows what an earlier write gave.
    Stale,
    /// A write is acknowledged and not done.
    Lost,
    /// A read shows what nobody had written yet.
    Future,
}

/// A request under way; its replies once it has taken effect.
struct Pending {
    event: usize,
    replies: Option<Vec<Value>>,
}

/// A value of few, so that histories have many explanations; numbers, so that they can be added to.
fn value(random: &mut SeededRandom) -> String {
    random.below(6).to_string()
}

fn steps(random: &mut SeededRandom) -> Vec<Step> {
    let key = random.below(2) as usize;
    let one = |verb| vec![Step { key, verb }];
    match random.below(16) {
        0..=4 => one(Verb::Get),
        5..=7 => one(Verb::Set(value(random).as_str().into())),
        8 => one(Verb::SetNew(value(random).as_str().into())),
        9 => one(Verb::Append(value(random).as_str().into())),
        10 => one(Verb::Add(random.below(3) as i64 + 1)),
        11 => one(Verb::Take),
        12 => one(Verb::Delete),
        13 => (0..2).map(|key| Step { key, verb: Verb::Set(value(random).as_str().into()) }).collect(),
        _ => (0..2).map(|key| Step { key, verb: Verb::Get }).collect(),
    }
}

/// What some clients would see of objects that are as they should be, but for one write that is forgotten where a
/// fault says so.
fn history(random: &mut SeededRandom, fault: Fault) -> History {
    let mut history = History::default();
    let mut states: BTreeMap<ObjectId, ObjectState> = BTreeMap::new();
    let mut clients: Vec<(u64, Option<Pending>)> = (0..CLIENTS).map(|client| (client, None)).collect();
    let (mut next_connection, mut forgotten) = (CLIENTS, fault != Fault::Lost);
    let forget_from = random.below(EVENTS as u64 / 2) as usize;
    while history.events.len() < EVENTS || clients.iter().any(|(_, pending)| pending.is_some()) {
        let (connection, pending) = &mut clients[random.below(CLIENTS) as usize];
        match pending {
            None if history.events.len() < EVENTS => {
                let object = ObjectId { database: 0, number: random.below(OBJECTS) as u32 };
                let event = history.ask(*connection, object, steps(random), 0);
                *pending = Some(Pending { event, replies: None });
            }
            None => {}
            Some(Pending { event, replies: None }) if random.chance(0.04) => {
                history.end(*event, Seen::Nothing, 0);
                (*connection, *pending) = (next_connection, None);
                next_connection += 1;
            }
            Some(Pending { event, replies }) if replies.is_none() => {
                let asked = &history.events[*event];
                let state = states.entry(asked.object).or_default();
                let mut after = state.clone();
                *replies = Some(asked.steps.iter().map(|step| after.apply(step, SPAN)).collect());
                if forgotten || *event < forget_from || after == *state {
                    *state = after;
                } else {
                    forgotten = true;
                }
            }
            Some(Pending { event, replies }) => {
                let is_lost = random.chance(0.05);
                let seen = replies.take().filter(|_| !is_lost).map_or(Seen::Nothing, Seen::Replies);
                history.end(*event, seen, 0);
                *pending = None;
                if is_lost {
                    *connection = next_connection;
                    next_connection += 1;
                }
            }
        }
    }
    history
}

/// Gives one read the value of a write that came before it, or after it; `false` where there is none.
fn spoil(history: &mut History, fault: Fault, random: &mut SeededRandom) -> bool {
    let mut ways = Vec::new();
    for (at, read) in history.events.iter().enumerate() {
        let Seen::Replies(replies) = &read.seen else { continue };
        for (number, step) in read.steps.iter().enumerate().filter(|(_, step)| step.verb == Verb::Get) {
            for write in history.events.iter().filter(|write| write.object == read.object) {
                let is_wanted = match fault {
                    Fault::Stale => write.ended < read.asked,
                    _ => write.asked > read.ended,
                };
                for set in write.steps.iter().filter(|set| is_wanted && set.key == step.key) {
                    let Verb::Set(content) = &set.verb else { continue };
                    if content.reply() != replies[number] {
                        ways.push((at, number, content.reply()));
                    }
                }
            }
        }
    }
    if ways.is_empty() {
        return false;
    }
    let (at, number, value) = ways.swap_remove(random.below(ways.len() as u64) as usize);
    let Seen::Replies(replies) = &mut history.events[at].seen else { return false };
    replies[number] = value;
    true
}

/// Bytes as text: a character for each.
fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn told(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Integer(number) => format!(":{number}"),
        Value::Error(_) => "error".into(),
        Value::Simple(text) => format!("+{}", String::from_utf8_lossy(text)),
        other => format!("${}", text(other.bytes().unwrap())),
    }
}

/// A step in the words of the Go program, if it has a word for it.
fn step_line(step: &Step) -> Option<serde_json::Value> {
    let text = |content: &Content| text(content.bytes());
    let (op, argument) = match &step.verb {
        Verb::Get => ("get", String::new()),
        Verb::Set(content) => ("set", text(content)),
        Verb::SetNew(content) => ("setnx", text(content)),
        Verb::Append(content) => ("append", text(content)),
        Verb::Add(amount) => ("incrby", amount.to_string()),
        Verb::Take => ("getdel", String::new()),
        Verb::Delete => ("del", String::new()),
        _ => return None,
    };
    Some(json!({ "key": step.key, "op": op, "argument": argument }))
}

fn line(number: usize, event: &Event) -> String {
    let results: Option<Vec<String>> = match &event.seen {
        Seen::Replies(replies) => Some(replies.iter().map(told).collect()),
        _ => None,
    };
    let steps: Vec<serde_json::Value> = event.steps.iter().filter_map(step_line).collect();
    json!({
        "history": number, "object": event.object.number, "client": event.connection, "call": event.asked,
        "return": event.ended.min(i64::MAX as u64), "steps": steps, "results": results,
    })
    .to_string()
}

/// Porcupine's program; `None`, after a line that says so, where it cannot be built for want of Go or its module.
fn program(test: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/porcupine");
    let target =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("porcupine-{test}-{}", std::process::id()));
    let go = |arguments: &[&str]| Command::new("go").current_dir(&folder).args(arguments).output();
    let skip = |why: &str| println!("SKIP: histories checked by Porcupine too ({why})");
    match go(&["mod", "download"]) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            skip(
                String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("its module cannot be had"),
            );
            return None;
        }
        Err(error) => {
            skip(&format!("go: {error}"));
            return None;
        }
    }
    // From here on a failure is one of the program.
    let built = go(&["build", "-o", target.to_str().unwrap(), "."]).unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(target)
}

/// What Porcupine says of each history, in their order.
fn second_opinions(program: &Path, histories: &[Vec<&Event>]) -> Vec<String> {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // All is read before anything is printed.
    for (number, events) in histories.iter().enumerate() {
        for event in events {
            writeln!(input, "{}", line(number, event)).unwrap();
        }
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let verdicts: Vec<String> = text
        .lines()
        .enumerate()
        .map(|(number, line)| line.strip_prefix(&format!("{number} ")).unwrap().to_owned())
        .collect();
    assert_eq!(verdicts.len(), histories.len());
    verdicts
}

/// What our own checker says.
fn first_opinion(history: &History) -> &'static str {
    let mut opinion = "ok";
    for object in history.objects() {
        match check(&history.of(object), BUDGET, Evicts::None) {
            Verdict::Explained => {}
            Verdict::Impossible(_) => opinion = "illegal",
            Verdict::TooHard => panic!("a history of {EVENTS} events is too hard"),
        }
    }
    opinion
}

#[test]
fn our_checker_and_porcupine_say_the_same_of_right_and_of_wrong_histories() {
    let Some(program) = program("random") else { return };
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| SeededRandom::system_seed().unwrap());
    println!("SEED={seed} cargo test -p tierstone-sim --test suite porcupine repeats it");
    let mut random = SeededRandom::new(seed);
    let mut histories = Vec::new();
    for fault in [Fault::Nothing, Fault::Stale, Fault::Lost, Fault::Future] {
        let mut count = 0;
        while count < HISTORIES {
            let mut history = history(&mut random, fault);
            if matches!(fault, Fault::Nothing | Fault::Lost) || spoil(&mut history, fault, &mut random) {
                histories.push((fault, history));
                count += 1;
            }
        }
    }
    let lines: Vec<Vec<&Event>> = histories
        .iter()
        .map(|(_, history)| history.objects().into_iter().flat_map(|object| history.of(object)).collect())
        .collect();
    let seconds = second_opinions(&program, &lines);
    std::fs::remove_file(&program).unwrap();
    let mut illegal: BTreeMap<Fault, usize> = BTreeMap::new();
    for (number, ((fault, history), second)) in histories.iter().zip(&seconds).enumerate() {
        let first = first_opinion(history);
        assert_eq!(first, second, "seed {seed}, history {number} ({fault:?}): {:#?}", history.events);
        *illegal.entry(*fault).or_default() += usize::from(first == "illegal");
    }
    println!("of {HISTORIES} each, no explanation: {illegal:?}");
    assert_eq!(illegal[&Fault::Nothing], 0, "seed {seed}");
    for fault in [Fault::Stale, Fault::Lost, Fault::Future] {
        // Some faults nobody can see.
        assert!(illegal[&fault] > HISTORIES / 10, "seed {seed}: {fault:?}: {illegal:?}");
    }
}

/// The objects of a run whose commands the Go program knows, each as a history of its own.
fn known(history: &History) -> Vec<Vec<&Event>> {
    let objects = history.objects().into_iter().map(|object| history.of(object));
    let is_known =
        |event: &&Event| event.steps.iter().all(|step| step_line(step).is_some()) && !event.reads_may_fail;
    let bytes = |step: &Step| match &step.verb {
        Verb::Set(content) | Verb::SetNew(content) | Verb::Append(content) => content.bytes().len(),
        _ => 0,
    };
    // Longer values are told by their checksums.
    let is_short = |events: &Vec<&Event>| {
        events.iter().flat_map(|event| &event.steps).map(bytes).sum::<usize>() <= SHORT_BYTES
    };
    objects.filter(|events| !events.is_empty() && events.iter().all(is_known)).filter(is_short).collect()
}

/// What Porcupine says of what clients saw of simulated nodes in some runs: the objects of each, events, opinions.
fn simulated(program: &Path, seeds: u64, mutations: &Mutations) -> (usize, Vec<String>) {
    let mut lives = Vec::new();
    for seed in 0..seeds {
        let settings = SimulationSettings { has_device_errors: false, ..SimulationSettings::new(seed) };
        let outcome = Simulation::run(SimulationSettings { mutations: mutations.clone(), ..settings });
        assert!(
            outcome.violation.is_none() || *mutations != Mutations::none(),
            "seed {seed}: {:?}",
            outcome.violation
        );
        lives.push(outcome.history);
    }
    let histories: Vec<Vec<&Event>> = lives.iter().flat_map(known).collect();
    (histories.iter().map(Vec::len).sum(), second_opinions(program, &histories))
}

#[test]
fn porcupine_explains_what_clients_of_simulated_nodes_saw_over_crashes() {
    let Some(program) = program("simulated") else { return };
    let count =
        |opinions: &[String], wanted: &str| opinions.iter().filter(|opinion| *opinion == wanted).count();
    let (events, opinions) = simulated(&program, 40, &Mutations::none());
    let (explained, illegal) = (count(&opinions, "ok"), count(&opinions, "illegal"));
    println!("{} objects, {events} events: {explained} explained, {illegal} not", opinions.len());
    assert_eq!(illegal, 0);
    assert!(explained > opinions.len() * 9 / 10 && events > 3_000);
    // Of a node that answers before writes are durable it does not.
    let (_, opinions) = simulated(&program, 40, &Mutations::one("ungated_replies"));
    std::fs::remove_file(&program).unwrap();
    let illegal = count(&opinions, "illegal");
    println!("with ungated replies {illegal} of {} objects have no explanation", opinions.len());
    assert!(illegal > 0);
}
