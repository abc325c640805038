//! What one object does when commands reach it one after the other.
//!
//! An object is a few keys that are looked at together: what a client changes in one piece must be seen
//! in one piece. Pure data; a crash is not known here.

use crate::content::{Content, seen};
use tierstone_wire::resp::Value;

/// Names an object: its database and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The numbered database.
    pub database: u32,
    /// The number in it.
    pub number: u32,
}

/// What a command does to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `GET`.
    Get,
    /// `STRLEN`.
    Length,
    /// `SET`, which ends an expiry.
    Set(Content),
    /// `SET … NX`.
    SetNew(Content),
    /// `SET … PX`: gone after so many milliseconds.
    SetFor(Content, u64),
    /// `APPEND`.
    Append(Content),
    /// `INCRBY`.
    Add(i64),
    /// `GETDEL`.
    Take,
    /// `DEL`.
    Delete,
    /// `PERSIST`.
    Persist,
    /// `PEXPIRE`: gone after so many milliseconds.
    ExpireIn(u64),
    /// The key's part of `FLUSHDB`.
    Flush,
    /// `GETRANGE`: from here to there, both included.
    GetRange(usize, usize),
    /// `SETRANGE`: at this offset, this.
    SetRange(usize, Content),
    /// `COPY` to another key of the object; whether it may replace what is there.
    CopyTo(usize, bool),
    /// `RENAME` to another key of the object.
    RenameTo(usize),
    /// The object's part of `SWAPDB`: its first so many keys change places with the next so many.
    Swap(usize),
    /// Not a command: the process or the machine has died, and what was acknowledged of late may be lost.
    Crash,
}

impl Verb {
    /// Whether it can change anything.
    pub fn is_write(&self) -> bool {
        !matches!(self, Verb::Get | Verb::Length | Verb::GetRange(..))
    }

    /// Whether it is carried out without a look at what is there.
    pub fn is_blind(&self) -> bool {
        matches!(self, Verb::Set(_) | Verb::SetFor(..) | Verb::Flush | Verb::Swap(_))
    }
}

/// A verb and the key of the object that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which key of the object.
    pub key: usize,
    /// What is done.
    pub verb: Verb,
}

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    value: Content,
    /// The earliest and the latest wall time in milliseconds at which it may expire.
    expiry_ms: Option<(u64, u64)>,
}

/// Which keys may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicts {
    /// None.
    None,
    /// Those that expire.
    Expiring,
    /// All.
    All,
}

/// The keys of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectState {
    cells: Vec<Option<Cell>>,
}

/// When something happened by the wall clock, in milliseconds: between these two, ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallSpan {
    /// Not before.
    pub from_ms: u64,
    /// Not after.
    pub to_ms: u64,
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

impl ObjectState {
    fn cell(&mut self, key: usize) -> &mut Option<Cell> {
        if self.cells.len() <= key {
            self.cells.resize(key + 1, None);
        }
        &mut self.cells[key]
    }

    /// The states in which `steps` that happen during `span` may find the object: each key they look at that may have
    /// expired by then is there or gone, each that must have expired is gone. Nobody was shown that others have expired: where
    /// the clock is set back and the node starts again, they may be there.
    pub fn seen_during(&self, span: WallSpan, steps: &[Step]) -> Vec<ObjectState> {
        let mut seen = vec![self.clone()];
        for (at, cell) in self.cells.iter().enumerate() {
            if !is_looked_at(at, steps) {
                continue;
            }
            let Some((earliest, latest)) = cell.as_ref().and_then(|cell| cell.expiry_ms) else { continue };
            if earliest > span.to_ms {
                continue;
            }
            let mut gone = seen.clone();
            gone.iter_mut().for_each(|state| state.cells[at] = None);
            match latest < span.from_ms {
                true => seen = gone,
                false => seen.extend(gone),
            }
        }
        seen
    }

    /// The states in which `steps` may find the object where the keys that they look at may have been evicted.
    pub fn with_evictions(&self, steps: &[Step], evicts: Evicts) -> Vec<ObjectState> {
        let mut seen = vec![self.clone()];
        let may_go = |cell: &Cell| match evicts {
            Evicts::None => false,
            Evicts::Expiring => cell.expiry_ms.is_some(),
            Evicts::All => true,
        };
        let cells = self.cells.iter().enumerate();
        for (at, _) in
            cells.filter(|(at, cell)| cell.as_ref().is_some_and(may_go) && is_looked_at(*at, steps))
        {
            let mut gone = seen.clone();
            gone.iter_mut().for_each(|state| state.cells[at] = None);
            seen.extend(gone);
        }
        seen
    }

    /// Carries out one step during `span`; gives the reply that a client must see.
    pub fn apply(&mut self, step: &Step, span: WallSpan) -> Value {
        match step.verb {
            Verb::CopyTo(to, replaces) => return self.copy(step.key, to, replaces),
            Verb::RenameTo(to) => return self.rename(step.key, to),
            Verb::Swap(keys) => return self.swap(keys),
            _ => {}
        }
        let cell = self.cell(step.key);
        match &step.verb {
            Verb::Get => cell.as_ref().map_or(Value::Null, |cell| cell.value.reply()),
            Verb::Length => Value::Integer(cell.as_ref().map_or(0, |cell| cell.value.bytes().len() as i64)),
            Verb::GetRange(from, to) => get_range(cell.as_ref(), *from, *to),
            Verb::Set(value) => {
                *cell = Some(Cell { value: value.clone(), expiry_ms: None });
                ok()
            }
            Verb::SetNew(value) => {
                if cell.is_some() {
                    return Value::Null;
                }
                *cell = Some(Cell { value: value.clone(), expiry_ms: None });
                ok()
            }
            Verb::SetFor(value, for_ms) => {
                let expiry_ms = Some((span.from_ms + for_ms, span.to_ms + for_ms));
                *cell = Some(Cell { value: value.clone(), expiry_ms });
                ok()
            }
            Verb::Append(tail) => changed(cell, |value| value.with_tail(tail.bytes())),
            Verb::SetRange(at, part) => changed(cell, |value| value.with_part(*at, part.bytes())),
            Verb::Add(amount) => add(cell, *amount),
            Verb::Take => cell.take().map_or(Value::Null, |cell| cell.value.reply()),
            Verb::Delete => Value::Integer(i64::from(cell.take().is_some())),
            Verb::Persist => {
                let had = cell.as_mut().and_then(|cell| cell.expiry_ms.take()).is_some();
                Value::Integer(i64::from(had))
            }
            Verb::ExpireIn(for_ms) => {
                if let Some(cell) = cell.as_mut() {
                    cell.expiry_ms = Some((span.from_ms + for_ms, span.to_ms + for_ms));
                }
                Value::Integer(i64::from(cell.is_some()))
            }
            Verb::Flush => {
                *cell = None;
                ok()
            }
            Verb::CopyTo(..) | Verb::RenameTo(_) | Verb::Swap(_) | Verb::Crash => ok(),
        }
    }

    fn copy(&mut self, from: usize, to: usize, replaces: bool) -> Value {
        let source = self.cell(from).clone();
        if source.is_none() || (!replaces && self.cell(to).is_some()) {
            return Value::Integer(0);
        }
        *self.cell(to) = source;
        Value::Integer(1)
    }

    fn rename(&mut self, from: usize, to: usize) -> Value {
        let Some(source) = self.cell(from).take() else { return Value::Error(NO_SUCH_KEY.to_vec()) };
        *self.cell(to) = Some(source);
        ok()
    }

    fn swap(&mut self, keys: usize) -> Value {
        self.cell(2 * keys - 1);
        (0..keys).for_each(|key| self.cells.swap(key, key + keys));
        ok()
    }
}

/// Whether `steps` look at key `at`. What trades places among several steps counts as looked at.
fn is_looked_at(at: usize, steps: &[Step]) -> bool {
    steps.iter().any(|step| match step.verb {
        Verb::CopyTo(to, _) | Verb::RenameTo(to) => step.key == at || to == at,
        Verb::Swap(_) => steps.len() > 1,
        _ => step.key == at,
    })
}

/// What `RENAME` of a key says that does not exist.
pub const NO_SUCH_KEY: &[u8] = b"ERR no such key";

fn changed(cell: &mut Option<Cell>, change: impl FnOnce(&Content) -> Content) -> Value {
    let held = cell.get_or_insert_with(|| Cell { value: "".into(), expiry_ms: None });
    held.value = change(&held.value);
    Value::Integer(held.value.bytes().len() as i64)
}

fn get_range(cell: Option<&Cell>, from: usize, to: usize) -> Value {
    let bytes = cell.map_or(&[][..], |cell| cell.value.bytes());
    let end = bytes.len().min(to + 1);
    seen(Value::Bulk(bytes[from.min(end)..end].to_vec()))
}

fn add(cell: &mut Option<Cell>, amount: i64) -> Value {
    let held = cell.get_or_insert_with(|| Cell { value: "0".into(), expiry_ms: None });
    let number = std::str::from_utf8(held.value.bytes()).ok().and_then(|text| text.parse::<i64>().ok());
    match number.and_then(|number| number.checked_add(amount)) {
        Some(sum) => {
            held.value = sum.to_string().into_bytes().into();
            Value::Integer(sum)
        }
        None => Value::Error(b"ERR value is not an integer or out of range".to_vec()),
    }
}
