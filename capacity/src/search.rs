//! Chooses the next rate to try, and finds the answer from the tried rates. The search assumes only that all rates
//! below some rate are carried.
//!
//! It begins with a bracket: a lower rate that may be carried and a higher one that may not be. It doubles or halves
//! the rates until the bracket holds the answer. Then it tries the geometric mean of the ends until their distance is
//! within the tolerance. Last, it tries some rates above and below the answer, to check that more load is not carried
//! better. If a lower rate is not carried, the answer is lowered; if a higher rate is carried, it is reported as an
//! exception.

/// A rate that was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// The tried rate, requests a second.
    pub rate: f64,
    /// Did enough requests keep their bounds, and did the server keep up?
    pub carried: bool,
}

/// What the search does next, or its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// The search is not finished: try this rate, requests a second.
    Try(f64),
    /// The answer: the greatest carried rate below every rate that was not carried.
    Found(f64),
    /// The answer: no rate is carried, not even [`Search::floor`].
    Nothing,
    /// The answer: every rate is carried, up to the highest one that the search tries.
    Everything,
}

/// The settings of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// Rates to begin with, ascending.
    pub bracket: [f64; 2],
    /// The bracket's relative width at which the search ends.
    pub tolerance: f64,
    /// A very low rate, requests a second. If it is not carried, no rate is.
    pub floor: f64,
}

/// The bracket grows upwards no further than this many doublings.
const DOUBLINGS: i32 = 24;
/// Rates that are tried after the answer is found, as multiples of it, to check that more load is not carried better.
const CHECKS: [f64; 5] = [1.5, 1.15, 0.85, 0.7, 0.5];

impl Search {
    /// The next step of the search after `tried`, whose order does not matter.
    pub fn next(&self, tried: &[Tried]) -> Next {
        let [low, high] = self.bracket;
        let failed = tried.iter().filter(|t| !t.carried).map(|t| t.rate).reduce(f64::min);
        let below = failed.unwrap_or(f64::INFINITY);
        let carried = tried.iter().filter(|t| t.carried && t.rate < below).map(|t| t.rate).reduce(f64::max);
        match (carried, failed) {
            (None, None) => Next::Try(low.max(self.floor)),
            (None, Some(failed)) if failed <= self.floor => Next::Nothing,
            (None, Some(failed)) => Next::Try((failed / 2.0).max(self.floor)),
            (Some(carried), None) if carried >= high * 2f64.powi(DOUBLINGS) => Next::Everything,
            (Some(carried), None) => Next::Try(if carried < high { high } else { 2.0 * carried }),
            (Some(carried), Some(failed)) if failed > carried * (1.0 + self.tolerance) => {
                Next::Try((carried * failed).sqrt())
            }
            (Some(carried), Some(_)) => self.check(carried, tried),
        }
    }

    /// The next rate that checks the answer, or the answer.
    fn check(&self, found: f64, tried: &[Tried]) -> Next {
        // A check is skipped if a rate near it was tried.
        let near = |rate: f64| tried.iter().any(|t| (t.rate / rate - 1.0).abs() < self.tolerance.max(0.02));
        CHECKS.iter().map(|by| by * found).find(|&rate| !near(rate)).map_or(Next::Found(found), Next::Try)
    }

    /// The rates that were carried although a lower rate was not, ascending.
    pub fn exceptions(tried: &[Tried]) -> Vec<f64> {
        let failed = tried.iter().filter(|t| !t.carried).map(|t| t.rate).reduce(f64::min).unwrap_or(f64::INFINITY);
        let mut all: Vec<f64> = tried.iter().filter(|t| t.carried && t.rate > failed).map(|t| t.rate).collect();
        all.sort_by(f64::total_cmp);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn search(search: Search, carries: impl Fn(f64) -> bool) -> (Next, Vec<Tried>) {
        let mut tried = Vec::new();
        loop {
            match search.next(&tried) {
                Next::Try(rate) => tried.push(Tried { rate, carried: carries(rate) }),
                end => return (end, tried),
            }
            assert!(tried.len() < 200, "it ends");
        }
    }

    const FINE: Search = Search { bracket: [1.0, 10.0], tolerance: 0.01, floor: 1e-6 };

    #[test]
    fn nothing_and_everything_are_answers() {
        let (end, tried) = search(FINE, |_| false);
        assert_eq!((end, tried.last().unwrap().rate), (Next::Nothing, FINE.floor), "not less than nothing");
        assert_eq!(search(FINE, |_| true).0, Next::Everything);
    }

    /// Rates from 4.0 to 5.5 are not carried: the answer is below them, and the carried rates above them are
    /// exceptions.
    #[test]
    fn rates_carried_above_the_answer_are_exceptions() {
        let (end, tried) = search(FINE, |rate| rate < 4.0 || (5.5..6.5).contains(&rate));
        let Next::Found(found) = end else { panic!("{end:?}") };
        assert!((3.9..4.0).contains(&found), "{found}");
        assert!(!Search::exceptions(&tried).is_empty(), "{tried:?}");
    }

    /// Rates around 4 are not carried, far below the answer that the bracket finds first.
    #[test]
    fn a_check_below_lowers_the_answer() {
        let (end, _) = search(FINE, |rate| rate < 8.0 && !(3.9..4.1).contains(&rate));
        let Next::Found(found) = end else { panic!("{end:?}") };
        assert!(found < 4.0, "{found}");
    }

    proptest! {
        /// Wherever the bracket lies, the answer is within the tolerance below the truth.
        #[test]
        fn the_answer_is_within_the_tolerance(truth in 1e-3..1e4f64, low in 1e-2..1e3f64, wide in 1.01..50.0f64, tolerance in 0.001..0.2f64) {
            let (end, tried) = search(Search { bracket: [low, low * wide], tolerance, floor: 1e-6 }, |rate| rate <= truth);
            let Next::Found(found) = end else { panic!("{end:?}") };
            prop_assert!(found <= truth && found * (1.0 + tolerance) >= truth, "{found} for {truth}");
            prop_assert!(Search::exceptions(&tried).is_empty());
        }

        /// The order in which tries are read back changes nothing, so an interrupted search continues correctly.
        #[test]
        fn the_order_of_tries_does_not_matter(truth in 0.1..100.0f64, cut in 0usize..12) {
            let (_, tried) = search(FINE, |rate| rate <= truth);
            let mut some: Vec<Tried> = tried.iter().take(cut).copied().collect();
            let next = FINE.next(&some);
            some.reverse();
            prop_assert_eq!(FINE.next(&some), next);
        }
    }
}
