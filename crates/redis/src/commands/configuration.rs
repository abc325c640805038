//! `CONFIG` and its subcommands.

use crate::context::{Halt, fail, fail_with};
use crate::control::{Control, Flow, Output};
use crate::glob::Pattern;
use std::collections::BTreeSet;

/// No setting has a longer name.
const NAME_BYTES_MAX: usize = 256;

pub(crate) fn get(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let mut names = BTreeSet::new();
    for text in control.args.from(2) {
        let pattern = Pattern::new(text, true, NAME_BYTES_MAX);
        let fits = |name: &&str| pattern.matches(name.as_bytes(), &mut 0);
        names.extend(control.host.settings.iter().map(|(name, _)| name).filter(fits));
    }
    control.reply.map(names.len());
    for name in names {
        control.reply.bulk(name.as_bytes());
        let value = control.host.settings.get(name).map_or("", |setting| setting.value.as_str());
        control.reply.bulk(value.as_bytes());
    }
    Ok(Flow::Done)
}

pub(crate) fn set(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    if !args.len().is_multiple_of(2) {
        return Err(crate::context::wrong_arity("config|set"));
    }
    let mut changes: Vec<(String, String)> = Vec::new();
    for index in (2..args.len()).step_by(2) {
        let name = String::from_utf8_lossy(args.at(index)).to_ascii_lowercase();
        if control.host.settings.get(&name).is_none() {
            let given = String::from_utf8_lossy(args.at(index));
            return fail_with(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{given}'"
            ));
        }
        if changes.iter().any(|(other, _)| *other == name) {
            return fail_with(format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - duplicate parameter"
            ));
        }
        // Settings are kept as text: what is none would become another value, of a password for example.
        let checked = match str::from_utf8(args.at(index + 1)) {
            Ok(value) => control.host.settings.check(&name, value),
            Err(_) => Err("argument must be valid UTF-8".into()),
        };
        match checked {
            Ok(value) => changes.push((name, value)),
            Err(why) => {
                return fail_with(format!(
                    "ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"
                ));
            }
        }
    }
    for (name, value) in changes {
        control.host.settings.change(&name, &value, control.engine.shard.0);
        control.host.outputs.push(Output::Setting { name, value });
    }
    control.reply.ok();
    Ok(Flow::Done)
}

pub(crate) fn resetstat(control: &mut Control<'_>) -> Result<Flow, Halt> {
    if control.args.len() != 2 {
        return fail(crate::context::SYNTAX);
    }
    control.host.counters.reset(control.host.transport);
    control.host.timing.forget_times();
    control.host.latencies.clear();
    control.reply.ok();
    Ok(Flow::Done)
}
