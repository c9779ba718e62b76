//! Chooses the next number of replicas to try, and finds the fewest replicas that carry the load. The search assumes
//! only that every number of replicas above some limit carries the load.

/// A number of replicas that was tried, and whether they carried the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    pub replicas: u32,
    /// Did these replicas carry the load, that is, did enough requests keep their SLO bounds while the queue did not
    /// grow?
    pub carried: bool,
}

/// The next step of the search for the fewest replicas: a number of replicas to try, or the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The search is not finished: try this number of replicas.
    Try(u32),
    /// The answer: the fewest replicas that carry the load. It is above every tried number of replicas that does not
    /// carry the load.
    Found(u32),
    /// The answer: not even [`Search::most`] replicas carry the load.
    Nothing,
}

/// The settings of a search for the fewest replicas: the number of replicas that is tried first, and the largest
/// number that may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// The number of replicas that is tried first; moved into the range from 1 to `most`.
    pub first: u32,
    /// The largest number of replicas that the search tries.
    pub most: u32,
}

impl Search {
    /// The next step of the search for the fewest replicas, given all numbers of replicas that were tried so far. The
    /// order of `tried` does not matter.
    pub fn next(&self, tried: &[Tried]) -> Next {
        let failed = tried.iter().filter(|t| !t.carried).map(|t| t.replicas).max().unwrap_or(0);
        let above = tried.iter().filter(|t| t.carried && t.replicas > failed).map(|t| t.replicas);
        match (failed, above.min()) {
            (failed, None) if failed >= self.most => Next::Nothing,
            (0, None) => Next::Try(self.first.clamp(1, self.most)),
            (failed, None) => Next::Try((failed + failed.div_ceil(4)).clamp(failed + 1, self.most)),
            (failed, Some(carried)) if carried == failed + 1 => self.check(carried, tried),
            // No number of replicas failed yet, and `carried` is the smallest one that carries the load. The search
            // goes downwards in small steps, because the answer is expected near the first number, and a fleet that is
            // too small takes longest to run.
            (0, Some(carried)) => Next::Try(carried - carried.div_ceil(8).min(carried - 1)),
            (failed, Some(carried)) => Next::Try((failed + carried) / 2),
        }
    }

    /// Checks that `found` is the fewest number of replicas that carry the load, by trying one replica more. If it does
    /// not carry the load, the search goes on with larger numbers. If `found` is `most`, the largest number that may be
    /// tried, there is no check.
    fn check(&self, found: u32, tried: &[Tried]) -> Next {
        let is_checked = tried.iter().any(|t| t.replicas == found + 1);
        if is_checked || found == self.most { Next::Found(found) } else { Next::Try(found + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn search(search: Search, carries: impl Fn(u32) -> bool) -> (Next, Vec<Tried>) {
        let mut tried = Vec::new();
        loop {
            match search.next(&tried) {
                Next::Try(replicas) => {
                    assert!(tried.iter().all(|t: &Tried| t.replicas != replicas), "{replicas} is tried twice");
                    tried.push(Tried { replicas, carried: carries(replicas) });
                }
                end => return (end, tried),
            }
        }
    }

    #[test]
    fn a_load_that_no_fleet_carries_is_an_answer() {
        let (end, tried) = search(Search { first: 3, most: 20 }, |_| false);
        assert_eq!((end, tried.last().unwrap().replicas), (Next::Nothing, 20));
    }

    /// In this test, 8 replicas and 11 or more replicas carry the load; no other number does. The answer must be above
    /// 10, the largest number that fails.
    #[test]
    fn the_answer_is_above_every_number_that_fails() {
        let (end, _) = search(Search { first: 8, most: 64 }, |n| n == 8 || n >= 11);
        assert_eq!(end, Next::Found(11));
    }

    proptest! {
        /// The search needs at most 24 simulated runs to find the fewest replicas, whichever number of replicas it
        /// tries first. The next step does not depend on the order of these runs.
        #[test]
        fn the_answer_is_the_fewest(truth in 1..60u32, first in 0..80u32) {
            let settings = Search { first, most: 64 };
            let (end, tried) = search(settings, |n| n >= truth);
            prop_assert_eq!(end, Next::Found(truth));
            prop_assert!(tried.len() <= 24, "{:?}", tried);
            for cut in 0..tried.len() {
                let mut some = tried[..cut].to_vec();
                let next = settings.next(&some);
                some.reverse();
                prop_assert_eq!(settings.next(&some), next);
            }
        }
    }
}
