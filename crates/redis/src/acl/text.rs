//! Users as texts: as `ACL LIST` and the file of users write them, and as `ACL GETUSER` shows their parts.

use crate::acl::hex;
use crate::acl::user::{Selector, User};

impl User {
    /// The user's line in a file of users, without its end.
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut line = b"user ".to_vec();
        line.extend_from_slice(&self.name);
        for flag in self.flags() {
            line.push(b' ');
            line.extend_from_slice(flag.as_bytes());
        }
        for hash in &self.passwords {
            line.extend_from_slice(b" #");
            line.extend_from_slice(hex(hash).as_bytes());
        }
        for (index, selector) in self.selectors.iter().enumerate() {
            line.push(b' ');
            if index == 0 {
                line.extend_from_slice(&selector.rules());
            } else {
                line.push(b'(');
                line.extend_from_slice(&selector.rules());
                line.push(b')');
            }
        }
        line
    }

    /// Words about the user himself.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.is_open {
            flags.push("nopass");
        }
        flags.push(if self.sanitizes_payloads { "sanitize-payload" } else { "skip-sanitize-payload" });
        flags
    }
}

impl Selector {
    /// All rules, as they may be given again.
    fn rules(&self) -> Vec<u8> {
        let mut words = Vec::new();
        match self.has_all_keys {
            true => words.push(b"~*".to_vec()),
            false => words.extend(self.key_words()),
        }
        match self.has_all_channels {
            true => words.push(b"&*".to_vec()),
            false => {
                words.push(b"resetchannels".to_vec());
                words.extend(self.channel_words());
            }
        }
        words.push(self.commands.describe());
        words.join(&b' ')
    }

    fn key_words(&self) -> impl Iterator<Item = Vec<u8>> {
        self.keys.iter().map(|key| {
            let prefix: &[u8] = match (key.reads, key.writes) {
                (true, false) => b"%R~",
                (false, true) => b"%W~",
                // `~*` would be the last word about keys: no other may come after it.
                _ if key.pattern == b"*" => b"%RW~",
                _ => b"~",
            };
            [prefix, &key.pattern].concat()
        })
    }

    fn channel_words(&self) -> impl Iterator<Item = Vec<u8>> {
        self.channels.iter().map(|channel| [b"&", channel.as_slice()].concat())
    }

    /// The keys as `ACL GETUSER` shows them.
    pub(crate) fn keys_text(&self) -> Vec<u8> {
        if self.has_all_keys { b"~*".to_vec() } else { self.key_words().collect::<Vec<_>>().join(&b' ') }
    }

    /// The channels as `ACL GETUSER` shows them.
    pub(crate) fn channels_text(&self) -> Vec<u8> {
        if self.has_all_channels {
            b"&*".to_vec()
        } else {
            self.channel_words().collect::<Vec<_>>().join(&b' ')
        }
    }
}
