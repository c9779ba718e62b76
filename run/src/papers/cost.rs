//! Measures those quantities of a paper's claims that depend only on the costs of passes. Nothing is run for them.

use super::results::Measured;
use crate::plan::{Plan, variants};
use crate::setting::Setting;
use crate::spec::paper::{BeliefLength, ImpliedLength, Keep};
use crate::spec::problem::Result;
use foretoken_policies::{Belief, PolicyContext, PolicySpec, Smartspec};
use foretoken_profiler::hardware::LatencySpec;
use foretoken_sim::{BatchView, Categories, ChunkTotals, DraftPlan, LatencyModel, PassShape, Speculation, Time};

/// The draft length with the most expected tokens per second. The tokens per second are computed with the linear cost
/// model that policies get. Returns the range of this draft length over the variants that have the swept values in
/// `what.at`.
pub fn belief_length(what: &BeliefLength, plan: &Plan) -> Result<Measured> {
    let each = variants(plan, &what.at).map(|v| {
        let longest = plan.variants[v].experiment.engine.max_draft_len;
        let setting = Setting::new(&plan.variants[v], plan.seeds[0])?;
        Ok(f64::from(best(what, setting.belief(), longest)))
    });
    Ok(Measured::of(each.collect::<Result<_>>()?, Keep::Range))
}

fn best(what: &BeliefLength, belief: &Belief, longest: u32) -> u32 {
    let n = what.batch as usize;
    let ids: Vec<u32> = (0..what.batch).collect();
    let (context, zeros) = (vec![what.context; n], vec![0; n]);
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
        categories: Categories::default(),
        context_sum: u64::from(what.batch) * u64::from(what.context),
        prefill: ChunkTotals::default(),
        draft_prefill: ChunkTotals::default(),
        always_extend: false,
        num_running: what.batch,
        num_waiting: 0,
    };
    let spec = PolicySpec::Smartspec(Smartspec { initial_acceptance: what.acceptance, ..Smartspec::default() });
    let context = PolicyContext {
        belief: *belief,
        profile: belief,
        max_draft_len: longest,
        max_num_seqs: what.batch,
        max_num_batched_tokens: what.batch * (longest + 1),
        seed: 0,
        staleness_steps: 0,
        draft_at: foretoken_sim::DraftAt::StepStart,
        categories: &[],
        told: None,
        truths: None,
        own_rates: None,
    };
    let Speculation::Policy(mut policy) = spec.build(&context) else { unreachable!("smartspec is a policy") };
    let mut plan = DraftPlan { draft_len: vec![0; n], ..DraftPlan::default() };
    policy.propose(&batch, &mut plan);
    plan.draft_len[0]
}

/// The number of output tokens per round (one request's step: draft passes, then a verify pass) that a published
/// throughput implies: tokens per second × time of a round by the true costs of passes. Returns the range of this
/// number over the variants that have the swept values in `what.at`.
pub fn implied_length(what: &ImpliedLength, plan: &Plan) -> Measured {
    let each = variants(plan, &what.at).map(|v| {
        let hardware = &plan.variants[v].experiment.hardware;
        let costs = hardware.costs().map(LatencySpec::build);
        let drafting = f64::from(what.draft_passes) * pass_s(what, &*costs.draft, what.draft_width);
        what.tokens_per_s * (drafting + pass_s(what, &*costs.target, what.verify_tokens))
    });
    Measured::of(each.collect(), Keep::Range)
}

fn pass_s(what: &ImpliedLength, model: &dyn LatencyModel, tokens: u32) -> f64 {
    let (batched, context) = (u64::from(tokens), u64::from(what.context));
    model.pass(PassShape { requests: 1, batched, context, pairs: batched * (context + 1) }).as_s()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::paper::At;
    use foretoken_sim::{Coefficients, ContextReads, Drafting};

    /// The best draft length for 16 requests of 128 context tokens under a linear cost model, whose coefficients for
    /// the target are taken from an example in docs/model.md 10. If draft passes take no time, the best length is the
    /// longest one; if a draft pass takes 0.1 s, the best length is 0; if a draft pass takes 0.452 ms, the best length
    /// is 5.
    #[test]
    fn the_best_length_in_a_belief() {
        let target = Coefficients { alpha_s: 4.86e-8, gamma_s: 0.01844e-3, delta_s: 6.94e-3 };
        let best = |delta_s: f64, acceptance: f64| {
            let draft = Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s };
            let (context_reads, drafting) = (ContextReads::Once, Drafting::Autoregressive);
            let belief = Belief { draft, target, context_reads, drafting };
            best(&BeliefLength { acceptance, batch: 16, context: 128, at: At::new() }, &belief, 10)
        };
        assert_eq!(best(0.0, 1.0), 10);
        assert_eq!(best(0.1, 0.9), 0);
        assert_eq!(best(0.452e-3, 0.75), 5);
    }
}
