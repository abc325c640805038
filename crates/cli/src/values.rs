//! Values of settings as people write them.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use tierstone::IndexKind;
use tierstone_base::units::{parse_duration_us, parse_size};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_engine::Durability;
use tierstone_server::ListenAddress;

/// An error of a setting.
pub fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

/// A whole number.
pub fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| wrong("a whole number that is not too large is needed".into()))
}

/// A size in bytes.
pub fn bytes(text: &str) -> Result<usize> {
    let bytes = parse_size(text)?;
    usize::try_from(bytes).map_err(|_| wrong("that is more than this machine can address".into()))
}

/// Milliseconds: a bare number is seconds.
pub fn milliseconds(text: &str) -> Result<u64> {
    match text.parse::<u64>() {
        Ok(seconds) => seconds.checked_mul(1_000).ok_or_else(|| wrong("that is too long".into())),
        Err(_) => Ok(parse_duration_us(text)? / 1_000),
    }
}

/// Seconds: a bare number, or a time with a unit, of whole seconds.
pub fn seconds(text: &str) -> Result<u32> {
    let ms = milliseconds(text)?;
    match u32::try_from(ms / 1_000) {
        Ok(seconds) if ms.is_multiple_of(1_000) => Ok(seconds),
        _ => Err(wrong("whole seconds are needed".into())),
    }
}

/// One of some words.
pub fn choice<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T> {
    match choices.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(*value),
        None => {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            Err(wrong(format!("write {}", names.join(", "))))
        }
    }
}

/// `ADDR:PORT`, `PORT` or `unix:PATH`, several separated by commas.
pub fn addresses(text: &str) -> Result<Vec<ListenAddress>> {
    text.split(',').map(|part| address(part.trim())).collect()
}

fn address(text: &str) -> Result<ListenAddress> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(ListenAddress::Unix(Path::new(path).to_path_buf()));
    }
    if let Ok(port) = text.parse::<u16>() {
        return Ok(ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], port))));
    }
    match text.to_socket_addrs().map(|mut found| found.next()) {
        Ok(Some(address)) => Ok(ListenAddress::Tcp(address)),
        _ => Err(wrong(format!(
            "'{text}' is no address; write for example 127.0.0.1:6379 or unix:/run/tierstone/tierstone.sock"
        ))),
    }
}

/// `hash` or `ordered`.
pub fn parse_index(text: &str) -> Result<IndexKind> {
    [IndexKind::Hash, IndexKind::Ordered]
        .into_iter()
        .find(|kind| kind.name() == text)
        .ok_or_else(|| wrong(format!("index '{text}': write hash or ordered")))
}

/// `sync`, `group:MS` or `relaxed`, as `CONFIG SET durability` reads it.
pub fn parse_durability(text: &str) -> Result<Durability> {
    tierstone_server::redis::parse_durability(text)
        .ok_or_else(|| wrong("write sync, group:MS with at most 60000 ms, or relaxed".into()))
}
