//! Linear programs, solved by an interior-point method (clarabel).

use clarabel::algebra::CscMatrix;
use clarabel::solver::{DefaultSettingsBuilder, DefaultSolver, IPSolver, SolverStatus, SupportedConeT};
use tierstone_base::{Error, ErrorKind, Result};

/// Minimise `cost · x` where each row's sum is at most its limit and each x lies between its bounds.
///
/// Numbers should be of the order of one: the caller scales.
#[derive(Clone, Debug, Default)]
pub struct Program {
    cost: Vec<f64>,
    bounds: Vec<(f64, f64)>,
    rows: Vec<(Vec<(usize, f64)>, f64)>,
}

/// A program without a finite best answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hopeless {
    /// No x keeps all rows.
    Infeasible,
    /// The cost falls without end.
    Unbounded,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The best x.
    Best(Vec<f64>),
    /// There is none.
    None(Hopeless),
}

impl Program {
    /// Adds a variable and gives its number. Infinite bounds are none.
    pub fn variable(&mut self, cost: f64, low: f64, high: f64) -> usize {
        self.cost.push(cost);
        self.bounds.push((low, high));
        self.cost.len() - 1
    }

    /// Adds a row: the sum of `terms` is at most `limit`. A variable may come more than once.
    pub fn at_most(&mut self, terms: Vec<(usize, f64)>, limit: f64) {
        self.rows.push((terms, limit));
    }

    /// Solves it. The answer is within about 1e-8 of the best and of the rows.
    /// Cost: some 10 to 30 factorisations of a sparse matrix of the size of the program.
    ///
    /// # Errors
    /// `Unsupported`: the solver gave up, for want of precision or of steps.
    pub fn solve(&self) -> Result<Outcome> {
        let (mut places, mut limits) = (Triplets::default(), Vec::new());
        for (terms, limit) in &self.rows {
            for &(variable, factor) in terms {
                places.push(limits.len(), variable, factor);
            }
            limits.push(*limit);
        }
        for (variable, &(low, high)) in self.bounds.iter().enumerate() {
            if high.is_finite() {
                places.push(limits.len(), variable, 1.0);
                limits.push(high);
            }
            if low.is_finite() {
                places.push(limits.len(), variable, -1.0);
                limits.push(-low);
            }
        }
        let (rows, columns) = (limits.len(), self.cost.len());
        let matrix = CscMatrix::new_from_triplets(rows, columns, places.rows, places.columns, places.values);
        let quadratic = CscMatrix::zeros((columns, columns));
        let settings = DefaultSettingsBuilder::default().verbose(false).build();
        let settings = settings.map_err(|error| gave_up(&error.to_string()))?;
        let cones = [SupportedConeT::NonnegativeConeT(rows)];
        let solver = DefaultSolver::new(&quadratic, &self.cost, &matrix, &limits, &cones, settings);
        let mut solver = solver.map_err(|error| gave_up(&error.to_string()))?;
        solver.solve();
        match solver.solution.status {
            SolverStatus::Solved | SolverStatus::AlmostSolved => {
                let inside = |(x, (low, high)): (f64, &(f64, f64))| x.max(*low).min(*high);
                Ok(Outcome::Best(solver.solution.x.into_iter().zip(&self.bounds).map(inside).collect()))
            }
            SolverStatus::PrimalInfeasible | SolverStatus::AlmostPrimalInfeasible => {
                Ok(Outcome::None(Hopeless::Infeasible))
            }
            SolverStatus::DualInfeasible | SolverStatus::AlmostDualInfeasible => {
                Ok(Outcome::None(Hopeless::Unbounded))
            }
            other => Err(gave_up(&format!("{other:?}"))),
        }
    }
}

fn gave_up(why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the linear program's solver gave up: {why}"))
}

#[derive(Default)]
struct Triplets {
    rows: Vec<usize>,
    columns: Vec<usize>,
    values: Vec<f64>,
}

impl Triplets {
    fn push(&mut self, row: usize, column: usize, value: f64) {
        self.rows.push(row);
        self.columns.push(column);
        self.values.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_program_is_solved() {
        // Maximise 3a + 2b where a + b <= 4, a + 3b <= 6, a <= 3: a = 3, b = 1.
        let mut program = Program::default();
        let a = program.variable(-3.0, 0.0, 3.0);
        let b = program.variable(-2.0, 0.0, f64::INFINITY);
        program.at_most(vec![(a, 1.0), (b, 1.0)], 4.0);
        program.at_most(vec![(a, 1.0), (b, 3.0)], 6.0);
        let Outcome::Best(best) = program.solve().unwrap() else { panic!() };
        assert!((best[a] - 3.0).abs() < 1e-6 && (best[b] - 1.0).abs() < 1e-6, "{best:?}");
    }

    #[test]
    fn programs_without_an_answer_say_why() {
        let mut program = Program::default();
        let a = program.variable(-1.0, 0.0, f64::INFINITY);
        assert_eq!(program.solve().unwrap(), Outcome::None(Hopeless::Unbounded));
        program.at_most(vec![(a, 1.0)], -1.0);
        assert_eq!(program.solve().unwrap(), Outcome::None(Hopeless::Infeasible));
    }
}
