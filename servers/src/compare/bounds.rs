//! Bounds on the errors of a simulation. Every bound has its own verdict. There is no verdict on the mean of several
//! errors, in which small errors could hide a large one.

use crate::compare::row::Row;
use serde::Serialize;

/// The verdict on a bound on an error: whether the error of a simulated number keeps the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The error of the simulated number is within its bound.
    Kept,
    /// The error of the simulated number is beyond its bound.
    Broken,
    /// Neither kept nor broken: the number was observed only once, or its repeated observations do not agree.
    Undecided,
}

/// One check of a comparison: a value, its bound, and whether the bound is kept. The value is the error of a simulated
/// number, or a count of events that must not occur.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// A text that names the cell and the number that have the bound.
    pub what: String,
    /// The absolute value of a simulated number's error, such as 0.03 for 3 %. Or a count that must be 0, such as the
    /// number of pairs of policies that are ranked in the wrong order.
    pub value: f64,
    /// The largest `value` that keeps the bound.
    pub bound: f64,
    /// Whether `value` is within `bound`, or cannot be judged.
    pub verdict: Verdict,
    /// A note for the reader, such as how far the repeated runs are apart; may be empty.
    pub note: String,
}

impl Check {
    /// Checks `error`, a share, against `bound`. The verdict is "undecided" unless the number was observed at least
    /// twice and its repeats differ by at most `tolerance`, a share.
    pub fn of_error<P>(what: String, row: &Row<P>, error: f64, bound: f64, tolerance: f64) -> Check {
        let note = match row.spread {
            Some(spread) => format!("repeats are {:.1} % apart", spread * 100.0),
            None => "observed once".to_owned(),
        };
        Check { what, value: error.abs(), bound, verdict: verdict(error.abs(), bound, row.decided(tolerance)), note }
    }

    /// Checks a count that must be 0, such as the number of pairs of policies in the wrong order. If `decided` is
    /// false, the count is not reliable, and the verdict is "undecided".
    pub fn of_count(what: String, count: u64, decided: bool, note: String) -> Check {
        let value = count as f64;
        Check { what, value, bound: 0.0, verdict: verdict(value, 0.0, decided), note }
    }
}

fn verdict(value: f64, bound: f64, decided: bool) -> Verdict {
    match decided {
        false => Verdict::Undecided,
        true if value <= bound => Verdict::Kept,
        true => Verdict::Broken,
    }
}

/// Of a comparison's checks of errors: how many bounds are kept, broken or undecided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub kept: usize,
    pub broken: usize,
    /// Number of bounds on errors that are undecided, because their numbers were observed once or the repeats do not
    /// agree.
    pub undecided: usize,
}

impl Tally {
    /// Counts how many of `checks` have each verdict.
    pub fn of<'a>(checks: impl IntoIterator<Item = &'a Check>) -> Tally {
        checks.into_iter().fold(Tally::default(), |mut tally, check| {
            match check.verdict {
                Verdict::Kept => tally.kept += 1,
                Verdict::Broken => tally.broken += 1,
                Verdict::Undecided => tally.undecided += 1,
            }
            tally
        })
    }

    /// Number of bounds on errors that are kept or broken, that is, not undecided.
    pub fn decided(self) -> usize {
        self.kept + self.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::numbers::Unit;

    fn check(observed: &[f64], error: f64) -> Verdict {
        let row = Row::new("x", Unit::Seconds, observed.to_vec(), |_| ());
        Check::of_error("x".into(), &row, error, 0.1, 0.05).verdict
    }

    #[test]
    fn an_error_is_judged_where_repeats_agree() {
        assert_eq!(check(&[1.0, 1.0], -0.05), Verdict::Kept);
        assert_eq!(check(&[1.0, 1.0], -0.15), Verdict::Broken);
        // If the error is NaN, the bound counts as broken.
        assert_eq!(check(&[1.0, 1.0], f64::NAN), Verdict::Broken);
    }

    #[test]
    fn a_number_whose_repeats_differ_decides_nothing() {
        assert_eq!(check(&[1.0, 1.2], 0.0), Verdict::Undecided);
        assert_eq!(check(&[1.0], 0.5), Verdict::Undecided);
    }

    #[test]
    fn verdicts_are_counted() {
        let count = |n, decided| Check::of_count("x".into(), n, decided, String::new());
        let tally = Tally::of(&[count(0, true), count(1, true), count(0, true), count(1, false)]);
        assert_eq!(tally, Tally { kept: 2, broken: 1, undecided: 1 });
        assert_eq!(tally.decided(), 3);
    }
}
