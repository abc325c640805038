//! What the threads of a node tell each other: plain data, in batches, in order between two threads.

use rustls::ServerConfig;
use std::sync::Arc;
use tierstone_base::{Error, ShardId};
use tierstone_redis::Message;
use tierstone_store::{DatabaseMap, MapChange, TaskId};

/// To a shard's thread.
#[derive(Debug)]
pub enum ToShard {
    /// From another shard's executor.
    Message {
        /// Which shard.
        from: ShardId,
        /// What.
        message: Message,
    },
    /// The databases have changed, durably; answered with [`ToNode::MapApplied`].
    Map(DatabaseMap),
    /// The change that a task asked the node for is done everywhere, or failed.
    MapChanged {
        /// Who asked.
        task: TaskId,
        /// Why nothing has changed, if so.
        result: Result<(), Error>,
    },
    /// The file of users, for a task that asked the node for it.
    UsersRead {
        /// Who asked.
        task: TaskId,
        /// Its bytes, or why it could not be read.
        file: Result<Vec<u8>, Error>,
    },
    /// What encrypted connections are set up from, from now on.
    Tls(Arc<ServerConfig>),
    /// A client is to be closed since all of them take too much memory, and the largest is here.
    LookAtClients,
}

/// To the node's own thread.
#[derive(Debug)]
pub enum ToNode {
    /// A client wants the databases changed.
    ChangeMap {
        /// Its shard.
        shard: ShardId,
        /// Its task.
        task: TaskId,
        /// What changes.
        change: MapChange,
    },
    /// A shard uses this version of the map of databases.
    MapApplied {
        /// Which version.
        version: u64,
    },
    /// A client has changed a setting; the other shards know of it from its shard.
    Setting {
        /// Its shard.
        shard: ShardId,
        /// The setting's name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A client wants the changed settings in the settings file; answered with [`ToShard::MapChanged`].
    RewriteSettings {
        /// Its shard.
        shard: ShardId,
        /// Its task.
        task: TaskId,
        /// Names and values.
        changed: Vec<(String, String)>,
    },
    /// A client wants the users read from their file; answered with [`ToShard::UsersRead`].
    ReadUsers {
        /// The shard that reads them.
        shard: ShardId,
        /// Its task.
        task: TaskId,
    },
    /// A client wants the users in their file; answered with [`ToShard::MapChanged`].
    WriteUsers {
        /// Its shard.
        shard: ShardId,
        /// Its task.
        task: TaskId,
        /// The whole file.
        bytes: Vec<u8>,
    },
    /// A client wants the server to stop, or the process was asked to.
    Stop {
        /// Do not wait for clients.
        at_once: bool,
    },
    /// The files of TLS have changed: they are to be read again.
    ReloadTls,
    /// Scrubbing has found damage.
    Rot {
        /// Whose.
        shard: ShardId,
        /// What, in words.
        findings: Vec<String>,
    },
    /// Clients were closed since all of them take too much memory: those of some time together.
    Evicted {
        /// Whose.
        shard: ShardId,
        /// How many.
        count: u64,
        /// Lines of `CLIENT LIST` of the first ones.
        lines: Vec<String>,
        /// What they took.
        bytes: u64,
        /// What all took.
        total_bytes: u64,
        /// What all may take.
        bytes_max: u64,
        /// How many the shard has closed.
        all: u64,
    },
    /// A shard's device has failed.
    Failed {
        /// Which shard.
        shard: ShardId,
        /// What happened.
        error: Error,
    },
}

impl ToNode {
    /// Tells the log, if it is for people only.
    pub(super) fn log(self) {
        match self {
            ToNode::Rot { shard, findings } => {
                for finding in findings {
                    tracing::error!(shard, finding, "scrubbing has found damage");
                }
            }
            ToNode::Failed { shard, error } => {
                tracing::error!(shard, %error, "a shard acknowledges nothing any more");
            }
            ToNode::Evicted { shard, count, lines, bytes, total_bytes, bytes_max, all } => {
                let more = count.saturating_sub(lines.len() as u64);
                let clients = lines.join("; ");
                tracing::warn!(
                    shard,
                    count,
                    clients,
                    more,
                    bytes,
                    total_bytes,
                    bytes_max,
                    all,
                    "a client was closed, or several: all of them take more than maxmemory-clients"
                );
            }
            ToNode::ChangeMap { .. }
            | ToNode::MapApplied { .. }
            | ToNode::Setting { .. }
            | ToNode::RewriteSettings { .. }
            | ToNode::ReadUsers { .. }
            | ToNode::WriteUsers { .. }
            | ToNode::Stop { .. }
            | ToNode::ReloadTls => {}
        }
    }
}
