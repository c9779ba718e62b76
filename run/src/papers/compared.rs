//! Compares the claims of a paper with the values that this run measured.

use super::measure::measure;
use super::results::{Measured, Results};
use crate::plan::Plan;
use crate::spec::paper::{Claim, Paper, Stated};
use crate::spec::problem::Result;
use foretoken_report::{Cell, signed_percent};
use serde::{Deserialize, Serialize};

/// A paper's claims, each compared with this run's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaperReport {
    pub title: String,
    /// The figure or table of the paper that the experiment repeats.
    pub figure: String,
    /// Each claim of the paper with this run's value, in the order of the experiment's file.
    pub claims: Vec<Compared>,
}

/// One claim of a paper, compared with the value that this run measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Name of the claim, unique within the experiment.
    pub id: String,
    /// What the paper claims, in our words.
    pub says: String,
    /// The place of the claim in the paper or document, such as a section or a figure.
    #[serde(rename = "where")]
    pub place: String,
    /// The value that the paper or document states; absent if it only shows a figure without a number.
    pub paper: Option<Measured>,
    /// The value that this run measured.
    pub ours: Measured,
    /// Are the claim's values (the paper's and ours) shares, such as gains? Then 0.1 means a gain of 10 %.
    pub share: bool,
    /// Our value / the document's value − 1; for shares, 1 + share is compared. 0 if our value is inside the document's
    /// range. If our value is a range, the end that is farther outside is compared. Absent if a ratio has no meaning,
    /// as for names.
    pub difference: Option<f64>,
    /// Is our value within a tenth of the document's value? If the document states a direction (at least, at most): is
    /// our value in that direction? Absent if the document states no value.
    pub agrees: Option<bool>,
    /// A reason why our value does not agree; absent if no reason is known.
    pub because: Option<String>,
}

/// The largest relative difference between our value and a paper's value that counts as agreement.
const TENTH: f64 = 0.1;

impl PaperReport {
    /// Measures every claim of the paper that an experiment repeats, in the experiment's finished runs.
    pub fn of(paper: &Paper, plan: &Plan, cells: &[Cell]) -> Result<PaperReport> {
        let results = Results { plan, cells };
        let claims = paper.claims.iter().map(|claim| Ok(Compared::of(claim, measure(&claim.measure, results)?)));
        Ok(PaperReport {
            title: paper.title.clone(),
            figure: paper.figure.clone(),
            claims: claims.collect::<Result<_>>()?,
        })
    }

    /// (number of claims that come out, number of claims for which the paper states a value).
    pub fn counted(&self) -> (usize, usize) {
        let stated = || self.claims.iter().filter_map(|claim| claim.agrees);
        (stated().filter(|agrees| *agrees).count(), stated().count())
    }

    /// How many claims come out, and how far the others are off, in a sentence.
    pub fn headline(&self) -> String {
        let (agree, stated) = self.counted();
        if stated == 0 {
            return format!("{} states no number to compare with.", self.figure);
        }
        let others = self.claims.iter().filter(|claim| claim.agrees == Some(false));
        let mut off: Vec<f64> = others.filter_map(|claim| claim.difference).collect();
        off.sort_by(f64::total_cmp);
        let rest = match off.as_slice() {
            [] => String::new(),
            [one] => format!("; another differs by {}", signed_percent(*one)),
            [least, .., most] => format!("; others differ by {} to {}", signed_percent(*least), signed_percent(*most)),
        };
        format!("{agree} of {stated} claims of {} come out{rest}.", self.figure)
    }
}

impl Compared {
    fn of(claim: &Claim, ours: Measured) -> Compared {
        let ours = rounded(ours);
        let share = claim.measure.is_share();
        let paper = stated(&claim.stated);
        let (difference, agrees) = match &paper {
            None => (None, None),
            Some(paper) => compare(paper, &ours, share),
        };
        Compared {
            id: claim.id.clone(),
            says: claim.says.clone(),
            place: claim.place.clone(),
            paper,
            ours,
            share,
            difference: difference.map(six_digits),
            agrees,
            because: claim.because.clone(),
        }
    }
}

/// The value that a paper or another document states for a claim; `None` if the document only shows a figure. An
/// infinite end of a range becomes an open end.
pub fn stated(stated: &Stated) -> Option<Measured> {
    let end = |x: f64| Some(x).filter(|x| x.is_finite());
    match stated {
        Stated::FigureOnly => None,
        Stated::Number(x) => Some(Measured::one(*x)),
        Stated::Range(low, high) => Some(Measured::Numbers(end(*low), end(*high))),
        Stated::Policies(names) => Some(Measured::Policies(names.clone())),
    }
}

/// Compares our value with the paper's. Returns (how far our value is outside the paper's range, as a ratio − 1;
/// whether both agree). The ratio is `None` if it has no meaning. For shares, 1 + share is compared.
pub fn compare(paper: &Measured, ours: &Measured, share: bool) -> (Option<f64>, Option<bool>) {
    match (paper, ours) {
        (Measured::Policies(theirs), Measured::Policies(ours)) => {
            (None, Some(ours.iter().all(|label| theirs.contains(label))))
        }
        (&Measured::Numbers(low, high), &Measured::Numbers(from, to)) => {
            // An open end of our range means that the true value is beyond the swept values. Then the other end of our
            // range, which is the last swept value, is compared.
            let (from, to) = (from.or(to), to.or(from));
            let off = |x: f64, end: f64| if share { (1.0 + x) / (1.0 + end) - 1.0 } else { x / end - 1.0 };
            let below = low.zip(from).filter(|(low, from)| from < low).map(|(low, from)| off(from, low));
            let above = high.zip(to).filter(|(high, to)| to > high).map(|(high, to)| off(to, high));
            let farthest = [below, above].into_iter().flatten().max_by(|a, b| a.abs().total_cmp(&b.abs()));
            let difference = farthest.unwrap_or(0.0);
            // If the paper's range has an open end, the paper states a direction, such as "at least 2". Then any of our
            // values outside the range disagrees, however near.
            let direction = low.is_none() || high.is_none();
            let agrees = if direction { farthest.is_none() } else { difference.abs() <= TENTH };
            (Some(difference).filter(|d| d.is_finite()), Some(agrees))
        }
        _ => (None, Some(false)),
    }
}

/// Rounds to six significant digits, so that a value stays the same when it is written as JSON and read back.
pub fn six_digits(x: f64) -> f64 {
    format!("{x:.5e}").parse().unwrap_or(x)
}

/// Rounds every number in the measured value of a paper's claim to six significant digits.
pub fn rounded(measured: Measured) -> Measured {
    match measured {
        Measured::Numbers(low, high) => Measured::Numbers(low.map(six_digits), high.map(six_digits)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(low: f64, high: f64) -> Measured {
        stated(&Stated::Range(low, high)).unwrap()
    }

    #[test]
    fn the_headline_counts_claims_with_a_number() {
        let claim = |(difference, agrees): (Option<f64>, Option<bool>)| Compared {
            id: String::new(),
            says: String::new(),
            place: String::new(),
            paper: None,
            ours: Measured::Nothing,
            share: false,
            difference,
            agrees,
            because: None,
        };
        let said = |claims: &[(Option<f64>, Option<bool>)]| {
            let claims = claims.iter().copied().map(claim).collect();
            PaperReport { title: "A paper".into(), figure: "Fig. 9".into(), claims }.headline()
        };
        let (well, open) = ((Some(0.04), Some(true)), (None, None));
        assert_eq!(said(&[open]), "Fig. 9 states no number to compare with.");
        assert_eq!(said(&[well, open]), "1 of 1 claims of Fig. 9 come out.");
        let (less, more) = ((Some(-0.5), Some(false)), (Some(1.25), Some(false)));
        assert_eq!(said(&[well, less]), "1 of 2 claims of Fig. 9 come out; another differs by -50.0 %.");
        let all = said(&[more, well, (None, Some(false)), less]);
        assert_eq!(all, "1 of 4 claims of Fig. 9 come out; others differ by -50.0 % to +125.0 %.");
    }

    #[test]
    fn inside_a_range_there_is_no_difference() {
        assert_eq!(compare(&range(2.0, 4.0), &range(2.5, 3.0), false), (Some(0.0), Some(true)));
        assert_eq!(compare(&range(2.0, 4.0), &range(1.9, 3.0), false).1, Some(true));
        let (difference, agrees) = compare(&range(2.0, 4.0), &range(1.0, 4.4), false);
        assert_eq!((difference, agrees), (Some(-0.5), Some(false)));
    }

    #[test]
    fn gains_are_compared_as_ratios() {
        let (difference, agrees) = compare(&range(0.07, 0.18), &range(0.05, 0.18), true);
        assert!((difference.unwrap() - (1.05 / 1.07 - 1.0)).abs() < 1e-12);
        assert_eq!(agrees, Some(true));
    }

    #[test]
    fn a_direction_allows_no_tenth() {
        assert_eq!(compare(&range(0.0, f64::INFINITY), &Measured::one(-0.01), true).1, Some(false));
        assert_eq!(compare(&range(0.0, f64::INFINITY), &Measured::one(0.01), true).1, Some(true));
        // The paper states "at most 0", and our value is 2. A ratio to 0 has no meaning, so no difference is given; but
        // the values disagree.
        assert_eq!(compare(&range(f64::NEG_INFINITY, 0.0), &Measured::one(2.0), false), (None, Some(false)));
    }

    #[test]
    fn an_open_end_counts_as_the_last_swept_value() {
        let (difference, agrees) = compare(&Measured::one(12.0), &Measured::Numbers(Some(24.0), None), false);
        assert_eq!((difference, agrees), (Some(1.0), Some(false)));
    }

    #[test]
    fn our_best_policies_must_be_among_the_named_ones() {
        let names = |names: &[&str]| Measured::Policies(names.iter().map(|n| (*n).to_owned()).collect());
        assert_eq!(compare(&names(&["a", "b"]), &names(&["b"]), false), (None, Some(true)));
        assert_eq!(compare(&names(&["a", "b"]), &names(&["b", "c"]), false), (None, Some(false)));
        assert_eq!(compare(&names(&["a"]), &Measured::Nothing, false), (None, Some(false)));
    }
}
