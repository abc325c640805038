//! Settings about who may come in, and how: users, protection, encryption.

use super::Setting;
use crate::values::{addresses, choice, number, wrong};
use std::path::PathBuf;
use tierstone_server::TlsClients;
use tierstone_server::redis::ACL_LOG_LIMIT;

pub const UNIX_SOCKET_PERMISSIONS: Setting = Setting {
    name: "unix-socket-permissions",
    variable: "TIERSTONE_UNIX_SOCKET_PERMISSIONS",
    value: "MODE",
    help: "Who of the machine may connect to the sockets of unix:PATH in listen, as the octal digits of chmod: 700 (the server's user), 770 (its group, too) or 777 (everybody)",
    default: "as the umask of the server says, most often its user alone",
    trade_off: "Clients that come by such a socket are of the machine itself: without a password they may do everything",
    redis: "",
    apply: |all, text| {
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && text.len() <= 4);
        let mode = mode.ok_or_else(|| wrong("write three octal digits, such as 770".into()))?;
        all.socket_mode = Some(mode);
        Ok(())
    },
};

pub const PROTECTED_MODE: Setting = Setting {
    name: "protected-mode",
    variable: "TIERSTONE_PROTECTED_MODE",
    value: "BOOL",
    help: "Keep clients of other machines out as long as the user default needs no password: yes or no",
    default: "yes",
    trade_off: "With no and without a password everybody who reaches the server reads and writes all",
    redis: "protected-mode",
    apply: |all, text| {
        let choices = [("yes", true), ("no", false), ("true", true), ("false", false)];
        all.node.is_protected = choice(text, &choices)?;
        Ok(())
    },
};

pub const ACLFILE: Setting = Setting {
    name: "aclfile",
    variable: "TIERSTONE_ACLFILE",
    value: "FILE",
    help: "A file that says who may do what, with lines as ACL LIST shows them: read at the start and by ACL LOAD, written by ACL SAVE",
    default: "none: there is only the user default, with the password",
    trade_off: "The file must be there, empty at first; its user default, if it names one, counts before the password",
    redis: "aclfile",
    apply: |all, text| {
        all.node.users_file = Some(PathBuf::from(text));
        Ok(())
    },
};

pub const ACLLOG_MAX_LEN: Setting = Setting {
    name: "acllog-max-len",
    variable: "TIERSTONE_ACLLOG_MAX_LEN",
    value: "N",
    help: "How many refusals ACL LOG keeps, 0 to 100000",
    default: "128",
    trade_off: "Each takes some 500 bytes, 4 KiB at most",
    redis: "acllog-max-len",
    apply: |all, text| {
        let most = number::<u32>(text)?;
        if i64::from(most) > ACL_LOG_LIMIT {
            return Err(wrong("0 to 100000".into()));
        }
        all.node.acl_log_max = most;
        Ok(())
    },
};

pub const TLS_LISTEN: Setting = Setting {
    name: "tls-listen",
    variable: "TIERSTONE_TLS_LISTEN",
    value: "ADDR:PORT",
    help: "Where Redis clients come in that speak TLS 1.2 or 1.3, beside --listen: ADDR:PORT or a bare port; several separated by commas",
    default: "nowhere",
    trade_off: "Needs tls-cert-file and tls-key-file; sealing costs processor time by the byte, and a handshake a millisecond or two",
    redis: "tls-port",
    apply: |all, text| {
        all.node.tls_listen = addresses(text)?;
        Ok(())
    },
};

pub const TLS_CERT_FILE: Setting = Setting {
    name: "tls-cert-file",
    variable: "TIERSTONE_TLS_CERT_FILE",
    value: "FILE",
    help: "The server's certificate as PEM, then those between it and its root",
    default: "none",
    trade_off: "This and the other files of TLS are read at the start, and again on SIGHUP: connections that come then use what they say, or, where they are wrong, what was read before",
    redis: "tls-cert-file",
    apply: |all, text| {
        all.node.tls.cert_file = PathBuf::from(text);
        Ok(())
    },
};

pub const TLS_KEY_FILE: Setting = Setting {
    name: "tls-key-file",
    variable: "TIERSTONE_TLS_KEY_FILE",
    value: "FILE",
    help: "The private key of tls-cert-file as PEM, without a password",
    default: "none",
    trade_off: "Whoever reads it can pretend to be the server: let nobody but its user",
    redis: "tls-key-file",
    apply: |all, text| {
        all.node.tls.key_file = PathBuf::from(text);
        Ok(())
    },
};

pub const TLS_CA_CERT_FILE: Setting = Setting {
    name: "tls-ca-cert-file",
    variable: "TIERSTONE_TLS_CA_CERT_FILE",
    value: "FILE",
    help: "The roots, as PEM, of the certificates that clients show",
    default: "none",
    trade_off: "Needed unless tls-auth-clients is no",
    redis: "tls-ca-cert-file",
    apply: |all, text| {
        all.node.tls.ca_cert_file = Some(PathBuf::from(text));
        Ok(())
    },
};

pub const TLS_AUTH_CLIENTS: Setting = Setting {
    name: "tls-auth-clients",
    variable: "TIERSTONE_TLS_AUTH_CLIENTS",
    value: "WHEN",
    help: "Whether clients that speak TLS must have a certificate: yes, optional (who shows one must show a good one) or no",
    default: "yes",
    trade_off: "A certificate lets a client speak to the server; who it is, it still says with AUTH",
    redis: "tls-auth-clients",
    apply: |all, text| {
        let clients = [TlsClients::No, TlsClients::Optional, TlsClients::Yes].map(|each| (each.name(), each));
        all.node.tls.auth_clients = choice(text, &clients)?;
        Ok(())
    },
};
