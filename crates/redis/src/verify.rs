//! `DEBUG VERIFY START` and `DEBUG VERIFY STATUS`: every shard verifies itself beside the traffic, and what
//! they have found becomes one answer.

use crate::args::Args;
use crate::context::{Halt, SYNTAX, error_text, fail};
use crate::control::Output;
use crate::executor::{Executor, Outcome};
use crate::remote::{Ending, Message};
use crate::session::ConnectionId;
use crate::task::{Task, Work};
use tierstone_base::{Error, Now, ShardId};
use tierstone_engine::{Engine, Verification};
use tierstone_store::TaskId;
use tierstone_wire::resp::ReplyWriter;

/// What the shards have said so far.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    sum: Option<Verification>,
    error: Option<Error>,
}

impl Verified {
    /// Takes in what one shard says.
    pub fn add(&mut self, report: Result<Option<Box<Verification>>, Error>) {
        match report {
            Ok(None) => {}
            Ok(Some(report)) => self.sum.get_or_insert_default().add(&report),
            Err(error) => self.error = Some(error),
        }
    }

    /// The answer: an error, nil before the first verification, or a map of what was found.
    pub fn write(&self, reply: &mut ReplyWriter<'_>) {
        if let Some(error) = &self.error {
            return reply.error(error_text(error).as_bytes());
        }
        let Some(report) = &self.sum else { return reply.null() };
        let numbers = [
            ("running", u64::from(report.is_running)),
            ("bytes", report.bytes),
            ("bytes_total", report.bytes_total),
            ("segments", report.segments),
            ("moved_segments", report.moved_segments),
            ("records", report.records),
            ("live_records", report.live_records),
            ("index_entries", report.index_entries),
            ("unjudged_records", report.unjudged_records),
            ("lost_keys", report.lost_keys),
        ];
        reply.map(numbers.len() + 2);
        for (name, number) in numbers {
            reply.bulk(name.as_bytes());
            reply.integer(number as i64);
        }
        reply.bulk(b"damage");
        reply.map(report.damage.len());
        for (kind, count) in &report.damage {
            reply.bulk(kind.as_bytes());
            reply.integer(*count as i64);
        }
        reply.bulk(b"findings");
        reply.array(report.findings.len());
        report.findings.iter().for_each(|finding| reply.bulk(finding.as_bytes()));
    }
}

impl<E: Engine> Executor<E> {
    pub(crate) fn debug_verify(&mut self, connection: ConnectionId, args: Args<'_>) -> Result<Outcome, Halt> {
        let word = args.at(2).to_ascii_uppercase();
        let begins = match word.as_slice() {
            b"START" => true,
            b"STATUS" => false,
            _ => return fail(SYNTAX),
        };
        let id = self.shard.next_id();
        let work = self.fan_out(Ending::Verify(Verified::default()));
        let outcome = self.suspend(connection, id, work);
        self.send_everywhere(|_| Message::Verify { ticket: id, begins });
        Ok(outcome)
    }

    /// Begins a verification of this shard, or tells how far it is.
    pub(crate) fn verify_here(&mut self, from: ShardId, ticket: TaskId, begins: bool) {
        let engine = self.shard.engine_mut();
        let begun = if begins { engine.begin_verification() } else { Ok(()) };
        let report = begun.map(|()| engine.verification().cloned().map(Box::new));
        self.host.outputs.push(Output::Send { to: from, message: Message::Verified { ticket, report } });
    }

    /// What one shard says.
    pub(crate) fn verified(
        &mut self,
        now: Now,
        from: ShardId,
        ticket: TaskId,
        report: Result<Option<Box<Verification>>, Error>,
    ) {
        if let Some(Task { work: Work::FanOut(fan_out), .. }) = self.tasks.get_mut(&ticket).map(Box::as_mut)
            && let Ending::Verify(verified) = &mut fan_out.ending
        {
            verified.add(report);
        }
        self.part(now, from, ticket, 0, Vec::new());
    }
}
