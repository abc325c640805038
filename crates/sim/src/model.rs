//! What one object does when commands reach it one after the other.
//!
//! An object is a few keys that are looked at together: what a client changes in one piece must be seen
//! in one piece. Pure data; a crash is not known here.

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
    Set(Vec<u8>),
    /// `SET … NX`.
    SetNew(Vec<u8>),
    /// `SET … PX`: gone after so many milliseconds.
    SetFor(Vec<u8>, u64),
    /// `APPEND`.
    Append(Vec<u8>),
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
}

impl Verb {
    /// Whether it can change anything.
    pub fn is_write(&self) -> bool {
        !matches!(self, Verb::Get | Verb::Length)
    }

    /// Whether it is carried out without a look at what is there.
    pub fn is_blind(&self) -> bool {
        matches!(self, Verb::Set(_) | Verb::SetFor(..) | Verb::Flush)
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
    value: Vec<u8>,
    /// The earliest and the latest wall time in milliseconds at which it may expire.
    expiry_ms: Option<(u64, u64)>,
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

    /// Whether any key must have expired before `span` ends, or may have.
    fn may_expire(&self, span: WallSpan) -> (bool, bool) {
        let expiries = || self.cells.iter().flatten().filter_map(|cell| cell.expiry_ms);
        let may = expiries().any(|(earliest, _)| earliest <= span.to_ms);
        let must = expiries().any(|(_, latest)| latest < span.from_ms);
        (may, must)
    }

    /// The states in which something that happens during `span` may find the object: as it is, with its
    /// expired keys gone, or both. Keys of one object expire together.
    pub fn seen_during(&self, span: WallSpan) -> Vec<ObjectState> {
        let (may, must) = self.may_expire(span);
        let mut seen = Vec::with_capacity(2);
        if !must {
            seen.push(self.clone());
        }
        if may {
            let mut expired = self.clone();
            for cell in &mut expired.cells {
                let gone = |cell: &Cell| cell.expiry_ms.is_some_and(|(earliest, _)| earliest <= span.to_ms);
                if cell.as_ref().is_some_and(gone) {
                    *cell = None;
                }
            }
            seen.push(expired);
        }
        seen
    }

    /// Carries out one step during `span`; gives the reply that a client must see.
    pub fn apply(&mut self, step: &Step, span: WallSpan) -> Value {
        let cell = self.cell(step.key);
        match &step.verb {
            Verb::Get => cell.as_ref().map_or(Value::Null, |cell| Value::Bulk(cell.value.clone())),
            Verb::Length => Value::Integer(cell.as_ref().map_or(0, |cell| cell.value.len() as i64)),
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
            Verb::Append(tail) => {
                let held = cell.get_or_insert_with(|| Cell { value: Vec::new(), expiry_ms: None });
                held.value.extend_from_slice(tail);
                Value::Integer(held.value.len() as i64)
            }
            Verb::Add(amount) => add(cell, *amount),
            Verb::Take => cell.take().map_or(Value::Null, |cell| Value::Bulk(cell.value)),
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
        }
    }
}

fn add(cell: &mut Option<Cell>, amount: i64) -> Value {
    let held = cell.get_or_insert_with(|| Cell { value: b"0".to_vec(), expiry_ms: None });
    let number = std::str::from_utf8(&held.value).ok().and_then(|text| text.parse::<i64>().ok());
    match number.and_then(|number| number.checked_add(amount)) {
        Some(sum) => {
            held.value = sum.to_string().into_bytes();
            Value::Integer(sum)
        }
        None => Value::Error(b"ERR value is not an integer or out of range".to_vec()),
    }
}
