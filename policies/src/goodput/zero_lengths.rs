//! The consequences of choosing draft length 0 for long: an estimated acceptance rate that cannot recover, and prefills
//! of the draft model that are skipped.
//!
//! Source of the skipping: SmartSpec (arXiv 2406.14066) section 5, "Prefill disabling": if the share of past decode
//! steps that proposed nothing is above a threshold (0.7), the draft model's prefill of the incoming request is
//! skipped, and the request never has draft tokens.

use foretoken_sim::Drafting;

/// Counts how often a policy chose draft length 0. Steps in which no request could draft do not count, because they
/// leave the policy no choice.
pub(crate) struct ZeroLengths {
    /// Number of steps in a row with draft length 0 after which the run warns that the policy no longer drafts.
    absorbing_steps: u64,
    /// Share of steps with draft length 0 above which the draft model does not prefill a new request; 1 disables the
    /// rule.
    skip_above: f64,
    steps: u64,
    zeroes: u64,
    streak: u64,
    longest_streak: u64,
    skipped: u64,
}

impl ZeroLengths {
    /// Starts with no counted step. With parallel drafting no prefill is ever skipped, because prompt lookup and draft
    /// heads have no prefill.
    pub(crate) fn new(absorbing_steps: u64, skip_above: f64, drafting: Drafting) -> ZeroLengths {
        let skip_above = if drafting == Drafting::Parallel { 1.0 } else { skip_above };
        ZeroLengths { absorbing_steps, skip_above, steps: 0, zeroes: 0, streak: 0, longest_streak: 0, skipped: 0 }
    }

    /// Counts a step in which at least one request could draft and the policy chose length `k`.
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

    /// Returns true if the draft model prefills the request that starts now. If it does not, counts the request as
    /// skipped.
    pub(crate) fn drafts_for_next(&mut self) -> bool {
        // 63 / 90 steps with draft length 0 are rounded to 0.7 and not above it, so a share equal to the threshold does
        // not skip the prefill.
        let skip = self.steps > 0 && self.zeroes as f64 / self.steps as f64 > self.skip_above;
        self.skipped += u64::from(skip);
        !skip
    }

    /// Warnings about the policy's draft lengths of 0, for the end of a run. `acceptance` is the estimated acceptance
    /// rate at the end.
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
