//! Pages of ranges of one shard.

use super::{Lane, Patience};
use crate::plain::note_expired;
use crate::range::RangePage;
use tierstone_base::{Result, Token};
use tierstone_engine::{Engine, Event, RangeRequest};
use tierstone_media::BlockDevice;

/// A page of a range that is being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranging {
    token: Token,
    is_of_snapshot: bool,
}

impl<D: BlockDevice> Lane<D> {
    /// Starts a page of a range; [`Lane::finish_range`] waits for it.
    pub fn begin_range(&mut self, mut request: RangeRequest) -> Result<Ranging> {
        self.check_health()?;
        self.next_token += 1;
        request.token = self.next_token;
        let ranging = Ranging { token: request.token, is_of_snapshot: request.snapshot.is_some() };
        let now = self.tick();
        self.engine.range(now, request);
        self.submit();
        Ok(ranging)
    }

    /// Waits for the page that [`Lane::begin_range`] has started.
    pub fn finish_range(&mut self, wanted: Ranging) -> Result<RangePage> {
        let mut patience = Patience::default();
        let mut found = None;
        let page = loop {
            for event in self.events.drain(..) {
                match event {
                    Event::Ranged { token, entries, next, error, .. } if token == wanted.token => {
                        let seen_at = (!wanted.is_of_snapshot).then_some(self.now);
                        if let Some(now) = seen_at {
                            note_expired(&mut self.engine, entries.iter().map(|entry| &entry.meta), now);
                        }
                        found = Some(RangePage::of(entries, next, error, seen_at));
                    }
                    Event::Fetched { token, .. } => self.engine.release(token),
                    Event::Scanned { .. } | Event::Ranged { .. } | Event::SnapshotRead { .. } => {}
                }
            }
            if let Some(page) = found.take() {
                break page?;
            }
            self.check_health()?;
            self.wait(&mut patience)?;
        };
        self.settle_past()?;
        Ok(page)
    }
}
