//! Chooses the next rate to try, and finds the capacity from the tried rates. The search assumes only that all rates
//! below some rate are carried.
//!
//! The search begins with a bracket: a lower rate that may be carried, and a higher rate that may fail. It halves or
//! doubles the rates until the lower rate is carried and the higher rate fails. Then it tries the geometric mean of
//! both rates until their distance is within the tolerance. Last, it tries some rates below and above the answer,
//! because a rate may be carried although a lower rate fails. If a rate below the answer fails, the answer becomes
//! lower. If a rate above the answer is carried, it is reported as an exception.

/// A request rate that was tried, and whether it was carried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// The tried request rate, per second.
    pub rate: f64,
    /// Did enough requests keep their SLO bounds, and did the server keep up with the arrivals?
    pub carried: bool,
}

/// The next step of a capacity search: a request rate to try, or the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// The search is not finished: try this request rate, per second.
    Try(f64),
    /// The answer, requests per second: the highest carried rate that is below every rate that failed. A rate is
    /// carried if enough counted requests keep their SLO bounds and the queue does not grow.
    Found(f64),
    /// The answer: the server carries no request rate, not even [`Search::floor`].
    Nothing,
    /// The answer: the server carries every request rate that was tried, up to the highest rate that the search tries.
    Everything,
}

/// Where a capacity search starts, and when it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// The two rates with which the search begins, requests per second, ascending.
    pub bracket: [f64; 2],
    /// The search narrows its bracket (a carried rate and a higher rate that fails) until the higher rate exceeds the
    /// lower one by at most this share. Then it checks the answer.
    pub tolerance: f64,
    /// The lowest request rate that is tried, per second. If this rate is not carried, the answer is that no rate is
    /// carried.
    pub floor: f64,
}

/// While every tried rate is carried, the capacity search doubles the rate, at most this many times. Then the answer is
/// that every tried rate is carried.
const DOUBLINGS: i32 = 24;
/// Once a capacity is found, these multiples of it are tried as a check. Lower rates should be carried, and higher
/// rates should fail.
const CHECKS: [f64; 5] = [1.5, 1.15, 0.85, 0.7, 0.5];

impl Search {
    /// The capacity search's next step, given all rates that were tried so far. The order of `tried` does not matter.
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

    /// The next request rate to try as a check of the capacity `found`. If all checks are done, `found` is the final
    /// answer.
    fn check(&self, found: f64, tried: &[Tried]) -> Next {
        // Skips a check of the capacity if a rate near the check's rate was tried already.
        let near = |rate: f64| tried.iter().any(|t| (t.rate / rate - 1.0).abs() < self.tolerance.max(0.02));
        CHECKS.iter().map(|by| by * found).find(|&rate| !near(rate)).map_or(Next::Found(found), Next::Try)
    }

    /// The request rates that were carried although a lower rate was not; ascending, per second.
    pub fn exceptions(tried: &[Tried]) -> Vec<f64> {
        let failed = tried.iter().filter(|t| !t.carried).map(|t| t.rate).reduce(f64::min).unwrap_or(f64::INFINITY);
        let mut rates: Vec<f64> = tried.iter().filter(|t| t.carried && t.rate > failed).map(|t| t.rate).collect();
        rates.sort_by(f64::total_cmp);
        rates
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

    /// In this test, request rates from 4.0 to 5.5 fail. So the answer is below 4.0. Carried rates (served within the
    /// SLO) above 5.5 are exceptions.
    #[test]
    fn rates_carried_above_the_answer_are_exceptions() {
        let (end, tried) = search(FINE, |rate| rate < 4.0 || (5.5..6.5).contains(&rate));
        let Next::Found(found) = end else { panic!("{end:?}") };
        assert!((3.9..4.0).contains(&found), "{found}");
        assert!(!Search::exceptions(&tried).is_empty(), "{tried:?}");
    }

    /// In this test, request rates around 4 and rates from 8 on fail. The search first finds an answer near 8. Then it
    /// checks a lower rate, which fails and lowers the answer.
    #[test]
    fn a_check_below_lowers_the_answer() {
        let (end, _) = search(FINE, |rate| rate < 8.0 && !(3.9..4.1).contains(&rate));
        let Next::Found(found) = end else { panic!("{end:?}") };
        assert!(found < 4.0, "{found}");
    }

    proptest! {
        /// For any two rates at which the search begins, the answer is at most the true capacity. The answer is below
        /// the true capacity by at most the tolerance. No rate is an exception (carried although a lower rate is not).
        #[test]
        fn the_answer_is_within_the_tolerance(truth in 1e-3..1e4f64, low in 1e-2..1e3f64, wide in 1.01..50.0f64, tolerance in 0.001..0.2f64) {
            let (end, tried) = search(Search { bracket: [low, low * wide], tolerance, floor: 1e-6 }, |rate| rate <= truth);
            let Next::Found(found) = end else { panic!("{end:?}") };
            prop_assert!(found <= truth && found * (1.0 + tolerance) >= truth, "{found} for {truth}");
            prop_assert!(Search::exceptions(&tried).is_empty());
        }

        /// The capacity search's next step does not depend on the order of the tried rates, so an interrupted search
        /// continues correctly.
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
