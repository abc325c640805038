//! The life of a node after its start: what it does for its shards, and the end.
//!
//! Invariants:
//! 1. When the thread of one shard has ended, whatever ended it, the node ends, with an error: a server that answers for a
//!    part of its keys only would be taken for a whole one, and nobody would start it again.
//! 2. What shards ask of the node is carried out until the last of their threads has ended: clients wait for it while a stop
//!    lets nobody go unanswered.

use super::{DESCRIPTORS_BESIDE_CLIENTS, Node};
use crate::driver::DriverReport;
use crate::listen::raise_descriptor_limit;
use crate::redis::mail::{ToNode, ToShard};
use crate::redis::users_file;
use crossbeam_channel::{never, select};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tierstone::NOTED_EVERY;
use tierstone_base::{Clock, Error, ErrorKind, Result, ShardId, SystemClock};
use tierstone_store::{DatabaseMap, MapChange, TaskId};

/// A map change that shards are taking over.
#[derive(Debug)]
pub(super) struct PendingChange {
    shard: ShardId,
    task: TaskId,
    version: u64,
    missing: usize,
}

/// Why a node ends.
enum Cause {
    Asked {
        at_once: bool,
    },
    /// The thread of this shard has ended.
    Lost(ShardId),
}

impl Node {
    /// Serves until somebody stops the node, then ends it. Whether in good order: at once (`SHUTDOWN NOSAVE`) the store is left
    /// as by a kill.
    ///
    /// # Errors
    /// What a driver thread says, or a shard that has failed, or the last write of the superblock, or that a shard had not
    /// come to its end within the time of a stop; `Retry` when a shard's thread has ended by itself, which ends the others. The
    /// store is left as by a kill then: the next start recovers it.
    pub fn run(mut self) -> Result<bool> {
        let clock = SystemClock::new();
        let mut noted_us = clock.now().monotonic_us;
        let cause = loop {
            let since = Duration::from_micros(clock.now().monotonic_us - noted_us);
            if since >= NOTED_EVERY {
                noted_us = clock.now().monotonic_us;
                self.note_segments();
                continue;
            }
            select! {
                recv(self.messages) -> message => match message {
                    Ok(ToNode::Stop { at_once }) => break Cause::Asked { at_once },
                    Ok(message) => self.handle(message),
                    Err(_) => unreachable!("the node holds a sender itself"),
                },
                recv(self.ends) -> shard => match shard {
                    Ok(shard) => break Cause::Lost(shard),
                    // All have told.
                    Err(_) => self.ends = never(),
                },
                default(NOTED_EVERY - since) => {}
            }
        };
        self.end(&cause)
    }

    fn end(mut self, cause: &Cause) -> Result<bool> {
        self.ready.store(false, Ordering::Release);
        let (mut first_error, mut is_unfinished) = (None, false);
        match cause {
            Cause::Asked { at_once } => tracing::info!(at_once, "stopping"),
            Cause::Lost(shard) => {
                let error = lost(*shard, self.drivers.remove(usize::from(*shard)).outcome());
                tracing::error!(shard, %error, "a shard's thread has ended: the others are stopped");
                first_error = Some(error);
            }
        }
        for driver in &self.drivers {
            driver.stop_handle().stop();
        }
        self.serve_until_all_have_ended();
        for driver in self.drivers.drain(..) {
            match driver.outcome() {
                Ok(report) => is_unfinished |= report.is_service_unfinished,
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        if let Some(http) = self.http.take() {
            http.driver.stop_handle().stop();
            let _ = http.driver.join();
        }
        match (first_error, cause) {
            (Some(error), _) => Err(error),
            (None, Cause::Asked { at_once: true }) => Ok(false),
            // A store that is said to be closed has nothing left that a start looks for in logs.
            _ if is_unfinished => Err(Error::new(
                ErrorKind::Retry,
                "the store could not be closed within the stop-timeout and is left as by a kill: the next start recovers it",
            )),
            _ => self.database.close().map(|()| true),
        }
    }

    /// Carries out what the shards that stop still ask for (invariant 2).
    fn serve_until_all_have_ended(&mut self) {
        let mut running = self.drivers.len();
        while running > 0 {
            select! {
                recv(self.messages) -> message => match message {
                    // It stops already.
                    Ok(ToNode::Stop { .. }) => {}
                    Ok(message) => self.handle(message),
                    Err(_) => unreachable!("the node holds a sender itself"),
                },
                recv(self.ends) -> ended => match ended {
                    Ok(_) => running -= 1,
                    Err(_) => return,
                },
            }
        }
        // What they have said last.
        self.messages.try_iter().for_each(ToNode::log);
    }

    fn handle(&mut self, message: ToNode) {
        match message {
            ToNode::ChangeMap { shard, task, change } => self.change_map(shard, task, change),
            ToNode::MapApplied { version } => self.map_applied(version),
            ToNode::Setting { shard, name, value } => {
                if name == "maxclients"
                    && let Ok(most) = value.parse::<u64>()
                {
                    let files = self.database.storage().files_max();
                    raise_descriptor_limit(most + files + DESCRIPTORS_BESIDE_CLIENTS);
                }
                // Values may be passwords.
                tracing::info!(shard, name, "a client changed a setting");
            }
            ToNode::RewriteSettings { shard, task, changed } => {
                let result = self.rewrite_settings(&changed);
                self.tell(shard, ToShard::MapChanged { task, result });
            }
            ToNode::ReadUsers { shard, task } => {
                let file = users_file::read(self.users_file.as_deref());
                self.tell(shard, ToShard::UsersRead { task, file });
            }
            ToNode::WriteUsers { shard, task, bytes } => {
                let result = users_file::write(self.users_file.as_deref(), &bytes);
                self.tell(shard, ToShard::MapChanged { task, result });
            }
            ToNode::ReloadTls => self.reload_tls(),
            told @ (ToNode::Rot { .. } | ToNode::Failed { .. } | ToNode::Evicted { .. }) => told.log(),
            ToNode::Stop { .. } => unreachable!("handled by the loops"),
        }
    }

    fn note_segments(&mut self) {
        if let Err(error) = self.database.note_segments() {
            // What fails here fails for the shards too, and they tell clients.
            tracing::error!(%error, "the list of segments in use could not be written");
        }
    }

    fn reload_tls(&self) {
        match self.tls.load() {
            Ok(config) => {
                for shard in &self.shards {
                    shard.send(&mut vec![ToShard::Tls(Arc::clone(&config))]);
                }
                tracing::info!("the files of TLS were read again");
            }
            Err(error) => tracing::error!(%error, "the files of TLS could not be read again"),
        }
    }

    /// Writes changed settings into the settings file.
    fn rewrite_settings(&self, changed: &[(String, String)]) -> Result<()> {
        // A kind whose message clients get as it is.
        let tell = |message: String| Error::new(ErrorKind::Retry, message);
        match &self.settings_file {
            None => Err(tell("The server is running without a config file".into())),
            Some(file) => file
                .rewrite(changed)
                .map_err(|error| tell(format!("Rewriting config file: {}", error.message()))),
        }
    }

    fn change_map(&mut self, shard: ShardId, task: TaskId, change: MapChange) {
        let mut map: DatabaseMap = self.database.facts().map.clone();
        let changed = map.change(change).and_then(|()| self.database.change_map(map.clone()));
        if let Err(error) = changed {
            self.tell(shard, ToShard::MapChanged { task, result: Err(error) });
            return;
        }
        self.pending.push(PendingChange { shard, task, version: map.version, missing: self.shards.len() });
        for sender in &self.shards {
            sender.send(&mut vec![ToShard::Map(map.clone())]);
        }
    }

    fn map_applied(&mut self, version: u64) {
        let Some(place) = self.pending.iter().position(|pending| pending.version == version) else { return };
        self.pending[place].missing -= 1;
        if self.pending[place].missing == 0 {
            let done = self.pending.remove(place);
            self.tell(done.shard, ToShard::MapChanged { task: done.task, result: Ok(()) });
        }
    }

    fn tell(&self, shard: ShardId, message: ToShard) {
        if let Some(sender) = self.shards.get(usize::from(shard)) {
            sender.send(&mut vec![message]);
        }
    }
}

/// What is said of a shard whose thread has ended by itself. Of a kind after which a server is started again.
fn lost(shard: ShardId, outcome: Result<DriverReport>) -> Error {
    let why = match outcome {
        Ok(_) => "nobody has asked it to stop".to_owned(),
        Err(error) => error.message().to_owned(),
    };
    Error::new(ErrorKind::Retry, format!("the thread of shard {shard} has ended: {why}"))
}

#[cfg(test)]
#[path = "running_test.rs"]
mod running_test;
