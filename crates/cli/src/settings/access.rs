//! Settings about who may come in, and how: users, protection, encryption.

use super::Setting;
use crate::values::{choice, number, wrong};
use std::path::PathBuf;
use tierstone_server::redis::ACL_LOG_LIMIT;

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
