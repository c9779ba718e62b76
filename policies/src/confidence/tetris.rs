//! `tetris`: drafts a few tokens more than are verified, and verifies the likeliest draft tokens of the whole batch.
//!
//! Source: "TETRIS: Optimal Draft Token Selection for Batch Speculative Decoding" (arXiv 2502.15197) and its code,
//! ZhaoxuanWu/Tetris `vllm/spec_decode/tetris.py` (docs/model.md 7.1). Every request drafts k + extra tokens. The k·B
//! draft tokens with the greatest cumulative log-probability are verified, B being the batch size. In batches below
//! `min_batch` every request drafts k tokens, and all are verified. There is no cost model.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::shared::survival::{RankedTokens, survivals};
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, Drafts, MAX_SPEC_LEN, SpecPolicy, Speculation, Wants};
use serde::{Deserialize, Serialize};

/// Settings of the policy `tetris`, which drafts more tokens than it verifies and verifies the likeliest of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tetris {
    /// Mean number of draft tokens per request that the target verifies, 1 to 32; the paper tries 1 to 6.
    pub k: u32,
    /// Number of tokens that each request drafts beyond `k` (`tetris_extra_proposals`); the paper tries 1 to 3. `k` +
    /// `extra` is at most 32.
    pub extra: u32,
    /// Smallest batch, in requests, in which `extra` tokens are drafted (`tetris_turn_on_batch_size`).
    pub min_batch: u32,
}

impl Default for Tetris {
    fn default() -> Self {
        Tetris { k: 3, extra: 1, min_batch: 2 }
    }
}

impl Definition for Tetris {
    fn about(&self) -> About {
        About {
            summary: "drafts k + extra tokens a request and verifies the k·B of the batch with the greatest \
                      cumulative probability",
            source: "TETRIS (arXiv 2502.15197), ZhaoxuanWu/Tetris vllm/spec_decode/tetris.py",
            sees: "batch size; the confidence of each drafted token",
            differences: "ties go to the smaller position and then the smaller request, where the code's top-k \
                          leaves them open; a request that may not draft so far takes part with what it has",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("k", self.k.saturating_add(self.extra)))
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("tetris");
        check.length("k", self.k)?;
        check.that("extra", self.extra <= MAX_SPEC_LEN - self.k, || {
            format!(
                "k + extra = {} is more than {MAX_SPEC_LEN} draft tokens",
                u64::from(self.k) + u64::from(self.extra)
            )
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let longest = context.max_draft_len;
        Speculation::Policy(Box::new(Running {
            params: *self,
            longest,
            active: false,
            ranked: RankedTokens::default(),
        }))
    }
}

/// The policy `tetris` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: Tetris,
    longest: u32,
    /// True if this step drafts extra tokens, so that the tokens to verify must be selected.
    active: bool,
    ranked: RankedTokens,
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain((self.params.k + self.params.extra).min(self.longest))
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.active = batch.len() >= self.params.min_batch as usize;
        plan.fill(if self.active { self.limits().depth } else { self.params.k.min(self.longest) });
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        if !self.active {
            return;
        }
        self.ranked.clear();
        for (i, &len) in drafts.draft_len.iter().enumerate() {
            self.ranked.push_draft(i, survivals((0..len as usize).map(|j| drafts.confidence(i, j))), 0.0);
        }
        self.ranked.allocate(self.params.k as usize * batch.len(), &mut drafts.verify_len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run, any_batch};
    use proptest::prelude::*;

    #[test]
    fn capacity_goes_to_the_likeliest_prefixes() {
        // Log-probabilities of the draft tokens of three requests, by request and depth; the capacity k·B is 2 · 3
        // tokens.
        let log = [[-0.10f64, -0.20, -0.50, -0.70], [-0.50, -0.70, -0.80, -1.00], [-0.05, -0.15, -0.10, -0.30]];
        let params = Tetris { k: 2, extra: 2, ..Tetris::default() };
        let step = Run::of(&params, &CONTEXT).step(&Batch::new(&[9; 3], &[4; 3]), |i, j| log[i][j].exp(), &[0; 3]);
        assert_eq!((step.draft_len, step.verify_len), (vec![4; 3], vec![2, 1, 3]));
    }

    #[test]
    fn a_single_request_drafts_k() {
        let mut run = Run::of(&Tetris::default(), &CONTEXT);
        let step = run.step(&Batch::new(&[9], &[8]), |_, _| 0.5, &[0]);
        assert_eq!((step.draft_len, step.verify_len), (vec![3], vec![3]));
        let step = run.step(&Batch::new(&[9; 2], &[8; 2]), |i, _| 0.5 + 0.3 * i as f64, &[0; 2]);
        assert_eq!((step.draft_len, step.verify_len), (vec![4, 4], vec![2, 4]));
    }

    #[test]
    fn bad_settings_are_named() {
        for (params, key) in [
            (Tetris { k: 0, ..Tetris::default() }, "k"),
            (Tetris { k: 30, extra: 3, ..Tetris::default() }, "extra"),
            (Tetris { extra: u32::MAX, ..Tetris::default() }, "extra"),
        ] {
            assert_eq!(params.check().map_err(|e| e.key), Err(key));
            assert!(params.asks_for().is_some(), "what is asked for is read before it is checked");
        }
        assert_eq!(Tetris::default().asks_for(), Some(("k", 4)));
    }

    proptest! {
        /// The policy verifies k·B tokens, or all draft tokens if the limits of the requests allow fewer. It verifies a
        /// prefix of each request's draft tokens. No other choice of prefixes with at most k·B tokens has a greater sum
        /// of cumulative probabilities.
        #[test]
        fn nothing_beats_the_choice(batch in any_batch(4, 4), confidences in prop::collection::vec(0.01f64..=1.0, 16)) {
            let look = |i: usize, j: usize| confidences[4 * i + j];
            let params = Tetris { k: 2, extra: 2, min_batch: 1 };
            let step = Run::of(&params, &CONTEXT).step(&batch, look, &[0; 4]);
            let capacity = 2 * batch.limit.len() as u32;
            let worth = |lens: &[u32]| {
                let one = |i: usize, n: u32| (0..n as usize).map(|j| look(i, j)).product::<f64>();
                lens.iter().enumerate().map(|(i, &n)| (1..=n).map(|m| one(i, m)).sum::<f64>()).sum::<f64>()
            };
            prop_assert_eq!(step.verify_len.iter().sum::<u32>(), capacity.min(batch.limit.iter().sum()));
            let mut lens = vec![0; batch.limit.len()];
            while let Some(i) = (0..lens.len()).find(|&i| lens[i] < batch.limit[i]) {
                lens[i] += 1;
                lens[..i].fill(0);
                let fits = lens.iter().sum::<u32>() <= capacity;
                prop_assert!(!fits || worth(&lens) <= worth(&step.verify_len) * (1.0 + 1e-12), "{lens:?}");
            }
        }
    }
}
