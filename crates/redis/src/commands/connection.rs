//! The commands of connections: who speaks, which protocol, which database.

use crate::acl::DEFAULT_USER;
use crate::acl::log::Denial;
use crate::context::{Halt, database, fail, fail_with};
use crate::control::{Control, Flow};
use crate::number;
use std::sync::Arc;
use tierstone_wire::resp::{ReplyWriter, Version};

const NOT_PERMITTED_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

pub(crate) fn ping(control: &mut Control<'_>) -> Result<Flow, Halt> {
    if control.args.len() > 2 {
        return Err(crate::context::wrong_arity("ping"));
    }
    let text = control.args.get(1);
    if control.session().is_listening_only() {
        control.reply.array(2);
        control.reply.bulk(b"pong");
        control.reply.bulk(text.unwrap_or_default());
    } else {
        match text {
            Some(text) => control.reply.bulk(text),
            None => control.reply.simple("PONG"),
        }
    }
    Ok(Flow::Done)
}

pub(crate) fn echo(control: &mut Control<'_>) -> Result<Flow, Halt> {
    control.reply.bulk(control.args.at(1));
    Ok(Flow::Done)
}

pub(crate) fn select(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let databases = control.engine.keys.len() as u32;
    control.session().db = database(control.args.at(1), databases)?;
    control.reply.ok();
    Ok(Flow::Done)
}

/// Lets the connection become a user, if this is his password.
fn authenticate(control: &mut Control<'_>, name: &[u8], password: &[u8]) -> Result<(), Halt> {
    let users = Arc::clone(&control.host.users);
    match users.get(name).filter(|user| user.lets_in(password)) {
        Some(user) => {
            let session = control.session();
            session.is_authenticated = true;
            session.become_user(user, &users);
            Ok(())
        }
        None => {
            let denial = Denial::of_login(name, control.args, control.host.is_in_exec);
            let (shard, _) = control.engine.shard;
            control.host.note_denial(control.now, shard, control.connection, denial);
            fail(WRONG_PASSWORD)
        }
    }
}

pub(crate) fn auth(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    match args.len() {
        2 if control.host.users.is_open() => {
            return fail(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            );
        }
        2 => authenticate(control, DEFAULT_USER, args.at(1))?,
        3 => authenticate(control, args.at(1), args.at(2))?,
        _ => return fail(crate::context::SYNTAX),
    }
    control.reply.ok();
    Ok(Flow::Done)
}

/// The longest name of a connection or its library, in bytes: each is kept as long as its connection.
const NAME_BYTES_MAX: usize = 64 << 10;

/// Checks a name that a client gives itself: only printable bytes without spaces, and not too many of them. `refusal`
/// is the error otherwise.
pub(crate) fn check_name(name: &[u8], refusal: &'static str) -> Result<(), Halt> {
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return fail(refusal);
    }
    if name.len() > NAME_BYTES_MAX {
        return fail_with(format!(
            "ERR a name that a client gives itself has at most {NAME_BYTES_MAX} bytes"
        ));
    }
    Ok(())
}

pub(crate) fn set_name(control: &mut Control<'_>, name: &[u8]) -> Result<(), Halt> {
    check_name(name, NOT_PERMITTED_NAME)?;
    control.session().name = name.to_vec();
    Ok(())
}

pub(crate) fn hello(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    let version = match args.get(1) {
        None => None,
        Some(text) => match number::integer(text) {
            Some(2) => Some(Version::Resp2),
            Some(3) => Some(Version::Resp3),
            Some(_) => return fail("NOPROTO unsupported protocol version"),
            None => return fail("ERR Protocol version is not an integer or out of range"),
        },
    };
    let mut name = None;
    let mut credentials = None;
    let mut index = 2;
    while let Some(option) = args.get(index) {
        let left = args.len() - index - 1;
        if option.eq_ignore_ascii_case(b"AUTH") && left >= 2 {
            credentials = Some((args.at(index + 1), args.at(index + 2)));
            index += 3;
        } else if option.eq_ignore_ascii_case(b"SETNAME") && left >= 1 {
            name = Some(args.at(index + 1));
            check_name(args.at(index + 1), NOT_PERMITTED_NAME)?;
            index += 2;
        } else {
            let option = String::from_utf8_lossy(option);
            return fail_with(format!("ERR Syntax error in HELLO option '{option}'"));
        }
    }
    if let Some((user, password)) = credentials {
        authenticate(control, user, password)?;
    }
    let users = Arc::clone(&control.host.users);
    if control.session().must_authenticate(&users) {
        return fail(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        );
    }
    if let Some(name) = name {
        set_name(control, name)?;
    }
    if let Some(version) = version {
        control.session().version = version;
    }
    let version = control.session().version;
    let id = control.connection;
    // The answer is already in the protocol that was asked for.
    let mut bytes = Vec::new();
    let mut reply = ReplyWriter::new(&mut bytes, version);
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(control.host.facts.redis_version.as_bytes());
    reply.bulk(b"proto");
    reply.integer(if version == Version::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(id as i64);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
    control.reply.encoded(&bytes);
    Ok(Flow::Done)
}
