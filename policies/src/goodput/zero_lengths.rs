//! What follows when a policy keeps choosing length 0: an acceptance estimate that cannot recover, and drafts that are not
//! even prepared.
//!
//! Source of the second: SmartSpec (arXiv 2406.14066) section 5, "Prefill disabling": when the share of past decode steps
//! that proposed nothing is above a threshold (0.7), the incoming request's draft prefill is skipped and the request is
//! not speculated for in its whole life.

use foretoken_sim::Drafting;

/// Counts of the lengths chosen. Only steps in which somebody could draft count: in the others there was no choice.
pub(crate) struct ZeroLengths {
    /// Steps in a row with 0 that are worth a warning.
    absorbing_steps: u64,
    /// Share of steps with 0 above which a new request is not prepared for; 1 is never.
    skip_above: f64,
    steps: u64,
    zeroes: u64,
    streak: u64,
    longest_streak: u64,
    skipped: u64,
}

impl ZeroLengths {
    /// `skip_above` only means something where the draft has a prompt to run over: not for prompt lookup or heads.
    pub(crate) fn new(absorbing_steps: u64, skip_above: f64, drafting: Drafting) -> ZeroLengths {
        let skip_above = if drafting == Drafting::Parallel { 1.0 } else { skip_above };
        ZeroLengths { absorbing_steps, skip_above, steps: 0, zeroes: 0, streak: 0, longest_streak: 0, skipped: 0 }
    }

    /// Length `k` was chosen in a step in which somebody could draft.
    #[inline]
    pub(crate) fn chose(&mut self, k: u32) {
        self.steps += 1;
        if k > 0 {
            self.streak = 0;
            return;
        }
        self.zeroes += 1;
        self.streak += 1;
        self.longest_streak = self.longest_streak.max(self.streak);
    }

    /// Is the request that starts now worth a draft prefill?
    pub(crate) fn drafts_for_next(&mut self) -> bool {
        // A quotient, so that 63 of 90 is not above 0.7 by rounding.
        let skip = self.steps > 0 && self.zeroes as f64 / self.steps as f64 > self.skip_above;
        self.skipped += u64::from(skip);
        !skip
    }

    /// What a user should know at the end of a run; `acceptance` is the estimate then.
    pub(crate) fn warnings(&self, policy: &str, acceptance: f64) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.longest_streak >= self.absorbing_steps {
            warnings.push(format!(
                "{policy} chose length 0 in {} steps in a row: it verifies nothing then, so its acceptance estimate \
                 ({acceptance:.3} at the end) cannot recover by itself",
                self.longest_streak
            ));
        }
        if self.skipped > 0 {
            warnings.push(format!(
                "{policy} skipped the draft prefill of {} requests and never speculated for them: {} of the {} steps \
                 that could draft chose length 0, more than skip_draft_prefill_above allows",
                self.skipped, self.zeroes, self.steps
            ));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_request_is_skipped_above_the_share_and_not_at_it() {
        let mut seen = ZeroLengths::new(1000, 0.7, Drafting::Autoregressive);
        assert!(seen.drafts_for_next(), "nothing seen yet");
        for k in [0, 0, 0, 0, 0, 0, 0, 2, 3, 1] {
            seen.chose(k);
        }
        assert!(seen.drafts_for_next(), "0.7 is not above 0.7");
        seen.chose(0);
        assert!(!seen.drafts_for_next(), "8 of 11");
        let mut more = ZeroLengths::new(1000, 0.7, Drafting::Autoregressive);
        (0..90).for_each(|i| more.chose(u32::from(i >= 63)));
        assert!(more.drafts_for_next(), "63 of 90 are 0.7");
        assert_eq!(seen.warnings("p", 0.5).len(), 1);
        assert!(seen.warnings("p", 0.5)[0].contains("of 1 requests"));
    }

    #[test]
    fn without_a_draft_model_there_is_no_draft_prefill_to_skip() {
        let mut heads = ZeroLengths::new(3, 0.7, Drafting::Parallel);
        let mut never = ZeroLengths::new(3, 1.0, Drafting::Autoregressive);
        for seen in [&mut heads, &mut never] {
            (0..5).for_each(|_| seen.chose(0));
            assert!(seen.drafts_for_next());
            assert!(seen.warnings("p", 0.5)[0].contains("5 steps in a row"));
        }
    }
}
