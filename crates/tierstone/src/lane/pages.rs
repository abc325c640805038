//! Pages of walks, waited for by the thread that asks.

use super::{Lane, Patience};
use crate::plain::{is_of_snapshot, is_visible, note_expired};
use tierstone_base::{Error, KeyspaceId, Position, Result};
use tierstone_engine::{Engine, Event, ScanEntry, ScanRequest, SnapshotId};
use tierstone_media::BlockDevice;

/// One page of keys.
#[derive(Debug)]
pub(crate) struct KeyPage {
    pub entries: Vec<ScanEntry>,
    pub next: Option<Position>,
    pub damaged: Option<Error>,
}

impl<D: BlockDevice> Lane<D> {
    /// One page of a walk, of a snapshot or of what is there.
    pub fn scan_page(
        &mut self,
        keyspace: KeyspaceId,
        cursor: Position,
        count: u32,
        snapshot: Option<SnapshotId>,
    ) -> Result<KeyPage> {
        self.check_health()?;
        self.next_token += 1;
        let wanted = self.next_token;
        let now = self.tick();
        self.engine.scan(now, ScanRequest { token: wanted, keyspace, cursor, count, snapshot });
        let mut patience = Patience::default();
        let mut found = None;
        let page = loop {
            for event in self.events.drain(..) {
                match event {
                    Event::Scanned { token, entries, next, error, .. } if token == wanted => {
                        if let Some(error) = error.as_ref().filter(|error| is_of_snapshot(error)) {
                            return Err(error.clone());
                        }
                        let mut page = KeyPage { entries, next, damaged: error };
                        if snapshot.is_none() {
                            let metas = page.entries.iter().map(|entry| &entry.meta);
                            note_expired(&mut self.engine, metas, self.now);
                            page.entries.retain(|entry| is_visible(&entry.meta, self.now));
                        }
                        found = Some(page);
                    }
                    Event::Fetched { token, .. } => self.engine.release(token),
                    Event::Scanned { .. } | Event::Ranged { .. } | Event::SnapshotRead { .. } => {}
                }
            }
            if let Some(page) = found.take() {
                break page;
            }
            self.check_health()?;
            self.wait(&mut patience)?;
        };
        self.settle_past()?;
        Ok(page)
    }
}
