//! A belief (a policy's linear cost estimate) with the true coefficients predicts the time of every step exactly,
//! whatever policy runs. The test checks this with chains and trees, sequential and parallel drafting, prompt lookups,
//! the schedulers of vLLM v0 and 0.33, and every treatment of context tokens that the draft model has skipped. In all
//! these simulations, no policy that drafts chains beats the oracle, which knows which draft tokens will be accepted,
//! in any step (docs/model.md 13).

use foretoken_policies::{Belief, OracleGoodput, PolicyContext, PolicySpec};
use foretoken_sim::acceptance::{AcceptanceSpec, PromptLookup, Rates};
use foretoken_sim::{
    AcceptanceSource, Around, Arrivals, BatchView, Categories, ChunkTotals, Coefficients, ContextReads, DraftAt,
    DraftGap, DraftPlan, Drafting, Ending, EngineConfig, Host, Linear, OraclePolicy, Request, RequestId, RequestTruth,
    Simulation, SpecPolicy, Speculation, StepOutcome, Time, Truth, TruthRow, Version, Workload,
};
use itertools::Itertools;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const LONGEST: u32 = 8;

/// The coefficients are whole picoseconds per token and per pass, so pass times have no rounding error; only sums of
/// times in seconds do.
const BELIEF: Belief = Belief {
    draft: Coefficients { alpha_s: 3e-9, gamma_s: 5e-6, delta_s: 0.7e-3 },
    target: Coefficients { alpha_s: 1e-7, gamma_s: 40e-6, delta_s: 8e-3 },
    context_reads: ContextReads::Once,
    drafting: Drafting::Autoregressive,
};

/// The columns of one step's batch, copied so that they can be used after the policy has decided.
#[derive(Clone, Default)]
struct Columns {
    ids: Vec<RequestId>,
    context: Vec<u32>,
    emitted: Vec<u32>,
    limit: Vec<u32>,
    gap: Vec<u32>,
    slo_tpot_s: Vec<f64>,
    prefill: ChunkTotals,
    draft_prefill: ChunkTotals,
    always_extend: bool,
}

impl Columns {
    fn of(batch: &BatchView) -> Columns {
        Columns {
            ids: batch.ids.to_vec(),
            context: batch.context.to_vec(),
            emitted: batch.emitted.to_vec(),
            limit: batch.limit.to_vec(),
            gap: batch.draft_gap.to_vec(),
            slo_tpot_s: batch.slo_tpot_s.to_vec(),
            prefill: batch.prefill,
            draft_prefill: batch.draft_prefill,
            always_extend: batch.always_extend,
        }
    }

    fn view(&self) -> BatchView<'_> {
        BatchView {
            now: Time::ZERO,
            step: 0,
            ids: &self.ids,
            context: &self.context,
            emitted: &self.emitted,
            limit: &self.limit,
            draft_gap: &self.gap,
            slo_tpot_s: &self.slo_tpot_s,
            categories: Categories::default(),
            context_sum: self.context.iter().map(|&c| u64::from(c)).sum(),
            prefill: self.prefill,
            draft_prefill: self.draft_prefill,
            always_extend: self.always_extend,
            num_running: 0,
            num_waiting: 0,
        }
    }
}

/// Runs a policy, and compares the time that its belief (its linear cost estimate) predicts for each step with the
/// step's time.
struct ComparedPolicy {
    policy: Box<dyn SpecPolicy>,
    oracle: Box<dyn OraclePolicy>,
    belief: Belief,
    /// For every request of the run: which of its draft tokens the target accepts, drawn again from the run's
    /// acceptance source.
    rows: Vec<TruthRow>,
    name: String,
    batch: Columns,
    planned: Vec<u32>,
    /// Tokens and seconds of the present step with the draft lengths that the oracle `oracle-goodput` chooses.
    best: (f64, f64),
    /// Number of decode requests in all compared steps: a request counts once for each step.
    compared: Arc<AtomicU64>,
}

impl ComparedPolicy {
    fn step_s(&self, draft_len: &[u32], verify_len: &[u32]) -> f64 {
        self.belief.step_s(&self.batch.view(), draft_len, verify_len)
    }

    fn ask_the_oracle(&mut self) {
        let b = &self.batch;
        let starts = b.ids.iter().zip_eq(&b.emitted).zip_eq(&b.limit);
        let run: Vec<u32> =
            starts.map(|((&id, &at), &limit)| self.rows[id as usize].run(at, limit.min(LONGEST))).collect();
        let truth = Truth {
            run: &run,
            draft: &Linear::new(self.belief.draft),
            target: &Linear::new(self.belief.target),
            context_reads: self.belief.context_reads,
            drafting: self.belief.drafting,
            overhead: Time::ZERO,
            hidden: None,
            host: Host::NONE,
        };
        let mut plan = DraftPlan { draft_len: vec![0; run.len()], ..DraftPlan::default() };
        self.oracle.propose(&b.view(), &truth, &mut plan);
        let tokens = plan.draft_len.iter().sum::<u32>() + run.len() as u32;
        self.best = (f64::from(tokens), self.step_s(&plan.draft_len, &plan.draft_len));
    }
}

impl Around for ComparedPolicy {
    fn inner(&self) -> &dyn SpecPolicy {
        &*self.policy
    }

    fn inner_mut(&mut self) -> &mut dyn SpecPolicy {
        &mut *self.policy
    }

    fn around_propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.policy.propose(batch, plan);
        self.batch = Columns::of(batch);
        self.planned = plan.draft_len.iter().zip_eq(batch.limit).map(|(&d, &l)| d.min(l)).collect();
        self.ask_the_oracle();
    }

    fn around_observe(&mut self, o: &StepOutcome) {
        self.policy.observe(o);
        if o.ids.is_empty() {
            return;
        }
        let time = (o.draft_time + o.verify_time).as_s();
        let before = self.compared.fetch_add(o.ids.len() as u64, Ordering::Relaxed);
        let expected = if o.drafts.in_trees() {
            self.belief.tree_step_s(&self.batch.view(), &o.drafts.trees[..o.ids.len()])
        } else {
            // A parallel drafter makes all draft tokens of the plan in one pass. So a policy that stops early has paid
            // for all of them.
            let parallel = self.belief.drafting == Drafting::Parallel;
            self.step_s(if parallel { &self.planned } else { o.drafted }, o.verified)
        };
        let name = &self.name;
        assert!((time / expected - 1.0).abs() < 1e-9, "{name}: {time} s, not {expected}, after {before} decodes");
        if !o.drafts.in_trees() {
            let tokens: u32 = o.accepted.iter().map(|&a| a + 1).sum();
            let (ours, best) = (f64::from(tokens) / time, self.best.0 / self.best.1);
            assert!(ours <= best * (1.0 + 1e-9), "{name}: beats the oracle after {before} decodes");
        }
    }
}

/// 30 requests in bunches of 10, with 20 to 189 prompt tokens and 40 output tokens.
fn workload() -> Workload {
    let at = |i: u32| Time::from_s(0.004 * f64::from(i % 10) + 0.5 * f64::from(i / 10));
    (0..30).map(|i| Request::new(at(i), 20 + i * 37 % 170, 40)).collect()
}

fn rows(source: &dyn AcceptanceSource, workload: &Workload) -> Vec<TruthRow> {
    let row = |id: usize| {
        let mut row = TruthRow::default();
        let request = RequestTruth {
            id: id as RequestId,
            prompt_len: 0,
            output_len: workload.output_len[id],
            category: 0,
            recording: None,
        };
        source.start(request, LONGEST, &mut row);
        row
    };
    (0..workload.len()).map(row).collect()
}

fn check_every_policy(belief: Belief, config: &EngineConfig, source: &dyn AcceptanceSource, workload: &Workload) {
    let context = PolicyContext {
        belief,
        profile: &BELIEF,
        max_draft_len: LONGEST,
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
    for spec in PolicySpec::all() {
        let Speculation::Policy(policy) = spec.build(&context) else { continue };
        let Speculation::Oracle(oracle) = PolicySpec::OracleGoodput(OracleGoodput::default()).build(&context) else {
            unreachable!("an oracle is built as one")
        };
        let compared = Arc::default();
        let compared_policy = ComparedPolicy {
            policy,
            oracle,
            belief,
            rows: rows(source, workload),
            name: format!("{} under {:?}, {:?}", spec.label(), belief.drafting, config),
            batch: Columns::default(),
            planned: Vec::new(),
            best: (1.0, 1.0),
            compared: Arc::clone(&compared),
        };
        let simulation = Simulation {
            workload,
            arrivals: Arrivals::Open,
            config,
            draft: &Linear::new(belief.draft),
            target: &Linear::new(belief.target),
            context_reads: belief.context_reads,
            drafting: belief.drafting,
            noise_cv: 0.0,
            acceptance: source,
            seed: 1,
            slo_tpot_s: 0.03,
            keep_steps: false,
            keep_lives: false,
            interrupt: &AtomicBool::new(false),
        };
        let run = simulation.run(Speculation::Policy(Box::new(compared_policy)));
        assert_eq!((run.ending, run.totals.emitted), (Ending::Done, 30 * 40), "{}", spec.label());
        let compared = compared.load(Ordering::Relaxed);
        assert!(compared > 0 && compared == run.totals.request_steps, "{}: {compared} compared", spec.label());
    }
}

#[test]
fn the_right_belief_is_what_every_step_of_every_policy_takes() {
    let workload = workload();
    let build =
        |source| AcceptanceSpec { source, ..AcceptanceSpec::default() }.build(2, &workload).expect("a good source");
    let sources =
        [build(Rates::ByDepth { rates: vec![0.8, 0.7, 0.6] }), build(Rates::PromptLookup(PromptLookup::default()))];
    for (source, lookup) in sources.iter().zip_eq([false, true]) {
        for drafting in [Drafting::Autoregressive, Drafting::Parallel] {
            for (context_reads, version, draft_gap) in [
                (ContextReads::Once, Version::V0_33, DraftGap::CatchUpNextUse),
                (ContextReads::PerPosition, Version::V0, DraftGap::Permanent),
                (ContextReads::PerPosition, Version::V0_33, DraftGap::AlwaysExtend),
            ] {
                let belief = Belief { context_reads, drafting, ..BELIEF };
                let pressure = EngineConfig {
                    version,
                    draft_at: Some(DraftAt::StepStart),
                    max_model_len: 256,
                    draft_gap,
                    draft_prefill: !lookup,
                    max_num_batched_tokens: 256,
                    max_num_seqs: 16,
                    num_gpu_blocks: 120,
                    max_draft_len: LONGEST,
                    ..EngineConfig::default()
                };
                check_every_policy(belief, &pressure, &**source, &workload);
            }
        }
    }
}
