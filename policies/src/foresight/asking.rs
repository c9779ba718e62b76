//! After which draft passes the policy decides whether to draft on. Each decision costs a round trip to the host. In
//! return, a draft that stops by confidence may be worth more than a draft of the planned length. The policy measures
//! while serving whether the decisions pay.

/// After which draft passes the policy decides whether to draft on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// After every pass.
    Always,
    /// After the pass that was planned as the last one, and after every later pass.
    AtPlannedEnd,
    /// Never: the planned length is drafted.
    Never,
}

const CHOICES: [Asks; 3] = [Asks::Always, Asks::AtPlannedEnd, Asks::Never];
/// Number of steps in which each choice is tried at first.
const TRIALS: u32 = 16;
/// Every `RETRY` steps one choice is tried, whatever its measured worth; all choices take turns.
const RETRY: u32 = 48;
/// Weight of the newest step in the mean worth of the choice that it ran. The n-th step of a choice weighs 1/n if that
/// is more.
const WEIGHT: f64 = 0.03;
/// If decisions after all passes take at most this share of a step's time, the policy decides after every pass.
const NEGLIGIBLE: f64 = 0.02;

/// Measures the worth of steps with each choice of [`Asks`], and makes a choice for each step.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// By choice: (a mean, number of steps with this choice). The mean is over these steps: the step's worth minus the
    /// worth that was planned before the step, in tokens per request.
    earned: [(f64, u32); 3],
    steps: u32,
    /// Index in `CHOICES` of this step's choice.
    choice: usize,
    /// The worth of this step's planned length, in tokens.
    planned: f64,
}

impl Asking {
    /// Chooses after which draft passes of a step the policy decides whether to draft on. `planned` is the worth of the
    /// planned length, in tokens. `share` is the share of the step's time that decisions after all of its passes would
    /// take. If `share` is at most [`NEGLIGIBLE`], the policy decides after every pass.
    pub fn begin(&mut self, planned: f64, share: f64) -> Asks {
        self.planned = planned;
        self.choice = 0;
        if share > NEGLIGIBLE {
            self.steps += 1;
            let untried = (0..CHOICES.len()).find(|&choice| self.earned[choice].1 < TRIALS);
            let best = || (1..CHOICES.len()).fold(0, |a, b| if self.earned[b].0 > self.earned[a].0 { b } else { a });
            self.choice = match untried {
                Some(choice) => choice,
                None if self.steps.is_multiple_of(RETRY) => (self.steps / RETRY) as usize % CHOICES.len(),
                None => best(),
            };
        }
        CHOICES[self.choice]
    }

    /// Adds the worth, in tokens, of the step that [`begin`](Asking::begin) began. The step had `n` requests.
    pub fn end(&mut self, worth: f64, n: usize) {
        let (mean, steps) = &mut self.earned[self.choice];
        *steps = steps.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(*steps));
        *mean += weight * ((worth - self.planned) / n.max(1) as f64 - *mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs 1,200 steps in which choice i is worth `earned[i]` tokens more than planned. Counts the choices of the last
    /// thousand steps.
    fn shares(earned: [f64; 3], share: f64) -> [usize; 3] {
        let mut asking = Asking::default();
        let mut counts = [0; 3];
        for step in 0..1200 {
            let chosen = asking.begin(5.0, share);
            let choice = CHOICES.iter().position(|&choice| choice == chosen).unwrap();
            asking.end(5.0 + earned[choice], 1);
            counts[choice] += usize::from(step >= 200);
        }
        counts
    }

    #[test]
    fn the_choice_that_earns_most_is_taken() {
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
