//! What is simulated of a number of a live run.

use crate::numbers::Unit;
use crate::row::Row;
use serde::Serialize;

/// The simulated values of a number, and their errors against the median of the live runs. A value is `None` if it was
/// not simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Simulated {
    /// Simulated with the recorded acceptance.
    pub recorded: Option<f64>,
    /// Simulated with the modelled acceptance.
    pub modelled: Option<f64>,
    /// Simulated with the recorded acceptance and with costs learned from the other cells' live runs.
    pub learned: Option<f64>,
    /// Error of `recorded`.
    pub recorded_error: Option<f64>,
    /// Error of `modelled`.
    pub modelled_error: Option<f64>,
    /// Error of `learned`.
    pub learned_error: Option<f64>,
}

/// A number of live runs with its simulated values.
pub type LiveRow = Row<Simulated>;

impl Simulated {
    /// The row of a number with these values. The errors are computed here.
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

/// A value of one policy: its service rate or its speedup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyValue {
    /// The policy's label.
    pub policy: String,
    /// The value.
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
