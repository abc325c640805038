//! What holds of every description, whatever bytes it is read from. For fuzzing (`fuzz/fuzz_targets/description.rs`)
//! and the crate's own tests.

use crate::description::{Description, Form};
use crate::{Report, cells, mirrors, nodes, power, routing};
use tierstone_base::{ErrorKind, Result};

/// Reads bytes as a description: the first says in which form and of which plan, the rest is its text. The short
/// plans are made whole; of the long ones (routing, mirrors) everything before the run over time.
///
/// # Panics
/// When a report has a number that is not finite, or a refusal does not say what was read.
pub fn check_description(data: &[u8]) {
    let Some((&first, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let form = if first & 1 == 0 { Form::Toml } else { Form::Csv };
    let description = Description { origin: ORIGIN.to_owned(), form, text: text.to_owned() };
    match (first >> 1) % 5 {
        0 => settled(nodes::plan(&description)),
        1 => settled(cells::plan(&description)),
        2 => settled(power::plan(&description)),
        3 => {
            refused(routing::describe::Description::read(&description).and_then(|asked| {
                let wired = asked.wires().and_then(|_| asked.class_list());
                wired.map(|_| asked.terms().monthly(1.0)).map_err(|error| description.wrong(error))
            }));
        }
        _ => {
            refused(mirrors::Description::read(&description).map(|asked| {
                let _ = (mirrors::Machine::of(&asked), asked.sleep_policy());
            }));
        }
    }
}

const ORIGIN: &str = "a description";

fn settled(planned: Result<Report>) {
    let Some(report) = refused(planned) else { return };
    // What is not finite becomes null in JSON, and null is no number on the way back.
    let json = serde_json::to_string(&report).unwrap_or_default();
    assert!(serde_json::from_str::<Report>(&json).is_ok(), "a number is not finite: {json}");
}

fn refused<T>(planned: Result<T>) -> Option<T> {
    match planned {
        Ok(planned) => Some(planned),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.message().starts_with(ORIGIN), "{error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_scenario_is_read_as_every_plan_and_cut_anywhere() {
        for scenario in crate::scenario::all() {
            for first in 0..10 {
                let whole = [&[first], scenario.text.as_bytes()].concat();
                let is_own =
                    crate::SCENARIOS[usize::from(first >> 1)].iter().any(|own| own.name == scenario.name);
                for part in 1..=if is_own { 12 } else { 2 } {
                    check_description(&whole[..whole.len() / part]);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(
            first in any::<u8>(),
            text in "(\\[{0,2}[a-z.]{0,8}\\]{0,2}|[a-z-]{0,9} ?= ?|\"?[0-9.e-]{0,5} ?[a-zA-Z%$/]{0,4}\"?|,|\n){0,40}",
        ) {
            check_description(&[&[first], text.as_bytes()].concat());
        }
    }
}
