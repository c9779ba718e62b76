//! Measures what one decision of each policy costs: `cd benches && cargo bench --bench decisions`.
//!
//! A decision is one step of a batch: `max_batch`, `propose`, `keep_drafting` after every draft pass, `select` and
//! `observe`. The batch has 32 requests in the group `decision-at-32` and 256 in `decision-at-256`. Confidences,
//! entropies and divergences are prepared in advance. They change from step to step, as do contexts, numbers of context
//! tokens that the draft model has not processed, and numbers of accepted draft tokens, so that policies keep learning.
//!
//! To time `foresight` beside vLLM's own rule, add the arguments
//! `-- 'decision-at-(32|256)/(foresight|vllm-adaptive)$'`.
//!
//! The cost of the loop that calls the policy is subtracted. It is measured for each number of draft passes, with a
//! policy that always drafts the same length (`the loop`). For policies that draft trees, prepared confidences replace
//! the draft model. A stopwatch times only the calls of such a policy, because growing the trees would take longer than
//! deciding. For oracles (policies that know more than a server can) only `propose` is timed. Presets (policies with
//! default settings) without a drafter are left out, and so are presets that need the true probabilities of acceptance.

#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use foretoken_policies::{Belief, PolicyContext, PolicySpec};
use foretoken_sim::acceptance::RankLaw;
use foretoken_sim::scripted::Scripted;
use foretoken_sim::*;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The two batch sizes of the benchmark, in decode requests.
const BATCHES: [usize; 2] = [32, 256];
const LONGEST: u32 = 8;
/// Number of prepared steps; the bench cycles through them.
const STEPS: usize = 64;

const BELIEF: Belief = Belief {
    draft: Coefficients { alpha_s: 1e-9, gamma_s: 2e-6, delta_s: 0.5e-3 },
    target: Coefficients { alpha_s: 1e-7, gamma_s: 40e-6, delta_s: 8e-3 },
    context_reads: ContextReads::Once,
    drafting: Drafting::Autoregressive,
};

/// The prepared input of one step of the benchmark: the columns of the batch, the draft model's outputs (`said`:
/// confidences, entropies, divergences of the draft tokens), and for each request the number of draft tokens that the
/// target would accept (`run`).
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
    /// Builds all columns of a batch of `n` requests for step number `step`, and the draft model's outputs (confidence,
    /// entropy, divergence) for every request and depth.
    fn new(n: usize, step: usize) -> Step {
        let ranks = RankLaw::default();
        let luck = Luck::new(step as u64, Stream::Confidence, 0);
        let context: Vec<u32> = (0..n).map(|i| (300 + 97 * i + 3 * step) as u32).collect();
        let mut said = Drafts::default();
        said.reset(n, LONGEST);
        said.want(Wants { confidence: true, entropy: true, divergence: true, ..Wants::default() });
        let run: Vec<u32> = (0..n).map(|i| luck.half(1 << 32 | i as u64) % (LONGEST + 1)).collect();
        for (i, &right) in run.iter().enumerate() {
            for j in 0..LONGEST as usize {
                let confidence = 1.0 - 0.9 * luck.unit((i * LONGEST as usize + j) as u64).powi(2);
                said.set_confidence(i, j, confidence);
                said.set_entropy(i, j, ranks.entropy(confidence));
                said.set_divergence(i, j, ranks.divergence(confidence, 1 + u32::from(j as u32 >= right)));
            }
        }
        Step {
            ids: (0..n as RequestId).collect(),
            emitted: context.iter().map(|c| c / 3).collect(),
            limit: vec![LONGEST; n],
            gap: run.iter().map(|&r| u32::from(r == LONGEST)).collect(),
            slo_tpot_s: vec![f64::INFINITY; n],
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
            categories: Categories::default(),
            context_sum: self.context_sum,
            prefill: ChunkTotals::default(),
            draft_prefill: ChunkTotals::default(),
            always_extend: false,
            num_running: self.ids.len() as u32,
            num_waiting: 0,
        }
    }
}

/// A policy that drafts `self.0` tokens for every request in every step.
struct Nothing(u32);

impl SpecPolicy for Nothing {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.0)
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.0);
    }
}

/// The state of the benchmark's loop: the prepared steps, and buffers that are reused from step to step.
struct Loop {
    steps: Vec<Step>,
    at: usize,
    plan: DraftPlan,
    drafts: Vec<Drafts>,
    accepted: Vec<u32>,
}

impl Loop {
    fn new(n: usize) -> Loop {
        let steps: Vec<Step> = (0..STEPS).map(|step| Step::new(n, step)).collect();
        Loop {
            drafts: steps.iter().map(|s| s.said.clone()).collect(),
            steps,
            at: 0,
            plan: DraftPlan::default(),
            accepted: vec![],
        }
    }

    /// Runs one step of the benchmark: calls the policy in the order in which the engine calls it, but runs no model.
    /// Returns the number of draft passes.
    fn step(&mut self, policy: &mut dyn SpecPolicy) -> usize {
        let at = self.at % STEPS;
        let (step, drafts) = (&self.steps[at], &mut self.drafts[at]);
        let n = step.ids.len();
        let view = step.view(self.at as u64);
        self.at += 1;
        self.plan.shape = DraftShape::Chain;
        self.plan.draft_len.clear();
        self.plan.draft_len.resize(n, 0);
        // `reset` sets each request's number of draft tokens to 0. The prepared confidences stay.
        drafts.reset(n, LONGEST);
        drafts.wants = policy.wants();
        black_box(policy.max_batch(&view));
        policy.propose(&view, &mut self.plan);
        let depth = self.plan.draft_len.iter().copied().max().unwrap_or(0).min(LONGEST);
        for pass in 1..=depth {
            drafts.passes = pass;
            for i in 0..n {
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
        drafts.passes as usize
    }

    fn propose(&mut self, oracle: &mut dyn OraclePolicy, draft: &Linear, target: &Linear) {
        let step = &self.steps[self.at % STEPS];
        let view = step.view(self.at as u64);
        self.at += 1;
        self.plan.draft_len.clear();
        self.plan.draft_len.resize(step.ids.len(), 0);
        let (context_reads, drafting) = (BELIEF.context_reads, BELIEF.drafting);
        let truth = Truth {
            run: &step.run,
            draft,
            target,
            context_reads,
            drafting,
            overhead: Time::ZERO,
            hidden: None,
            host: Host::NONE,
        };
        oracle.propose(&view, &truth, &mut self.plan);
        black_box(&self.plan);
    }
}

/// Runs a policy for the benchmark and times its `propose`, `keep_drafting`, `select` and `observe`.
struct Timed {
    policy: Box<dyn SpecPolicy>,
    watch: Arc<Watch>,
}

/// Stopwatch of a policy: nanoseconds of all timed calls, and number of these calls.
#[derive(Default)]
struct Watch {
    nanos: AtomicU64,
    calls: AtomicU64,
}

impl Watch {
    fn time<T>(&self, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = run();
        self.nanos.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        result
    }
}

impl SpecPolicy for Timed {
    fn limits(&self) -> DraftLimits<'_> {
        self.policy.limits()
    }

    fn wants(&self) -> Wants {
        self.policy.wants()
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.watch.time(|| self.policy.propose(batch, plan));
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        self.watch.time(|| self.policy.keep_drafting(batch, drafts))
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        self.watch.time(|| self.policy.select(batch, drafts));
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.watch.time(|| self.policy.observe(outcome));
    }
}

/// A policy that drafts trees, with the prepared steps. `scripts` has one entry for each step, which replaces the draft
/// model: it gives every draft pass the prepared confidences.
struct Trees {
    policy: Box<dyn SpecPolicy>,
    watch: Arc<Watch>,
    steps: Vec<Step>,
    scripts: Vec<Scripted>,
    at: usize,
    /// Nanoseconds that starting and stopping the stopwatch add to each timed call of the policy. They are subtracted.
    clock_ns: f64,
}

impl Trees {
    fn new(n: usize, policy: Box<dyn SpecPolicy>) -> Trees {
        let idle = Watch::default();
        (0..100_000).for_each(|_| idle.time(|| black_box(())));
        let clock_ns = idle.nanos.into_inner() as f64 / 100_000.0;
        let mut steps: Vec<Step> = (0..STEPS).map(|step| Step::new(n, step)).collect();
        steps.iter_mut().for_each(|step| step.limit.fill(policy.limits().tree_tokens));
        let script = |step: &Step| {
            let row = |i| (0..LONGEST as usize).map(|j| step.said.confidence(i, j)).collect();
            let confidence = (0..n).map(row).collect();
            Scripted { confidence, run: step.run.clone(), ..Scripted::default() }
        };
        let watch = Arc::new(Watch::default());
        Trees {
            scripts: steps.iter().map(script).collect(),
            policy: Box::new(Timed { policy, watch: watch.clone() }),
            watch,
            steps,
            at: 0,
            clock_ns,
        }
    }

    /// Runs `steps` steps. Returns the time that the policy's timed calls took, less the stopwatch's own time; at least
    /// 1 ns a step.
    fn run(&mut self, steps: u64) -> Duration {
        let before = (self.watch.nanos.load(Ordering::Relaxed), self.watch.calls.load(Ordering::Relaxed));
        let mut accepted = Vec::new();
        for _ in 0..steps {
            let at = self.at % STEPS;
            let view = self.steps[at].view(self.at as u64);
            self.at += 1;
            let drafts = self.scripts[at].decide(&mut self.policy, &view, LONGEST, &mut accepted);
            self.policy.observe(&StepOutcome {
                ids: &self.steps[at].ids,
                drafted: &drafts.draft_len,
                verified: &drafts.verify_len,
                accepted: &accepted,
                drafts: &drafts,
                draft_time: Time::from_s(2e-3),
                verify_time: Time::from_s(9e-3),
            });
        }
        let nanos = self.watch.nanos.load(Ordering::Relaxed) - before.0;
        let calls = self.watch.calls.load(Ordering::Relaxed) - before.1;
        let own = (calls as f64 * self.clock_ns) as u64;
        Duration::from_nanos(nanos.saturating_sub(own).max(steps))
    }
}

/// For 0 to `LONGEST` draft passes, the nanoseconds of one step of the loop without a policy's work: the least of 30
/// means over 10,000 steps each. The batch has `n` requests.
fn loop_ns(n: usize) -> Vec<f64> {
    let cost = |passes: u32| {
        let (mut bench, mut nothing) = (Loop::new(n), Nothing(passes));
        let run = |_| {
            let start = Instant::now();
            (0..10_000).for_each(|_| {
                black_box(bench.step(&mut nothing));
            });
            start.elapsed().as_nanos() as f64 / 10_000.0
        };
        (0..30).map(run).fold(f64::INFINITY, f64::min)
    };
    (0..=LONGEST).map(cost).collect()
}

fn decisions(c: &mut Criterion) {
    BATCHES.iter().for_each(|&n| decisions_at(c, n));
}

fn decisions_at(c: &mut Criterion, n: usize) {
    let context = PolicyContext {
        belief: BELIEF,
        profile: &BELIEF,
        max_draft_len: LONGEST,
        max_num_seqs: 2 * n as u32,
        max_num_batched_tokens: 64 * n as u32,
        seed: 1,
        staleness_steps: 0,
        draft_at: foretoken_sim::DraftAt::StepStart,
        categories: &[],
        told: None,
        truths: None,
        own_rates: None,
    };
    let loop_ns = loop_ns(n);
    println!("the loop at {n}, by draft passes (ns, taken off): {loop_ns:.0?}");
    let mut group = c.benchmark_group(format!("decision-at-{n}"));
    let (draft, target) = (Linear::new(BELIEF.draft), Linear::new(BELIEF.target));
    for preset in PolicySpec::all() {
        // Only a simulation knows the true probabilities of acceptance. So the bench skips the bounds (policies that
        // know more than a server can) that need these probabilities.
        if preset.definition().needs_law() {
            continue;
        }
        match preset.build(&context) {
            Speculation::Off => {}
            Speculation::Policy(policy) if policy.limits().tree_tokens > 0 => {
                let mut trees = Trees::new(n, policy);
                group.bench_function(preset.name(), |b| b.iter_custom(|steps| trees.run(steps)));
            }
            Speculation::Policy(mut policy) => {
                let mut bench = Loop::new(n);
                let mut run = |steps: u64| {
                    let start = Instant::now();
                    let mut own = 0.0;
                    for _ in 0..steps {
                        own += loop_ns[bench.step(policy.as_mut())];
                    }
                    start.elapsed().saturating_sub(Duration::from_nanos(own as u64)).max(Duration::from_nanos(steps))
                };
                group.bench_function(preset.name(), |b| b.iter_custom(&mut run));
            }
            Speculation::Oracle(mut oracle) => {
                let mut bench = Loop::new(n);
                group.bench_function(preset.name(), |b| b.iter(|| bench.propose(oracle.as_mut(), &draft, &target)));
            }
        }
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
