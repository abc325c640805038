//! Transactions whose commands have effects outside the view are rehearsed: it is seen that nothing is missing
//! before the run that counts.

use crate::context::ReadCounts;
use crate::events::Events;
use crate::run::{Setting, run_handler};
use crate::session::Queued;
use crate::table::Action;
use tierstone_store::{Stop, View};
use tierstone_wire::resp::Version;

/// As [`Setting`], with counts and events of its own, which are forgotten.
pub(crate) struct Rehearsal<'a> {
    db: u32,
    version: Version,
    value_size_max_bytes: u64,
    scratch: &'a mut Vec<u8>,
    reads: ReadCounts,
    events: Events,
}

impl<'a> Rehearsal<'a> {
    /// Of a transaction in database `db`; `events` are those of the run that will follow.
    pub fn new(
        value_size_max_bytes: u64,
        (db, version): (u32, Version),
        scratch: &'a mut Vec<u8>,
        events: &Events,
    ) -> Self {
        let (reads, events) = (ReadCounts::default(), events.alike());
        Rehearsal { db, version, value_size_max_bytes, scratch, reads, events }
    }
}

/// Runs the data commands of a transaction, only to see whether they have all they need.
pub(crate) fn rehearse(
    view: &mut View<'_>,
    commands: &[Queued],
    rehearsal: &mut Rehearsal<'_>,
    reply: &mut Vec<u8>,
) -> Result<(), Stop> {
    let mut db = rehearsal.db;
    for queued in commands.iter().filter(|queued| queued.refused.is_none()) {
        let args = queued.args.args();
        match queued.command.action {
            Action::Data(handler) => {
                let mut setting = Setting {
                    db,
                    version: rehearsal.version,
                    is_use: false,
                    value_size_max_bytes: rehearsal.value_size_max_bytes,
                    scratch: rehearsal.scratch,
                    reads: &mut rehearsal.reads,
                    events: &mut rehearsal.events,
                    parts: None,
                    plan: None,
                };
                run_handler(view, handler, args, &mut setting, reply)?;
                crate::work::check(rehearsal.reads.work)?;
                view.check_held(reply.len() as u64)?;
            }
            _ if queued.command.name == "select" => {
                let number = crate::number::integer(args.at(1)).and_then(|number| u32::try_from(number).ok());
                db = number.filter(|number| *number < view.databases()).unwrap_or(db);
            }
            _ => {}
        }
        reply.clear();
    }
    Ok(())
}
