//! This shard's part of a backup.
//!
//! Invariant: who asks for a piece is answered when there is one, or by the error that ends the backup.

use super::super::answer::Reply;
use super::super::cut::Share;
use super::Service;
use tierstone_base::Error;
use tierstone_engine::{BackupCut, BackupSince, BackupStep, Engine};

impl Service {
    /// Takes the shard's part of a backup's cut: until the cut is whole it applies nothing.
    pub(super) fn begin_backup(&mut self, share: Share, since: Option<BackupSince>, reply: Reply<BackupCut>) {
        let begun = self.engine.begin_backup(self.now, since);
        if begun.is_ok() {
            self.holding = Some(share.take());
        }
        drop(reply.send(begun));
    }

    pub(super) fn take_backup(&mut self, reply: Reply<BackupStep>) {
        match self.engine.take_backup() {
            Ok(BackupStep::Later) => self.taker = Some(reply),
            answer => drop(reply.send(answer)),
        }
    }

    /// Answers who waits for a piece, if there is one.
    pub(super) fn tell_backup(&mut self) {
        if let Some(reply) = self.taker.take() {
            self.take_backup(reply);
        }
    }

    pub(super) fn end_backup(&mut self) {
        self.taker = None;
        self.engine.end_backup();
    }

    pub(super) fn refuse_taker(&mut self, error: &Error) {
        if let Some(reply) = self.taker.take() {
            drop(reply.send(Err(error.clone())));
        }
    }
}
