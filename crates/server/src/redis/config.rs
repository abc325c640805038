//! The node's settings under Redis's names, for `CONFIG`.
//!
//! A setting is under Redis's name where it means the same. What can be set while the server runs has its
//! effect on every shard's thread ([`transport_change`]); the rest says how things are.

use super::node::NodeSettings;
use crate::listen::ListenAddress;
use crate::settings::{TransportChange, TransportSettings};
use std::net::SocketAddr;
use tierstone_redis::settings::{
    ACL_LOG_LIMIT, OutputBufferLimits, PROTECTED_MODE, Setting, SettingKind, format_output_limits,
    parse_output_limits,
};

/// The most connections that one driver thread can be set to.
const CONNECTIONS_MAX: i64 = 1_000_000;

/// The settings of a node that listens on `addresses`, and for TLS on `tls_addresses`, with descriptors for so many
/// clients.
pub fn settings_of(
    node: &NodeSettings,
    (addresses, tls_addresses): (&[SocketAddr], &[SocketAddr]),
    clients_possible: u64,
) -> Vec<(String, Setting)> {
    let transport = &node.transport;
    let shards = i64::from(node.database.shards.max(1));
    let ips: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
    let sockets = node.listen.iter().filter_map(|address| match address {
        ListenAddress::Unix(path) => Some(path.display().to_string()),
        ListenAddress::Tcp(_) => None,
    });
    let directory = node.database.directories.first().map(|path| {
        let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
        whole.display().to_string()
    });
    let roots = node.tls.ca_cert_file.as_ref().map(|path| path.display().to_string());
    let fixed = [
        ("aclfile", super::users_file::shown(node.users_file.as_deref())),
        ("maxmemory", node.database.memory_bytes.to_string()),
        ("port", addresses.first().map_or(0, SocketAddr::port).to_string()),
        ("bind", ips.join(" ")),
        ("unixsocket", sockets.collect::<Vec<_>>().join(" ")),
        ("dir", directory.unwrap_or_default()),
        ("tcp-keepalive", transport.keepalive_s.to_string()),
        ("tcp-backlog", transport.backlog.to_string()),
        ("tls-port", tls_addresses.first().map_or(0, SocketAddr::port).to_string()),
        ("tls-cert-file", node.tls.cert_file.display().to_string()),
        ("tls-key-file", node.tls.key_file.display().to_string()),
        ("tls-ca-cert-file", roots.unwrap_or_default()),
        ("tls-auth-clients", node.tls.auth_clients.name().to_owned()),
        ("loglevel", node.log_level.clone()),
    ];
    let fixed = fixed.map(|(name, value)| (name, value, SettingKind::Text, false));
    let seconds = SettingKind::Integer { min: 0, max: i64::from(i32::MAX) };
    let input = SettingKind::Bytes { min: transport.input_pause_bytes as u64, max: i64::MAX as u64 };
    let output = SettingKind::OutputBufferLimits { hard_min_bytes: transport.output.full_bytes as u64 };
    let protected = if node.is_protected { "yes" } else { "no" };
    let refusals = SettingKind::Integer { min: 0, max: ACL_LOG_LIMIT };
    let clients = clients_kind(shards, clients_possible);
    let settable = [
        ("maxclients", (i64::from(transport.connections_max) * shards).to_string(), clients, true),
        ("timeout", transport.idle_timeout_s.to_string(), seconds, true),
        ("client-query-buffer-limit", transport.input_limit_bytes.to_string(), input, true),
        ("client-output-buffer-limit", output_limits(transport), output, true),
        ("acllog-max-len", node.acl_log_max.to_string(), refusals, true),
        (PROTECTED_MODE, protected.into(), SettingKind::Boolean, true),
    ];
    let all = fixed.into_iter().chain(settable);
    all.map(|(name, value, kind, is_settable)| (name.to_owned(), Setting { value, kind, is_settable }))
        .collect()
}

/// What `maxclients` takes where there are so many shards, and descriptors for so many clients.
fn clients_kind(shards: i64, possible: u64) -> SettingKind {
    let possible = i64::try_from(possible).unwrap_or(i64::MAX);
    SettingKind::Clients { max: CONNECTIONS_MAX * shards, possible: possible.max(1) }
}

fn output_limits(transport: &TransportSettings) -> String {
    format_output_limits(OutputBufferLimits {
        hard_bytes: transport.output.hard_bytes as u64,
        soft_bytes: transport.output.soft_bytes as u64,
        soft_s: transport.output.soft_ms / 1_000,
    })
}

/// What a checked new value means for the driver threads of a node with so many shards, if anything.
pub fn transport_change(name: &str, value: &str, shards: usize) -> Option<TransportChange> {
    let number = || value.parse::<u64>().ok();
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    match name {
        // The kernel spreads connections over the threads; each takes its part, rounded up.
        "maxclients" => {
            let part = number()?.div_ceil(shards.max(1) as u64);
            Some(TransportChange::ConnectionsMax(u32::try_from(part).ok()?))
        }
        "timeout" => Some(TransportChange::IdleTimeout(u32::try_from(number()?).ok()?)),
        "client-query-buffer-limit" => Some(TransportChange::InputLimit(bytes(number()?))),
        "client-output-buffer-limit" => {
            let limits = parse_output_limits(value, "").ok()?;
            Some(TransportChange::Output {
                hard_bytes: bytes(limits.hard_bytes),
                soft_bytes: bytes(limits.soft_bytes),
                soft_ms: limits.soft_s * 1_000,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::OutputLimits;
    use tierstone::DatabaseOptions;
    use tierstone_redis::settings::Settings;

    #[test]
    fn what_can_be_set_reaches_the_drivers_and_the_rest_cannot_be_set() {
        let database = DatabaseOptions { shards: 3, ..DatabaseOptions::default() };
        let node = NodeSettings { database, ..NodeSettings::default() };
        let mut registry = Settings::new(16, 1 << 20, Default::default());
        let all = settings_of(&node, (&[SocketAddr::from(([127, 0, 0, 1], 77))], &[]), 100_000);
        for (name, setting) in &all {
            registry.add(name, &setting.value, setting.kind.clone(), setting.is_settable);
            // These the executors follow themselves.
            let is_ours = setting.is_settable && !matches!(name.as_str(), "acllog-max-len" | PROTECTED_MODE);
            assert_eq!(transport_change(name, &setting.value, 3).is_some(), is_ours, "{name}");
        }
        assert_eq!(registry.get("port").map(|port| port.value.as_str()), Some("77"));
        assert_eq!(registry.get("maxclients").map(|most| most.value.as_str()), Some("30000"));
        let mut transport = TransportSettings::default();
        for (name, value) in [
            ("maxclients", "10"),
            ("timeout", "9"),
            ("client-query-buffer-limit", "2mb"),
            ("client-output-buffer-limit", "normal 4mb 1mb 5 pubsub 4mb 1mb 5"),
        ] {
            let checked = registry.check(name, value).expect("it may be set");
            transport.change(transport_change(name, &checked, 3).expect("it means something"));
        }
        assert_eq!((transport.connections_max, transport.idle_timeout_s), (4, 9));
        assert_eq!(transport.input_limit_bytes, 2 << 20);
        let output =
            OutputLimits { hard_bytes: 4 << 20, soft_bytes: 1 << 20, soft_ms: 5_000, ..transport.output };
        assert_eq!(transport.output, output);
        for (name, value) in [
            ("port", "1"),
            ("maxclients", "0"),
            ("timeout", "-1"),
            ("client-query-buffer-limit", "1"),
            ("client-output-buffer-limit", "normal 4mb 0 0"),
            ("client-output-buffer-limit", "normal 5 0 0 pubsub 5 0 0"),
            ("client-output-buffer-limit", "nobody 5 0 0"),
            ("client-output-buffer-limit", "normal 5"),
        ] {
            assert!(registry.check(name, value).is_err(), "{name} {value}");
        }
    }

    #[test]
    fn no_more_clients_are_allowed_than_there_are_descriptors_for() {
        let mut registry = Settings::new(16, 1 << 20, Default::default());
        registry.add("maxclients", "20000", clients_kind(2, 992), true);
        for value in ["1", "992"] {
            assert_eq!(registry.check("maxclients", value).as_deref(), Ok(value));
        }
        for (value, told) in [
            (
                "993",
                "The operating system is not able to handle the specified number of clients, try with 992",
            ),
            ("2000001", "argument must be between 1 and 2000000 inclusive"),
            ("0", "argument must be between 1 and 2000000 inclusive"),
            ("x", "argument couldn't be parsed into an integer"),
        ] {
            assert_eq!(registry.check("maxclients", value).unwrap_err(), told, "{value}");
        }
    }
}
