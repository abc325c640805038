//! Users over all shards: the first shard makes the changes, the others take over what it has made, and the client is
//! answered when all of them have.
//!
//! Invariants:
//! 1. The first shard's messages to another come in order, so every shard has the same users after the same changes.
//! 2. The password of `requirepass` is that of the setting, which every shard decides by the same stamps: the change of
//!    users says only that it was set.
//! 3. Whoever's user is gone is disconnected before the change is answered, and so is whoever listens to something
//!    that his user may not listen to any more.

use crate::acl::log::Denial;
use crate::acl::user::User;
use crate::acl::{DEFAULT_USER, Users, UsersChange};
use crate::context::{Halt, error_text, fail};
use crate::control::{Host, Output};
use crate::executor::{Executor, Outcome};
use crate::remote::{Ending, HOME, Message};
use crate::session::{ConnectionId, Queued, Session};
use crate::settings::{ACL_LOG_MAX, PASSWORD};
use crate::task::{Origin, Task, Work};
use std::sync::Arc;
use tierstone_base::{Now, Result, ShardId};
use tierstone_engine::Engine;
use tierstone_store::TaskId;
use tierstone_wire::resp::{ReplyWriter, Version};

/// What shards tell each other about users.
#[derive(Clone, Debug)]
pub enum UsersMessage {
    /// To the first shard: change the users; the asker's task is answered with `reply`, or what the change gives.
    Change {
        /// The asker's task.
        ticket: TaskId,
        /// What changes.
        change: UsersChange,
        /// The encoded reply.
        reply: Vec<u8>,
    },
    /// From the first shard: the users from now on; answered by a number.
    Changed {
        /// The asker's task.
        ticket: TaskId,
        /// All of them.
        users: Arc<Users>,
    },
    /// To the first shard: something was refused to a user.
    Denied(Denial),
}

/// The change of users that settings mean which were changed, if any.
pub(crate) fn change_of_settings(outputs: &[Output]) -> Option<UsersChange> {
    outputs.iter().find_map(|output| match output {
        Output::Setting { name, .. } if name == PASSWORD => Some(UsersChange::Password),
        _ => None,
    })
}

impl Host {
    /// Notes something that was refused to a connection: at the first shard, which is told if it is another.
    pub(crate) fn note_denial(&mut self, now: Now, shard: ShardId, connection: ConnectionId, denial: Denial) {
        self.counters.denied[denial.kind()] += 1;
        let client =
            self.sessions.get(&connection).map(|session| crate::commands::client::describe(session, now, 0));
        let denial = denial.by(client.unwrap_or_default(), now.wall_ms);
        match shard {
            HOME => self.keep_denial(denial),
            _ => self
                .outputs
                .push(Output::Send { to: HOME, message: Message::Users(UsersMessage::Denied(denial)) }),
        }
    }

    fn keep_denial(&mut self, denial: Denial) {
        self.acl_log.add(denial);
        self.trim_acl_log();
    }

    /// Keeps no more refusals than the setting allows.
    pub(crate) fn trim_acl_log(&mut self) {
        let max = self.settings.get(ACL_LOG_MAX).and_then(|setting| setting.value.parse().ok());
        self.acl_log.trim(max.unwrap_or(0));
    }

    /// Answers a command of a transaction that its client may not carry out any more; whether that is so.
    pub(crate) fn refuses_now(&mut self, queued: &Queued, reply: &mut Vec<u8>) -> bool {
        let Some(refused) = queued.refused else { return false };
        let start = reply.len();
        ReplyWriter::new(reply, Version::Resp2).error(refused.text_in_exec());
        self.counters.note_error(&reply[start..]);
        true
    }

    /// Takes over other users: sessions follow, and those end whose users may not go on, whose connections are given.
    /// Whoever has asked for it is answered before.
    fn adopt(&mut self, users: Arc<Users>) -> Vec<ConnectionId> {
        let mut ended = Vec::new();
        for session in self.sessions.values_mut() {
            match users.get(&session.user.name) {
                Some(user) if !loses_channels(session, user) => session.become_user(user, &users),
                _ => ended.push((session.id, !session.waits_for_users())),
            }
        }
        self.users = users;
        ended.sort_unstable();
        for (connection, at_once) in &ended {
            self.end(*connection, *at_once);
        }
        ended.into_iter().map(|(connection, _)| connection).collect()
    }
}

/// Whether a connection listens to something that its user may not listen to any more. A user who may listen to all
/// that he might before loses nothing.
fn loses_channels(session: &Session, new: &Arc<User>) -> bool {
    if Arc::ptr_eq(&session.user, new) || session.channels().is_empty() {
        return false;
    }
    let known = |channel: &Vec<u8>| new.selectors.iter().any(|selector| selector.channels.contains(channel));
    let has_all = new.selectors.iter().any(|selector| selector.has_all_channels);
    let has_lost = |old: &crate::acl::user::Selector| old.has_all_channels || !old.channels.iter().all(known);
    !has_all
        && session.user.selectors.iter().any(has_lost)
        && session.channels().iter().any(|(kind, name)| new.forbids_listening(*kind, name))
}

impl<E: Engine> Executor<E> {
    /// Whether clients of other machines are kept out now: nobody has to say who he is, and nobody has said that this
    /// is meant (`protected-mode`).
    pub fn is_protected(&self) -> bool {
        self.host.is_protected()
    }

    /// Lets the first shard change users; `connection` is answered with `reply`, or what the change gives, when all
    /// shards have the new ones.
    pub(crate) fn change_users(
        &mut self,
        connection: ConnectionId,
        change: UsersChange,
        reply: Vec<u8>,
    ) -> Outcome {
        let id = self.shard.next_id();
        let outcome = self.suspend(connection, id, Work::Forwarded);
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            session.users_change = Some(id);
        }
        self.begin_change(id, change, reply);
        outcome
    }

    /// The same without anybody who waits for it.
    pub(crate) fn change_users_unasked(&mut self, change: UsersChange) {
        let id = self.shard.next_id();
        let origin = Origin::Connection(ConnectionId::MAX);
        self.tasks.insert(id, Task::new(origin, 0, Version::Resp2, Work::Forwarded));
        self.begin_change(id, change, Vec::new());
    }

    /// Users follow the settings that a batch of commands has changed, if these mean that. The client is answered by what
    /// the batch says of them, and does not wait for it.
    pub(crate) fn change_users_by(&mut self, outputs: usize) {
        if let Some(change) = change_of_settings(&self.host.outputs[outputs..]) {
            self.change_users_unasked(change);
        }
    }

    fn begin_change(&mut self, id: TaskId, change: UsersChange, reply: Vec<u8>) {
        // The first shard tells itself as well: its answer comes behind the request, like any other's.
        let message = Message::Users(UsersMessage::Change { ticket: id, change, reply });
        self.host.outputs.push(Output::Send { to: HOME, message });
    }

    /// Takes over other users. Who ends is told of no key any more.
    fn adopt(&mut self, users: Arc<Users>) {
        for connection in self.host.adopt(users) {
            let session = self.host.sessions.get_mut(&connection);
            let tracking = session.and_then(|session| session.tracking.take());
            self.stop_tracking(connection, tracking);
        }
    }

    /// Takes a message of another shard, or of this one, about users.
    pub(crate) fn users_message(&mut self, now: Now, from: ShardId, message: UsersMessage) {
        match message {
            UsersMessage::Change { ticket, change, reply } => {
                self.change_for(now, (from, ticket), &change, reply);
            }
            UsersMessage::Changed { ticket, users } => {
                self.adopt(users);
                let message = Message::Number { ticket, value: 0 };
                self.host.outputs.push(Output::Send { to: from, message });
            }
            UsersMessage::Denied(denial) => self.host.keep_denial(denial),
        }
    }

    /// Makes a change of users for a client of any shard.
    fn change_for(
        &mut self,
        now: Now,
        (from, ticket): (ShardId, TaskId),
        change: &UsersChange,
        reply: Vec<u8>,
    ) {
        if let UsersChange::Load = change {
            let id = self.shard.next_id();
            let origin = Origin::Shard(from, ticket);
            self.tasks.insert(id, Task::new(origin, 0, Version::Resp2, Work::Forwarded));
            self.host.outputs.push(Output::ReadUsers { task: id });
            return;
        }
        // The asker's shard has told of the setting before, so this is what it was set to, or what was set after that; of
        // two passwords that were given at once the setting and the users keep the same one, whoever comes here first.
        let password = self.host.settings.get(PASSWORD).map_or("", |setting| setting.value.as_str());
        match self.host.users.changed(change, password) {
            Err(text) => {
                let mut bytes = Vec::new();
                ReplyWriter::new(&mut bytes, Version::Resp2).error(text);
                self.answer_shard(from, ticket, bytes, 0);
            }
            Ok((users, count)) => {
                let reply = match count {
                    Some(count) => format!(":{count}\r\n").into_bytes(),
                    None => reply,
                };
                let id = self.shard.next_id();
                let origin = Origin::Shard(from, ticket);
                self.tasks.insert(id, Task::new(origin, 0, Version::Resp2, Work::Forwarded));
                self.spread_users(now, id, Arc::new(users), reply);
            }
        }
    }

    /// The file of users was read for `task` ([`Output::ReadUsers`]), or not.
    pub fn users_read(&mut self, now: Now, task: TaskId, file: Result<Vec<u8>>) {
        let loaded = match &file {
            Ok(bytes) => self.host.users.of_file(&self.host.facts.users_file, bytes),
            Err(error) => Err(error_text(error).trim_start_matches("ERR ").to_owned()),
        };
        match loaded {
            Ok(users) => self.spread_users(now, task, Arc::new(users), b"+OK\r\n".to_vec()),
            Err(text) => {
                let mut bytes = Vec::new();
                ReplyWriter::new(&mut bytes, Version::Resp2).error(format!("ERR {text}"));
                self.finish(now, task, bytes, 0, false);
            }
        }
    }

    /// Uses these users here, gives them to all other shards, and answers `id` when all have them.
    fn spread_users(&mut self, now: Now, id: TaskId, users: Arc<Users>, reply: Vec<u8>) {
        self.adopt(Arc::clone(&users));
        if self.shard.count() == 1 {
            return self.finish(now, id, reply, 0, false);
        }
        let work = self.fan_out_to_others(Ending::Reply(reply));
        if let Some(task) = self.tasks.get_mut(&id) {
            task.work = work;
        }
        for to in (0..self.shard.count()).filter(|to| *to != HOME) {
            let users = Arc::clone(&users);
            let message = Message::Users(UsersMessage::Changed { ticket: id, users });
            self.host.outputs.push(Output::Send { to, message });
        }
    }

    /// Lets the caller write the users into their file.
    pub(crate) fn save_users(&mut self, connection: ConnectionId) -> std::result::Result<Outcome, Halt> {
        self.check_users_file()?;
        let task = self.shard.next_id();
        let bytes = self.host.users.file();
        self.host.outputs.push(Output::WriteUsers { task, bytes });
        Ok(self.suspend(connection, task, Work::AwaitOwner))
    }

    pub(crate) fn check_users_file(&self) -> std::result::Result<(), Halt> {
        if self.host.facts.users_file.is_empty() {
            return fail(
                "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.",
            );
        }
        Ok(())
    }

    /// Notes which commands of a transaction its client may not carry out any more.
    pub(crate) fn recheck(&mut self, now: Now, connection: ConnectionId, commands: &mut [Queued]) {
        let Some(session) = self.host.sessions.get(&connection) else { return };
        if session.may_do_all {
            return;
        }
        let user = Arc::clone(&session.user);
        let mut denials = Vec::new();
        let mut checker = user.checker();
        for queued in commands {
            let args = queued.args.args();
            if let Err(refused) = checker.check(queued.index, queued.command, args) {
                queued.refused = Some(refused);
                denials.push(Denial::of(refused, &user, queued.command, args, true));
            }
        }
        self.host.work.add(checker.work());
        for denial in denials {
            self.host.note_denial(now, self.shard.index(), connection, denial);
        }
    }
}

impl Session {
    /// The connection is this user from now on.
    pub(crate) fn become_user(&mut self, user: &Arc<User>, users: &Users) {
        self.user = Arc::clone(user);
        self.may_do_all = user.is_unrestricted() && !self.must_authenticate(users);
    }

    /// Whether it has to say who it is first.
    pub(crate) fn must_authenticate(&self, users: &Users) -> bool {
        users.asks() && !self.is_authenticated
    }

    /// What a new connection is: the user `default`, unless that is asked for.
    pub(crate) fn become_default(&mut self, users: &Users) {
        self.is_authenticated = !users.asks();
        let user = Arc::clone(users.default_user());
        debug_assert!(user.name == DEFAULT_USER, "the user of connections that have not said who they are");
        self.become_user(&user, users);
    }
}
