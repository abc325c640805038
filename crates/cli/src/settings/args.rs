//! What was given, by flags, by the environment and by the file, and the settings that it makes.

use super::given::{Given, Place};
use super::memory::MemoryBound;
use super::{SETTINGS, ServerSettings, effects, redo};
use crate::log::LogFormat;
use crate::values::wrong;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tierstone::DatabaseOptions;
use tierstone_base::Result;
use tierstone_server::redis::node::NodeSettings;

const CONFIG: &str = "config";

/// What the command line and the environment say, by the names of settings.
#[derive(Clone, Debug, Default)]
pub struct ServerArgs {
    pub(super) given: BTreeMap<&'static str, Given>,
    pub(super) config: Option<PathBuf>,
}

impl clap::Args for ServerArgs {
    fn augment_args(mut command: Command) -> Command {
        for setting in SETTINGS {
            let mut argument = Arg::new(setting.name)
                .long(setting.name)
                .env(setting.variable)
                .value_name(setting.value)
                .allow_negative_numbers(true)
                .hide_env_values(setting.name == "password")
                .help(format!("{} [default: {}]", setting.help, setting.default))
                .long_help(setting.long_help());
            if matches!(setting.name, "pin" | "measure-cpu") {
                argument = argument.num_args(0..=1).default_missing_value("true");
            }
            command = command.arg(argument);
        }
        let file = Arg::new(CONFIG).long(CONFIG).env("TIERSTONE_CONFIG").value_name("FILE");
        command.arg(file.value_parser(clap::value_parser!(PathBuf)).help(
            "A TOML file with any of these settings under the names of their flags, such as memory = \"2GiB\"; \
             CONFIG REWRITE writes it",
        ))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServerArgs {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let mut args = ServerArgs::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        for setting in SETTINGS {
            if let Some(text) = matches.get_one::<String>(setting.name) {
                let place = match matches.value_source(setting.name) {
                    Some(ValueSource::EnvVariable) => Place::Variable(setting.variable),
                    _ => Place::Flag,
                };
                self.given.insert(setting.name, Given { text: text.clone(), place });
            }
        }
        if let Some(path) = matches.get_one::<PathBuf>(CONFIG) {
            self.config = Some(path.clone());
        }
        Ok(())
    }
}

impl ServerArgs {
    /// All settings: defaults, over them the file, over that what was given.
    ///
    /// # Errors
    /// What is wrong with a value, with where it was given; an unknown name in the file; a setting that another one needs.
    pub fn settings(mut self) -> Result<ServerSettings> {
        let config = self.config.take();
        if let Some(path) = &config {
            for (name, text) in read_file(path)? {
                self.given.entry(name).or_insert_with(|| Given { text, place: Place::File(path.clone()) });
            }
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let memory = MemoryBound::of_this_process();
        let database = DatabaseOptions {
            shards: cores.min(8) as u16,
            memory_bytes: memory.default_memory_bytes(),
            ..DatabaseOptions::default()
        };
        let node = NodeSettings { database, ..NodeSettings::default() };
        let mut all = ServerSettings {
            node,
            log: LogFormat::default(),
            log_level: None,
            config,
            warnings: Vec::new(),
            socket_mode: None,
            databases: None,
        };
        for setting in SETTINGS {
            if let Some(given) = self.given.get(setting.name) {
                (setting.apply)(&mut all, &given.text)
                    .map_err(|error| error.context(&given.told(setting.name)))?;
            }
        }
        redo::take_over_shards(&mut all, self.given.contains_key("shards"));
        all.warnings = effects::without_effect(&all, |name| self.given.contains_key(name))?;
        all.warnings.extend(memory.told_of(all.node.database.memory_bytes));
        Ok(all)
    }
}

/// What is wrong with the text of a settings file, and in which line: the line itself may have a password, and what is told goes
/// to logs and to clients.
pub fn told_of_toml(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.as_bytes().get(..span.start));
    match before {
        Some(before) => {
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            format!("line {line} is no TOML: {}", error.message())
        }
        None => error.message().to_owned(),
    }
}

/// The settings of a file.
fn read_file(path: &Path) -> Result<Vec<(&'static str, String)>> {
    let about = |error: &dyn std::fmt::Display| wrong(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| about(&error))?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| about(&told_of_toml(&text, &error)))?;
    let mut found = Vec::new();
    for (name, value) in table {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
            return Err(about(&format!("there is no setting '{name}'; `tierstone server --help` names all")));
        };
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            other => {
                let kind = other.type_str();
                return Err(about(&format!("{name}: a text, a number or a boolean is needed, not a {kind}")));
            }
        };
        found.push((setting.name, text));
    }
    Ok(found)
}
