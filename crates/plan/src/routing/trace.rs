//! Traces: power of every server at every sample.

use crate::field::refused;
use crate::number::number;
use std::collections::BTreeMap;
use tierstone_base::Result;

/// The most values a trace may have: 800 MB of them.
pub const VALUES_MAX: usize = 200_000_000;

/// Steps between samples are alike if none is further from the first than this part of it.
const STEP_TOLERANCE: f64 = 0.01;

/// Power over time, sample by sample, each for as long as the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    servers: usize,
    watts: Vec<f32>,
}

impl Trace {
    /// A trace of `servers` values a sample.
    ///
    /// # Errors
    /// `InvalidInput`: no sample, a broken last one, more than [`VALUES_MAX`], or a value that is no power.
    pub fn new(servers: usize, watts: Vec<f32>) -> Result<Trace> {
        if servers == 0 || watts.is_empty() || !watts.len().is_multiple_of(servers) {
            return Err(refused(format!(
                "a trace of {} values does not divide into samples of {servers} servers",
                watts.len()
            )));
        }
        if watts.len() > VALUES_MAX {
            return Err(refused(format!(
                "a trace of {} values is above the limit of {VALUES_MAX}",
                watts.len()
            )));
        }
        if let Some(place) = watts.iter().position(|watts| !watts.is_finite() || *watts < 0.0) {
            return Err(refused(format!(
                "server {} draws {} W in sample {}",
                place % servers,
                watts[place],
                place / servers
            )));
        }
        Ok(Trace { servers, watts })
    }

    /// Servers.
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// Samples.
    pub fn samples(&self) -> usize {
        self.watts.len() / self.servers
    }

    /// Power of every server in a sample, W.
    pub fn sample(&self, sample: usize) -> Vec<f64> {
        let from = sample * self.servers;
        self.watts[from..from + self.servers].iter().map(|&watts| f64::from(watts)).collect()
    }

    /// The trace of some of the servers, in the order given.
    pub fn of(&self, servers: &[usize]) -> Trace {
        let mut watts = Vec::with_capacity(servers.len() * self.samples());
        for sample in self.watts.chunks(self.servers) {
            watts.extend(servers.iter().map(|&server| sample[server]));
        }
        Trace { servers: servers.len(), watts }
    }

    /// The sum of each sample, W.
    pub fn totals(&self) -> Vec<f64> {
        self.watts
            .chunks(self.servers)
            .map(|sample| sample.iter().map(|&watts| f64::from(watts)).sum())
            .collect()
    }

    /// The mean of each server, W.
    pub fn means(&self) -> Vec<f64> {
        self.over_samples(0.0, |sum, watts| sum + watts)
            .into_iter()
            .map(|sum| sum / self.samples() as f64)
            .collect()
    }

    /// The peak of each server, W.
    pub fn peaks(&self) -> Vec<f64> {
        self.over_samples(0.0, f64::max)
    }

    fn over_samples(&self, from: f64, join: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let mut all = vec![from; self.servers];
        for sample in self.watts.chunks(self.servers) {
            for (so_far, &watts) in all.iter_mut().zip(sample) {
                *so_far = join(*so_far, f64::from(watts));
            }
        }
        all
    }

    /// Mean, greatest and standard deviation of the totals, W.
    pub fn summary(&self) -> (f64, f64, f64) {
        let totals = self.totals();
        let mean = totals.iter().sum::<f64>() / totals.len() as f64;
        let square = totals.iter().map(|total| (total - mean).powi(2)).sum::<f64>() / totals.len() as f64;
        (mean, totals.iter().copied().fold(0.0, f64::max), square.sqrt())
    }

    /// Reads CSV with the head `time_s,server,watts` or `time_s,server,utilisation`. Servers are numbered from
    /// 0 in the order of the description's classes; every time has one line for each; times rise in even steps, to a
    /// hundredth of the first: every sample counts alike.
    /// `power` turns a utilisation of a server into W.
    ///
    /// # Errors
    /// `InvalidInput`: another head, a line that is broken, out of order, off the even steps, twice there or
    /// missing, or too many; the message names the line.
    pub fn read_csv(text: &str, servers: usize, power: impl Fn(usize, f64) -> f64) -> Result<Trace> {
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let head = reader.headers().map_err(|error| refused(format!("the trace's head: {error}")))?;
        let utilisation = match head.iter().collect::<Vec<_>>()[..] {
            ["time_s", "server", "watts"] => false,
            ["time_s", "server", "utilisation"] => true,
            _ => {
                return Err(refused(
                    "the trace's head must be `time_s,server,watts` or `time_s,server,utilisation`",
                ));
            }
        };
        let mut rows = Rows { servers, watts: Vec::new(), now: None, step: None, seen: BTreeMap::new() };
        for record in reader.records() {
            let record = record.map_err(|error| refused(format!("the trace: {error}")))?;
            let line = record.position().map_or(0, csv::Position::line);
            let value = |column: usize, name: &str| -> Result<f64> {
                let text = record.get(column).unwrap_or_default();
                let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
                value.ok_or_else(|| {
                    refused(format!("the trace's line {line}: `{name}` is \"{text}\", no number"))
                })
            };
            let (time, given) =
                (value(0, "time_s")?, value(2, if utilisation { "utilisation" } else { "watts" })?);
            let text = record.get(1).unwrap_or_default();
            let server = text.parse::<usize>().ok().filter(|server| *server < servers).ok_or_else(|| {
                refused(format!(
                    "the trace's line {line}: server \"{text}\" is none of 0 to {}",
                    servers.saturating_sub(1)
                ))
            })?;
            let watts = if utilisation {
                if !(0.0..=1.0).contains(&given) {
                    return Err(refused(format!(
                        "the trace's line {line}: a utilisation of {given} is not from 0 to 1"
                    )));
                }
                power(server, given)
            } else {
                given
            };
            if !(0.0..=1e6).contains(&watts) {
                return Err(refused(format!("the trace's line {line}: {watts} W is no power of a server")));
            }
            rows.add(line, time, server, watts)?;
        }
        rows.end_sample(0)?;
        Trace::new(servers, rows.watts)
    }
}

struct Rows {
    servers: usize,
    watts: Vec<f32>,
    now: Option<f64>,
    /// Seconds from the first sample to the second.
    step: Option<f64>,
    seen: BTreeMap<usize, f32>,
}

impl Rows {
    fn add(&mut self, line: u64, time: f64, server: usize, watts: f64) -> Result<()> {
        match self.now {
            Some(now) if time < now => {
                return Err(refused(format!(
                    "the trace's line {line}: time {time} s comes after {now} s; sort the trace by time"
                )));
            }
            Some(now) if time > now => {
                self.end_sample(line)?;
                let (passed, step) = (time - now, *self.step.get_or_insert(time - now));
                if (passed - step).abs() > step * STEP_TOLERANCE {
                    return Err(refused(format!(
                        "the trace's line {line}: time {time} s comes {} s after the one before, the second came {} s \
                         after the first; samples count alike, so put them at even steps",
                        number(passed),
                        number(step)
                    )));
                }
            }
            _ => {}
        }
        self.now = Some(time);
        if self.seen.insert(server, watts as f32).is_some() {
            return Err(refused(format!(
                "the trace's line {line}: server {server} has a second value at {time} s"
            )));
        }
        Ok(())
    }

    /// Takes the values of one time over; `line` is the first of the next time.
    fn end_sample(&mut self, line: u64) -> Result<()> {
        let Some(time) = self.now else { return Err(refused("the trace has no line")) };
        if let Some(missing) = (0..self.servers).find(|server| !self.seen.contains_key(server)) {
            let place = if line > 0 { format!(" before line {line}") } else { String::new() };
            return Err(refused(format!("the trace{place}: server {missing} has no value at {time} s")));
        }
        if self.watts.len() + self.servers > VALUES_MAX {
            return Err(refused(format!("the trace has more than {VALUES_MAX} values")));
        }
        self.watts.extend(std::mem::take(&mut self.seen).into_values());
        Ok(())
    }
}
