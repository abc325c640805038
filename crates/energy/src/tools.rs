//! What tools print, as readings: `nvidia-smi`, `ipmitool`, and any command that prints watts or joules.

use crate::meter::{Fault, FaultKind, Reading};

/// What `nvidia-smi` is asked.
pub const NVIDIA_ARGUMENTS: [&str; 2] = ["--query-gpu=index,power.draw", "--format=csv,noheader,nounits"];
/// What `ipmitool` is asked.
pub const IPMI_ARGUMENTS: [&str; 3] = ["dcmi", "power", "reading"];

/// Factors to a microwatt.
const POWER_UNITS: [(&str, f64); 8] = [
    ("W", 1e6),
    ("watt", 1e6),
    ("watts", 1e6),
    ("Watts", 1e6),
    ("mW", 1e3),
    ("uW", 1.0),
    ("µW", 1.0),
    ("kW", 1e9),
];
/// Factors to a microjoule.
const ENERGY_UNITS: [(&str, f64); 9] = [
    ("J", 1e6),
    ("joule", 1e6),
    ("joules", 1e6),
    ("Joules", 1e6),
    ("mJ", 1e3),
    ("uJ", 1.0),
    ("kJ", 1e9),
    ("Wh", 3.6e9),
    ("kWh", 3.6e12),
];
/// Larger values, in millionths, are no measurement.
const MILLIONTHS_MAX: f64 = 1e18;

fn rubbish(what: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Rubbish, what)
}

/// The start of `text` for a message.
fn shown(text: &str) -> String {
    text.trim().chars().take(60).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// `value` in millionths, whole.
fn millionths(value: f64, factor: f64) -> Result<u64, Fault> {
    let scaled = value * factor;
    if !(0.0..=MILLIONTHS_MAX).contains(&scaled) {
        return Err(rubbish(format!("{value} is no power or energy")));
    }
    Ok(scaled.round() as u64)
}

/// Watts (`12.5 W`, `830 mW`, `0.4kW`) or joules that rise from answer to answer (`1034 J`, `0.2 kWh`): the first number
/// with such a unit in the last line that is not empty. The unit has to be there.
///
/// # Errors
/// [`FaultKind::Rubbish`] for anything else, and for negative, infinite and absurd numbers.
pub fn watts_or_joules(text: &str) -> Result<Reading, Fault> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let words: Vec<&str> =
        line.split([' ', '\t', '=', ':', ',', ';']).filter(|word| !word.is_empty()).collect();
    let mut has_number = false;
    for (place, word) in words.iter().enumerate() {
        let end =
            word.find(|letter: char| !matches!(letter, '0'..='9' | '.' | '-' | '+')).unwrap_or(word.len());
        let (digits, attached) = word.split_at(end);
        let Ok(value) = digits.parse::<f64>() else { continue };
        has_number = true;
        let unit =
            if attached.is_empty() { words.get(place + 1).copied().unwrap_or_default() } else { attached };
        let factor =
            |units: &[(&str, f64)]| units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        if let Some(factor) = factor(&POWER_UNITS) {
            return millionths(value, factor).map(|uw| Reading::Power { uw });
        }
        if let Some(factor) = factor(&ENERGY_UNITS) {
            return millionths(value, factor).map(|uj| Reading::Counter { uj });
        }
    }
    let advice =
        if has_number { "has no unit; print for example '12.5 W' or '1034 J'" } else { "has no number" };
    Err(rubbish(format!("'{}' {advice}", shown(line))))
}

/// The power of all devices that `nvidia-smi` lists, added up.
///
/// # Errors
/// [`FaultKind::Rubbish`] when a device gives no power, when there is none, and for anything else that it may print.
pub fn nvidia(text: &str) -> Result<Reading, Fault> {
    let mut total_uw = 0u64;
    let mut devices = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let power = line.split_once(',').map(|(_, power)| power.trim());
        let watts = power.and_then(|power| power.parse::<f64>().ok());
        let Some(watts) = watts else {
            return Err(rubbish(format!(
                "'{}' gives no power: the device or its driver does not tell",
                shown(line)
            )));
        };
        total_uw = total_uw.saturating_add(millionths(watts, 1e6)?);
        devices += 1;
    }
    if devices == 0 {
        return Err(rubbish("it lists no device"));
    }
    Ok(Reading::Power { uw: total_uw })
}

/// The instantaneous power of `ipmitool dcmi power reading`.
///
/// # Errors
/// [`FaultKind::NotNow`] when the controller does not measure, [`FaultKind::Rubbish`] for anything else.
pub fn ipmi(text: &str) -> Result<Reading, Fault> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(name)?.split_once(':').map(|(_, value)| value.trim()))
    };
    if field("Power reading state is").is_some_and(|state| state != "activated") {
        return Err(Fault::new(FaultKind::NotNow, "the controller's power reading is switched off"));
    }
    let Some(value) = field("Instantaneous power reading") else {
        return Err(rubbish(format!("'{}' has no instantaneous power", shown(text))));
    };
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    match number.parse::<f64>() {
        Ok(watts) if unit.trim() == "Watts" => millionths(watts, 1e6).map(|uw| Reading::Power { uw }),
        _ => Err(rubbish(format!("'{}' is no number of watts", shown(value)))),
    }
}

#[cfg(test)]
#[path = "tools_test.rs"]
mod tools_test;
