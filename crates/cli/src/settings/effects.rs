//! Settings that need each other: none is read and then ignored in silence.
//!
//! Who asks for protection and would not get it is refused; what merely has no effect is told, and the server starts: a file
//! of settings may serve several servers.

use super::ServerSettings;
use crate::values::wrong;
use std::path::Path;
use tierstone::{DirectIo, FileBackend, IndexKind};
use tierstone_base::Result;
use tierstone_server::{ListenAddress, TlsClients};

/// What of the given settings has no effect, in words.
///
/// # Errors
/// `InvalidInput`: what was given for encryption would not encrypt anything, or what must outlive a power failure would not.
pub(super) fn without_effect(all: &ServerSettings, is_given: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    encryption(all, &is_given)?;
    guarantee(all, &is_given)?;
    let mut idle = Vec::new();
    let mut tell = |name: &str, has_effect: bool, why: &str| {
        if is_given(name) && !has_effect {
            idle.push(format!("{name} has no effect: {why}"));
        }
    };
    let (node, database) = (&all.node, &all.node.database);
    let has_socket = node.listen.iter().any(|address| matches!(address, ListenAddress::Unix(_)));
    tell("unix-socket-permissions", has_socket, "there is no unix:PATH in listen");
    let has_ca = node.tls.auth_clients != TlsClients::No;
    tell("tls-ca-cert-file", has_ca, "tls-auth-clients is no, so that clients show no certificates");
    let is_region = |data: &std::path::PathBuf| data.to_string_lossy().starts_with("nvm:");
    let is_wholly = database.directories.iter().any(is_region);
    let redo_log = database.redo.as_ref().is_some_and(|redo| !redo.region.is_empty());
    tell("nvm-size", redo_log, "it is the size of the region of nvm, which is not given");
    for name in ["nvm-guarantee", "nvm-flush"] {
        tell(name, redo_log || is_wholly, "there is no persistent memory, neither in nvm nor in data");
    }
    let is_emulated = is_emulated(all);
    tell("nvm-size", !redo_log || !is_emulated, "emulated:SIZE says it already");
    tell("nvm-flush", !is_emulated, "emulated memory is no file");
    // One that is emulated is always new, and has the hash index unless another is asked for.
    let is_hash = match database.index {
        Some(kind) => kind == IndexKind::Hash,
        None => is_emulated,
    };
    let is_hashed = database.nvm_partial_keys && is_wholly && is_hash;
    tell("nvm-keys", !is_hashed, "an index of the kind hash holds no keys");
    let is_of_files = "it is about files, and the store lies wholly in persistent memory";
    tell("backend", !is_wholly || database.backend == FileBackend::Auto, is_of_files);
    tell("direct-io", !is_wholly || database.direct_io == DirectIo::Auto, is_of_files);
    let has_soft_limit = node.transport.output.soft_bytes > 0;
    tell("output-soft-time", has_soft_limit, "output-soft-limit is 0, so that there is no soft limit");
    Ok(idle)
}

/// Whether the persistent memory that is given is memory of this process.
fn is_emulated(all: &ServerSettings) -> bool {
    let database = &all.node.database;
    let regions = database.directories.iter().filter_map(|data| data.to_str()?.strip_prefix("nvm:"));
    let redo_log = database.redo.as_ref().map(|redo| redo.region.as_str());
    regions.chain(redo_log).any(|region| region.starts_with("emulated:"))
}

/// Refuses to promise that emulated memory outlives a power failure to who asks for that in so many words.
fn guarantee(all: &ServerSettings, is_given: &impl Fn(&str) -> bool) -> Result<()> {
    if is_given("nvm-guarantee") && !all.node.database.any_guarantee && is_emulated(all) {
        let message = "nvm-guarantee power-fail: emulated memory is gone when the process ends; leave the setting out, or say any";
        return Err(wrong(message.to_owned()));
    }
    Ok(())
}

/// Refuses what belongs to TLS and is not complete.
fn encryption(all: &ServerSettings, is_given: &impl Fn(&str) -> bool) -> Result<()> {
    if all.node.tls_listen.is_empty() {
        let names = ["tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-auth-clients"];
        return match names.into_iter().find(|name| is_given(name)) {
            Some(name) => {
                let message = format!(
                    "{name} needs tls-listen, the address where clients come in that speak TLS: without one nothing is \
                     encrypted"
                );
                Err(wrong(message))
            }
            None => Ok(()),
        };
    }
    let files = [("tls-cert-file", &all.node.tls.cert_file), ("tls-key-file", &all.node.tls.key_file)];
    match files.into_iter().find(|(_, file)| *file == Path::new("")) {
        Some((name, _)) => Err(wrong(format!("tls-listen needs {name}"))),
        None => Ok(()),
    }
}
