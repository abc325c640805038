//! The typed registry of settings behind `CONFIG`.
//!
//! A setting that can be set has an effect: the executor follows those of its own, its caller follows
//! the others, of which it is told ([`crate::Output::Setting`]). The rest say how things are.

use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::ShardId;
use tierstone_base::units::parse_duration_us;
use tierstone_engine::{Durability, Engine, Eviction, Housekeeping};

/// What values a setting takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// Any text.
    Text,
    /// An integer in a range.
    Integer {
        /// The smallest.
        min: i64,
        /// The largest.
        max: i64,
    },
    /// A number of clients from 1 on.
    Clients {
        /// The largest.
        max: i64,
        /// The largest that the operating system has descriptors for.
        possible: i64,
    },
    /// A number of bytes in a range, written with or without a unit.
    Bytes {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A number of bytes, written with or without a unit, or a percentage up to `100%`.
    BytesOrPercent,
    /// `sync`, `group:MS` or `relaxed`.
    Durability,
    /// `yes` or `no`.
    Bool,
    /// Percentiles, separated by spaces.
    Percentiles,
    /// Classes of events, as letters ([`crate::events`]).
    Events,
    /// One of some names.
    Choice(&'static [&'static str]),
    /// `yes` or `no`.
    Boolean,
    /// Redis's `client-output-buffer-limit`: [`OutputBufferLimits`].
    OutputBufferLimits {
        /// The smallest hard limit other than none, in bytes.
        hard_min_bytes: u64,
    },
}

/// How much unsent output a connection may hold: one limit for all kinds of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputBufferLimits {
    /// Above this it is closed at once; 0: never. Bytes.
    pub hard_bytes: u64,
    /// Above this it is closed after `soft_s`; 0: never. Bytes.
    pub soft_bytes: u64,
    /// Seconds.
    pub soft_s: u64,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its value as `CONFIG GET` shows it.
    pub value: String,
    /// What values it takes.
    pub kind: SettingKind,
    /// Whether `CONFIG SET` may change it.
    pub is_settable: bool,
}

/// Orders the changes of one setting that clients of different shards have made: the greatest one holds everywhere. A
/// change is greater than those that its shard knew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    number: u64,
    shard: ShardId,
}

/// All settings by name.
#[derive(Clone, Debug)]
pub struct Settings {
    all: BTreeMap<String, Setting>,
    /// Names of those that were set since the start.
    changed: BTreeSet<String>,
    /// The newest change of each of those.
    stamps: BTreeMap<String, Stamp>,
    /// The longest value in bytes (`proto-max-bulk-len`).
    pub value_size_max_bytes: u64,
}

/// The shortest limit that `proto-max-bulk-len` may be set to.
pub(crate) const VALUE_LIMIT_MIN_BYTES: u64 = 1 << 20;
/// The longest.
pub(crate) const VALUE_LIMIT_MAX_BYTES: u64 = 512 << 20;

/// The setting that says when writes are acknowledged.
pub(crate) const DURABILITY: &str = "durability";
/// The setting that says what is done when memory or space is used up.
pub(crate) const EVICTION: &str = "maxmemory-policy";
/// The setting that says how many bytes a second are read in search of rot, by all shards together.
pub(crate) const SCRUB_RATE: &str = "scrub-rate";
/// At first: 8 TB in three weeks, and a hundredth of what a disk gives.
pub const SCRUB_RATE_DEFAULT: u64 = 4 << 20;
/// The setting that is the password of the user `default`.
pub(crate) const PASSWORD: &str = "requirepass";
/// The setting that says how many refusals are kept.
pub(crate) const ACL_LOG_MAX: &str = "acllog-max-len";
/// The most that may be kept.
pub const ACL_LOG_LIMIT: i64 = 100_000;
/// The setting that keeps clients of other machines out as long as nobody has to say who he is.
pub const PROTECTED_MODE: &str = "protected-mode";
/// Redis's eviction policies.
const POLICIES: [Eviction; 8] = [
    Eviction::None,
    Eviction::OldestFirst,
    Eviction::LeastUsed,
    Eviction::Random,
    Eviction::OldestExpiring,
    Eviction::LeastUsedExpiring,
    Eviction::RandomExpiring,
    Eviction::NearestExpiry,
];
/// Their names, in the same order.
pub const EVICTION_NAMES: [&str; POLICIES.len()] = {
    let (mut names, mut index) = ([""; POLICIES.len()], 0);
    while index < names.len() {
        names[index] = format_eviction(POLICIES[index]);
        index += 1;
    }
    names
};

impl Settings {
    /// The executor's own settings, for `databases` databases and values up to `value_size_max_bytes`.
    pub fn new(databases: u32, value_size_max_bytes: u64, durability: Durability) -> Self {
        let mut settings = Settings {
            all: BTreeMap::new(),
            changed: BTreeSet::new(),
            stamps: BTreeMap::new(),
            value_size_max_bytes,
        };
        let bytes = SettingKind::Bytes { min: VALUE_LIMIT_MIN_BYTES, max: VALUE_LIMIT_MAX_BYTES };
        settings.add("proto-max-bulk-len", &value_size_max_bytes.to_string(), bytes, true);
        settings.add(PASSWORD, "", SettingKind::Text, true);
        let refusals = SettingKind::Integer { min: 0, max: ACL_LOG_LIMIT };
        settings.add(ACL_LOG_MAX, "128", refusals, true);
        settings.add(DURABILITY, &format_durability(durability), SettingKind::Durability, true);
        settings.add(EVICTION, format_eviction(Eviction::None), SettingKind::Choice(&EVICTION_NAMES), true);
        let rate = SettingKind::Bytes { min: 0, max: i64::MAX as u64 };
        settings.add(SCRUB_RATE, &SCRUB_RATE_DEFAULT.to_string(), rate, true);
        crate::slowlog::add_settings(&mut settings);
        crate::latency::add_settings(&mut settings);
        crate::tracking::add_settings(&mut settings);
        settings.add(crate::events::EVENTS, "", SettingKind::Events, true);
        settings.add(crate::clients::CLIENTS_BYTES_MAX, "0", SettingKind::BytesOrPercent, true);
        for (name, value) in [
            ("databases", databases.to_string().as_str()),
            ("save", ""),
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("cluster-enabled", "no"),
            ("acl-pubsub-default", "resetchannels"),
        ] {
            settings.add(name, value, SettingKind::Text, false);
        }
        settings.tell_appendfsync();
        settings
    }

    /// Adds or replaces a setting of the caller's.
    pub fn add(&mut self, name: &str, value: &str, kind: SettingKind, is_settable: bool) {
        self.all.insert(name.to_ascii_lowercase(), Setting { value: value.to_owned(), kind, is_settable });
    }

    /// Eviction and scrubbing are off for good where the engine has them not: `CONFIG SET` refuses to change that.
    pub(crate) fn with_housekeeping(&mut self, engine: &impl Engine) -> &Settings {
        let Housekeeping { evicts, scrubs } = engine.housekeeping();
        for (name, off, has) in
            [(EVICTION, format_eviction(Eviction::None), evicts), (SCRUB_RATE, "0", scrubs)]
        {
            if let Some(setting) = self.all.get_mut(name).filter(|_| !has) {
                (setting.value, setting.is_settable) = (off.to_owned(), false);
            }
        }
        self
    }

    /// The setting called `name`, in either case.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.all.get(&name.to_ascii_lowercase())
    }

    /// All settings in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.all.iter().map(|(name, setting)| (name.as_str(), setting))
    }

    /// Checks a new value of a setting: the text that will be kept.
    ///
    /// # Errors
    /// What is wrong with it, in Redis's words.
    pub fn check(&self, name: &str, value: &str) -> Result<String, String> {
        let Some(setting) = self.get(name) else { return Err("unknown setting".into()) };
        if !setting.is_settable {
            return Err("can't set immutable config".into());
        }
        match &setting.kind {
            SettingKind::Text => Ok(value.to_owned()),
            SettingKind::Integer { min, max } => match crate::number::integer(value.as_bytes()) {
                Some(number) if (*min..=*max).contains(&number) => Ok(number.to_string()),
                Some(_) => Err(format!("argument must be between {min} and {max} inclusive")),
                None => Err("argument couldn't be parsed into an integer".into()),
            },
            SettingKind::Clients { max, possible } => match crate::number::integer(value.as_bytes()) {
                Some(number) if !(1..=*max).contains(&number) => {
                    Err(format!("argument must be between 1 and {max} inclusive"))
                }
                Some(number) if number > *possible => Err(format!(
                    "The operating system is not able to handle the specified number of clients, try with {possible}"
                )),
                Some(number) => Ok(number.to_string()),
                None => Err("argument couldn't be parsed into an integer".into()),
            },
            SettingKind::Bytes { min, max } => match parse_bytes(value) {
                Some(bytes) if (*min..=*max).contains(&bytes) => Ok(bytes.to_string()),
                Some(_) => Err(format!("argument must be between {min} and {max} inclusive")),
                None => Err("argument must be a memory value".into()),
            },
            SettingKind::BytesOrPercent => match parse_percent(value) {
                Some(percent) if percent <= 100 => Ok(format!("{percent}%")),
                Some(_) => Err("percentage argument must be less or equal to 100".into()),
                None => parse_bytes(value)
                    .filter(|bytes| *bytes <= i64::MAX as u64)
                    .map(|bytes| bytes.to_string())
                    .ok_or_else(|| "argument must be a memory or percent value".into()),
            },
            SettingKind::Durability => match parse_durability(value) {
                Some(durability) => Ok(format_durability(durability)),
                None => Err("argument must be sync, group:MS or relaxed".into()),
            },
            SettingKind::Bool => match value.to_ascii_lowercase() {
                value if value == "yes" || value == "no" => Ok(value),
                _ => Err("argument must be 'yes' or 'no'".into()),
            },
            SettingKind::Percentiles => crate::latency::check_percentiles(value),
            SettingKind::Events => crate::events::check(value),
            SettingKind::Choice(names) => {
                let name = names.iter().find(|name| name.eq_ignore_ascii_case(value));
                name.map(|&name| name.to_owned())
                    .ok_or_else(|| format!("argument(s) must be one of the following: {}", names.join(", ")))
            }
            SettingKind::Boolean => match value.to_ascii_lowercase().as_str() {
                "yes" | "no" => Ok(value.to_ascii_lowercase()),
                _ => Err("argument must be 'yes' or 'no'".into()),
            },
            // No class is named: all keep what they have.
            SettingKind::OutputBufferLimits { .. } if value.is_empty() => Ok(setting.value.clone()),
            SettingKind::OutputBufferLimits { hard_min_bytes } => {
                let limits = parse_output_limits(value, &setting.value)?;
                if limits.hard_bytes != 0 && limits.hard_bytes < *hard_min_bytes {
                    return Err(format!("the hard limit must be 0 or at least {hard_min_bytes}"));
                }
                Ok(format_output_limits(limits))
            }
        }
    }

    /// Sets a checked value.
    pub fn set(&mut self, name: &str, value: &str) {
        let lower = name.to_ascii_lowercase();
        if let Some(setting) = self.all.get_mut(&lower) {
            setting.value = value.to_owned();
            self.changed.insert(lower);
        }
        if name.eq_ignore_ascii_case(DURABILITY) {
            self.tell_appendfsync();
        }
        if name.eq_ignore_ascii_case("proto-max-bulk-len") {
            self.value_size_max_bytes = value.parse().unwrap_or(self.value_size_max_bytes);
        }
    }

    /// Sets a checked value for a client of `shard`, which is this one.
    pub(crate) fn change(&mut self, name: &str, value: &str, shard: ShardId) {
        let stamp = self.stamps.entry(name.to_ascii_lowercase()).or_default();
        *stamp = Stamp { number: stamp.number + 1, shard };
        self.set(name, value);
    }

    /// Sets the value that a client of another shard has set, unless a greater change is known; whether it was set.
    pub(crate) fn change_elsewhere(&mut self, name: &str, value: &str, stamp: Stamp) -> bool {
        let newest = self.stamps.entry(name.to_ascii_lowercase()).or_default();
        if stamp <= *newest {
            return false;
        }
        *newest = stamp;
        self.set(name, value);
        true
    }

    /// The newest change of a setting.
    pub(crate) fn stamp(&self, name: &str) -> Stamp {
        self.stamps.get(&name.to_ascii_lowercase()).copied().unwrap_or_default()
    }

    /// `appendfsync` in Redis's words: what `relaxed` may lose is what `everysec` may, up to a second; else an answer follows the
    /// flush.
    fn tell_appendfsync(&mut self) {
        let is_relaxed = self.durability() == Durability::Relaxed;
        if let Some(setting) = self.all.get_mut("appendfsync") {
            (if is_relaxed { "everysec" } else { "always" }).clone_into(&mut setting.value);
        }
    }

    /// Names and values of the settings that were set since the start.
    pub fn changed(&self) -> Vec<(String, String)> {
        let value = |name: &String| self.all.get(name).map(|setting| setting.value.clone());
        self.changed.iter().filter_map(|name| Some((name.clone(), value(name)?))).collect()
    }

    /// What was set so far is what the server was started with.
    pub(crate) fn forget_changes(&mut self) {
        self.changed.clear();
    }

    /// The value of a setting that is an integer.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.get(name)?.value.parse().ok()
    }

    /// Bytes a second that each of so many shards reads in search of rot; 0: none.
    pub fn scrub_rate(&self, shards: u16) -> u64 {
        let rate = self.get(SCRUB_RATE).and_then(|setting| setting.value.parse::<u64>().ok()).unwrap_or(0);
        rate.div_ceil(u64::from(shards.max(1)))
    }

    /// What is done when memory or space is used up.
    pub fn eviction(&self) -> Eviction {
        self.get(EVICTION).and_then(|setting| parse_eviction(&setting.value)).unwrap_or_default()
    }

    /// When writes are acknowledged.
    pub fn durability(&self) -> Durability {
        self.get(DURABILITY).and_then(|setting| parse_durability(&setting.value)).unwrap_or_default()
    }
}

/// Checks the first value of a setting of the executor's own: the text that will be kept.
///
/// # Errors
/// What is wrong with it.
pub fn check_own(name: &str, value: &str) -> Result<String, String> {
    Settings::new(1, VALUE_LIMIT_MAX_BYTES, Durability::default()).check(name, value)
}

/// Reads a size as Redis's configuration writes it: `k`, `m`, `g` are powers of 1000, `kb`, `mb`, `gb`
/// powers of 1024.
fn parse_bytes(text: &str) -> Option<u64> {
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" | "kib" => 1 << 10,
        "m" => 1_000_000,
        "mb" | "mib" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Reads a whole percentage, such as `5%`.
pub(crate) fn parse_percent(text: &str) -> Option<u64> {
    text.strip_suffix('%')?.parse().ok()
}

/// Reads `CLASS HARD SOFT SECONDS`, any number of times, with one space between each two as in Redis. Classes have one limit here: what is said of
/// `normal` and of `pubsub` must be the same, and `slave` has nothing to limit.
pub fn parse_output_limits(text: &str, old: &str) -> Result<OutputBufferLimits, String> {
    const ONE_LIMIT: &str = "one limit holds for all clients here: give normal and pubsub the same";
    let words: Vec<&str> = text.split(' ').collect();
    if words.iter().any(|word| word.is_empty()) || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    let mut of_class = [None, None];
    for group in words.chunks_exact(4) {
        let class = match group[0].to_ascii_lowercase().as_str() {
            "normal" => Some(0),
            "pubsub" => Some(1),
            "slave" | "replica" => None,
            _ => return Err("Invalid client class specified in buffer limit configuration.".into()),
        };
        let (hard, soft, time) = (parse_bytes(group[1]), parse_bytes(group[2]), group[3].parse::<u32>().ok());
        let (Some(hard_bytes), Some(soft_bytes), Some(soft_s)) = (hard, soft, time.map(u64::from)) else {
            return Err("Error in hard, soft or soft_seconds setting in buffer limit configuration.".into());
        };
        if let Some(class) = class {
            of_class[class] = Some(OutputBufferLimits { hard_bytes, soft_bytes, soft_s });
        }
    }
    match of_class {
        [Some(normal), Some(pubsub)] if normal == pubsub => Ok(normal),
        [None, None] => parse_output_limits(old, ""),
        _ => Err(ONE_LIMIT.into()),
    }
}

/// Writes what [`parse_output_limits`] reads.
pub fn format_output_limits(limits: OutputBufferLimits) -> String {
    let OutputBufferLimits { hard_bytes, soft_bytes, soft_s } = limits;
    format!("normal {hard_bytes} {soft_bytes} {soft_s} slave 0 0 0 pubsub {hard_bytes} {soft_bytes} {soft_s}")
}

/// Reads one of [`EVICTION_NAMES`], in letters of either case.
pub fn parse_eviction(text: &str) -> Option<Eviction> {
    POLICIES.into_iter().find(|policy| format_eviction(*policy).eq_ignore_ascii_case(text))
}

/// Writes what [`parse_eviction`] reads.
pub const fn format_eviction(eviction: Eviction) -> &'static str {
    match eviction {
        Eviction::None => "noeviction",
        Eviction::OldestFirst => "allkeys-lru",
        Eviction::LeastUsed => "allkeys-lfu",
        Eviction::Random => "allkeys-random",
        Eviction::OldestExpiring => "volatile-lru",
        Eviction::LeastUsedExpiring => "volatile-lfu",
        Eviction::RandomExpiring => "volatile-random",
        Eviction::NearestExpiry => "volatile-ttl",
    }
}

/// Reads `sync`, `group:MS` (or `group:5ms`) or `relaxed`.
pub fn parse_durability(text: &str) -> Option<Durability> {
    let text = text.to_ascii_lowercase();
    match text.as_str() {
        "sync" => Some(Durability::Sync),
        "relaxed" => Some(Durability::Relaxed),
        _ => {
            let interval = text.strip_prefix("group:")?;
            let interval_ms = match interval.parse::<u32>() {
                Ok(ms) => u64::from(ms),
                Err(_) => parse_duration_us(interval).ok()? / 1_000,
            };
            (interval_ms <= 60_000).then_some(Durability::Group { interval_ms: interval_ms as u32 })
        }
    }
}

/// Writes what [`parse_durability`] reads.
pub fn format_durability(durability: Durability) -> String {
    match durability {
        Durability::Sync => "sync".into(),
        Durability::Group { interval_ms } => format!("group:{interval_ms}"),
        Durability::Relaxed => "relaxed".into(),
    }
}

#[cfg(test)]
#[path = "settings_test.rs"]
mod settings_test;
