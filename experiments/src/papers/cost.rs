//! What follows from the costs of passes alone, without a run.

use super::measure::{At, Keep, Measured, variants};
use crate::plan::Plan;
use crate::problem::Result;
use crate::setting::Setting;
use foretoken_policies::{Belief, PolicyContext, PolicySpec, Smartspec};
use foretoken_sim::{BatchView, ChunkTotals, DraftPlan, LatencyModel, PassShape, Speculation, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The length `smartspec` chooses for `batch` requests of `context` tokens each at a known acceptance: the most expected tokens
/// a second in the policies' linear belief (SmartSpec, Eq. 3, 7 and 8).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BeliefLength {
    /// Probability that a draft token is accepted when those before it were.
    pub acceptance: f64,
    /// Decode requests.
    pub batch: u32,
    /// Tokens each has in KV.
    pub context: u32,
    /// Which variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

impl BeliefLength {
    /// Measures it.
    ///
    /// # Errors
    /// When no belief can be fitted.
    pub fn of(&self, plan: &Plan) -> Result<Measured> {
        let each = variants(plan, &self.at).map(|v| {
            let longest = plan.variants[v].experiment.engine.max_draft_len;
            let setting = Setting::new(&plan.variants[v], plan.seeds[0])?;
            Ok(f64::from(self.best(setting.belief(), longest)))
        });
        Ok(Measured::of(each.collect::<Result<_>>()?, Keep::Range))
    }

    fn best(&self, belief: &Belief, longest: u32) -> u32 {
        let n = self.batch as usize;
        let ids: Vec<u32> = (0..self.batch).collect();
        let (context, zeros) = (vec![self.context; n], vec![0; n]);
        let (limit, slo_tpot_s) = (vec![longest; n], vec![f64::INFINITY; n]);
        let batch = BatchView {
            now: Time::ZERO,
            step: 0,
            ids: &ids,
            context: &context,
            emitted: &zeros,
            limit: &limit,
            draft_gap: &zeros,
            slo_tpot_s: &slo_tpot_s,
            context_sum: u64::from(self.batch) * u64::from(self.context),
            prefill: ChunkTotals::default(),
            draft_prefill: ChunkTotals::default(),
            always_extend: false,
            num_running: self.batch,
            num_waiting: 0,
        };
        let spec = PolicySpec::Smartspec(Smartspec { initial_acceptance: self.acceptance, ..Smartspec::default() });
        let context = PolicyContext {
            belief: *belief,
            profile: belief,
            max_draft_len: longest,
            max_num_seqs: self.batch,
            max_num_batched_tokens: self.batch * (longest + 1),
            seed: 0,
            staleness_steps: 0,
            told: None,
        };
        let Speculation::Policy(mut policy) = spec.build(&context) else { unreachable!("smartspec is a policy") };
        let mut plan = DraftPlan { draft_len: vec![0; n], ..DraftPlan::default() };
        policy.propose(&batch, &mut plan);
        plan.draft_len[0]
    }
}

/// Tokens a round that `tokens_per_s` of one request implies: that rate times the time of a round under the true costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImpliedLength {
    /// The published throughput.
    pub tokens_per_s: f64,
    /// Draft passes a round.
    pub draft_passes: u32,
    /// Tokens in each of them (a tree's frontier).
    pub draft_width: u32,
    /// Tokens in the verify pass, the root included.
    pub verify_tokens: u32,
    /// Tokens in KV.
    pub context: u32,
    /// Which variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

impl ImpliedLength {
    /// Measures it.
    pub fn of(&self, plan: &Plan) -> Measured {
        let each = variants(plan, &self.at).map(|v| {
            let hardware = &plan.variants[v].experiment.hardware;
            let (draft, target) = (hardware.draft.build(), hardware.target.build());
            let drafting = f64::from(self.draft_passes) * self.pass_s(&*draft, self.draft_width);
            self.tokens_per_s * (drafting + self.pass_s(&*target, self.verify_tokens))
        });
        Measured::of(each.collect(), Keep::Range)
    }

    fn pass_s(&self, model: &dyn LatencyModel, tokens: u32) -> f64 {
        let (batched, context) = (u64::from(tokens), u64::from(self.context));
        model.pass(PassShape { batched, context, pairs: batched * (context + 1) }).as_s()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::{Coefficients, ContextReads, Drafting};

    /// The context sign test of docs/model.md 10 at its first point, and its ends: free drafts are always worth it, dear ones
    /// never.
    #[test]
    fn the_best_length_in_a_belief() {
        let target = Coefficients { alpha_s: 4.86e-8, gamma_s: 0.01844e-3, delta_s: 6.94e-3 };
        let best = |delta_s: f64, acceptance: f64| {
            let draft = Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s };
            let (context_reads, drafting) = (ContextReads::Once, Drafting::Autoregressive);
            let belief = Belief { draft, target, context_reads, drafting };
            BeliefLength { acceptance, batch: 16, context: 128, at: BTreeMap::new() }.best(&belief, 10)
        };
        assert_eq!(best(0.0, 1.0), 10);
        assert_eq!(best(0.1, 0.9), 0);
        assert_eq!(best(0.452e-3, 0.75), 5);
    }
}
