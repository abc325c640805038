//! The order as a graph over the accesses of a trace, closed transitively.
//!
//! Barriers and syncs are nodes of their own, so that two epochs of many accesses need few edges.

use super::{Conflicts, Model};
use crate::trace::{Event, Kind, Space};
use std::collections::BTreeMap;
use tierstone_base::{Error, ErrorKind, Result};

/// The longest trace that is closed: the closure takes an eighth of its square in bytes.
const LONGEST_EVENTS: usize = 30_000;

/// The persist order of a trace. Its nodes are the trace's events, by their places in it.
#[derive(Clone, Debug)]
pub struct OrderGraph {
    before: Vec<Vec<usize>>,
    /// For each node a row of bits: every node before it.
    closure: Vec<Vec<u64>>,
}

/// What is known of one thread while its program is walked.
#[derive(Debug, Default)]
struct Walk {
    last: Option<usize>,
    barrier: Option<usize>,
    /// Accesses since the barrier.
    open: Vec<usize>,
    /// Accesses of any strand since the last sync: loads too, for a sync waits for what the thread saw.
    issued: Vec<usize>,
}

impl OrderGraph {
    /// The order of `events`, which stand in the order in which they became visible.
    ///
    /// # Errors
    /// `InvalidInput` when there are more than 30,000.
    pub fn derive(events: &[Event], model: Model) -> Result<OrderGraph> {
        Self::derive_with(events, model, model.conflicts())
    }

    /// The same with other conflicts than the model's own.
    ///
    /// # Errors
    /// The same.
    pub fn derive_with(events: &[Event], model: Model, conflicts: Conflicts) -> Result<OrderGraph> {
        let program: Vec<usize> = (0..events.len()).collect();
        Self::of_program(events, &program, model, conflicts)?.map_err(|_| impossible_cycle())
    }

    /// The order with what a recovery observer knows of time: what a sync waited for is durable before anything later
    /// is done, by any thread; under strict persistency a persist is, too.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn derive_in_time(events: &[Event], model: Model) -> Result<OrderGraph> {
        let program: Vec<usize> = (0..events.len()).collect();
        let mut before = edges(events, &program, model, model.conflicts())?;
        let mut waited: Option<usize> = None;
        for (place, event) in events.iter().enumerate() {
            before[place].extend(waited);
            if event.kind == Kind::Sync || model == Model::Strict && event.is_persist() {
                waited = Some(place);
            }
        }
        let closure = close(&before).map_err(|_| impossible_cycle())?;
        Ok(OrderGraph { before, closure })
    }

    /// The order when stores become visible in another order than that of the program: `program` lists the places
    /// of `events`, each thread's in program order. Barriers follow the program, conflicts what was visible;
    /// the inner error is a cycle of the two, as places of events.
    ///
    /// # Errors
    /// `InvalidInput` for too many events.
    pub fn of_program(
        events: &[Event],
        program: &[usize],
        model: Model,
        conflicts: Conflicts,
    ) -> Result<std::result::Result<OrderGraph, Vec<usize>>> {
        let before = edges(events, program, model, conflicts)?;
        Ok(close(&before).map(|closure| OrderGraph { before, closure }))
    }

    /// Whether event `first` is before event `second`.
    pub fn is_before(&self, first: usize, second: usize) -> bool {
        self.closure[second][first / 64] & (1 << (first % 64)) != 0
    }

    /// Every event before `place`, in order.
    pub fn all_before(&self, place: usize) -> impl Iterator<Item = usize> {
        let row = &self.closure[place];
        (0..self.before.len()).filter(move |other| row[other / 64] & (1 << (other % 64)) != 0)
    }

    /// Every event before `place`, as bits.
    pub(crate) fn row_before(&self, place: usize) -> &[u64] {
        &self.closure[place]
    }

    /// The events that an edge leads from to `place`.
    pub fn edges_to(&self, place: usize) -> &[usize] {
        &self.before[place]
    }
}

fn impossible_cycle() -> Error {
    Error::new(ErrorKind::Corrupt, "the order of a trace has a cycle, which cannot be: report it")
}

/// For each event those that an edge leads from to it.
fn edges(events: &[Event], program: &[usize], model: Model, conflicts: Conflicts) -> Result<Vec<Vec<usize>>> {
    if events.len() > LONGEST_EVENTS {
        let message = format!(
            "the trace has {} events, the closure is made for at most {LONGEST_EVENTS}; trace fewer operations",
            events.len()
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let mut before = vec![Vec::new(); events.len()];
    program_edges(events, program, model, &mut before);
    conflict_edges(events, conflicts, &mut before);
    Ok(before)
}

fn program_edges(events: &[Event], program: &[usize], model: Model, before: &mut [Vec<usize>]) {
    let mut walks: BTreeMap<u16, Walk> = BTreeMap::new();
    for &place in program {
        let event = &events[place];
        let walk = walks.entry(event.thread).or_default();
        if model.follows_program_order() {
            before[place].extend(walk.last);
            walk.last = Some(place);
            continue;
        }
        match event.kind {
            Kind::Load | Kind::Store => {
                before[place].extend(walk.barrier);
                walk.open.push(place);
                walk.issued.push(place);
            }
            Kind::Barrier => {
                before[place].append(&mut walk.open);
                before[place].extend(walk.barrier);
                walk.barrier = Some(place);
            }
            Kind::Sync => {
                walk.open.clear();
                before[place].append(&mut walk.issued);
                before[place].extend(walk.barrier);
                walk.barrier = Some(place);
            }
            Kind::Strand if model == Model::Strand => {
                walk.open.clear();
                walk.barrier = None;
            }
            Kind::Strand => {}
        }
    }
}

fn conflict_edges(events: &[Event], conflicts: Conflicts, before: &mut [Vec<usize>]) {
    #[derive(Default)]
    struct Block {
        stored: Option<usize>,
        loaded: Vec<usize>,
    }
    let mut blocks: BTreeMap<(Space, u64), Block> = BTreeMap::new();
    for (place, event) in events.iter().enumerate().filter(|(_, event)| event.is_access()) {
        if event.space == Space::Volatile && !conflicts.volatile {
            continue;
        }
        let block = blocks.entry((event.space, event.address / conflicts.block_bytes)).or_default();
        before[place].extend(block.stored);
        if event.kind == Kind::Load {
            if conflicts.load_before_store {
                block.loaded.push(place);
            }
        } else {
            before[place].append(&mut block.loaded);
            block.stored = Some(place);
        }
    }
}

/// Rows of bits with every node before each, or a cycle.
fn close(before: &[Vec<usize>]) -> std::result::Result<Vec<Vec<u64>>, Vec<usize>> {
    let words = before.len().div_ceil(64);
    let mut closure: Vec<Vec<u64>> = vec![Vec::new(); before.len()];
    let order = sorted(before)?;
    for node in order {
        let mut row = vec![0; words];
        for &earlier in &before[node] {
            row[earlier / 64] |= 1u64 << (earlier % 64);
            for (word, other) in row.iter_mut().zip(&closure[earlier]) {
                *word |= other;
            }
        }
        closure[node] = row;
    }
    Ok(closure)
}

/// The nodes with everything before each in front of it, or a cycle.
pub(super) fn sorted(before: &[Vec<usize>]) -> std::result::Result<Vec<usize>, Vec<usize>> {
    let mut missing: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut after = vec![Vec::new(); before.len()];
    for (node, earlier) in before.iter().enumerate() {
        earlier.iter().for_each(|&earlier| after[earlier].push(node));
    }
    let mut order: Vec<usize> = (0..before.len()).filter(|&node| missing[node] == 0).collect();
    let mut done = 0;
    while let Some(&node) = order.get(done) {
        done += 1;
        for &later in &after[node] {
            missing[later] -= 1;
            if missing[later] == 0 {
                order.push(later);
            }
        }
    }
    let Some(start) = (0..before.len()).find(|&node| missing[node] > 0) else {
        return Ok(order);
    };
    // Every node that is left has one before it that is left: going back comes round.
    let (mut path, mut node) = (Vec::new(), start);
    loop {
        if let Some(at) = path.iter().position(|&seen| seen == node) {
            let mut cycle = path.split_off(at);
            cycle.reverse();
            return Err(cycle);
        }
        path.push(node);
        match before[node].iter().find(|&&earlier| missing[earlier] > 0) {
            Some(&earlier) => node = earlier,
            None => return Err(path),
        }
    }
}
