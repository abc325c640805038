//! Settings about what operators can see of a running server. They have Redis's names, values and defaults.

use super::{ServerSettings, Setting};
use crate::energy::load_model;
use crate::values::{choice, wrong};
use tierstone_base::Result;
use tierstone_base::units::parse_size;
use tierstone_server::redis::check_own;

/// In the order of `--help`.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "maxmemory-clients",
        variable: "TIERSTONE_MAXMEMORY_CLIENTS",
        value: "SIZE or PERCENT",
        help: "What the buffers of all clients may take, such as 256MiB, or 5% of the memory: above it the client that takes most is closed; 0 for no bound",
        default: "0",
        trade_off: "Bounds slow readers and subscribers together, at the price of closing them; clients that have said CLIENT NO-EVICT on are neither counted nor closed",
        redis: "maxmemory-clients",
        apply: |all, text| match text.ends_with('%') {
            true => set(all, "maxmemory-clients", text),
            false => parse_size(text).and_then(|bytes| set(all, "maxmemory-clients", &bytes.to_string())),
        },
    },
    Setting {
        name: "slowlog-log-slower-than",
        variable: "TIERSTONE_SLOWLOG_LOG_SLOWER_THAN",
        value: "MICROSECONDS",
        help: "From how many microseconds on a command is listed by SLOWLOG; 0 for every command, -1 for none",
        default: "10000",
        trade_off: "Below 1000 short commands within pipelines are timed, too, for some 30 ns each",
        redis: "slowlog-log-slower-than",
        apply: |all, text| set(all, "slowlog-log-slower-than", text),
    },
    Setting {
        name: "slowlog-max-len",
        variable: "TIERSTONE_SLOWLOG_MAX_LEN",
        value: "N",
        help: "How many commands SLOWLOG keeps, those of all shards together; 0 for none",
        default: "128",
        trade_off: "An entry takes up to 6 KiB; all together never more than 8 MiB",
        redis: "slowlog-max-len",
        apply: |all, text| set(all, "slowlog-max-len", text),
    },
    Setting {
        name: "scrub-rate",
        variable: "TIERSTONE_SCRUB_RATE",
        value: "SIZE",
        help: "Bytes a second that are read in search of rot, by all shards together, such as 4MiB; 0 for none. A pass reads everything once, and begins once a day at most",
        default: "4MiB",
        trade_off: "4MiB is a pass over 8 TB in three weeks and a hundredth of a disk's bandwidth; more finds rot earlier and takes from others' reads",
        redis: "scrub-rate",
        apply: |all, text| {
            let bytes = parse_size(text)?;
            set(all, "scrub-rate", &bytes.to_string())
        },
    },
    Setting {
        name: "notify-keyspace-events",
        variable: "TIERSTONE_NOTIFY_KEYSPACE_EVENTS",
        value: "LETTERS",
        help: "Which keyspace notifications are published, in Redis's letters, such as KEA; empty for none",
        default: "none",
        trade_off: "An event costs a message a listener; n and o make plain writes look for the key first; x keeps the keys that will expire in memory",
        redis: "notify-keyspace-events",
        apply: |all, text| set(all, "notify-keyspace-events", text),
    },
    Setting {
        name: "tracking-table-max-keys",
        variable: "TIERSTONE_TRACKING_TABLE_MAX_KEYS",
        value: "N",
        help: "Of how many keys it is noted which clients hold copies (CLIENT TRACKING), at all shards together; 0 for as many as there is room for",
        default: "1000000",
        trade_off: "A key takes about 210 bytes, its own and 16 for each client; never more than a sixteenth of a shard's memory. What leaves the table is invalidated at its clients",
        redis: "tracking-table-max-keys",
        apply: |all, text| set(all, "tracking-table-max-keys", text),
    },
    Setting {
        name: "latency-monitor-threshold",
        variable: "TIERSTONE_LATENCY_MONITOR_THRESHOLD",
        value: "MILLISECONDS",
        help: "From how many milliseconds on a command counts as a spike for LATENCY; 0 for never",
        default: "0",
        trade_off: "A message to the first shard for each spike",
        redis: "latency-monitor-threshold",
        apply: |all, text| set(all, "latency-monitor-threshold", text),
    },
    Setting {
        name: "latency-tracking",
        variable: "TIERSTONE_LATENCY_TRACKING",
        value: "WORD",
        help: "Whether a histogram of the times of each command is kept, for LATENCY HISTOGRAM and INFO latencystats: yes or no",
        default: "yes",
        trade_off: "One or two readings of the clock a command, 25 ns each, and 9 KiB a command and shard",
        redis: "latency-tracking",
        apply: |all, text| set(all, "latency-tracking", text),
    },
    Setting {
        name: "latency-tracking-info-percentiles",
        variable: "TIERSTONE_LATENCY_TRACKING_INFO_PERCENTILES",
        value: "LIST",
        help: "Which percentiles INFO latencystats shows, separated by spaces",
        default: "50 99 99.9",
        trade_off: "Each is a look at the whole histogram of every command when it is asked for",
        redis: "latency-tracking-info-percentiles",
        apply: |all, text| set(all, "latency-tracking-info-percentiles", text),
    },
    Setting {
        name: "energy-meters",
        variable: "TIERSTONE_ENERGY_METERS",
        value: "DIR",
        help: "The folder below which the kernel's meters of energy are looked for (sys/class/powercap, hwmon, power_supply), for INFO energy and the metrics; none to read no meter",
        default: "/",
        trade_off: "Where there is a meter, a thread reads it once a second; without one nothing is read, and joules are modelled when asked for",
        redis: "",
        apply: |all, text| {
            all.node.energy.meters = (text != "none").then(|| text.into());
            Ok(())
        },
    },
    Setting {
        name: "energy-tools",
        variable: "TIERSTONE_ENERGY_TOOLS",
        value: "BOOL",
        help: "Whether the tools of meters are run, too: nvidia-smi and ipmitool, where the device and the program are there",
        default: "false",
        trade_off: "A process once a second at most, for a fiftieth of the time; IPMI's reading stands for the whole machine in place of the kernel's meters, also while it fails",
        redis: "",
        apply: |all, text| {
            let is_on = choice(text, &[("true", true), ("false", false)])?;
            all.node.energy.programs = if is_on { std::env::var_os("PATH") } else { None };
            Ok(())
        },
    },
    Setting {
        name: "energy-command",
        variable: "TIERSTONE_ENERGY_COMMAND",
        value: "COMMAND",
        help: "A shell command that prints watts or joules of the whole machine with their unit, such as 12.5 W or 1034 J; none for none",
        default: "none",
        trade_off: "As energy-tools; it is killed after five seconds and runs with the server's rights",
        redis: "",
        apply: |all, text| {
            all.node.energy.command = (text != "none").then(|| text.to_owned());
            Ok(())
        },
    },
    Setting {
        name: "energy-model",
        variable: "TIERSTONE_ENERGY_MODEL",
        value: "NAME or FILE",
        help: "What joules are modelled with: cloud, desktop-2009, atom-2009, or a TOML file with a constant, unit and source each (docs/energy.md)",
        default: "cloud",
        trade_off: "Published averages tell the order of magnitude; constants of your own machine tell more",
        redis: "",
        apply: |all, text| {
            all.node.energy.model = Some(load_model(text)?);
            Ok(())
        },
    },
];

fn set(all: &mut ServerSettings, name: &str, text: &str) -> Result<()> {
    let value = check_own(name, text).map_err(wrong)?;
    all.node.values.push((name.to_owned(), value));
    Ok(())
}
