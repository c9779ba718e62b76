//! The rule that chooses the draft passes after which the policy `foresight` decides whether to draft on. Each decision
//! costs a round trip between GPU and host. In return, drafting can end where confidence is low, which may be worth
//! more than drafting a planned number of tokens. The policy measures while serving whether the decisions pay.

/// After which draft passes of a step the policy decides whether to draft on. Each decision costs a round trip to the
/// host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The policy decides whether to draft on after every draft pass of the step.
    Always,
    /// The policy decides whether to draft on after the draft pass that was planned as the last one, and after every
    /// later pass.
    AtPlannedEnd,
    /// The policy decides nothing between draft passes: the length that was planned before drafting is drafted.
    Never,
}

const CHOICES: [Asks; 3] = [Asks::Always, Asks::AtPlannedEnd, Asks::Never];
/// Number of steps in which each of the `CHOICES` (decide after every draft pass, from the planned end on, or never) is
/// tried before their worths are compared.
const TRIALS: u32 = 16;
/// In every `RETRY`-th step the policy tries one of the `CHOICES` of when to decide, even if that choice was measured
/// to be worse. The choices take turns.
const RETRY: u32 = 48;
/// The mean worth (tokens minus the price of time) of each choice (one of `CHOICES`) is an exponential average over the
/// steps with this choice. A new step has this weight, or 1/n if the choice has n steps so far, the new one included,
/// and 1/n is greater.
const WEIGHT: f64 = 0.03;
/// If decisions after all draft passes would take at most this share of a step's time, the policy decides after every
/// pass.
const NEGLIGIBLE: f64 = 0.02;

/// Measures what steps with each choice of [`Asks`] are worth, and makes a choice for each step. A step is worth its
/// tokens minus λ times its seconds, where λ is the price of time in tokens per second.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// For each of the `CHOICES` (when to decide whether to draft on): (mean over the steps with this choice, number of
    /// these steps). The mean is of a step's measured worth minus the worth that was planned before the step, in tokens
    /// per request. A step's worth is its tokens minus the price of its time.
    earned: [(f64, u32); 3],
    steps: u32,
    /// Index into `CHOICES` (when to decide whether to draft on): the choice for this step.
    choice: usize,
    /// The worth of this step in tokens (expected tokens minus the price of its time), as expected before drafting for
    /// the planned draft length.
    planned: f64,
}

impl Asking {
    /// Chooses after which draft passes of a step the policy decides whether to draft on. `planned` is the worth of the
    /// planned draft length (tokens minus the price of time), in tokens. `share` is the share of the step's time that
    /// decisions after all of its draft passes would take. If `share` is at most [`NEGLIGIBLE`], the policy decides
    /// after every pass.
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

    /// Adds the measured worth of the step, in tokens (its tokens minus the price of its time), to the mean of the
    /// choice that [`begin`](Asking::begin) made for it. The step had `n` requests.
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

    /// Runs 1,200 steps. A step with choice i of when to decide whether to draft on is worth `earned[i]` tokens more
    /// than planned. Decisions after all draft passes take the share `share` of a step's time. Counts how often each
    /// choice was made in the last thousand steps.
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
