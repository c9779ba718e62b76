//! The step times by which `turbospec-v1` decides: the formula of the authors' vLLM branch, with its published
//! coefficients or with the coefficients of a linear belief (the policy's own cost estimate).
//!
//! Source: LiuXiaoxuanPKU/vllm, branch batch-dsd @b08a7d37, `vllm/v1/spec_decode/{auto_tuner,config}.py` (docs/model.md
//! 3.4). The published fit is collinear in the numbers of tokens and of requests: their coefficients have a negative
//! sum (c_comp and c_batch in the code), so that a step without draft tokens gets no slower with more requests. The fit
//! is good only for steps like the measured ones: verify steps of fewer than about 64 requests.

use crate::shared::belief::Belief;
use foretoken_sim::{BatchView, Drafting};
use serde::{Deserialize, Serialize};

/// Where the coefficients of the step times come from: the policy's belief (its linear cost estimate) or a published
/// fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Coefficients {
    /// The policy's belief: its linear estimate of the costs of draft and target passes.
    #[default]
    Belief,
    /// The published fit for Llama-3.1-8B on an H100 with its EAGLE draft model.
    #[serde(rename = "h100-8b")]
    H100Llama8b,
    /// The published fit for Llama-70B on four H100 with tensor parallelism. This fit has no times of a draft model, so
    /// it can be used only with the proposer `ngram`.
    #[serde(rename = "h100-70b")]
    H100Llama70b,
}

/// T_target = kv·(KV tokens) + compute·(tokens) + batch·(requests) + speculates·[a request drafts] + fixed, in seconds.
/// The bracket is 1 if true, else 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TargetCost {
    pub kv: f64,
    pub compute: f64,
    pub batch: f64,
    pub speculates: f64,
    pub fixed: f64,
}

impl TargetCost {
    /// The formula of the target's time with the coefficients from the source `coefficients`. Published coefficients
    /// are in milliseconds.
    pub(crate) fn of(coefficients: Coefficients, belief: &Belief) -> TargetCost {
        let ms = |kv, compute, batch, speculates, fixed| TargetCost {
            kv: kv * 1e-3,
            compute: compute * 1e-3,
            batch: batch * 1e-3,
            speculates: speculates * 1e-3,
            fixed: fixed * 1e-3,
        };
        match coefficients {
            Coefficients::Belief => TargetCost {
                kv: belief.target.alpha_s,
                compute: belief.target.gamma_s,
                batch: 0.0,
                speculates: 0.0,
                fixed: belief.target.delta_s,
            },
            Coefficients::H100Llama8b => ms(4.85907942e-5, 1.84383603e-2, -4.33144783e-2, 0.0, 6.938_699_571_857_084),
            Coefficients::H100Llama70b => ms(6.24369264e-5, 6.40216301e-2, -3.97382298e-2, -0.112_291_902, 18.34535),
        }
    }

    /// Estimated seconds of a target pass over `tokens` tokens, in a step with the requests and KV tokens of `load`.
    pub(crate) fn seconds(&self, load: &Load, tokens: f64) -> f64 {
        self.kv * load.kv
            + self.compute * tokens
            + self.batch * load.requests
            + if load.drafting > 0.0 { self.speculates } else { 0.0 }
            + self.fixed
    }
}

/// How the time of drafting is computed: for n-gram matches, for a published EAGLE draft model, or for the draft model
/// of the policy's belief (its cost estimate).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DraftCost {
    /// n-gram matches: drafting takes this share of the target's time.
    Share(f64),
    /// The published EAGLE draft model for Llama-3.1-8B, with the published coefficients of its pass time.
    Eagle,
    /// The draft model, at the linear costs of the policy's belief (its cost estimate).
    Belief(Belief),
}

impl DraftCost {
    /// Estimated seconds of drafting `k` ≥ 1 tokens for each drafting request, if the target's pass takes `target_s`
    /// seconds.
    pub(crate) fn seconds(&self, load: &Load, k: u32, target_s: f64) -> f64 {
        let k = f64::from(k);
        match self {
            DraftCost::Share(share) => share * target_s,
            DraftCost::Eagle => {
                (2.89700974e-6 * load.kv
                    + 4.38694070e-5 * load.scheduled
                    + 0.452175870 * k
                    + 5.52805909e-3 * load.requests
                    + 0.447_110_958_433_997_2)
                    * 1e-3
            }
            // docs/model.md 12: k passes over the drafting requests. The first pass also has the draft model's prefill
            // and the context tokens that the draft model has skipped. A parallel drafter makes a single pass.
            DraftCost::Belief(Belief { draft, drafting, .. }) => {
                let (n, context) = (load.drafting, load.drafting_kv);
                let passes = match drafting {
                    Drafting::Parallel => draft.alpha_s * context + draft.gamma_s * n * k + draft.delta_s,
                    Drafting::Autoregressive => {
                        draft.alpha_s * (context * k + n * k * (k - 1.0) / 2.0)
                            + (draft.gamma_s * n + draft.delta_s) * k
                    }
                };
                passes + draft.alpha_s * load.riders_kv + draft.gamma_s * load.riders
            }
        }
    }
}

/// The size of a step before drafting: the numbers of requests and tokens from which the formula of TurboSpec's vLLM
/// branch computes the step time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// B: number of scheduled requests, prefilling ones included.
    pub requests: f64,
    /// m: number of scheduled requests that may draft (called "match count" in the branch).
    pub drafting: f64,
    /// KV tokens of all scheduled requests, with the KV that this step writes for their newest tokens.
    pub kv: f64,
    /// Tokens scheduled before draft tokens are added: one per decode request, and the tokens of the prompt chunks.
    pub scheduled: f64,
    /// Numbers of tokens of the draft passes. `riders` are the tokens of the first draft pass that are no draft tokens:
    /// the draft model's prefill, and context tokens that the draft model has skipped (docs/model.md 12). `riders_kv`
    /// is the context of the prefill, and `drafting_kv` the context of the drafting requests. Only
    /// `Coefficients::Belief` charges for them.
    pub riders: f64,
    pub riders_kv: f64,
    pub drafting_kv: f64,
}

impl Load {
    pub(crate) fn of(batch: &BatchView) -> Load {
        let mut load = Load {
            requests: (batch.len() + batch.prefill.chunks as usize) as f64,
            // KV tokens at the end of this step, which also writes the KV of each request's newest token.
            kv: (batch.context_sum + batch.len() as u64 + batch.prefill.context + batch.prefill.tokens) as f64,
            scheduled: (batch.len() as u64 + batch.prefill.tokens) as f64,
            riders: batch.draft_prefill.tokens as f64,
            riders_kv: batch.draft_prefill.context as f64,
            ..Load::default()
        };
        for ((&limit, &context), &gap) in batch.limit.iter().zip(batch.context).zip(batch.draft_gap) {
            if limit > 0 {
                load.drafting += 1.0;
                load.drafting_kv += f64::from(context);
            }
            if limit > 0 || batch.always_extend {
                load.riders += f64::from(gap);
            }
        }
        load
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BELIEF, any_batch, any_belief, close};
    use foretoken_sim::shape;
    use proptest::prelude::*;

    /// docs/model.md 10: TurboSpec's published formula for the 8B model at the points measured in dsd/vis.ipynb, with
    /// each token counted once.
    #[test]
    fn published_points() {
        let cost = TargetCost::of(Coefficients::H100Llama8b, &BELIEF);
        for (kv, tokens, requests, ms) in
            [(8043.0, 575.0, 22.0, 16.979), (8600.0, 92.0, 23.0, 8.057), (6.0, 6.0, 1.0, 7.006)]
        {
            let load = Load { kv, requests, drafting: requests, ..Load::default() };
            assert!((cost.seconds(&load, tokens) * 1e3 - ms).abs() < 5e-4, "{ms}");
        }
    }

    /// The 70B model's published coefficient of drafting is in the time of steps that draft, and of no others.
    #[test]
    fn only_steps_that_draft_have_the_coefficient_of_drafting() {
        let cost = TargetCost::of(Coefficients::H100Llama70b, &BELIEF);
        let seconds =
            |drafting: f64| cost.seconds(&Load { kv: 100.0, requests: 2.0, drafting, ..Load::default() }, 8.0);
        assert!((seconds(0.0) - seconds(1.0) - 0.112_291_902e-3).abs() < 1e-12);
        assert_eq!(seconds(1.0), seconds(2.0));
    }

    /// The caveat of docs/model.md 3.4. By the published coefficients, a step without draft tokens takes 6.94 ms at
    /// context 512, whatever the batch size. At shorter contexts, a larger batch takes less time, which no GPU does.
    #[test]
    fn the_published_fit_is_collinear() {
        let cost = TargetCost::of(Coefficients::H100Llama8b, &BELIEF);
        let plain = |requests: f64, context: f64| {
            cost.seconds(&Load { kv: context * requests, requests, ..Load::default() }, requests) * 1e3
        };
        for requests in [1.0, 32.0, 256.0] {
            assert!((plain(requests, 512.0) - 6.94).abs() < 0.01, "{}", plain(requests, 512.0));
        }
        assert!(plain(256.0, 128.0) < plain(1.0, 128.0));
    }

    proptest! {
        /// With a policy's belief (its cost estimate) as the coefficients, the draft time equals the draft time of
        /// docs/model.md 12, if every request with a limit above 0 drafts k tokens.
        #[test]
        fn a_beliefs_draft_is_section_12s(batch in any_batch(10, 1), belief in any_belief(), k in 1u32..8) {
            let mut batch = batch;
            batch.limit.iter_mut().for_each(|l| *l *= 8);
            let view = batch.view();
            let lens: Vec<u32> = view.limit.iter().map(|&l| l.min(k)).collect();
            prop_assume!(lens.iter().any(|&l| l > 0));
            let target = shape::verify_pass(&view, &lens, belief.context_reads);
            let plain = belief.target.pass_s(target.context as f64, target.batched as f64);
            let drafted = belief.step_s(&view, &lens, &lens) - plain;
            let ours = DraftCost::Belief(belief).seconds(&Load::of(&view), k, 0.0);
            prop_assert!((ours - drafted).abs() <= 1e-9 * belief.step_s(&view, &lens, &lens), "{ours} {drafted}");
            prop_assert!(close(Load::of(&view).scheduled, (view.len() as u64 + view.prefill.tokens) as f64));
        }
    }
}
