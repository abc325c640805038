//! From the length of the critical path to operations a second.

use super::TimingReport;

/// What bounds the rate of an operation that persists (Pelley 2014, section 8.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Critical path an operation, in persists.
    pub path_per_operation: f64,
    /// Operations a second that the order of persists allows; infinite where there is no path.
    pub persist_bound: f64,
    /// Operations a second that the program does without waiting for persists.
    pub instruction: f64,
}

impl Rates {
    /// The rates of `operations` operations whose trace is `report`, at `latency_ns` a persist, when the program
    /// does `instruction` operations a second.
    pub fn new(report: &TimingReport, operations: u64, latency_ns: f64, instruction: f64) -> Rates {
        let path_per_operation = report.critical_path as f64 / operations as f64;
        Rates { path_per_operation, persist_bound: 1e9 / (path_per_operation * latency_ns), instruction }
    }

    /// Operations a second: the lower of the two bounds.
    pub fn throughput(&self) -> f64 {
        self.persist_bound.min(self.instruction)
    }

    /// The persist-bound rate of the instruction rate: above 1 the program is bound by its instructions.
    pub fn normalised(&self) -> f64 {
        self.persist_bound / self.instruction
    }
}

/// The persist latency in ns at which the two bounds are equal.
pub fn break_even_ns(path_per_operation: f64, instruction_rate: f64) -> f64 {
    1e9 / (path_per_operation * instruction_rate)
}
