//! Running an experiment: what it is given, what it gives back.
//!
//! Invariant: every published value of the experiment is compared exactly once, or the run fails.

use crate::experiment::{Experiment, Published, Size};
use crate::machine::{Machine, utc_text};
use crate::result::{ExperimentResult, FORMAT, Plot, Row, StepTime, Table};
use crate::scratch::{Scratch, refuse_missing};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use tierstone_base::{Clock, Error, ErrorKind, Result, SeededRandom, SystemClock};
use tierstone_workload::target_load::{load_here, run_here};
use tierstone_workload::{Outcome, Pacing, Target, Workload};

/// How an experiment is run.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// How much is measured.
    pub size: Size,
    /// Below which directory the temporary folder is made: its disk is the device that is measured.
    pub data: PathBuf,
    /// The seed of keys, operations and values.
    pub seed: u64,
}

impl RunSettings {
    /// # Errors
    /// `InvalidInput` when the directory of the data is not there.
    pub fn validate(&self) -> Result<()> {
        refuse_missing(&self.data)
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress<'a> {
    /// What is being done.
    pub doing: &'a str,
    /// How much of the run is done, 0 to 1.
    pub done: f64,
}

/// Asked often during a run, with how far it is; ends it with `Break`.
pub type Observer<'a> = &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>;

/// Runs `experiment`. Its temporary folder is gone when this returns.
///
/// # Errors
/// `InvalidInput` as of [`RunSettings::validate`]. `NoSpace` before anything is written when the disk has too little.
/// `Retry` when the observer ended it. Others: those of what is measured; a store that answered wrongly is `Corrupt`.
pub fn run(
    experiment: &Experiment,
    settings: &RunSettings,
    observer: Observer<'_>,
) -> Result<ExperimentResult> {
    let space_bytes = (experiment.space_bytes)(settings.size);
    run_with(experiment, settings, space_bytes, observer, &mut |run| (experiment.run)(run))
}

/// Runs `body` as `experiment`: for what is measured of a user's own input, which an [`Experiment`] cannot hold.
/// `space_bytes`: what it needs of the disk.
///
/// # Errors
/// As [`run()`].
pub fn run_with(
    experiment: &Experiment,
    settings: &RunSettings,
    space_bytes: u64,
    observer: Observer<'_>,
    body: &mut dyn FnMut(&mut Run<'_>) -> Result<()>,
) -> Result<ExperimentResult> {
    let clock = SystemClock::new();
    let scratch = Scratch::new(&settings.data, space_bytes)?;
    let machine = Machine::of(scratch.path())?;
    let started = utc_text(clock.now().wall_ms);
    let mut run = Run {
        experiment,
        settings,
        clock,
        scratch,
        observer,
        doing: String::new(),
        steps: 1,
        step: 0,
        step_began_us: 0,
        step_times: Vec::new(),
        is_stopped: false,
        seeds: 0,
        rows: BTreeMap::new(),
        tables: Vec::new(),
        shown: Vec::new(),
        plots: Vec::new(),
        notes: Vec::new(),
        chosen: BTreeMap::new(),
    };
    run.set("seed", settings.seed);
    body(&mut run).map_err(|error| error.context(experiment.name))?;
    run.end_step();
    let rows = run.rows_in_order()?;
    Ok(ExperimentResult {
        format: FORMAT,
        name: experiment.name.to_owned(),
        title: experiment.title.to_owned(),
        source: experiment.source.to_owned(),
        measures: experiment.measures.to_owned(),
        kind: experiment.kind,
        size: settings.size,
        program: format!("tierstone {}", env!("CARGO_PKG_VERSION")),
        started,
        seconds: clock.now().monotonic_us as f64 / 1e6,
        machine,
        settings: run.chosen,
        rows,
        tables: run.tables,
        shown: run.shown,
        plots: run.plots,
        notes: run.notes,
        steps: run.step_times,
    })
}

/// A run under way, as its experiment sees it.
pub struct Run<'a> {
    experiment: &'a Experiment,
    settings: &'a RunSettings,
    clock: SystemClock,
    scratch: Scratch,
    observer: Observer<'a>,
    doing: String,
    steps: u32,
    step: u32,
    /// When the step began.
    step_began_us: u64,
    step_times: Vec<StepTime>,
    is_stopped: bool,
    seeds: u64,
    rows: BTreeMap<&'static str, Row>,
    tables: Vec<Table>,
    shown: Vec<String>,
    plots: Vec<Plot>,
    notes: Vec<String>,
    chosen: BTreeMap<String, String>,
}

impl std::fmt::Debug for Run<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Run").field("name", &self.experiment.name).finish_non_exhaustive()
    }
}

impl Run<'_> {
    /// One of three by the size of the run.
    pub fn pick<T>(&self, tiny: T, quick: T, full: T) -> T {
        match self.settings.size {
            Size::Tiny => tiny,
            Size::Quick => quick,
            Size::Full => full,
        }
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.settings.seed
    }

    /// The run's clock.
    pub fn clock(&self) -> SystemClock {
        self.clock
    }

    /// Microseconds since the run began.
    pub fn now_us(&self) -> u64 {
        self.clock.now().monotonic_us
    }

    /// The temporary folder.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Notes what was chosen for this run.
    pub fn set(&mut self, name: &str, value: impl Display) {
        self.chosen.insert(name.to_owned(), value.to_string());
    }

    /// How many steps there will be.
    pub fn expect_steps(&mut self, steps: u32) {
        self.steps = steps.max(1);
    }

    /// Begins the next step.
    ///
    /// # Errors
    /// `Retry` when the run was stopped.
    pub fn step(&mut self, doing: impl Display) -> Result<()> {
        self.end_step();
        self.doing = doing.to_string();
        self.step += 1;
        let _ = self.tell(0.0);
        self.check_stopped()
    }

    fn end_step(&mut self) {
        let now_us = self.now_us();
        if self.step > 0 {
            let seconds = (now_us - self.step_began_us) as f64 / 1e6;
            self.step_times.push(StepTime { doing: self.doing.clone(), seconds });
        }
        self.step_began_us = now_us;
    }

    /// Tells how much of the step is done, 0 to 1; to be called several times a second.
    ///
    /// # Errors
    /// `Retry` when the run was stopped.
    pub fn go_on(&mut self, done: f64) -> Result<()> {
        let _ = self.tell(done);
        self.check_stopped()
    }

    fn tell(&mut self, of_step: f64) -> ControlFlow<()> {
        let steps_done = f64::from(self.step.saturating_sub(1)) + of_step.clamp(0.0, 1.0);
        let done = (steps_done / f64::from(self.steps)).min(1.0);
        if (self.observer)(Progress { doing: &self.doing, done }).is_break() {
            self.is_stopped = true;
        }
        if self.is_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn check_stopped(&self) -> Result<()> {
        if self.is_stopped {
            return Err(Error::new(ErrorKind::Retry, "stopped; nothing of the run was kept"));
        }
        Ok(())
    }

    /// A seed that no other measurement of this run has: the second must not ask for what the first has
    /// just brought into memory.
    pub fn next_seed(&mut self) -> u64 {
        self.seeds += 1;
        SeededRandom::new(self.settings.seed ^ (self.seeds << 32)).next_u64()
    }

    /// Runs the mix of `workload` against `target` on this thread.
    ///
    /// # Errors
    /// `Retry` when the run was stopped. `Corrupt` when a value was missing or wrong. What the target
    /// said when it failed.
    pub fn drive(
        &mut self,
        workload: &Workload,
        pacing: &Pacing,
        target: &mut dyn Target,
    ) -> Result<Outcome> {
        let pacing = Pacing { seed: self.next_seed(), ..*pacing };
        let outcome = run_here(workload, &pacing, target, &mut |now| self.tell(part(now)))?;
        self.check_stopped()?;
        check(outcome)
    }

    /// Inserts the records `ids` in batches of `batch`, on this thread.
    ///
    /// # Errors
    /// As [`Run::drive`].
    pub fn load(
        &mut self,
        workload: &Workload,
        ids: Range<u64>,
        batch: usize,
        target: &mut dyn Target,
    ) -> Result<Outcome> {
        let pacing = Pacing { pipeline: batch, seed: self.next_seed(), ..Pacing::default() };
        let outcome = load_here(workload, ids, &pacing, target, &mut |now| self.tell(part(now)))?;
        self.check_stopped()?;
        check(outcome)
    }

    /// The same with threads: `open` gives each its handle.
    ///
    /// # Errors
    /// As [`Run::drive`].
    pub fn drive_shared<T: Target + Send>(
        &mut self,
        workload: &Workload,
        pacing: &Pacing,
        open: &mut dyn FnMut() -> Result<T>,
    ) -> Result<Outcome> {
        let pacing = Pacing { seed: self.next_seed(), ..*pacing };
        let outcome =
            tierstone_workload::target_load::run(workload, &pacing, open, &mut |now| self.tell(part(now)))?;
        self.check_stopped()?;
        check(outcome)
    }

    /// Compares `here` to the published value `name`; `detail` says what else explains it, or nothing.
    ///
    /// # Errors
    /// `Unsupported`, a mistake of the experiment: no such value, or compared before, or no number.
    pub fn compare(&mut self, name: &str, here: f64, detail: &str) -> Result<()> {
        let wrong = |what: &str| Err(Error::new(ErrorKind::Unsupported, format!("'{name}': {what}")));
        let Some(published) = self.experiment.published.iter().find(|value| value.name == name) else {
            return wrong("no such published value");
        };
        if !here.is_finite() {
            return wrong("what was measured gives no number");
        }
        let row = row(published, here, detail);
        match self.rows.insert(published.name, row) {
            None => Ok(()),
            Some(_) => wrong("compared twice"),
        }
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Adds a table that the terminal shows too: the published one beside ours, in 120 columns. Its title says which
    /// numbers are measured, modelled or published, and where.
    pub fn show(&mut self, table: Table) {
        self.shown.push(table.name.clone());
        self.table(table);
    }

    /// Adds a plot.
    pub fn plot(&mut self, plot: Plot) {
        self.plots.push(plot);
    }

    /// Adds what a reader has to know.
    pub fn note(&mut self, note: impl Display) {
        self.notes.push(note.to_string());
    }

    /// The rows in the order of the published values.
    fn rows_in_order(&mut self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for published in self.experiment.published {
            match self.rows.remove(published.name) {
                Some(row) => rows.push(row),
                None => {
                    let message = format!("{}: '{}' was not compared", self.experiment.name, published.name);
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
            }
        }
        Ok(rows)
    }
}

fn row(published: &Published, here: f64, detail: &str) -> Row {
    let mut because = format!("{}; {}", published.because, published.rule);
    if !detail.is_empty() {
        because = format!("{because}; {detail}");
    }
    Row {
        name: published.name.to_owned(),
        published: published.value,
        here,
        unit: published.unit.to_owned(),
        place: published.place.to_owned(),
        verdict: published.rule.judge(here),
        because,
    }
}

/// How much of a load is done.
fn part(now: tierstone_workload::Progress) -> f64 {
    match (now.operations_total, now.seconds_total) {
        (Some(total), _) => now.operations as f64 / total.max(1) as f64,
        (None, Some(total)) => now.seconds / total.max(1e-9),
        (None, None) => 0.0,
    }
}

/// A measurement of wrong answers is none.
fn check(outcome: Outcome) -> Result<Outcome> {
    if let Some(error) = &outcome.first_error {
        return Err(Error::new(
            ErrorKind::DeviceFailed,
            format!("{} operations failed: {error}", outcome.errors),
        ));
    }
    if outcome.misses > 0 || !outcome.is_clean() {
        let message = format!(
            "{} records were missing and {} were not what was written",
            outcome.misses, outcome.verification_failures
        );
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    Ok(outcome)
}

#[cfg(test)]
#[path = "run_test.rs"]
mod run_test;
