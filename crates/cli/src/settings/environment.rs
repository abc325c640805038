//! Variables of the environment that look like settings and are none: a misspelt one would be ignored in silence.
//!
//! They are told and not refused, for others name such variables, too: the tests and tools of this project, and container
//! engines that tell a process of a service called tierstone.

use super::SETTINGS;
use strsim::osa_distance;

const PREFIX: &str = "TIERSTONE_";

/// Variables that are no settings and mean something: to the program, to its tests and tools.
const OTHERS: &[&str] = &[
    "TIERSTONE_COMPARISON_SEED",
    "TIERSTONE_COMPARISON_SEEDS",
    "TIERSTONE_COMPARISON_SHOWN",
    "TIERSTONE_CONFIG",
    "TIERSTONE_CRASH_RUNS",
    "TIERSTONE_CRASH_SEED",
    "TIERSTONE_GO_CLIENT",
    "TIERSTONE_JAVA_CLIENT",
    "TIERSTONE_KILLED_DESIGN",
    "TIERSTONE_KILLED_QUEUE",
    "TIERSTONE_NODE_CLIENTS",
    "TIERSTONE_PROGRAM",
    "TIERSTONE_PYTHON",
    "TIERSTONE_REDIS_SERVER",
    "TIERSTONE_SEED",
    "TIERSTONE_SIM_SEEDS",
    "TIERSTONE_TEST_ACROSS",
    "TIERSTONE_TEST_CHILD_DRIVER",
    "TIERSTONE_TEST_ONE_DESCRIPTOR_LEFT",
];

/// Names that Redis has for settings that are called otherwise here.
const OF_REDIS: &[(&str, &str)] = &[
    ("PORT", "LISTEN"),
    ("BIND", "LISTEN"),
    ("DIR", "DATA"),
    ("REQUIREPASS", "PASSWORD"),
    ("MAXMEMORY", "MEMORY"),
];

/// What is wrong with the names of the variables among `all`, in words; in their order.
pub fn unknown_variables(all: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let unknown = all
        .filter(|(name, value)| name.starts_with(PREFIX) && !is_known(name) && !is_of_service(name, value));
    let mut names: Vec<String> = unknown.map(|(name, _)| name).collect();
    names.sort();
    names.into_iter().map(|name| told(&name)).collect()
}

fn is_known(name: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.variable == name) || OTHERS.contains(&name)
}

/// Whether a container engine made it of a service's name: `…_SERVICE_HOST`, `…_PORT=tcp://…`, `…_PORT_6379_TCP_ADDR` and so on.
fn is_of_service(name: &str, value: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).unwrap_or(name);
    let is_numbered = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    rest.starts_with("SERVICE_HOST")
        || rest.starts_with("SERVICE_PORT")
        || rest.strip_prefix("PORT_").is_some_and(is_numbered)
        || (rest == "PORT" && value.contains("://"))
}

fn told(name: &str) -> String {
    match nearest(name) {
        Some(near) => format!("the variable {name} is no setting, and is ignored; is {near} meant?"),
        None => {
            format!("the variable {name} is no setting, and is ignored; `tierstone server --help` names all")
        }
    }
}

/// The setting's variable that is most like `name`, if one is.
fn nearest(name: &str) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?;
    if let Some((_, ours)) = OF_REDIS.iter().find(|(theirs, _)| *theirs == rest) {
        return Some(format!("{PREFIX}{ours}"));
    }
    let settings = SETTINGS.iter().filter_map(|setting| setting.variable.strip_prefix(PREFIX));
    // Letters put in, taken out, replaced or swapped with the next one.
    let best = settings.map(|known| (osa_distance(rest, known), known)).min()?;
    // Up to a third of the letters are wrong: anything is like anything else beyond that.
    (best.0 * 3 <= rest.len()).then(|| format!("{PREFIX}{}", best.1))
}

#[cfg(test)]
#[path = "environment_test.rs"]
mod environment_test;
