//! What clients are told while a store is being opened, under Redis's names: who they are they may say, the rest has to
//! wait.
//!
//! Invariants:
//! 1. A greeter answers what concerns the connection alone, as the executor would, by the same handlers; what it
//!    answers changes nothing beyond the connection.
//! 2. Who has to say who he is learns nothing else before.

use crate::acl::Users;
use crate::args::Args;
use crate::control::{EngineFacts, Flow, Host, ServerFacts};
use crate::request::Admitted;
use crate::resolve::resolve;
use crate::run::run_control;
use crate::session::{ConnectionId, ConnectionInfo, Session};
use crate::settings::{Settings, VALUE_LIMIT_MAX_BYTES};
use crate::table::Action;
use std::fmt::Write;
use std::sync::Arc;
use tierstone_base::Now;
use tierstone_engine::{Durability, EngineStatistics, Health, OpeningSeen};
use tierstone_wire::resp::{ReplyWriter, Version};

/// What a command gets that has to wait for the store.
pub const LOADING: &str = "LOADING Redis is loading the dataset in memory";

/// The commands that are answered by their own handlers: Redis allows them while it loads, too.
const ANSWERED: [&str; 14] = [
    "auth",
    "client|getname",
    "client|help",
    "client|id",
    "client|setinfo",
    "client|setname",
    "command",
    "command|count",
    "command|docs",
    "command|help",
    "command|info",
    "command|list",
    "hello",
    "select",
];

/// Answers clients of a store that is being opened.
#[derive(Debug)]
pub struct Greeter {
    host: Host,
    engine: EngineFacts,
}

impl Greeter {
    /// A greeter of clients who are one of `users` and may select one of so many databases.
    pub fn new(facts: ServerFacts, users: Arc<Users>, databases: u32) -> Self {
        let mut settings = Settings::new(databases, VALUE_LIMIT_MAX_BYTES, Durability::default());
        for (name, setting) in &facts.settings {
            settings.add(name, &setting.value, setting.kind.clone(), setting.is_settable);
        }
        let engine = EngineFacts {
            statistics: EngineStatistics::default(),
            applied: 0,
            durable: 0,
            health: Health::Good,
            keys: vec![0; databases as usize],
            shard: (0, 1),
            untold_expirations: 0,
            tracked: [0; 3],
        };
        Greeter { host: Host::new(facts, settings, users, (0, 1)), engine }
    }

    /// Whether clients of other machines are kept out: nobody has to say who he is.
    pub fn is_protected(&self) -> bool {
        self.host.is_protected()
    }

    /// A connection has come, with an id that no other one has.
    pub fn connect(&mut self, now: Now, connection: ConnectionId, info: ConnectionInfo) {
        let session = Session::new(connection, info, &self.host.users, now);
        self.host.sessions.insert(connection, session);
    }

    /// A connection has gone.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        self.host.sessions.remove(&connection);
    }

    /// Answers a request of a connection; its reply is appended to `reply`.
    pub fn request(
        &mut self,
        now: Now,
        connection: ConnectionId,
        args: Args<'_>,
        reply: &mut Vec<u8>,
    ) -> Flow {
        let Some(session) = self.host.sessions.get(&connection) else { return Flow::Close };
        let version = session.version;
        let resolved = resolve(args).and_then(|(found, command)| {
            let is_checked = !session.may_do_all;
            let refusal = is_checked.then(|| self.host.check_user(session, found.index, command, args));
            refusal.flatten().map_or(Ok(command), Err)
        });
        let mut writer = ReplyWriter::new(reply, version);
        let command = match resolved {
            Ok(command) => command,
            Err(Admitted::Refused(text)) => {
                writer.error(text.as_bytes());
                return Flow::Done;
            }
            Err(Admitted::Denied(denied)) => {
                writer.error(denied.text.as_bytes());
                self.host.note_denial(now, 0, connection, denied.denial);
                return Flow::Done;
            }
            // Of a request that a browser was led to nothing is answered.
            Err(Admitted::CrossProtocol | Admitted::Wait | Admitted::Run(..)) => return Flow::Close,
        };
        match (command.name, command.action) {
            ("quit", _) => {
                writer.ok();
                return Flow::Close;
            }
            ("reset", _) => {
                ReplyWriter::new(reply, Version::Resp2).simple("RESET");
                if let Some(session) = self.host.sessions.get_mut(&connection) {
                    let info = std::mem::take(&mut session.info);
                    *session = Session::new(connection, info, &self.host.users, now);
                }
            }
            ("info", _) => writer.bulk(self.info(now).as_bytes()),
            (name, Action::Control(handler)) if ANSWERED.contains(&name) => {
                return run_control(&mut self.host, &self.engine, (now, connection), handler, args, reply);
            }
            _ => writer.error(LOADING.as_bytes()),
        }
        Flow::Done
    }

    /// What `INFO` says, whichever sections are asked for.
    fn info(&self, now: Now) -> String {
        let ServerFacts { redis_version, server_version, opening, started, .. } = &self.host.facts;
        let mut text = format!(
            "# Server\r\nredis_version:{redis_version}\r\nredis_mode:standalone\r\nserver_name:tierstone\r\n\
             tierstone_version:{server_version}\r\n\r\n# Persistence\r\n"
        );
        if loading_fields(&mut text, opening.seen(), (*started, now)).is_err() {
            unreachable!("writing to a string does not fail");
        }
        text
    }
}

/// The fields of `INFO persistence`: `started` is when the opening began.
pub fn loading_fields(out: &mut String, seen: OpeningSeen, (started, now): (Now, Now)) -> std::fmt::Result {
    if !seen.is_under_way() {
        return out.write_str("loading:0\r\nasync_loading:0\r\n");
    }
    let elapsed_us = now.monotonic_us.saturating_sub(started.monotonic_us);
    write!(
        out,
        "loading:1\r\nasync_loading:0\r\nloading_start_time:{}\r\nloading_total_bytes:{}\r\n\
         loading_loaded_bytes:{}\r\nloading_loaded_perc:{:.2}\r\nloading_eta_seconds:{}\r\n\
         loading_shards:{}\r\nloading_loaded_shards:{}\r\n",
        started.wall_ms / 1_000,
        seen.bytes_total,
        seen.bytes,
        seen.percent(),
        seen.left_us(elapsed_us).unwrap_or(1_000_000).div_ceil(1_000_000),
        seen.parts_total,
        seen.parts,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierstone_engine::OpeningProgress;

    #[test]
    fn how_far_it_has_come_stands_under_the_names_of_redis() {
        let progress = OpeningProgress::default();
        let started = Now { monotonic_us: 5_000_000, wall_ms: 1_700_000_000_999 };
        let text = |after_s: u64| {
            let mut text = String::new();
            let now = Now { monotonic_us: started.monotonic_us + after_s * 1_000_000, ..started };
            loading_fields(&mut text, progress.seen(), (started, now)).unwrap();
            text
        };
        assert_eq!(text(1), "loading:0\r\nasync_loading:0\r\n");
        let (first, second) = (progress.part(600), progress.part(400));
        first.advance(250);
        let shown = text(3);
        for line in [
            "loading:1",
            "loading_start_time:1700000000",
            "loading_total_bytes:1000",
            "loading_loaded_bytes:250",
            "loading_loaded_perc:25.00",
            "loading_eta_seconds:9",
            "loading_shards:2",
            "loading_loaded_shards:0",
        ] {
            assert!(shown.lines().any(|other| other == line), "{line} is not in {shown}");
        }
        drop((first, second));
        assert!(text(4).starts_with("loading:0\r\n"));
    }
}
