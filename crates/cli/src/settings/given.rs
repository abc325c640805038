//! Texts that were given for settings, and where: what is wrong with one is told with the place that its user wrote it at.

use std::path::PathBuf;

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// As a flag of the command.
    Flag,
    /// As a variable of the environment of this name.
    Variable(&'static str),
    /// As a line of this file.
    File(PathBuf),
    /// As one of the settings that a tool takes by another option, or chooses itself.
    Tool,
}

/// A value's text.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub text: String,
    pub place: Place,
}

impl Given {
    /// The setting called `name` as its user has written it.
    pub fn told(&self, name: &str) -> String {
        let text = &self.text;
        match &self.place {
            Place::Flag => format!("--{name} '{text}'"),
            Place::Variable(variable) => format!("the variable {variable}='{text}'"),
            Place::File(path) => format!("{}: {name} = '{text}'", path.display()),
            Place::Tool => format!("the setting {name}='{text}'"),
        }
    }
}
