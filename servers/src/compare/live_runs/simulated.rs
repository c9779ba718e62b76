//! The simulated values of a number that live runs measured.

use crate::compare::numbers::Unit;
use crate::compare::row::Row;
use serde::Serialize;

/// The simulated values of a number, with their errors against the median of the live runs. A value is `None` if it was
/// not simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Simulated {
    /// The value of the compared number, simulated with the acceptance that the live run revealed.
    pub recorded: Option<f64>,
    /// The value of the compared number, simulated with an acceptance that the experiment's acceptance source draws,
    /// not the live run.
    pub modelled: Option<f64>,
    /// The value of the compared number, simulated with the acceptance that the live run revealed, and with costs that
    /// were learned from the live runs of the other cells.
    pub learned: Option<f64>,
    /// The error of `recorded` (the value simulated with the live run's acceptance) against the live runs: the relative
    /// error, or for shares the difference.
    pub recorded_error: Option<f64>,
    /// The error of `modelled` (the value simulated with the experiment's acceptance source) against the live runs: the
    /// relative error, or for shares the difference.
    pub modelled_error: Option<f64>,
    /// The error of `learned` (the value simulated with learned costs) against the live runs: the relative error, or
    /// for shares the difference.
    pub learned_error: Option<f64>,
}

/// A number that live runs measured, such as mean TPOT, with its simulated values.
pub type LiveRow = Row<Simulated>;

impl Simulated {
    /// Makes the row of the number `quantity` from these simulated values and the values of the live runs. Computes the
    /// errors of the simulated values.
    pub fn row(self, quantity: &str, unit: Unit, live: Vec<f64>) -> LiveRow {
        Row::new(quantity, unit, live, |reference| {
            let error = |value: Option<f64>| value.and_then(|v| unit.error(v, reference));
            Simulated {
                recorded_error: error(self.recorded),
                modelled_error: error(self.modelled),
                learned_error: error(self.learned),
                ..self
            }
        })
    }
}

/// The service rate or the speedup of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyValue {
    /// The label of the policy that has this rate or speedup.
    pub policy: String,
    /// The service rate or the speedup over the baseline, live and simulated.
    pub rate: LiveRow,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_against_the_middle_of_the_live_runs() {
        let values = Simulated { recorded: Some(1.05), learned: Some(0.99), ..Simulated::default() };
        let row = values.row("x", Unit::Seconds, vec![0.9, 1.1]);
        let close = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-12;
        assert!(close(row.predicted.recorded_error, 0.05) && close(row.spread, 0.2));
        assert!(close(row.predicted.learned_error, -0.01) && row.predicted.modelled_error.is_none());
    }

    #[test]
    fn errors_of_shares_are_differences() {
        let values = Simulated { recorded: Some(0.45), modelled: Some(0.6), ..Simulated::default() };
        let row = values.row("x", Unit::Share, vec![0.5]);
        assert!((row.predicted.recorded_error.unwrap() + 0.05).abs() < 1e-12 && row.spread.is_none());
        assert!((row.predicted.modelled_error.unwrap() - 0.1).abs() < 1e-12);
    }
}
