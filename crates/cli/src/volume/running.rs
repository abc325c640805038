//! Members of a volume that a server has open: the server is asked (`DEBUG VOLUME`) and does it beside its traffic.

use super::progress;
use crate::connect::ConnectArgs;
use crate::output::{print_json, print_line};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_client::{Connection, Value};

const TIMEOUT: Duration = Duration::from_secs(60);
/// How long the program waits before it asks again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Which server has the volume open.
#[derive(Debug, Args)]
pub struct RunningArgs {
    /// Let the server at ADDR, a host and the port of Redis clients or unix:PATH, do it beside its traffic; it runs on this
    /// machine
    #[arg(long, value_name = "ADDR")]
    server: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// A server with the volume.
pub struct Running {
    connection: Connection,
}

/// What is said in the end.
#[derive(Debug, Serialize)]
struct Told {
    done: String,
    state: String,
    members: Vec<String>,
}

impl Running {
    /// The server that was named, if one was; it must have the volume of this description.
    ///
    /// # Errors
    /// When it cannot be reached, or has another volume or none.
    pub fn of(args: &RunningArgs, description: &Path) -> Result<Option<Running>> {
        let Some(server) = &args.server else {
            args.connect.needs("--server")?;
            return Ok(None);
        };
        let mut running = Running { connection: args.connect.connect(server, TIMEOUT)? };
        let has = running.info()?.remove("volume_description");
        let wanted = description.canonicalize().map_err(|error| {
            Error::from(error).context(&format!("cannot look at {}", description.display()))
        })?;
        match has.as_deref().map(|has| Path::new(has).canonicalize()) {
            Some(Ok(has)) if has == wanted => Ok(Some(running)),
            _ => {
                let has = has.map_or_else(|| "no volume".to_owned(), |has| format!("the volume of {has}"));
                let message =
                    format!("the server at {server} serves {has}, not that of {}", wanted.display());
                Err(Error::new(ErrorKind::InvalidInput, message))
            }
        }
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<Value> {
        let answer = self.connection.command(words)?;
        match answer.error() {
            Some(text) => Err(Error::new(ErrorKind::InvalidInput, format!("the server refuses: {text}"))),
            None => Ok(answer),
        }
    }

    /// What `INFO volume` says.
    fn info(&mut self) -> Result<BTreeMap<String, String>> {
        let answer = self.ask(&[b"INFO", b"volume"])?;
        let text = String::from_utf8_lossy(answer.bytes().unwrap_or_default()).into_owned();
        let field =
            |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(text.lines().filter_map(field).collect())
    }

    /// Gives an order, and waits until it is done.
    ///
    /// # Errors
    /// Why the server has refused it.
    pub fn order(&mut self, words: &[&[u8]]) -> Result<()> {
        let mut command: Vec<&[u8]> = vec![b"DEBUG", b"VOLUME"];
        command.extend(words);
        let Some(number) = self.ask(&command)?.integer() else {
            return Err(Error::new(ErrorKind::InvalidInput, "the server gives an order no number"));
        };
        loop {
            let info = self.info()?;
            let said = |name: &str| info.get(name).cloned().unwrap_or_default();
            // A later order means that this one is over.
            if said("volume_order") != number.to_string() {
                return Ok(());
            }
            match said("volume_order_state").as_str() {
                "under-way" => pause(),
                "done" => return Ok(()),
                _ => return Err(Error::new(ErrorKind::InvalidInput, said("volume_order_text"))),
            }
        }
    }

    /// Shows how far a member is filled, until it is.
    ///
    /// # Errors
    /// When it fails meanwhile.
    pub fn wait_until_filled(&mut self, member: usize) -> Result<()> {
        let bar = progress("filling", 100);
        loop {
            let state = self.info()?.remove(&format!("volume_member_{member}")).unwrap_or_default();
            let fields: BTreeMap<&str, &str> =
                state.split(',').filter_map(|field| field.split_once('=')).collect();
            match fields.get("state") {
                Some(&"filling") => {
                    let percent = fields.get("filled").map(|filled| filled.trim_end_matches('%'));
                    bar.set_position(percent.and_then(|percent| percent.parse().ok()).unwrap_or(0));
                    pause();
                }
                Some(&"in-sync" | &"behind") => break,
                _ => {
                    let message = format!("the new member {member} failed while it was filled");
                    return Err(Error::new(ErrorKind::DeviceFailed, message));
                }
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Prints what was done and how the volume is now.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn tell(&mut self, json: bool) -> Result<()> {
        let mut info = self.info()?;
        let mut said = |name: &str| info.remove(name).unwrap_or_default();
        let (done, state) = (said("volume_order_text"), said("volume_state"));
        let count = said("volume_members").parse::<usize>().unwrap_or(0).min(256);
        let members = (0..count).map(|member| said(&format!("volume_member_{member}"))).collect();
        let told = Told { done, state, members };
        match json {
            true => print_json(&told),
            false => print_line(&format!("{}; the volume is {}", told.done, told.state)),
        }
    }
}

fn pause() {
    let (_never, wait) = std::sync::mpsc::channel::<()>();
    // Nothing comes: only the time passes.
    let _ = wait.recv_timeout(ASK_AGAIN);
}
