//! Requests of connections that may not do everything: looked at before they are carried out or queued.

use crate::acl::log::Denial;
use crate::args::Args;
use crate::control::Host;
use crate::executor::{Executor, Outcome};
use crate::request::{Admitted, refused_inside};
use crate::session::{ConnectionId, Session};
use crate::table::{Command, flag};
use tierstone_base::Now;
use tierstone_engine::Engine;
use tierstone_wire::resp::Version;

/// A request that its user may not make.
pub(crate) struct Denied {
    /// What its client is told.
    pub text: String,
    /// The command's name.
    name: &'static str,
    /// What is kept of it.
    pub denial: Denial,
}

impl Host {
    /// What keeps a connection from a request that must be looked at for who it is, if anything.
    pub(crate) fn check_user(
        &self,
        session: &Session,
        index: usize,
        command: &'static Command,
        args: Args<'_>,
    ) -> Option<Admitted> {
        if session.must_authenticate(&self.users) && !command.has(flag::NO_AUTH) {
            return Some(Admitted::Refused("NOAUTH Authentication required.".into()));
        }
        let in_transaction = session.transaction.is_some();
        if in_transaction && command.has(flag::NO_MULTI) {
            return refused_inside(command).map(|text| Admitted::Refused(text.into()));
        }
        let mut checker = session.user.checker();
        let checked = checker.check(index, command, args);
        self.work.add_checked(checker.work());
        let refused = checked.err()?;
        let text = format!("NOPERM {}", refused.text(&session.user, command, args, false));
        let denial = Denial::of(refused, &session.user, command, args, in_transaction);
        Some(Admitted::Denied(Box::new(Denied { text, name: command.name, denial })))
    }
}

impl<E: Engine> Executor<E> {
    /// Answers a request that its user may not make.
    pub(crate) fn deny(
        &mut self,
        now: Now,
        connection: ConnectionId,
        denied: Denied,
        version: Version,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            session.last_command = denied.name;
        }
        self.host.note_denial(now, self.shard.index(), connection, denied.denial);
        if denied.name == "exec" {
            self.refuse_exec(connection, &denied.text, version, reply);
        } else {
            self.refuse(connection, &denied.text, version, reply);
        }
        Outcome::Ready { gate: 0 }
    }

    /// Ends the transaction whose `EXEC` is refused, as Redis does.
    pub(crate) fn refuse_exec(
        &mut self,
        connection: ConnectionId,
        text: &str,
        version: Version,
        reply: &mut Vec<u8>,
    ) {
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            session.transaction = None;
        }
        self.unwatch(connection);
        let text = text.strip_prefix("ERR ").unwrap_or(text);
        self.refuse(
            connection,
            &format!("EXECABORT Transaction discarded because of: {text}"),
            version,
            reply,
        );
    }
}
