//! `svip`: drafts until the draft model is unsure, by the entropy of its distribution of the next token.
//!
//! Source: SVIP (arXiv 2411.18462), and its repository Geralt-Targaryen/SVIP; restated in docs/model.md 7.4. A lower
//! bound on the acceptance probability falls with √H, the square root of the entropy. So the source stops drafting when
//! √(0.15 · H) is above 0.3.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{BatchView, Continue, DraftLimits, DraftPlan, Drafts, SpecPolicy, Speculation, Wants};
use serde::{Deserialize, Serialize};

/// Settings of the policy `svip`, which drafts until the entropy of the draft model's distribution is high. The
/// defaults are the published repository's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Svip {
    /// Factor, > 0, on the entropy of the draft model's distribution, in nats, in √(`entropy_scale` · entropy).
    pub entropy_scale: f64,
    /// Drafting stops when √(`entropy_scale` · entropy of the draft model's distribution) is above this threshold, > 0.
    pub threshold: f64,
    /// Most draft tokens of a request in a step, at least 1. A value above the engine's `max_draft_len` is cut to it.
    pub cap: u32,
}

impl Default for Svip {
    fn default() -> Self {
        Svip { entropy_scale: 0.15, threshold: 0.3, cap: 40 }
    }
}

impl Svip {
    /// The entropy, in nats, above which drafting stops. It solves √(scale · H) > threshold for H, so that rounding of
    /// a root does not move the boundary.
    fn most_nats(&self) -> f64 {
        self.threshold * self.threshold / self.entropy_scale
    }
}

impl Definition for Svip {
    fn about(&self) -> About {
        About {
            summary: "drafts until the entropy of the draft's distribution exceeds a bound, per request",
            source: "SVIP (arXiv 2411.18462), Geralt-Targaryen/SVIP",
            sees: "the entropy behind each drafted token",
            differences: "the source decodes one request; here each request of a batch leaves the draft by itself. \
                          Its cap of 40 is cut to the engine's",
        }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("svip");
        for (key, value) in [("entropy_scale", self.entropy_scale), ("threshold", self.threshold)] {
            check.that(key, value.is_finite() && value > 0.0, || format!("{value} is not a number above 0"))?;
        }
        check.that("cap", self.cap > 0, || "must be at least 1 token".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running {
            most_nats: self.most_nats(),
            cap: self.cap.min(context.max_draft_len),
            drafting: 0,
            limit: Vec::new(),
        }))
    }
}

/// The policy `svip` while the engine runs. The fields after `cap` belong to the step in progress.
struct Running {
    most_nats: f64,
    cap: u32,
    /// Number of the batch's requests that may draft on in this step.
    drafting: usize,
    /// For each request, the most draft tokens that it may have in this step; 0 once the policy has stopped its
    /// drafting.
    limit: Vec<u32>,
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.cap)
    }

    fn wants(&self) -> Wants {
        Wants::ENTROPY
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.cap);
        self.limit.clear();
        self.limit.extend(batch.limit.iter().map(|&l| l.min(self.cap)));
        self.drafting = self.limit.iter().filter(|&&l| l > 0).count();
    }

    /// Stops each request whose newest token has an entropy above the limit `most_nats`. That token is kept. Ends the
    /// draft loop once all requests have stopped.
    fn keep_drafting(&mut self, _: &BatchView, drafts: &mut Drafts) -> Continue {
        let newest = drafts.passes as usize - 1;
        for i in 0..self.limit.len() {
            let drafted_now = self.limit[i] >= drafts.passes;
            if drafted_now && drafts.entropy(i, newest) > self.most_nats {
                self.limit[i] = 0;
                self.drafting -= 1;
                drafts.stop(i);
            }
        }
        if self.drafting == 0 { Continue::Stop } else { Continue::Yes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run, any_batch};
    use foretoken_sim::acceptance::RankLaw;
    use proptest::prelude::*;

    /// Lets one request draft tokens with the entropies `nats`, in nats, until the policy stops. Returns the drafted
    /// length.
    fn drafted(policy: Svip, nats: &[f64]) -> usize {
        let Speculation::Policy(mut running) = policy.build(&PolicyContext { max_draft_len: 32, ..CONTEXT }) else {
            unreachable!("a policy")
        };
        let batch = Batch::new(&[100], &[32]);
        let mut plan = DraftPlan { draft_len: vec![0], ..DraftPlan::default() };
        running.propose(&batch.view(), &mut plan);
        let mut drafts = Drafts::default();
        drafts.reset(1, 32);
        drafts.want(running.wants());
        for (j, &h) in nats.iter().enumerate() {
            drafts.set_entropy(0, j, h);
            drafts.passes += 1;
            if running.keep_drafting(&batch.view(), &mut drafts) == Continue::Stop {
                return j + 1;
            }
        }
        nats.len()
    }

    /// An entropy H of exactly 0.6 nats does not stop drafting. The token whose entropy stops drafting is kept
    /// (docs/model.md 10).
    #[test]
    fn the_boundary_is_strict() {
        assert_eq!(drafted(Svip::default(), &[0.6, 0.6, 0.600_001, 0.1]), 3);
        assert_eq!(drafted(Svip::default(), &[0.6; 5]), 5);
        assert_eq!(drafted(Svip { threshold: 0.6, ..Svip::default() }, &[2.4, 2.400_01, 0.0]), 2);
    }

    #[test]
    fn the_cap_is_cut_to_the_engines() {
        for (cap, max_draft_len, limit) in [(40, 8, 8), (40, 32, 32), (3, 8, 3)] {
            let Speculation::Policy(running) =
                Svip { cap, ..Svip::default() }.build(&PolicyContext { max_draft_len, ..CONTEXT })
            else {
                unreachable!("a policy")
            };
            assert_eq!(running.limits().depth, limit);
        }
    }

    #[test]
    fn bad_settings_are_named() {
        let key = |p: Svip| p.check().expect_err("refused").key;
        assert_eq!(key(Svip { threshold: 0.0, ..Svip::default() }), "threshold");
        assert_eq!(key(Svip { entropy_scale: f64::NAN, ..Svip::default() }), "entropy_scale");
        assert_eq!(key(Svip { cap: 0, ..Svip::default() }), "cap");
    }

    proptest! {
        /// The policy stops where the source's rule √(0.15 H) > 0.3 stops, token by token for each request, on random
        /// batches.
        #[test]
        fn equals_the_sources_loop(batch in any_batch(12, 8), seed in 0u32..1000) {
            let mixed = |i: usize, j: usize| (i as u32 * 37 + j as u32 * 11 + seed) % 97;
            let confidence = |i: usize, j: usize| 0.05 + 0.9 * (mixed(i, j) as f64 / 97.0);
            let mut run = Run::of(&Svip::default(), &CONTEXT);
            let made = run.step(&batch, confidence, &vec![0; batch.ids.len()]);
            let law = RankLaw::default();
            for i in 0..batch.ids.len() {
                let mut len = 0;
                while len < batch.limit[i].min(8) {
                    let nats = law.entropy(confidence(i, len as usize));
                    len += 1;
                    if (0.15 * nats).sqrt() > 0.3 {
                        break;
                    }
                }
                prop_assert_eq!(made.draft_len[i], len);
                prop_assert_eq!(made.verify_len[i], len);
            }
        }
    }
}
