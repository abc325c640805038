//! The records of one page, and how they are written.

use super::format::damaged;
use std::collections::BTreeMap;
use tierstone_base::{KeyspaceId, Position, Result};
use tierstone_engine::{OwnedRecord, RecordMeta, ValueKind};

/// A key's place in a page.
pub type PageKey = (KeyspaceId, Position, Vec<u8>);

/// Records of a page by key.
pub type Records = BTreeMap<PageKey, OwnedRecord>;

/// Bytes of a record around key and value.
const HEAD: usize = 4 + 8 + 2 + 4 + 8 + 8 + 1;

pub fn record_len(key: &PageKey, record: &OwnedRecord) -> usize {
    HEAD + key.2.len() + record.value.len()
}

pub fn encoded_len(records: &Records) -> usize {
    records.iter().map(|(key, record)| record_len(key, record)).sum()
}

pub fn encode_record((keyspace, position, key): &PageKey, record: &OwnedRecord, out: &mut Vec<u8>) {
    out.extend(keyspace.0.to_le_bytes());
    out.extend(position.0.to_le_bytes());
    out.extend((key.len() as u16).to_le_bytes());
    out.extend((record.value.len() as u32).to_le_bytes());
    out.extend(record.meta.seq.to_le_bytes());
    out.extend(record.meta.expiry_ms.to_le_bytes());
    out.push(record.meta.kind.0);
    out.extend_from_slice(key);
    out.extend_from_slice(&record.value);
}

/// Takes a record off the front of `bytes`.
pub fn decode_record(bytes: &mut &[u8]) -> Result<(PageKey, OwnedRecord)> {
    let (head, rest) = bytes.split_at_checked(HEAD).ok_or_else(|| damaged("a record"))?;
    let number = |from: usize, len: usize| {
        head[from..from + len].iter().rev().fold(0, |all: u64, &byte| all << 8 | u64::from(byte))
    };
    let (key_len, value_len) = (number(12, 2) as usize, number(14, 4) as usize);
    let (key, rest) = rest.split_at_checked(key_len).ok_or_else(|| damaged("a key"))?;
    let (value, rest) = rest.split_at_checked(value_len).ok_or_else(|| damaged("a value"))?;
    *bytes = rest;
    let meta = RecordMeta { seq: number(18, 8), expiry_ms: number(26, 8), kind: ValueKind(head[34]) };
    let page_key = (KeyspaceId(number(0, 4) as u32), Position(number(4, 8)), key.to_vec());
    Ok((page_key, OwnedRecord { meta, value: value.to_vec() }))
}

pub fn encode_records(records: &Records) -> Vec<u8> {
    let mut out = Vec::with_capacity(encoded_len(records));
    records.iter().for_each(|(key, record)| encode_record(key, record, &mut out));
    out
}

pub fn decode_records(mut bytes: &[u8]) -> Result<Records> {
    let mut records = Records::new();
    while !bytes.is_empty() {
        let (key, record) = decode_record(&mut bytes)?;
        records.insert(key, record);
    }
    Ok(records)
}
