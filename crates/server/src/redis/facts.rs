//! What clients are told about the server: gathered once, when it starts.

use super::node::NodeSettings;
use super::volume::VolumeInfo;
use super::{config, users_file};
use crate::listen::{descriptors_for_clients, descriptors_max};
use std::net::SocketAddr;
use std::sync::Arc;
use tierstone::Database;
use tierstone_base::{Now, Result};
use tierstone_energy::Watch;
use tierstone_media::Guarantee;
use tierstone_media::file::uring_refusal;
use tierstone_redis::{DirectoryFacts, DurableProbe, RedoFacts, Secret, ServerFacts, VolumeFacts};

/// What clients are told about the server.
pub(super) fn server_facts(
    settings: &NodeSettings,
    database: &Database,
    (addresses, tls_addresses): (&[SocketAddr], &[SocketAddr]),
    (started, watch): (Now, Arc<Watch>),
) -> Result<ServerFacts> {
    let storage = database.storage();
    let directories = storage.places().into_iter().map(|place| DirectoryFacts {
        path: place.path.display().to_string(),
        file_system: place.file_system.to_owned(),
        guarantee: place.guarantee.name().to_owned(),
        direct_io: place.direct_io,
    });
    let facts = database.facts();
    let probe = facts.probe.as_ref().map(|probe| DurableProbe {
        reason: probe.reason.clone(),
        flush_looks_device_wide: probe.flush_looks_device_wide,
    });
    let clients_possible = descriptors_for_clients(descriptors_max(), storage.files_max());
    let refusal = uring_refusal()
        .inspect(|reason| tracing::warn!(reason, "the kernel refuses io_uring: epoll and threads serve"));
    Ok(ServerFacts {
        port: addresses.first().map_or(0, SocketAddr::port),
        durability_guarantee: database.guarantee().text().into(),
        redo: redo_facts(database),
        nvm_region: storage.nvm().map(|region| region.report().text()),
        durable_method: database.durable_method().into(),
        durable_probe: probe,
        io_uring: refusal.map_or_else(|| "available".into(), |reason| format!("refused ({reason})")),
        directories: directories.collect(),
        settings_file: settings.settings_file.as_ref().map(|file| file.path()).unwrap_or_default(),
        users_file: users_file::shown(settings.users_file.as_deref()),
        secret: Some(secret()?),
        settings: config::settings_of(settings, (addresses, tls_addresses), clients_possible),
        memory_bytes: settings.database.memory_bytes,
        process: Some(crate::process::process_numbers),
        energy: Some(watch),
        volume: storage.volume().map(|host| Arc::new(VolumeInfo(host.teller())) as Arc<dyn VolumeFacts>),
        index: facts.index.name().into(),
        opening: settings.database.progress.clone(),
        started,
        run_id: run_id()?,
        ..ServerFacts::default()
    })
}

/// What clients are told about the redo log.
fn redo_facts(database: &Database) -> RedoFacts {
    let lost = database.report().redo_lost || !database.report().redo_damage.is_empty();
    match database.redo() {
        None => RedoFacts { state: "off".into(), lost, ..RedoFacts::default() },
        Some(redo) => RedoFacts {
            state: if redo.bytes_wanted == 0 { "on" } else { "too-small" }.into(),
            region: redo.text(),
            guarantee: redo.guarantee().map_or("none", Guarantee::name).into(),
            groups_replayed: redo.groups_replayed,
            lost,
        },
    }
}

/// Random bytes of the operating system.
fn secret() -> Result<Secret> {
    let mut bytes = [0; 32];
    for part in bytes.chunks_exact_mut(8) {
        part.copy_from_slice(&tierstone_base::SeededRandom::system_seed()?.to_le_bytes());
    }
    Ok(Secret(bytes))
}

fn run_id() -> Result<String> {
    let mut text = String::new();
    while text.len() < 40 {
        text.push_str(&format!("{:016x}", tierstone_base::SeededRandom::system_seed()?));
    }
    text.truncate(40);
    Ok(text)
}
