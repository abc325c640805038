//! A run written down: the answers that it was given, as one line of text.

use crate::choices::Style;
use std::fmt;
use std::str::FromStr;
use tierstone_base::{Error, ErrorKind};

/// Most steps that a path read from text may have.
const MAX_STEPS: usize = 16 << 20;

/// The answers of one run, in order. Answers beyond its end are zero.
///
/// As text: the style of the questions, then the answers, runs of equal answers as `answer*count`:
/// `exhaustive: 0*5 1 0*2 3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// How the questions were put; some are put differently when all answers are to be tried.
    pub style: Style,
    /// The answers.
    pub steps: Vec<u64>,
}

impl Path {
    /// The same path without the zeros at its end.
    #[must_use]
    pub fn trimmed(mut self) -> Path {
        while self.steps.last() == Some(&0) {
            self.steps.pop();
        }
        self
    }

    /// What makes one path simpler than another: fewer deviations, then shorter, then smaller.
    pub(crate) fn weight(&self) -> (usize, usize, u128) {
        let deviations = self.steps.iter().filter(|&&step| step != 0).count();
        (deviations, self.steps.len(), self.steps.iter().map(|&step| u128::from(step)).sum())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.style {
            Style::Exhaustive => "exhaustive:",
            Style::Sampled => "sampled:",
        })?;
        let mut rest = self.steps.as_slice();
        while let Some(&step) = rest.first() {
            let same = rest.iter().take_while(|&&other| other == step).count();
            match same {
                1 => write!(formatter, " {step}")?,
                _ => write!(formatter, " {step}*{same}")?,
            }
            rest = &rest[same..];
        }
        Ok(())
    }
}

impl FromStr for Path {
    type Err = Error;

    fn from_str(text: &str) -> Result<Path, Error> {
        parse(text).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                format!("'{text}' is no path; write for example 'exhaustive: 0*5 1 3'"),
            )
        })
    }
}

fn parse(text: &str) -> Option<Path> {
    let (style, rest) = text.trim().split_once(':')?;
    let style = match style {
        "exhaustive" => Style::Exhaustive,
        "sampled" => Style::Sampled,
        _ => return None,
    };
    let mut steps = Vec::new();
    for word in rest.split_whitespace() {
        let (step, count) = word.split_once('*').unwrap_or((word, "1"));
        let (step, count) = (step.parse().ok()?, count.parse::<usize>().ok()?);
        if count > MAX_STEPS - steps.len() {
            return None;
        }
        steps.resize(steps.len() + count, step);
    }
    Some(Path { style, steps })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_path_comes_back_from_its_text(steps in prop::collection::vec(0u64..3, 0..40), sampled: bool) {
            let style = if sampled { Style::Sampled } else { Style::Exhaustive };
            let path = Path { style, steps };
            prop_assert_eq!(path.to_string().parse::<Path>().ok(), Some(path));
        }

        #[test]
        fn hostile_text_never_panics(text: String) {
            let _ = text.parse::<Path>();
        }
    }

    #[test]
    fn a_path_of_absurd_length_is_refused() {
        for wrong in ["", "0 1", "other: 0", "sampled: x", "sampled: 0*99999999999", "sampled: 1*-1"] {
            assert!(wrong.parse::<Path>().is_err(), "{wrong}");
        }
        assert_eq!("sampled: 0*3 7".parse::<Path>().map(|path| path.steps).ok(), Some(vec![0, 0, 0, 7]));
    }
}
