//! `ACL` and those of its subcommands that change nothing: the others are in [`crate::acl`].

use crate::acl::hex;
use crate::args::Args;
use crate::context::{Halt, NOT_AN_INTEGER, fail, fail_with};
use crate::control::{Control, Flow};
use crate::number;
use crate::table::{self, category};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Bits of a password that nobody has asked for otherwise.
const PASSWORD_BITS: i64 = 256;
/// The most bits.
const PASSWORD_BITS_MAX: i64 = 4_096;

/// The error of a subcommand with too many words.
fn wrong_words(control: &Control<'_>) -> Halt {
    let name = String::from_utf8_lossy(control.args.at(1));
    Halt::Error(
        format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try ACL HELP.").into(),
    )
}

pub(crate) fn cat(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    if args.len() > 3 {
        return Err(wrong_words(control));
    }
    let Some(name) = args.get(2) else {
        control.reply.array(category::NAMES.len());
        category::NAMES.iter().for_each(|(_, name)| control.reply.bulk(name.as_bytes()));
        return Ok(Flow::Done);
    };
    let Some(bit) = category::bit_of(name) else {
        return fail_with(format!("ERR Unknown category '{}'", String::from_utf8_lossy(name)));
    };
    let all = table::commands().flat_map(|command| std::iter::once(command).chain(command.subcommands));
    let names: Vec<&str> =
        all.filter(|command| command.all_categories() & bit != 0).map(|command| command.name).collect();
    control.reply.array(names.len());
    names.iter().for_each(|name| control.reply.bulk(name.as_bytes()));
    Ok(Flow::Done)
}

pub(crate) fn whoami(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let user = Arc::clone(&control.session().user);
    control.reply.bulk(&user.name);
    Ok(Flow::Done)
}

pub(crate) fn users(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let users = Arc::clone(&control.host.users);
    control.reply.array(users.iter().len());
    users.iter().for_each(|user| control.reply.bulk(&user.name));
    Ok(Flow::Done)
}

pub(crate) fn list(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let users = Arc::clone(&control.host.users);
    control.reply.array(users.iter().len());
    users.iter().for_each(|user| control.reply.bulk(&user.line()));
    Ok(Flow::Done)
}

pub(crate) fn getuser(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let Some(user) = control.host.users.get(control.args.at(2)).map(Arc::clone) else {
        control.reply.null();
        return Ok(Flow::Done);
    };
    let reply = &mut control.reply;
    reply.map(6);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords.len());
    user.passwords.iter().for_each(|hash| reply.bulk(hex(hash).as_bytes()));
    for (index, selector) in user.selectors.iter().enumerate() {
        if index == 1 {
            reply.bulk(b"selectors");
            reply.array(user.selectors.len() - 1);
        }
        if index > 0 {
            reply.map(3);
        }
        reply.bulk(b"commands");
        reply.bulk(&selector.commands.describe());
        reply.bulk(b"keys");
        reply.bulk(&selector.keys_text());
        reply.bulk(b"channels");
        reply.bulk(&selector.channels_text());
    }
    if user.selectors.len() == 1 {
        reply.bulk(b"selectors");
        reply.array(0);
    }
    Ok(Flow::Done)
}

pub(crate) fn dryrun(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    let shown = |index| String::from_utf8_lossy(args.at(index));
    let Some(user) = control.host.users.get(args.at(2)).map(Arc::clone) else {
        return fail_with(format!("ERR User '{}' not found", shown(2)));
    };
    let words: Vec<&[u8]> = args.from(3).collect();
    let request = Args::Slices(&words);
    let container = table::lookup(request.at(0));
    let found = container.and_then(|found| match request.get(1) {
        Some(name) if !found.command.subcommands.is_empty() => table::subcommand(found.command, name),
        _ => Some(found.command),
    });
    let (Some(container), Some(command)) = (container, found) else {
        return fail_with(format!("ERR Command '{}' not found", shown(3)));
    };
    if !command.takes(request.len()) {
        return fail_with(format!("ERR wrong number of arguments for '{}' command", command.name));
    }
    let mut checker = user.checker();
    let checked = checker.check(container.index, command, request);
    control.host.work.add(checker.work());
    match checked {
        Ok(()) => control.reply.ok(),
        Err(refused) => control.reply.bulk(refused.text(&user, command, request, true).as_bytes()),
    }
    Ok(Flow::Done)
}

pub(crate) fn genpass(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    if args.len() > 3 {
        return Err(wrong_words(control));
    }
    let bits = match args.get(2).map(number::integer) {
        None => PASSWORD_BITS,
        Some(Some(bits)) if (1..=PASSWORD_BITS_MAX).contains(&bits) => bits,
        Some(Some(_)) => {
            return fail(
                "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
            );
        }
        Some(None) => return fail(NOT_AN_INTEGER),
    };
    let Some(secret) = &control.host.facts.secret else {
        return fail("ERR there is no source of randomness here");
    };
    let digits = (bits as usize).div_ceil(4);
    let mut text = String::new();
    // Each block is of other numbers, so that nothing of it is told by another.
    for block in 0u64.. {
        if text.len() >= digits {
            break;
        }
        let hash = Sha256::new()
            .chain_update(secret.0)
            .chain_update(control.engine.shard.0.to_le_bytes())
            .chain_update(control.host.passwords_made.to_le_bytes())
            .chain_update(block.to_le_bytes());
        text.push_str(&hex(&hash.finalize()));
    }
    control.host.passwords_made += 1;
    control.reply.bulk(&text.as_bytes()[..digits]);
    Ok(Flow::Done)
}

pub(crate) fn log(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    if args.len() > 3 {
        return Err(wrong_words(control));
    }
    let count = match args.get(2) {
        Some(word) if word.eq_ignore_ascii_case(b"RESET") => {
            control.host.acl_log.clear();
            control.reply.ok();
            return Ok(Flow::Done);
        }
        None => None,
        Some(text) => match number::integer(text) {
            None => return fail(NOT_AN_INTEGER),
            count => count,
        },
    };
    control.host.acl_log.write(count, control.now.wall_ms, &mut control.reply);
    Ok(Flow::Done)
}
