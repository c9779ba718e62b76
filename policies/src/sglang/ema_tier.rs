//! `ema-tier`, `sglang-gen1` and `sglang-gen2`: SGLang's adaptive speculative decoding, generations 1 and 2. An
//! exponential average of the number of accepted draft tokens moves the whole batch between a few candidate draft
//! lengths, with hysteresis. SGLang captures CUDA graphs for these lengths.
//!
//! Source: sgl-project/sglang PR #21599, `srt/speculative/adaptive_spec_params.py`, and the same file @13d3f642;
//! restated in docs/model.md 1.1 and 1.2. The formula in SGLang's documentation, `clamp(round(ema) + 1)`, is only its
//! motivation: no code computes it.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, MAX_SPEC_LEN, SpecPolicy, Speculation, StepOutcome};
use serde::{Deserialize, Serialize};

/// What happens if `initial_steps`, the draft length at the start, is not among the candidate draft lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OffList {
    /// The candidate draft length that is nearest to `initial_steps` is used, on a tie the larger one (generation 1 of
    /// SGLang's adaptive speculation).
    Snap,
    /// The length `initial_steps` becomes one of the candidate draft lengths (generation 2 of SGLang's adaptive
    /// speculation).
    Add,
}

/// Settings of the policies `ema-tier`, `sglang-gen1` and `sglang-gen2`, which move the batch between draft lengths by
/// an average number of accepted draft tokens. The defaults are SGLang's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EmaTier {
    /// Allowed draft lengths (`candidate_steps`), each 1 to 32; order and repetitions do not matter.
    pub candidates: Vec<u32>,
    /// Weight, [0, 1], of the newest batch in the exponential average of accepted draft tokens per request and step.
    pub ema_alpha: f64,
    /// Number of verify batches (steps with verified draft tokens) before the first decision about the draft length.
    pub warmup_batches: u32,
    /// Number of verify batches (steps with verified draft tokens) from one decision about the draft length to the
    /// next, at least 1.
    pub update_interval: u32,
    /// Tokens that are added to the threshold of the average accepted length below which the policy moves to a shorter
    /// draft length. A negative number delays the move.
    pub down_hysteresis: f64,
    /// Tokens that are added to the threshold of the average accepted length above which the policy moves to a longer
    /// draft length. A positive number delays the move.
    pub up_hysteresis: f64,
    /// Draft length at the start (`speculative_num_steps`), 1 to 32.
    pub initial_steps: u32,
    /// What happens to an `initial_steps` that is not among the candidate draft lengths.
    pub off_list: OffList,
}

impl Default for EmaTier {
    fn default() -> Self {
        EmaTier {
            candidates: vec![1, 3, 7],
            ema_alpha: 0.2,
            warmup_batches: 10,
            update_interval: 5,
            down_hysteresis: -0.25,
            up_hysteresis: 0.0,
            initial_steps: 3,
            off_list: OffList::Snap,
        }
    }
}

impl EmaTier {
    /// The settings of generation 2 of SGLang's adaptive speculation.
    pub fn gen2() -> EmaTier {
        EmaTier { off_list: OffList::Add, ..EmaTier::default() }
    }

    /// The candidate draft lengths in rising order, without duplicates. In generation 2 of SGLang's adaptive
    /// speculation `initial_steps` is one of them.
    fn tiers(&self) -> Vec<u32> {
        let mut tiers = self.candidates.clone();
        if self.off_list == OffList::Add {
            tiers.push(self.initial_steps);
        }
        tiers.sort_unstable();
        tiers.dedup();
        tiers
    }
}

impl Definition for EmaTier {
    fn about(&self) -> About {
        About {
            summary: match self.off_list {
                OffList::Snap => {
                    "moves the batch between captured draft lengths by an average of accepted drafts, with hysteresis"
                }
                OffList::Add => {
                    "SGLang's second generation: as its first, but a start that is no candidate becomes one"
                }
            },
            source: match self.off_list {
                OffList::Snap => "SGLang PR #21599, srt/speculative/adaptive_spec_params.py (generation 1)",
                OffList::Add => "SGLang srt/speculative/adaptive_spec_params.py @13d3f642 (generation 2)",
            },
            sees: "accepted counts of past steps",
            differences: "a request that had no room to draft is left out of a batch's mean; SGLang has no such \
                          request",
        }
    }

    fn summary_of(&self, name: &str) -> &'static str {
        match (name, self.off_list) {
            ("sglang-gen1", OffList::Snap) => {
                "SGLang's first generation of adaptive draft lengths: ema-tier by another name"
            }
            _ => self.about().summary,
        }
    }

    fn learns_from_counts(&self) -> bool {
        true
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        self.tiers().last().map(|&longest| ("candidates", longest))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("ema-tier");
        let range =
            || format!("{:?} are not two or more different draft lengths from 1 to {MAX_SPEC_LEN}", self.candidates);
        check.length("initial_steps", self.initial_steps)?;
        let tiers = self.tiers();
        check.that("candidates", tiers.len() >= 2 && tiers.iter().all(|t| (1..=MAX_SPEC_LEN).contains(t)), range)?;
        check.share("ema_alpha", self.ema_alpha)?;
        check.that("update_interval", self.update_interval > 0, || "must be at least 1 batch".into())?;
        for (key, value) in [("down_hysteresis", self.down_hysteresis), ("up_hysteresis", self.up_hysteresis)] {
            check.that(key, value.is_finite(), || format!("{value} is not a number of tokens"))?;
        }
        Ok(())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Tiers::new(self, context.max_draft_len)))
    }
}

/// One of the policies `ema-tier`, `sglang-gen1` or `sglang-gen2` while the engine runs: its settings, and what it
/// keeps from step to step.
struct Tiers {
    params: EmaTier,
    tiers: Vec<u32>,
    max_draft_len: u32,
    /// Index in `tiers` (the candidate draft lengths) of the length that the policy drafts now.
    now: usize,
    ema: f64,
    batches: u64,
}

impl Tiers {
    fn new(params: &EmaTier, max_draft_len: u32) -> Tiers {
        let tiers = params.tiers();
        let now = (0..tiers.len())
            .min_by_key(|&i| (tiers[i].abs_diff(params.initial_steps), u32::MAX - tiers[i]))
            .expect("a checked list has two candidates or more");
        Tiers { ema: f64::from(tiers[now]) - 1.0, params: params.clone(), tiers, max_draft_len, now, batches: 0 }
    }

    /// Adds one verify batch (a step with verified draft tokens): `requests` requests with `accepted` accepted draft
    /// tokens in total, bonus tokens excluded. Decides about the draft length if an interval between decisions ends
    /// with this batch. Does nothing without requests.
    fn feed(&mut self, requests: u64, accepted: u64) {
        if requests == 0 {
            return;
        }
        let p = &self.params;
        let mean = accepted as f64 / requests as f64;
        self.ema = (1.0 - p.ema_alpha) * self.ema + p.ema_alpha * mean;
        self.batches += 1;
        let since_warmup = self.batches.saturating_sub(u64::from(p.warmup_batches));
        if since_warmup > 0 && since_warmup.is_multiple_of(u64::from(p.update_interval)) {
            self.decide();
        }
    }

    /// Moves the draft length to the next lower candidate while the average number of accepted draft tokens is at most
    /// that candidate − 0.5 + `down_hysteresis`. Moves it to the next higher candidate while the average is above the
    /// present candidate − 0.5 + `up_hysteresis`. One decision may move by several candidates.
    fn decide(&mut self) {
        let tier = |i: usize| f64::from(self.tiers[i]);
        let (down, up) = (self.params.down_hysteresis, self.params.up_hysteresis);
        let mut now = self.now;
        while now > 0 && self.ema <= tier(now - 1) - 0.5 + down {
            now -= 1;
        }
        while now + 1 < self.tiers.len() && self.ema > tier(now) - 0.5 + up {
            now += 1;
        }
        self.now = now;
    }
}

impl SpecPolicy for Tiers {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.tiers[self.now].min(self.max_draft_len))
            .up_to(self.tiers.iter().copied().max().unwrap_or(0).min(self.max_draft_len))
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.limits().depth);
    }

    /// Feeds the accepted draft tokens of a step to the average. Leaves out requests without verified draft tokens,
    /// because they say nothing about acceptance. SGLang has no such requests.
    fn observe(&mut self, outcome: &StepOutcome) {
        let drafted = || outcome.accepted.iter().zip(outcome.verified).filter(|&(_, &v)| v > 0);
        self.feed(drafted().count() as u64, drafted().map(|(&a, _)| u64::from(a)).sum());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome;
    use foretoken_sim::Drafts;
    use proptest::prelude::*;

    /// Reference values of docs/model.md 10: (number of verify batches so far, expected average number of accepted
    /// draft tokens, expected draft length).
    type Vector = (u64, f64, u32);

    fn follow(initial_steps: u32, feeds: &[(f64, u32)], expected: &[Vector]) {
        let mut policy = Tiers::new(&EmaTier { initial_steps, ..EmaTier::default() }, 8);
        let drafts = Drafts::default();
        let mut expected = expected.iter();
        let mut next = expected.next();
        for &(mean, times) in feeds {
            // Ten requests whose numbers of accepted draft tokens have the mean `mean`.
            let tenths = (mean * 10.0).round() as u32;
            let accepted: Vec<u32> = (0..10).map(|i| tenths / 10 + u32::from(i < tenths % 10)).collect();
            for _ in 0..times {
                policy.observe(&outcome(&drafts, &[], &[]));
                policy.observe(&outcome(&drafts, &[7; 10], &accepted));
                if let Some(&(n, ema, len)) = next.filter(|v| v.0 == policy.batches) {
                    assert!((policy.ema - ema).abs() < 5.1e-6, "batch {n}: {} for {ema}", policy.ema);
                    assert_eq!(policy.limits().depth, len, "batch {n}");
                    next = expected.next();
                }
            }
        }
        assert_eq!(next, None, "a vector was never reached");
    }

    #[test]
    fn sglang_generation_1_vectors() {
        follow(3, &[(3.0, 30)], &[(14, 2.95602, 3), (15, 2.96482, 7), (30, 2.99876, 7)]);
        follow(3, &[(0.0, 15)], &[(15, 0.07037, 1)]);
        follow(3, &[(0.4, 40)], &[(15, 0.45629, 3), (40, 0.40021, 3)]);
        let falling = [(20, 6.98847, 7), (25, 2.49168, 7), (30, 1.01817, 3), (45, 0.32527, 3), (50, 0.30828, 3)];
        follow(7, &[(7.0, 20), (0.3, 30)], &falling);
        let rising = [(15, 0.96482, 3), (25, 2.42442, 3), (30, 2.54247, 7), (40, 0.98025, 3), (55, 0.22745, 1)];
        follow(1, &[(1.0, 15), (2.6, 20), (0.2, 20)], &rising);
    }

    #[test]
    fn one_decision_may_jump_two_tiers() {
        let mut policy = Tiers::new(&EmaTier { initial_steps: 7, ema_alpha: 1.0, ..EmaTier::default() }, 8);
        (0..15).for_each(|_| policy.feed(1, 0));
        assert_eq!(policy.limits().depth, 1);
    }

    #[test]
    fn the_start_snaps_to_the_nearest_and_to_the_larger_on_a_tie() {
        for (asked, got) in [(1, 1), (2, 3), (4, 3), (5, 7), (20, 7)] {
            let policy = Tiers::new(&EmaTier { initial_steps: asked, ..EmaTier::default() }, 8);
            assert_eq!((policy.limits().depth, policy.ema), (got, f64::from(got) - 1.0), "asked {asked}");
        }
        // The engine drafts at most 5 tokens, so the limit is 5. The policy's own length of 7 tokens stays.
        assert_eq!(Tiers::new(&EmaTier { initial_steps: 7, ..EmaTier::default() }, 5).limits().depth, 5);
    }

    #[test]
    fn generation_2_adds_the_start_to_the_list() {
        let gen2 = |initial_steps, candidates: &[u32]| {
            let params = EmaTier { initial_steps, candidates: candidates.to_vec(), ..EmaTier::gen2() };
            params.check().map(|()| Tiers::new(&params, 8)).map_err(|e| e.key)
        };
        for (asked, tiers) in [(2, vec![1, 2, 3, 7]), (3, vec![1, 3, 7]), (8, vec![1, 3, 7, 8])] {
            let policy = gen2(asked, &[7, 1, 3]).unwrap();
            assert_eq!((policy.limits().depth, policy.ema, policy.tiers), (asked, f64::from(asked) - 1.0, tiers));
        }
        // SGLang's generation 2 adds the initial length 3 to the only candidate 5. If the only candidate is 3 too,
        // there are fewer than the two candidates that are needed.
        assert_eq!(gen2(3, &[5]).unwrap().tiers, [3, 5]);
        assert_eq!(gen2(3, &[3]).err(), Some("candidates"));
        assert_eq!(EmaTier { initial_steps: 12, ..EmaTier::gen2() }.asks_for(), Some(("candidates", 12)));
    }

    /// A second implementation of generation 2 of SGLang's adaptive speculation, close to SGLang's code: the state is
    /// the draft length itself and the average, and every rule searches the list of candidates.
    fn by_the_code(params: &EmaTier, batches: &[Vec<u32>]) -> Vec<u32> {
        let candidates: std::collections::BTreeSet<u32> =
            params.candidates.iter().copied().chain([params.initial_steps]).collect();
        let (mut steps, mut ema, mut count) = (params.initial_steps, f64::from(params.initial_steps) - 1.0, 0i64);
        let mut made = Vec::new();
        for accepted in batches {
            if !accepted.is_empty() {
                let mean = f64::from(accepted.iter().sum::<u32>()) / accepted.len() as f64;
                ema = (1.0 - params.ema_alpha) * ema + params.ema_alpha * mean;
                count += 1;
                let since = count - i64::from(params.warmup_batches);
                if since > 0 && since % i64::from(params.update_interval) == 0 {
                    let drop = |&below: &u32| ema <= f64::from(below) - 0.5 + params.down_hysteresis;
                    while let Some(below) = candidates.range(..steps).next_back().copied().filter(drop) {
                        steps = below;
                    }
                    while ema > f64::from(steps) - 0.5 + params.up_hysteresis {
                        let Some(&above) = candidates.range(steps + 1..).next() else { break };
                        steps = above;
                    }
                }
            }
            made.push(steps);
        }
        made
    }

    proptest! {
        #[test]
        fn generation_2_is_what_its_code_does(
            candidates in prop::collection::vec(1u32..=8, 2..5),
            initial_steps in 1u32..=8,
            (ema_alpha, warmup_batches, update_interval) in (0.05f64..1.0, 0u32..6, 1u32..4),
            (down_hysteresis, up_hysteresis) in (-1.0f64..0.5, -0.5f64..1.0),
            batches in prop::collection::vec(prop::collection::vec(0u32..=8, 0..4), 40),
        ) {
            let params = EmaTier {
                candidates, initial_steps, ema_alpha, warmup_batches, update_interval, down_hysteresis, up_hysteresis,
                off_list: OffList::Add,
            };
            prop_assume!(params.check().is_ok());
            let mut policy = Tiers::new(&params, 8);
            let drafts = Drafts::default();
            let made: Vec<u32> = batches.iter().map(|accepted| {
                policy.observe(&outcome(&drafts, &[8; 4][..accepted.len()], accepted));
                policy.limits().depth
            }).collect();
            prop_assert_eq!(made, by_the_code(&params, &batches));
        }
    }

    #[test]
    fn bad_settings_are_named() {
        let bad = |f: fn(&mut EmaTier)| {
            let mut p = EmaTier::default();
            f(&mut p);
            p.check().expect_err("refused").key
        };
        assert_eq!(bad(|p| p.candidates = vec![3, 3]), "candidates");
        assert_eq!(bad(|p| p.candidates = vec![0, 3]), "candidates");
        assert_eq!(bad(|p| p.ema_alpha = f64::NAN), "ema_alpha");
        assert_eq!(bad(|p| p.update_interval = 0), "update_interval");
        assert_eq!(bad(|p| p.down_hysteresis = f64::INFINITY), "down_hysteresis");
        assert_eq!(EmaTier::default().check(), Ok(()));
    }
}
