//! What a policy's decision costs: `cargo bench -p foretoken-policies --bench decisions`.
//!
//! One step of a batch of 32 requests: `propose`, `keep_drafting` after every draft pass, `select`, `observe`, for every
//! preset, with the draft loop of the engine around them. Confidences, entropies and divergences are laid out before; a
//! policy that decides nothing runs in the same loop, and its time (`nothing`) is what the loop itself costs. Oracles are
//! asked for their proposal. Contexts, gaps and accepted runs change from step to step, so that learning goes on.

#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use foretoken_policies::{Belief, PolicyContext, PolicySpec};
use foretoken_sim::acceptance::RankLaw;
use foretoken_sim::*;
use std::hint::black_box;

const REQUESTS: usize = 32;
const LONGEST: u32 = 8;
/// Steps that are laid out; they repeat.
const STEPS: usize = 64;

const BELIEF: Belief = Belief {
    draft: Coefficients { alpha_s: 1e-9, gamma_s: 2e-6, delta_s: 0.5e-3 },
    target: Coefficients { alpha_s: 1e-7, gamma_s: 40e-6, delta_s: 8e-3 },
    context_reads: ContextReads::Once,
    drafting: Drafting::Autoregressive,
};

/// A step's columns, and what its draft and its target would say.
struct Step {
    ids: Vec<RequestId>,
    context: Vec<u32>,
    emitted: Vec<u32>,
    limit: Vec<u32>,
    gap: Vec<u32>,
    slo_tpot_s: Vec<f64>,
    context_sum: u64,
    run: Vec<u32>,
    said: Drafts,
}

impl Step {
    /// Everything a policy may look at, for all requests and depths.
    fn new(step: usize) -> Step {
        let ranks = RankLaw::default();
        let luck = Luck::new(step as u64, Stream::Confidence, 0);
        let context: Vec<u32> = (0..REQUESTS).map(|i| (300 + 97 * i + 3 * step) as u32).collect();
        let mut said = Drafts::default();
        said.reset(REQUESTS, LONGEST);
        said.want(Wants { confidence: true, entropy: true, divergence: true });
        let run: Vec<u32> = (0..REQUESTS).map(|i| luck.half(1 << 32 | i as u64) % (LONGEST + 1)).collect();
        for i in 0..REQUESTS {
            for j in 0..LONGEST as usize {
                let confidence = 1.0 - 0.9 * (luck.unit((i * LONGEST as usize + j) as u64) as f32).powi(2);
                said.set_confidence(i, j, confidence);
                said.set_entropy(i, j, ranks.entropy(confidence));
                said.set_divergence(i, j, ranks.divergence(confidence, 1 + u32::from(j as u32 >= run[i])));
            }
        }
        Step {
            ids: (0..REQUESTS as RequestId).collect(),
            emitted: context.iter().map(|c| c / 3).collect(),
            limit: vec![LONGEST; REQUESTS],
            gap: run.iter().map(|&r| u32::from(r == LONGEST)).collect(),
            slo_tpot_s: vec![f64::INFINITY; REQUESTS],
            context_sum: context.iter().map(|&c| u64::from(c)).sum(),
            context,
            run,
            said,
        }
    }

    fn view(&self, step: u64) -> BatchView<'_> {
        BatchView {
            now: Time::ZERO,
            step,
            ids: &self.ids,
            context: &self.context,
            emitted: &self.emitted,
            limit: &self.limit,
            draft_gap: &self.gap,
            slo_tpot_s: &self.slo_tpot_s,
            context_sum: self.context_sum,
            prefill: ChunkTotals::default(),
            draft_prefill: ChunkTotals::default(),
            always_extend: false,
            num_running: REQUESTS as u32,
            num_waiting: 0,
            max_tokens: 4096,
        }
    }
}

/// Decides nothing: four virtual calls a step and one a pass.
struct Nothing;

impl SpecPolicy for Nothing {
    fn limit(&self) -> u32 {
        LONGEST
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(LONGEST);
    }
}

/// The buffers of a draft loop.
struct Loop {
    steps: Vec<Step>,
    at: usize,
    plan: DraftPlan,
    drafts: Vec<Drafts>,
    accepted: Vec<u32>,
}

impl Loop {
    fn new() -> Loop {
        let steps: Vec<Step> = (0..STEPS).map(Step::new).collect();
        Loop {
            drafts: steps.iter().map(|s| s.said.clone()).collect(),
            steps,
            at: 0,
            plan: DraftPlan::default(),
            accepted: vec![],
        }
    }

    /// One step as the engine makes it, without an executor.
    fn step(&mut self, policy: &mut dyn SpecPolicy) {
        let at = self.at % STEPS;
        let (step, drafts) = (&self.steps[at], &mut self.drafts[at]);
        let view = step.view(self.at as u64);
        self.at += 1;
        self.plan.shape = DraftShape::Chain;
        self.plan.draft_len.clear();
        self.plan.draft_len.resize(REQUESTS, 0);
        // Keeps what was said: only lengths are cleared.
        drafts.reset(REQUESTS, LONGEST);
        drafts.wants = policy.wants();
        if policy.chooses_prefix() {
            black_box(policy.prefix(&view));
        }
        policy.propose(&view, &mut self.plan);
        let depth = self.plan.draft_len.iter().copied().max().unwrap_or(0).min(LONGEST);
        for pass in 1..=depth {
            drafts.passes = pass;
            for i in 0..REQUESTS {
                drafts.draft_len[i] += u32::from(self.plan.draft_len[i] >= pass && !drafts.is_stopped(i));
            }
            if policy.keep_drafting(&view, drafts) == Continue::Stop {
                break;
            }
        }
        drafts.verify_len.extend_from_slice(&drafts.draft_len);
        if depth > 0 {
            policy.select(&view, drafts);
        }
        self.accepted.clear();
        self.accepted.extend(drafts.verify_len.iter().zip(&step.run).map(|(&v, &r)| v.min(r)));
        policy.observe(&StepOutcome {
            ids: &step.ids,
            drafted: &drafts.draft_len,
            verified: &drafts.verify_len,
            accepted: &self.accepted,
            drafts,
            draft_time: Time::from_s(0.5e-3 * f64::from(drafts.passes)),
            verify_time: Time::from_s(8e-3 + 40e-6 * drafts.verify_len.iter().sum::<u32>() as f64),
        });
        black_box(&self.accepted);
    }

    fn propose(&mut self, oracle: &mut dyn OraclePolicy, draft: &Linear, target: &Linear) {
        let step = &self.steps[self.at % STEPS];
        let view = step.view(self.at as u64);
        self.at += 1;
        self.plan.draft_len.clear();
        self.plan.draft_len.resize(REQUESTS, 0);
        let (context_reads, drafting) = (BELIEF.context_reads, BELIEF.drafting);
        let truth = Truth { run: &step.run, draft, target, context_reads, drafting, overhead: Time::ZERO };
        oracle.propose(&view, &truth, &mut self.plan);
        black_box(&self.plan);
    }
}

fn decisions(c: &mut Criterion) {
    let context = PolicyContext {
        belief: BELIEF,
        profile: &BELIEF,
        max_draft_len: LONGEST,
        max_num_seqs: 64,
        max_num_batched_tokens: 2048,
        seed: 1,
        staleness_steps: 0,
        told: None,
    };
    let mut group = c.benchmark_group("decision-at-32");
    group.bench_function("nothing", |b| {
        let mut bench = Loop::new();
        b.iter(|| bench.step(&mut Nothing));
    });
    let (draft, target) = (Linear::new(BELIEF.draft), Linear::new(BELIEF.target));
    for preset in PolicySpec::all() {
        let mut bench = Loop::new();
        match preset.build(&context) {
            Speculation::Off => {}
            Speculation::Policy(mut policy) => {
                group.bench_function(preset.name(), |b| b.iter(|| bench.step(policy.as_mut())));
            }
            Speculation::Oracle(mut oracle) => {
                group.bench_function(preset.name(), |b| b.iter(|| bench.propose(oracle.as_mut(), &draft, &target)));
            }
        }
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
