//! When to ask, between draft passes, whether to go on. Asking costs a round trip of the host; it is worth what
//! stopping by confidence earns beyond the planned length. Which of the two is more is measured while serving.

/// When the policy decides between draft passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Behind every pass.
    Always,
    /// From the pass that was planned as the last.
    AtPlannedEnd,
    /// Never: the planned length is drafted.
    Never,
}

const WAYS: [Asks; 3] = [Asks::Always, Asks::AtPlannedEnd, Asks::Never];
/// Steps in which each way is tried at first.
const TRIALS: u32 = 16;
/// Number of steps after which another way is tried again.
const RETRY: u32 = 48;
/// Weight of a step's worth in its way's mean.
const WEIGHT: f64 = 0.03;
/// Decisions that take less than this share of a step are not weighed.
const NEGLIGIBLE: f64 = 0.02;

/// What each way of asking earned.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// By way: the mean worth of a step beyond what was planned, in tokens a request, and the number of steps.
    earned: [(f64, u32); 3],
    steps: u32,
    /// The way of this step.
    way: usize,
    /// The worth that was planned in this step, in tokens.
    planned: f64,
}

impl Asking {
    /// Chooses the way of a step. `planned` is the worth of the planned length, in tokens; `share` is the share of the
    /// step that decisions behind all of its passes would take.
    pub fn begin(&mut self, planned: f64, share: f64) -> Asks {
        self.planned = planned;
        self.way = 0;
        if share > NEGLIGIBLE {
            self.steps += 1;
            let untried = (0..WAYS.len()).find(|&way| self.earned[way].1 < TRIALS);
            let best = || (1..WAYS.len()).fold(0, |a, b| if self.earned[b].0 > self.earned[a].0 { b } else { a });
            self.way = match untried {
                Some(way) => way,
                None if self.steps.is_multiple_of(RETRY) => (self.steps / RETRY) as usize % WAYS.len(),
                None => best(),
            };
        }
        WAYS[self.way]
    }

    /// Takes in the worth of the step of `n` requests, in tokens.
    pub fn end(&mut self, worth: f64, n: usize) {
        let (mean, steps) = &mut self.earned[self.way];
        *steps = steps.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(*steps));
        *mean += weight * ((worth - self.planned) / n.max(1) as f64 - *mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs steps in which a way earns `earned` tokens, and counts the ways of the last thousand.
    fn shares(earned: [f64; 3], share: f64) -> [usize; 3] {
        let mut asking = Asking::default();
        let mut counts = [0; 3];
        for step in 0..1200 {
            let chosen = asking.begin(5.0, share);
            let way = WAYS.iter().position(|&way| way == chosen).unwrap();
            asking.end(5.0 + earned[way], 1);
            counts[way] += usize::from(step >= 200);
        }
        counts
    }

    #[test]
    fn the_way_that_earns_most_is_taken() {
        for best in 0..3 {
            let mut earned = [0.0; 3];
            earned[best] = 0.1;
            assert!(shares(earned, 0.1)[best] > 950);
        }
    }

    #[test]
    fn decisions_that_take_no_time_are_always_made() {
        assert_eq!(shares([0.0, 1.0, 1.0], 0.01), [1000, 0, 0]);
    }
}
