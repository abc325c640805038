//! Backups through the shared handle: the calling thread writes down what the shards' threads read beside their
//! other work.
//!
//! Invariants:
//! 1. One backup a store is under way: it holds a claim, which ends it on every shard when it is dropped.
//! 2. No name or keyspace is made or dropped between the look at the map and the cut.
//! 3. One piece of each shard is on its way, so that a slow writer holds little memory.

use super::cut::Cut;
use super::message::Message;
use super::{Answer, Inner, SharedStore};
use crate::backup::{BackupProgress, BackupReport, BackupWriter, start_of};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_engine::{BackupCut, BackupStep};
use tierstone_store::backup::since::BackupBase;
use tierstone_store::backup::{BackupStart, ShardFramer};

/// The right to the store's one backup.
struct Claim(Arc<Inner>);

impl Claim {
    fn take(inner: &Arc<Inner>) -> Result<Claim> {
        if inner.is_backed_up.swap(true, Ordering::AcqRel) {
            return Err(Error::new(ErrorKind::Busy, "a backup is under way"));
        }
        Ok(Claim(Arc::clone(inner)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        (0..self.0.shards()).for_each(|shard| self.0.tell(shard, Message::EndBackup));
        // Behind the messages: whoever comes next sends its own after them.
        self.0.is_backed_up.store(false, Ordering::Release);
    }
}

impl Inner {
    /// One cut over all shards, and what it is of.
    fn begin_backup(&self, base: Option<&BackupBase>) -> Result<BackupStart> {
        if let Some(base) = base {
            base.check_shards(usize::from(self.shards()))?;
        }
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = running.as_ref().ok_or_else(super::answer::closed)?;
        let wakers = self.mailboxes.iter().map(|mailbox| Arc::clone(&mailbox.waker)).collect();
        let answers: Vec<Answer<BackupCut>> = {
            let _one_after_another = self.ordering.lock().unwrap_or_else(PoisonError::into_inner);
            let shares = Cut::shares(self.mailboxes.len(), wakers).into_iter().zip(0..);
            shares
                .map(|(share, shard)| {
                    let since = base.map(|base| base.of_shard(shard));
                    self.ask(shard, |reply| Message::BeginBackup { share, since, reply })
                })
                .collect()
        };
        // All are waited for: none may begin after the others were told to end.
        let cuts: Vec<Result<BackupCut>> = answers.into_iter().map(Answer::wait).collect();
        let cuts = cuts.into_iter().collect::<Result<Vec<BackupCut>>>()?;
        start_of(running.database.facts(), &cuts, base)
    }
}

impl SharedStore {
    /// Makes a backup of everything that the store holds at one moment, in a new directory, while others use the store.
    /// See [`SharedStore::backup_to`].
    ///
    /// # Errors
    /// As there.
    pub fn backup(
        &self,
        directory: impl AsRef<Path>,
        progress: &mut dyn FnMut(BackupProgress),
    ) -> Result<BackupReport> {
        self.backup_to(BackupWriter::create(directory)?, progress)
    }

    /// Makes a backup of what has changed since the one in `base`, while others use the store. See
    /// [`BackupWriter::create_since`].
    ///
    /// # Errors
    /// As there, and as [`SharedStore::backup_to`].
    pub fn backup_since(
        &self,
        base: impl AsRef<Path>,
        directory: impl AsRef<Path>,
        progress: &mut dyn FnMut(BackupProgress),
    ) -> Result<BackupReport> {
        self.backup_to(BackupWriter::create_since(directory, base)?, progress)
    }

    /// Gives `writer` a backup of all databases and keyspaces as they are at one moment: a cut over all shards, as
    /// of a [snapshot](SharedStore::snapshot). Cost: everything that is stored is read once, piece by piece between
    /// the requests of others; what is replaced meanwhile keeps its space until it has been read.
    ///
    /// # Errors
    /// There is no backup. `Busy`: one is under way, or the store was closed. `SnapshotLost`: the store was full, and
    /// what the backup had still to read took the space. `Corrupt`: a record cannot be read. `DeviceFailed`: the store
    /// has failed. Others: what the writer says.
    pub fn backup_to(
        &self,
        mut writer: BackupWriter,
        progress: &mut dyn FnMut(BackupProgress),
    ) -> Result<BackupReport> {
        let claim = Claim::take(&self.inner)?;
        let start = self.inner.begin_backup(writer.base())?;
        writer.frame(&start.encode()?)?;
        let ask = |shard| self.inner.ask(shard, |reply| Message::TakeBackup { reply });
        let mut shards: Vec<_> =
            (0..start.shards).map(|shard| (shard, ShardFramer::new(start.id, shard), ask(shard))).collect();
        while !shards.is_empty() {
            let mut left = Vec::with_capacity(shards.len());
            for (shard, mut framer, answer) in shards {
                match answer.wait()? {
                    BackupStep::Piece(piece) => {
                        // The next one is read while this one is written.
                        let next = ask(shard);
                        writer.frame(&framer.frame(&piece))?;
                        left.push((shard, framer, next));
                    }
                    BackupStep::Later => left.push((shard, framer, ask(shard))),
                    BackupStep::End => {}
                }
            }
            shards = left;
            progress(writer.progress());
        }
        drop(claim);
        writer.complete()
    }
}
