//! One number of a comparison of runs, such as mean TPOT, with its repeated observations and its predictions.

use crate::compare::numbers::Unit;
use crate::compare::spread::{relative_window, window};
use foretoken_profiler::median;
use serde::Serialize;

/// A number of runs, such as mean TPOT: its values in repeated observed runs, and its predictions of type `P`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row<P> {
    /// The name of the compared number, such as mean TPOT, from [`QUANTITIES`](crate::compare::numbers::QUANTITIES).
    pub quantity: String,
    /// The unit of the compared number, which decides how errors and spreads are computed.
    pub unit: Unit,
    /// The value of the compared number (such as mean TPOT) in each observed run.
    pub observed: Vec<f64>,
    /// How far the values of repeated observed runs are apart ([`window`]), relative to their median; for shares the
    /// absolute distance. No prediction can be expected to come closer. `None` if the number was observed once.
    pub spread: Option<f64>,
    /// The predicted values of the compared number (such as mean TPOT), and their errors against the observed ones.
    #[serde(flatten)]
    pub predicted: P,
}

impl<P> Row<P> {
    /// Makes the row of a number from its values in observed runs. `predict` gets the value to which errors are
    /// relative, the median of the observed values, and returns the predictions.
    pub fn new(quantity: &str, unit: Unit, observed: Vec<f64>, predict: impl FnOnce(f64) -> P) -> Row<P> {
        let spread = match unit {
            Unit::Share => window(observed.clone()),
            Unit::Seconds | Unit::Plain => relative_window(&observed),
        };
        let predicted = predict(median(observed.clone()));
        Row { quantity: quantity.to_owned(), unit, observed, spread, predicted }
    }

    /// The value to which the errors of predictions are relative: the median of the observed values. With two values
    /// this is their mean.
    pub fn reference(&self) -> f64 {
        median(self.observed.clone())
    }

    /// True if the number was observed in at least two runs whose values agree within `tolerance`, a share.
    pub fn decided(&self, tolerance: f64) -> bool {
        self.spread.is_some_and(|spread| spread <= tolerance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_decided_if_its_repeats_agree() {
        let row = |unit, observed: &[f64]| Row::new("x", unit, observed.to_vec(), |_| ());
        assert!(row(Unit::Seconds, &[1.0, 1.04]).decided(0.05));
        assert!(!row(Unit::Seconds, &[1.0, 1.06]).decided(0.05));
        assert!(!row(Unit::Seconds, &[1.0]).decided(0.05));
        assert!(row(Unit::Share, &[0.10, 0.14]).decided(0.05));
    }

    #[test]
    fn errors_are_against_the_median_of_the_repeats() {
        let row = Row::new("x", Unit::Plain, vec![0.9, 1.3, 1.1], |reference| reference);
        assert_eq!((row.predicted, row.reference()), (1.1, 1.1));
    }
}
