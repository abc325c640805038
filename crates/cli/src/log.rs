//! Logs of the server: events with named fields, as text or as JSON lines, to the standard error output.
//!
//! What scripts read (addresses, ports) is printed to the standard output besides, whatever is logged.

use clap::ValueEnum;
use tierstone_base::{Error, ErrorKind, Result};
use tracing::level_filters::LevelFilter;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text an event.
    #[default]
    Text,
    /// One JSON object a line: timestamp, level, message and the event's fields.
    Json,
}

/// Which events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// None.
    Off,
    /// What somebody must attend to: data is not served or not acknowledged.
    Error,
    /// These, and what somebody should look at.
    #[default]
    Warn,
    /// These, and the life of the server: opening, serving, settings, the end.
    Info,
}

impl LogLevel {
    /// The level under Redis's names, which has none for errors alone.
    pub fn redis_name(self) -> &'static str {
        match self {
            LogLevel::Off => "nothing",
            LogLevel::Error | LogLevel::Warn => "warning",
            LogLevel::Info => "notice",
        }
    }

    fn filter(self) -> LevelFilter {
        match self {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
        }
    }
}

/// Begins to write events. To be called once.
///
/// # Errors
/// When events are being written already.
pub fn start(format: LogFormat, level: LogLevel) -> Result<()> {
    let builder = tracing_subscriber::fmt()
        .with_max_level(level.filter())
        .with_target(false)
        .with_ansi(false)
        // It would panic where nothing can be written: a full disk for the log must not end the server.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let result = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    result.map_err(|error| Error::new(ErrorKind::InvalidInput, format!("the log: {error}")))
}
