//! Opening the engines of a store: what the last life left, made whole.
//!
//! Order: (1) shadows are put to their places; (2) what is decided of batches over several engines is said
//! in every journal that has a part; (3) only then each engine makes a checkpoint, behind which its journal
//! is nothing. A crash at any point lets the next opening find the same.

use super::format::{
    BLOCK, Entry, Group, Layout, decode_entries, decode_group, decode_page, decode_root, decode_shadow,
    encode_entry, encode_group, encode_page, encode_root, encode_shadow, sum_of,
};
use super::page::Records;
use super::reads::Reads;
use super::writes::OpenGroup;
use super::{Page, PagedEngine, PagedSettings};
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{Error, ErrorKind, Now, Result, Seq};
use tierstone_engine::cost::Meter;
use tierstone_engine::{Cost, Durability, IndexKind};
use tierstone_media::{BlockDevice, IoBuffer, IoRequest, Wait};

/// What one engine's pieces say.
struct Found {
    epoch: u64,
    last: Seq,
    entries: Vec<Entry>,
    groups: u64,
    journal_at: u64,
}

/// Opens the engines of a store, in the order of its shards.
pub fn open<D: BlockDevice>(device: &mut D, all: &[PagedSettings]) -> Result<Vec<PagedEngine>> {
    let mut found = Vec::new();
    for settings in all {
        found.push(find(device, &settings.layout)?);
    }
    let decided = decided(&found, all.iter().any(|own| own.mutations.is_on("undecided_parts_kept")));
    for (settings, found) in all.iter().zip(&found) {
        mark(device, &settings.layout, found, &decided)?;
    }
    let mut engines = Vec::new();
    for (settings, found) in all.iter().zip(found) {
        let pages = replay(device, settings, &found, &decided)?;
        engines.push(rebuild(device, settings, &found, pages)?);
    }
    Ok(engines)
}

fn read<D: BlockDevice>(device: &mut D, offset: u64, bytes: u64) -> Result<IoBuffer> {
    let request = IoRequest::read(0, offset, IoBuffer::zeroed(bytes as usize));
    let mut buffers = run(device, vec![request])?;
    buffers.pop().flatten().ok_or_else(|| Error::new(ErrorKind::DeviceFailed, "a read gave no bytes"))
}

fn write<D: BlockDevice>(device: &mut D, writes: Vec<(u64, IoBuffer)>) -> Result<()> {
    let requests =
        writes.into_iter().map(|(offset, bytes)| IoRequest::write_durable(0, offset, bytes)).collect();
    run(device, requests).map(drop)
}

fn run<D: BlockDevice>(device: &mut D, mut requests: Vec<IoRequest>) -> Result<Vec<Option<IoBuffer>>> {
    let mut completions = Vec::new();
    device.submit(&mut requests);
    device.complete(Wait::All, &mut completions);
    completions.into_iter().map(|completion| Ok(completion.result.map(|()| completion.buffer)?)).collect()
}

fn find<D: BlockDevice>(device: &mut D, layout: &Layout) -> Result<Found> {
    let mut newest = (1, 0);
    for slot in 0..2 {
        newest = decode_root(&read(device, layout.root(slot), BLOCK)?).unwrap_or(newest).max(newest);
    }
    let (epoch, mut last) = newest;
    restore_shadow(device, layout, epoch)?;
    let journal = read(device, layout.journal(), layout.journal_bytes)?;
    let (mut entries, mut groups, mut journal_at) = (Vec::new(), 0, 0);
    while let Some(group) = journal.get(journal_at..).and_then(decode_group)
        && (group.epoch, group.number) == (epoch, groups)
    {
        journal_at += encode_group(&group).len();
        entries.extend(decode_entries(&group.entries)?);
        last = group.last;
        groups += 1;
    }
    Ok(Found { epoch, last, entries, groups, journal_at: journal_at as u64 })
}

/// Puts the images of a whole shadow of this epoch to their places.
fn restore_shadow<D: BlockDevice>(device: &mut D, layout: &Layout, epoch: u64) -> Result<()> {
    let list = read(device, layout.shadow(), BLOCK)?;
    let Some((_, pages, sum)) = decode_shadow(&list).filter(|(own, ..)| *own == epoch) else { return Ok(()) };
    let mut images = Vec::new();
    for place in 0..pages.len() {
        images.push(read(device, layout.image(place), layout.page_bytes)?);
    }
    if sum_of(&images) != sum {
        return Ok(());
    }
    write(device, pages.into_iter().map(|page| layout.page(page)).zip(images).collect())
}

/// Batches over several engines of which all parts are there, or that are called decided somewhere.
fn decided(found: &[Found], all: bool) -> BTreeSet<u64> {
    let mut decided = BTreeSet::new();
    let mut parts: BTreeMap<u64, (u16, BTreeSet<usize>)> = BTreeMap::new();
    for (engine, found) in found.iter().enumerate() {
        for entry in &found.entries {
            match entry {
                Entry::Decided { batch } => drop(decided.insert(*batch)),
                Entry::Change { part: Some((batch, count)), .. } => {
                    let known = parts.entry(*batch).or_insert_with(|| (*count, BTreeSet::new()));
                    known.1.insert(engine);
                }
                Entry::Change { .. } => {}
            }
        }
    }
    let whole = parts.iter().filter(|(_, (count, engines))| all || engines.len() >= usize::from(*count));
    decided.extend(whole.map(|(batch, _)| *batch));
    decided
}

/// Says in a journal what is decided of its parts: another one may be nothing soon.
fn mark<D: BlockDevice>(
    device: &mut D,
    layout: &Layout,
    found: &Found,
    decided: &BTreeSet<u64>,
) -> Result<()> {
    let mut own = BTreeSet::new();
    for entry in &found.entries {
        match entry {
            Entry::Change { part: Some((batch, _)), .. } if decided.contains(batch) => {
                own.insert(*batch);
            }
            _ => {}
        }
    }
    for entry in &found.entries {
        if let Entry::Decided { batch } = entry {
            own.remove(batch);
        }
    }
    let mut entries = Vec::new();
    own.iter().for_each(|batch| encode_entry(&Entry::Decided { batch: *batch }, &mut entries));
    if entries.is_empty() {
        return Ok(());
    }
    let group = Group { epoch: found.epoch, number: found.groups, last: found.last, entries };
    write(device, vec![(layout.journal() + found.journal_at, encode_group(&group))])
}

/// The pages with everything that the journal says.
fn replay<D: BlockDevice>(
    device: &mut D,
    settings: &PagedSettings,
    found: &Found,
    decided: &BTreeSet<u64>,
) -> Result<Vec<Records>> {
    let layout = &settings.layout;
    let mut pages = Vec::new();
    for number in 0..layout.pages as usize {
        pages.push(decode_page(number, &read(device, layout.page(number), layout.page_bytes)?)?);
    }
    for entry in &found.entries {
        let Entry::Change { key, record, is_delete, part } = entry else { continue };
        if part.is_some_and(|(batch, _)| !decided.contains(&batch)) {
            continue;
        }
        let records = &mut pages[(key.1.0 % layout.pages) as usize];
        if *is_delete {
            records.remove(key);
        } else {
            records.insert(key.clone(), record.clone());
        }
    }
    for records in &mut pages {
        records.retain(|(id, ..), _| settings.keyspaces.iter().any(|(own, _)| own == id));
    }
    Ok(pages)
}

/// Writes a checkpoint of `pages`, if the journal says anything, and makes the engine.
fn rebuild<D: BlockDevice>(
    device: &mut D,
    settings: &PagedSettings,
    found: &Found,
    pages: Vec<Records>,
) -> Result<PagedEngine> {
    let layout = &settings.layout;
    let mut epoch = found.epoch;
    if found.groups > 0 {
        let numbers: Vec<usize> = (0..pages.len()).collect();
        let images: Vec<IoBuffer> =
            pages.iter().enumerate().map(|(number, records)| encode_page(number, records, layout)).collect();
        let places = |place: fn(&Layout, usize) -> u64| {
            let images = images.iter().map(|image| IoBuffer::from_slice(image));
            images.enumerate().map(|(at, image)| (place(layout, at), image)).collect::<Vec<_>>()
        };
        let mut shadow = places(Layout::image);
        shadow.push((layout.shadow(), encode_shadow(epoch, &numbers, &images)));
        write(device, shadow)?;
        write(device, places(Layout::page))?;
        epoch += 1;
        write(device, vec![(layout.root(epoch), encode_root(epoch, found.last))])?;
    }
    let mut counts = BTreeMap::new();
    for (id, ..) in pages.iter().flat_map(Records::keys) {
        *counts.entry(*id).or_default() += 1;
    }
    let ordered =
        settings.keyspaces.iter().filter(|(_, kind)| *kind == IndexKind::Ordered).map(|(id, _)| *id);
    Ok(PagedEngine {
        pages: vec![Page::Absent; pages.len()],
        ordered: ordered.collect(),
        dropped: BTreeSet::new(),
        counts,
        durability: Durability::Sync,
        applied: found.last,
        durable: found.last,
        epoch,
        next_group: 0,
        journal_at: 0,
        group: OpenGroup::default(),
        group_in_flight: false,
        checkpoint: None,
        parts: Vec::new(),
        wanted: BTreeSet::new(),
        wants_room: false,
        reads: Reads::default(),
        snapshots: BTreeMap::new(),
        next_snapshot: 0,
        next_token: 0,
        purposes: BTreeMap::new(),
        requests: Vec::new(),
        failed: None,
        is_shutting: false,
        is_shut: false,
        now: Now::default(),
        device: Cost::default(),
        meter: Meter::default(),
        record_bytes: 0,
        settings: settings.clone(),
    })
}
