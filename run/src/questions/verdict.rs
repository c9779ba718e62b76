//! Compares a measured range with a reported value, and decides whether a claim holds. The measured range covers the
//! results with all values that the experiment assumes for facts that the thread does not state.

use crate::papers::compared::compare;
use crate::papers::results::Measured;
use serde::{Deserialize, Serialize};

/// A share (gain) closer to 0 than this counts as neither positive nor negative.
const TIE: f64 = 0.01;

/// How the value that a run measured for a claim compares with the value that the question's thread reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole measured range is within a tenth of the reported number, or inside the reported range. For policies:
    /// every measured policy is among the reported ones.
    Agrees,
    /// Only for shares: all measured shares have the sign of the reported share, but some differ from it by more than a
    /// tenth.
    SameSign,
    /// The measured value agrees with the reported value only for some assumed values. For shares: the measured shares
    /// have different signs, or some are too close to 0.
    CannotSay,
    /// The measured value agrees with the reported value for no assumed value. For shares: the sign of all measured
    /// shares is opposite to the sign of the reported share.
    Differs,
    /// The question's thread reports no value for the claim.
    NotReported,
}

impl Verdict {
    /// The verdict (how the measured value compares with the reported value) as text for the table of claims.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::SameSign => "same sign",
            Verdict::CannotSay => "cannot say",
            Verdict::Differs => "differs",
            Verdict::NotReported => "-",
        }
    }
}

/// Compares our value with the reported value; each is a range of numbers or a list of policies. `share`: are the
/// numbers shares? Then the signs are compared first, and the sizes only if all signs agree.
pub fn verdict(reported: Option<&Measured>, ours: &Measured, share: bool) -> Verdict {
    let Some(reported) = reported else { return Verdict::NotReported };
    match (reported, ours) {
        (Measured::Policies(theirs), Measured::Policies(ours)) => {
            of_parts(ours.iter().map(|label| theirs.contains(label)))
        }
        (Measured::Numbers(..), &Measured::Numbers(from, to)) => {
            let agrees = |end: Option<f64>| {
                let one = end.map(Measured::one).unwrap_or_else(|| ours.clone());
                compare(reported, &one, share).1 == Some(true)
            };
            let inside = of_parts([agrees(from), agrees(to)].into_iter());
            match sign(reported).filter(|_| share) {
                Some(wanted) => match (same_sign(wanted, ours), inside) {
                    (Some(true), Verdict::Agrees) => Verdict::Agrees,
                    (Some(true), _) => Verdict::SameSign,
                    (Some(false), _) => Verdict::Differs,
                    (None, _) => Verdict::CannotSay,
                },
                None if inside == Verdict::Differs && covers(ours, reported) => Verdict::CannotSay,
                None => inside,
            }
        }
        _ => Verdict::Differs,
    }
}

/// Does the claim hold for all assumed values? `None` if it holds only for some of them, or was not measured. A claim
/// without a reported value holds if it measures shares and all are positive, if it measures policies and all are the
/// same, or if it measures numbers that are not shares.
pub fn holds(verdict: Verdict, ours: &Measured, share: bool) -> Option<bool> {
    match (verdict, ours) {
        (Verdict::Agrees | Verdict::SameSign, _) => Some(true),
        (Verdict::Differs, _) => Some(false),
        (Verdict::CannotSay, _) | (_, Measured::Nothing) => None,
        (Verdict::NotReported, Measured::Policies(labels)) => labels.windows(2).all(|w| w[0] == w[1]).then_some(true),
        (Verdict::NotReported, Measured::Numbers(..)) if share => same_sign(1.0, ours),
        (Verdict::NotReported, Measured::Numbers(..)) => Some(true),
    }
}

/// The verdict from several comparisons, each of which agrees (true) or not (false): `Agrees` if all are true,
/// `Differs` if none is true, else `CannotSay`.
fn of_parts(parts: impl Iterator<Item = bool> + Clone) -> Verdict {
    match (parts.clone().any(|p| p), parts.clone().all(|p| p)) {
        (true, true) => Verdict::Agrees,
        (true, false) => Verdict::CannotSay,
        (false, _) => Verdict::Differs,
    }
}

/// The sign (1 or −1) of all numbers of a reported range. `None` if the range has both signs, or is within [`TIE`] of
/// 0.
fn sign(reported: &Measured) -> Option<f64> {
    match *reported {
        Measured::Numbers(Some(low), high) if low >= 0.0 && high.is_none_or(|high| high >= TIE) => Some(1.0),
        Measured::Numbers(low, Some(high)) if high <= 0.0 && low.is_none_or(|low| low <= -TIE) => Some(-1.0),
        _ => None,
    }
}

/// `Some(true)` if all measured shares have the sign `wanted`, `Some(false)` if all have the opposite sign, else
/// `None`. A share within [`TIE`] of 0 and an open end have no sign.
fn same_sign(wanted: f64, ours: &Measured) -> Option<bool> {
    let &Measured::Numbers(Some(from), Some(to)) = ours else { return None };
    let ends = [from * wanted, to * wanted];
    match (ends.iter().all(|x| *x >= TIE), ends.iter().all(|x| *x <= -TIE)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

/// Does the range that this run measured begin below the reported range and end above it?
fn covers(ours: &Measured, reported: &Measured) -> bool {
    match (ours, reported) {
        (&Measured::Numbers(from, to), &Measured::Numbers(low, high)) => {
            let below = from.is_none_or(|from| low.or(high).is_some_and(|low| from < low));
            let above = to.is_none_or(|to| high.or(low).is_some_and(|high| to > high));
            below && above
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(low: f64, high: f64) -> Measured {
        let end = |x: f64| Some(x).filter(|x| x.is_finite());
        Measured::Numbers(end(low), end(high))
    }

    fn policies(names: &[&str]) -> Measured {
        Measured::Policies(names.iter().map(|n| (*n).to_owned()).collect())
    }

    #[test]
    fn shares_are_compared_by_sign_first() {
        let minus_15 = Measured::one(-0.15);
        let against = |from, to| verdict(Some(&minus_15), &range(from, to), true);
        assert_eq!(against(-0.16, -0.1), Verdict::Agrees);
        assert_eq!(against(-0.4, -0.1), Verdict::SameSign);
        assert_eq!(against(-0.2, 0.05), Verdict::CannotSay);
        assert_eq!(against(-0.2, -0.001), Verdict::CannotSay);
        assert_eq!(against(0.02, 0.05), Verdict::Differs);
        let gains = range(0.0, f64::INFINITY);
        assert_eq!(verdict(Some(&gains), &range(0.1, 0.3), true), Verdict::Agrees);
        assert_eq!(verdict(Some(&gains), &range(-0.1, 0.3), true), Verdict::CannotSay);
        assert_eq!(verdict(Some(&gains), &range(-0.3, -0.1), true), Verdict::Differs);
    }

    #[test]
    fn numbers_are_compared_within_a_tenth() {
        let ten = Measured::one(10.0);
        let against = |from, to| verdict(Some(&ten), &range(from, to), false);
        assert_eq!(against(9.5, 10.5), Verdict::Agrees);
        assert_eq!(against(9.5, 15.0), Verdict::CannotSay);
        assert_eq!(against(5.0, 20.0), Verdict::CannotSay);
        assert_eq!(against(20.0, 30.0), Verdict::Differs);
        assert_eq!(verdict(None, &range(1.0, 2.0), false), Verdict::NotReported);
        assert_eq!(verdict(Some(&ten), &Measured::Nothing, false), Verdict::Differs);
    }

    #[test]
    fn policies_must_be_the_reported_ones_for_every_assumption() {
        let reported = policies(&["fixed-2", "fixed-3"]);
        let against = |names: &[&str]| verdict(Some(&reported), &policies(names), false);
        assert_eq!(against(&["fixed-2", "fixed-3"]), Verdict::Agrees);
        assert_eq!(against(&["fixed-2", "fixed-4"]), Verdict::CannotSay);
        assert_eq!(against(&["fixed-4"]), Verdict::Differs);
    }

    #[test]
    fn a_claim_without_a_number_holds_by_its_own_sign() {
        let holds_for = |from, to| holds(Verdict::NotReported, &range(from, to), true);
        let held = (holds_for(0.02, 0.3), holds_for(-0.3, -0.02), holds_for(-0.1, 0.1));
        assert_eq!(held, (Some(true), Some(false), None));
        let best = |names: &[&str]| holds(Verdict::NotReported, &policies(names), false);
        assert_eq!((best(&["a", "a"]), best(&["a", "b"])), (Some(true), None));
        assert_eq!(holds(Verdict::NotReported, &Measured::Nothing, false), None);
        assert_eq!(holds(Verdict::CannotSay, &range(0.1, 0.2), true), None);
    }
}
