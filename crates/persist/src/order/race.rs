//! Cycles of whole epochs, on which BPFS's cache would wait for ever.

use super::graph::sorted;
use crate::trace::{Kind, Space, Trace};
use std::collections::BTreeMap;

/// The bytes of a cache line, in which BPFS finds conflicts.
const LINE: u64 = 64;

/// The persist epoch race with a cycle, if the trace has one: epochs as (thread, number of the epoch on it), each
/// before the next and the last before the first. BPFS lets an epoch persist only when every epoch that it
/// conflicts with has; two epochs that each touch a line which the other stored to before, falsely shared ones
/// too, wait for each other.
pub fn bpfs_deadlock(trace: &Trace) -> Option<Vec<(u16, u32)>> {
    let mut nodes: BTreeMap<(u16, u32), usize> = BTreeMap::new();
    let mut names: Vec<(u16, u32)> = Vec::new();
    let mut before: Vec<Vec<usize>> = Vec::new();
    let mut epochs: BTreeMap<u16, u32> = BTreeMap::new();
    let mut writers: BTreeMap<u64, usize> = BTreeMap::new();
    for event in trace.events() {
        let epoch = epochs.entry(event.thread).or_default();
        if matches!(event.kind, Kind::Barrier | Kind::Sync) {
            *epoch += 1;
        }
        let name = (event.thread, *epoch);
        let earlier = epoch.checked_sub(1).and_then(|number| nodes.get(&(event.thread, number)).copied());
        let node = *nodes.entry(name).or_insert_with(|| {
            names.push(name);
            before.push(earlier.into_iter().collect());
            names.len() - 1
        });
        if !event.is_access() || event.space == Space::Volatile {
            continue;
        }
        let line = event.address / LINE;
        if let Some(&writer) = writers.get(&line)
            && writer != node
            && !before[node].contains(&writer)
        {
            before[node].push(writer);
        }
        if event.kind == Kind::Store {
            writers.insert(line, node);
        }
    }
    let cycle = sorted(&before).err()?;
    Some(cycle.into_iter().map(|node| names[node]).collect())
}
