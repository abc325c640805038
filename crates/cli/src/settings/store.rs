//! The settings of a server that are about its store, for tools that open one of their own.

use super::given::{Given, Place};
use super::{SETTINGS, ServerArgs};
use crate::values::wrong;
use tierstone::DatabaseOptions;
use tierstone_base::Result;

/// Their names: every other setting is about sockets, users, events or the process.
const NAMES: &[&str] = &[
    "shards",
    "memory",
    "capacity",
    "durability",
    "durable-method",
    "index",
    "segment-size",
    "backend",
    "direct-io",
    "nvm",
    "nvm-size",
    "nvm-guarantee",
    "nvm-flush",
    "nvm-keys",
    "nvm-loss",
    "disk-loss",
];

/// A store with these settings; of two for the same name the later one counts. Its directory is the default's.
///
/// # Errors
/// `InvalidInput`: a name that is none, or not about the store; what is wrong with a value, with its setting's name.
pub fn store_options(given: &[(&str, String)]) -> Result<DatabaseOptions> {
    let mut args = ServerArgs::default();
    for (name, text) in given {
        let known = SETTINGS.iter().find(|setting| setting.name == *name && NAMES.contains(name));
        let Some(setting) = known else {
            return Err(wrong(format!(
                "'{name}' is no setting of a store; write one of {}",
                NAMES.join(", ")
            )));
        };
        args.given.insert(setting.name, Given { text: text.clone(), place: Place::Tool });
    }
    let all = args.settings()?;
    for told in &all.warnings {
        tell!("tierstone: {told}");
    }
    let mut options = all.node.database;
    options.shard.durability = all.node.durability;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierstone::{Durability, IndexKind};

    #[test]
    fn settings_of_the_store_are_taken_and_others_refused() {
        let given = |pairs: &[(&'static str, &str)]| {
            let pairs: Vec<_> = pairs.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
            store_options(&pairs)
        };
        let options = given(&[
            ("memory", "1GiB"),
            ("durability", "relaxed"),
            ("index", "ordered"),
            ("shards", "3"),
            ("memory", "64MiB"),
            ("nvm", "emulated:20MiB:pcm"),
        ])
        .unwrap();
        assert_eq!((options.shards, options.memory_bytes), (3, 64 << 20));
        assert_eq!(options.shard.durability, Durability::Relaxed);
        assert_eq!(options.index, Some(IndexKind::Ordered));
        assert!(options.redo.unwrap().region.contains("pcm"));
        for wrong in [("listen", "7"), ("memory", "much"), ("no-such", "1"), ("data", "here")] {
            let error = given(&[wrong]).unwrap_err();
            assert!(error.message().contains(wrong.0), "{error}");
        }
    }
}
