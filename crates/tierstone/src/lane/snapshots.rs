//! Snapshots of one shard, and reads at them.

use super::{Fetching, Lane, Patience};
use crate::plain::owned_value;
use tierstone_base::{Result, Token};
use tierstone_engine::{Engine, Event, Key, SnapshotId};
use tierstone_media::BlockDevice;

impl<D: BlockDevice> Lane<D> {
    /// Takes a snapshot.
    pub fn snapshot(&mut self) -> Result<SnapshotId> {
        self.check_health()?;
        let now = self.tick();
        self.engine.snapshot(now)
    }

    /// Starts reading `keys` at a snapshot, in one submission; [`Lane::finish_at`] waits for them.
    pub fn begin_at<'k>(
        &mut self,
        snapshot: SnapshotId,
        keys: impl Iterator<Item = (usize, Key<'k>)>,
    ) -> Result<Fetching<'k>> {
        self.check_health()?;
        let fetching = Fetching { keys: keys.collect(), first: self.next_token + 1 };
        self.next_token += fetching.keys.len() as u64;
        let keys = fetching.keys.iter().zip(fetching.first..);
        let tokens: Vec<(Token, Key<'_>)> = keys.map(|(&(_, key), token)| (token, key)).collect();
        let now = self.tick();
        self.engine.read_at(now, snapshot, &tokens);
        self.submit();
        Ok(fetching)
    }

    /// Waits for what [`Lane::begin_at`] has started and gives all of it to `take`.
    pub fn finish_at(
        &mut self,
        fetching: &Fetching<'_>,
        take: &mut impl FnMut(usize, Result<Option<Vec<u8>>>),
    ) -> Result<()> {
        let mut missing = fetching.keys.len();
        let mut patience = Patience::default();
        while missing > 0 {
            for event in self.events.drain(..) {
                match event {
                    Event::SnapshotRead { token, result, .. } => {
                        let place = token.checked_sub(fetching.first).unwrap_or(u64::MAX) as usize;
                        if let Some(&(place, _)) = fetching.keys.get(place) {
                            missing -= 1;
                            take(place, result.and_then(owned_value));
                        }
                    }
                    Event::Fetched { token, .. } => self.engine.release(token),
                    Event::Scanned { .. } | Event::Ranged { .. } => {}
                }
            }
            if missing > 0 {
                self.check_health()?;
                self.wait(&mut patience)?;
            }
        }
        Ok(())
    }
}
