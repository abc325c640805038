//! Traces made from a seed: a daily curve, noise that all servers of a class share, noise of each server's
//! own, and jobs that occupy groups of servers.
//!
//! The published traces are not public; what is published is mean, greatest and standard deviation of each
//! mix. The shipped descriptions are chosen to come near those.

use super::trace::{Trace, VALUES_MAX};
use crate::field::{refused, within};
use crate::power::servers::Curve;
use crate::quantity::{DAY, Duration, HOUR};
use serde::Deserialize;
use tierstone_base::Result;
use tierstone_base::random::SeededRandom;

/// How busy the servers of a class are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Shape {
    /// Utilisation outside the daily curve.
    pub base: f64,
    /// What the daily curve adds at its top.
    pub daily: f64,
    /// When it is at its top, after midnight.
    pub daily_at: Duration,
    /// How sharp it is: 1 is a cosine, 20 a spike of some three hours.
    pub daily_sharpness: f64,
    /// Standard deviation of the noise that the class shares.
    pub noise_shared: f64,
    /// Standard deviation of each server's own noise.
    pub noise_own: f64,
    /// How long noise lasts.
    pub noise_lasts: Duration,
    /// Servers that one job occupies; 0 for no jobs.
    pub job_servers: usize,
    /// How long a job runs, and with it the gap after it.
    pub job_lasts: Duration,
    /// Part of the time in which there is a job.
    pub job_busy: f64,
    /// Utilisation between jobs.
    pub job_gap: f64,
}

impl Shape {
    /// Whether every part lies in its range; `class` is named in refusals.
    ///
    /// # Errors
    /// `InvalidInput`: one does not.
    pub fn check(&self, class: &str) -> Result<()> {
        let field = |name: &str| format!("{class}.activity.{name}");
        for (name, value, low, high) in [
            ("base", self.base, 0.0, 1.0),
            ("daily", self.daily, 0.0, 1.0),
            ("daily-sharpness", self.daily_sharpness, 0.1, 1000.0),
            ("noise-shared", self.noise_shared, 0.0, 1.0),
            ("noise-own", self.noise_own, 0.0, 1.0),
            ("job-busy", self.job_busy, 0.01, 1.0),
            ("job-gap", self.job_gap, 0.0, 1.0),
        ] {
            within(&field(name), value, low, high, "")?;
        }
        self.daily_at.within(&field("daily-at"), 0.0, DAY)?;
        self.noise_lasts.within(&field("noise-lasts"), 0.6, 6e6)?;
        self.job_lasts.within(&field("job-lasts"), 60.0, 6e6)?;
        Ok(())
    }

    fn daily_part(&self, minute: usize) -> f64 {
        let hours = minute as f64 / 60.0 - self.daily_at.get() / HOUR;
        let cosine = 0.5 + 0.5 * (hours / 24.0 * std::f64::consts::TAU).cos();
        self.daily * cosine.powf(self.daily_sharpness)
    }
}

/// A class of like servers.
#[derive(Clone, Debug)]
pub struct Class {
    /// How many.
    pub servers: usize,
    /// Power of one.
    pub curve: Curve,
    /// How busy; none where a trace says it.
    pub shape: Option<Shape>,
}

/// Noise that forgets: an Ornstein-Uhlenbeck process in steps of a minute.
struct Noise {
    value: f64,
    keep: f64,
    fresh: f64,
}

impl Noise {
    fn new(deviation: f64, minutes: f64, random: &mut SeededRandom) -> Noise {
        let keep = (-1.0 / minutes).exp();
        Noise { value: deviation * normal(random), keep, fresh: deviation * (1.0 - keep * keep).sqrt() }
    }

    fn next(&mut self, random: &mut SeededRandom) -> f64 {
        if self.fresh > 0.0 {
            self.value = self.keep * self.value + self.fresh * normal(random);
        }
        self.value
    }
}

/// A job or a gap of one group of servers.
struct Job {
    busy: bool,
    minutes_left: f64,
}

/// A normal deviate (Box and Muller).
fn normal(random: &mut SeededRandom) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

impl Job {
    fn start(shape: &Shape, random: &mut SeededRandom) -> Job {
        let busy = random.chance(shape.job_busy);
        let mut job = Job { busy, minutes_left: 0.0 };
        job.minutes_left = job.length(shape, random);
        job
    }

    /// Lengths are exponential, so that the part of the time with a job comes out at any moment.
    fn length(&self, shape: &Shape, random: &mut SeededRandom) -> f64 {
        let part = if self.busy { shape.job_busy } else { 1.0 - shape.job_busy };
        -(1.0 - random.unit()).ln() * shape.job_lasts.get() / 60.0 * part
    }

    fn next(&mut self, shape: &Shape, random: &mut SeededRandom) -> bool {
        self.minutes_left -= 1.0;
        while self.minutes_left <= 0.0 && shape.job_busy < 1.0 {
            self.busy = !self.busy;
            self.minutes_left += self.length(shape, random).max(0.01);
        }
        self.busy
    }
}

/// Utilisation of every server and minute from a seed, as power by each class's curve. One seed gives one
/// trace. Cost: servers × minutes.
///
/// # Errors
/// `InvalidInput`: as [`Trace::new`]; and a class without a shape.
pub fn generate(classes: &[Class], minutes: usize, seed: u64) -> Result<Trace> {
    let mut random = SeededRandom::new(seed);
    let servers: usize = classes.iter().map(|class| class.servers).sum();
    let values = servers.saturating_mul(minutes);
    if values > VALUES_MAX {
        return Err(refused(format!(
            "{servers} servers over {minutes} minutes are {values} values, above the limit of {VALUES_MAX}: plan fewer of either"
        )));
    }
    let mut watts = vec![0.0f32; values];
    let mut first = 0;
    for class in classes {
        let mut random = random.fork();
        let Some(shape) = &class.shape else {
            return Err(refused("a class without activity has no synthetic trace"));
        };
        let mut shared = Noise::new(shape.noise_shared, shape.noise_lasts.get() / 60.0, &mut random);
        let mut own: Vec<Noise> = (0..class.servers)
            .map(|_| Noise::new(shape.noise_own, shape.noise_lasts.get() / 60.0, &mut random))
            .collect();
        let groups = if shape.job_servers == 0 { 0 } else { class.servers.div_ceil(shape.job_servers) };
        let mut jobs: Vec<Job> = (0..groups).map(|_| Job::start(shape, &mut random)).collect();
        for minute in 0..minutes {
            let common = shape.base + shape.daily_part(minute) + shared.next(&mut random);
            let busy: Vec<bool> = jobs.iter_mut().map(|job| job.next(shape, &mut random)).collect();
            for (server, noise) in own.iter_mut().enumerate() {
                let working = shape.job_servers == 0 || busy[server / shape.job_servers];
                let level = if working { common } else { shape.job_gap };
                let utilisation = (level + noise.next(&mut random)).clamp(0.0, 1.0);
                watts[minute * servers + first + server] = class.curve.watts(utilisation) as f32;
            }
        }
        first += class.servers;
    }
    Trace::new(servers, watts)
}
