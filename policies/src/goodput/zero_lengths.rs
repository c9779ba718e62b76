//! The consequences of choosing length 0 for long: an acceptance estimate that cannot recover, and draft prefills that
//! are skipped.
//!
//! Source of the skipping: SmartSpec (arXiv 2406.14066) section 5, "Prefill disabling": if the share of past decode
//! steps that proposed nothing is above a threshold (0.7), the draft prefill of the incoming request is skipped, and
//! the request never has drafts.

use foretoken_sim::Drafting;

/// Counts of the lengths chosen. Steps in which no request could draft do not count, because they had no choice.
pub(crate) struct ZeroLengths {
    /// Number of steps in a row with length 0 after which the run warns.
    absorbing_steps: u64,
    /// Share of steps with length 0 above which a new request's draft prefill is skipped; 1 disables the rule.
    skip_above: f64,
    steps: u64,
    zeroes: u64,
    streak: u64,
    longest_streak: u64,
    skipped: u64,
}

impl ZeroLengths {
    /// With parallel drafting no prefill is skipped, because prompt lookup and draft heads have no prefill.
    pub(crate) fn new(absorbing_steps: u64, skip_above: f64, drafting: Drafting) -> ZeroLengths {
        let skip_above = if drafting == Drafting::Parallel { 1.0 } else { skip_above };
        ZeroLengths { absorbing_steps, skip_above, steps: 0, zeroes: 0, streak: 0, longest_streak: 0, skipped: 0 }
    }

    /// Counts a step in which a request could draft and length `k` was chosen.
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

    /// Is the request that starts now to have a draft prefill? If not, the request is counted as skipped.
    pub(crate) fn drafts_for_next(&mut self) -> bool {
        // 63 / 90 is not rounded to more than 0.7, so the comparison needs no tolerance.
        let skip = self.steps > 0 && self.zeroes as f64 / self.steps as f64 > self.skip_above;
        self.skipped += u64::from(skip);
        !skip
    }

    /// Warnings at the end of a run; `acceptance` is the estimate at the end.
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
