//! A load at the threshold of a table from batch size to draft length, in the simulated engine: vLLM issue #49548
//! reports that throughput collapses if the load crosses the table's threshold again and again.

use foretoken_policies::{Belief, PolicyContext, PolicySpec};
use foretoken_sim::acceptance::AcceptanceSpec;
use foretoken_sim::{
    Arrivals, Coefficients, ContextReads, DraftAt, DraftGap, Drafting, EngineConfig, Linear, Request, Run, Simulation,
    Time, Workload,
};
use std::sync::atomic::AtomicBool;

const BELIEF: Belief = Belief {
    draft: Coefficients { alpha_s: 1e-9, gamma_s: 2e-6, delta_s: 0.5e-3 },
    target: Coefficients { alpha_s: 1e-7, gamma_s: 40e-6, delta_s: 8e-3 },
    context_reads: ContextReads::Once,
    drafting: Drafting::Autoregressive,
};

/// 240 requests of 120 to 239 output tokens (the vLLM issue has about 180), in waves of 8 requests every `every_s`
/// seconds. The requests of a wave arrive 0.05 s apart.
fn waves(every_s: f64) -> Workload {
    let requests = (0..240u32).map(|i| {
        let at = f64::from(i / 8) * every_s + f64::from(i % 8) * 0.05;
        Request::new(Time::from_s(at), 64, 120 + (i * 37) % 120)
    });
    let mut workload = Workload::default();
    requests.for_each(|r| workload.push(r));
    workload
}

fn run(policy: &str, workload: &Workload, draft_gap: DraftGap) -> Run {
    let policy: PolicySpec = serde_json::from_str(policy).unwrap();
    policy.check().unwrap();
    let config = EngineConfig { draft_gap, draft_at: Some(DraftAt::StepStart), ..EngineConfig::default() };
    let context = PolicyContext {
        belief: BELIEF,
        profile: &BELIEF,
        max_draft_len: config.max_draft_len,
        max_num_seqs: config.max_num_seqs,
        max_num_batched_tokens: config.max_num_batched_tokens,
        seed: 1,
        staleness_steps: 0,
        draft_at: foretoken_sim::DraftAt::StepStart,
        categories: &[],
        told: None,
        truths: None,
        own_rates: None,
    };
    let constant: AcceptanceSpec = serde_json::from_str(r#"{"source": {"constant": {"rate": 0.8}}}"#).unwrap();
    Simulation {
        workload,
        arrivals: Arrivals::Open,
        config: &config,
        draft: &Linear::new(BELIEF.draft),
        target: &Linear::new(BELIEF.target),
        context_reads: ContextReads::Once,
        drafting: Drafting::Autoregressive,
        noise_cv: 0.0,
        acceptance: constant.build(1, workload).unwrap().as_ref(),
        seed: 1,
        slo_tpot_s: f64::INFINITY,
        keep_steps: true,
        keep_lives: false,
        interrupt: &AtomicBool::new(false),
    }
    .run(policy.build(&context))
}

const TABLE: &str = r#"{"vllm-dynamic": {"num_speculative_tokens_per_batch_size": [[1, 4, 2], [5, 512, 0]]}}"#;

/// Output tokens per second, counting only the time in which the engine runs steps.
fn busy_goodput(run: &Run) -> f64 {
    run.totals.emitted as f64 / run.totals.busy.as_s()
}

#[test]
fn a_load_that_keeps_crossing_the_boundary_does_not_collapse() {
    let workload = waves(2.5);
    let dynamic = run(TABLE, &workload, DraftGap::CatchUpNextUse);
    let drafts: Vec<bool> = dynamic.steps.iter().filter(|s| s.batch_size > 0).map(|s| s.drafted > 0).collect();
    let switches = drafts.windows(2).filter(|w| w[0] != w[1]).count();
    assert!(switches >= 40, "the load crosses the boundary: {switches} switches in {} steps", drafts.len());
    let plain = busy_goodput(&run(r#"{"autoregressive": {}}"#, &workload, DraftGap::CatchUpNextUse));
    let fixed = busy_goodput(&run(r#"{"fixed": {"k": 2}}"#, &workload, DraftGap::CatchUpNextUse));
    for gap in [DraftGap::CatchUpNextUse, DraftGap::AlwaysExtend, DraftGap::Permanent] {
        let made = busy_goodput(&run(TABLE, &workload, gap));
        assert!(made > 0.95 * plain.min(fixed), "{gap:?}: {made} tok/s; plain {plain}, fixed {fixed}");
    }
}

#[test]
fn steps_follow_the_table_and_a_longer_length_comes_one_step_late() {
    let made = run(TABLE, &waves(2.5), DraftGap::CatchUpNextUse);
    let (mut low, mut late) = (0, 0);
    let mut charged = true;
    for step in made.steps.iter().filter(|s| s.batch_size > 0) {
        let drafting = step.batch_size + step.chunks <= 4;
        match (drafting, charged) {
            (true, true) => low += usize::from(step.drafted == 2 * step.batch_size),
            (true, false) => late += 1,
            (false, _) => {}
        }
        let expected = if drafting && charged { 2 * step.batch_size } else { 0 };
        assert_eq!(step.drafted, expected, "step {}: {} decodes, {} chunks", step.step, step.batch_size, step.chunks);
        charged = drafting;
    }
    assert!(low > 500 && late > 20, "{low} steps drafted, {late} would have");
}
