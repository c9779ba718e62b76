//! Shared by the tests of this crate: batches, beliefs (cost estimates), and a step of the engine's draft loop without
//! an engine.

use crate::definition::{Definition, PolicyContext};
use crate::{Belief, PolicySpec};
use foretoken_sim::acceptance::{AcceptanceSpec, Hidden, RequestTruth, Truths};
use foretoken_sim::{
    BatchView, Categories, ChunkTotals, Coefficients, ContextReads, DraftPlan, Drafting, Drafts, Host, Linear,
    RequestId, Speculation, StepOutcome, Time, Truth, Workload, scripted::Scripted,
};
use itertools::Itertools;
use proptest::prelude::*;
use std::sync::LazyLock;

/// Pass costs of a 7B target and a small draft model on a datacentre GPU, rounded.
pub const BELIEF: Belief = Belief {
    draft: Coefficients { alpha_s: 1e-9, gamma_s: 2e-6, delta_s: 0.5e-3 },
    target: Coefficients { alpha_s: 1e-7, gamma_s: 40e-6, delta_s: 8e-3 },
    context_reads: ContextReads::Once,
    drafting: Drafting::Autoregressive,
};

/// The inputs (costs, longest draft length, batch limits, seed) from which tests build policies.
pub const CONTEXT: PolicyContext = PolicyContext {
    belief: BELIEF,
    profile: &BELIEF,
    max_draft_len: 8,
    max_num_seqs: 64,
    max_num_batched_tokens: 2048,
    seed: 1,
    staleness_steps: 0,
    draft_at: foretoken_sim::DraftAt::StepStart,
    categories: &[],
    told: None,
    truths: None,
    own_rates: None,
};

/// The columns of a batch in tests, with an entry per decode request; a [`BatchView`] borrows them.
#[derive(Clone, Debug)]
pub struct Batch {
    pub step: u64,
    pub ids: Vec<RequestId>,
    pub context: Vec<u32>,
    pub emitted: Vec<u32>,
    pub limit: Vec<u32>,
    pub gap: Vec<u32>,
    pub slo_tpot_s: Vec<f64>,
    pub categories: Vec<u16>,
    pub prefill: ChunkTotals,
    pub draft_prefill: ChunkTotals,
    pub always_extend: bool,
}

impl Batch {
    /// Decode requests with these contexts (tokens in KV) and limits (most draft tokens), ids from 0, and one emitted
    /// token each. There are no context tokens that the draft model has skipped, no TPOT limits and no prompt chunks.
    pub fn new(context: &[u32], limit: &[u32]) -> Batch {
        let n = context.len();
        Batch {
            step: 0,
            ids: (0..n as RequestId).collect(),
            context: context.to_vec(),
            emitted: vec![1; n],
            limit: limit.to_vec(),
            gap: vec![0; n],
            slo_tpot_s: vec![f64::INFINITY; n],
            categories: Vec::new(),
            prefill: ChunkTotals::default(),
            draft_prefill: ChunkTotals::default(),
            always_extend: false,
        }
    }

    /// Keeps the first `n` requests of the batch and removes the others.
    pub fn truncate(&mut self, n: usize) {
        self.ids.truncate(n);
        for column in [&mut self.context, &mut self.emitted, &mut self.limit, &mut self.gap] {
            column.truncate(n);
        }
        self.slo_tpot_s.truncate(n);
    }

    pub fn view(&self) -> BatchView<'_> {
        BatchView {
            now: Time::ZERO,
            step: self.step,
            ids: &self.ids,
            context: &self.context,
            emitted: &self.emitted,
            limit: &self.limit,
            draft_gap: &self.gap,
            slo_tpot_s: &self.slo_tpot_s,
            categories: Categories::by_id(&self.categories),
            context_sum: self.context.iter().map(|&c| u64::from(c)).sum(),
            prefill: self.prefill,
            draft_prefill: self.draft_prefill,
            always_extend: self.always_extend,
            num_running: self.ids.len() as u32 + self.prefill.chunks,
            num_waiting: 0,
        }
    }
}

/// 1 to `most` decode requests with limits from 0 to `longest` draft tokens. Some batches have context tokens that the
/// draft model skipped and prompt chunks, others do not.
pub fn any_batch(most: usize, longest: u32) -> impl Strategy<Value = Batch> {
    let request = (1u32..4000, 0..=longest, prop_oneof![Just(0u32), Just(1), 0u32..40]);
    let chunk = prop_oneof![Just(None), (0u32..500, 1u32..500).prop_map(Some)];
    (prop::collection::vec(request, 1..=most), chunk, any::<bool>(), any::<bool>()).prop_map(
        |(requests, chunk, draft_prefill, always_extend)| {
            let column = |f: fn(&(u32, u32, u32)) -> u32| requests.iter().map(f).collect::<Vec<u32>>();
            let mut batch = Batch::new(&column(|r| r.0), &column(|r| r.1));
            batch.gap = column(|r| r.2.min(r.0));
            batch.always_extend = always_extend;
            if let Some((computed, tokens)) = chunk {
                batch.prefill.add(computed, tokens);
                if draft_prefill {
                    batch.draft_prefill.add(computed, tokens);
                }
            }
            batch
        },
    )
}

/// Any pass costs of the size that real models have; α and γ may be 0. All costs are whole picoseconds, the unit of
/// simulated time.
pub fn any_belief() -> impl Strategy<Value = Belief> {
    let model = |alpha: u32, gamma: u32, delta: u32| {
        (0..alpha, 0..gamma, 0..delta).prop_map(|(a, g, d)| Coefficients {
            alpha_s: f64::from(a) * 1e-12,
            gamma_s: f64::from(g) * 1e-9,
            delta_s: f64::from(d) * 1e-6 + 1e-6,
        })
    };
    let reads = prop_oneof![Just(ContextReads::Once), Just(ContextReads::PerPosition)];
    let drafting = prop_oneof![3 => Just(Drafting::Autoregressive), 1 => Just(Drafting::Parallel)];
    (model(5_000, 20_000, 2_000), model(300_000, 400_000, 20_000), reads, drafting)
        .prop_map(|(draft, target, context_reads, drafting)| Belief { draft, target, context_reads, drafting })
}

/// True if `a` and `b` differ by at most 1e-9 of the greater one (docs/model.md 12).
pub fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// The outcome of a step for `observe`, without ids and times. `drafts` are the draft tokens. `verified` and `accepted`
/// have one number for each request. As many tokens were drafted as verified.
pub fn outcome<'a>(drafts: &'a Drafts, verified: &'a [u32], accepted: &'a [u32]) -> StepOutcome<'a> {
    StepOutcome {
        ids: &[],
        drafted: verified,
        verified,
        accepted,
        drafts,
        draft_time: Time::ZERO,
        verify_time: Time::ZERO,
    }
}

/// The source of which draft tokens are right. All runs of the tests share it, and with it the tables of confidences.
static ACCEPTANCE: LazyLock<AcceptanceSpec> = LazyLock::new(AcceptanceSpec::default);

/// A policy in a test, with a stand-in for the engine's draft loop that runs it.
pub struct Run {
    speculation: Speculation,
    belief: Belief,
    longest: u32,
}

impl Run {
    pub fn of(policy: &dyn Definition, context: &PolicyContext) -> Run {
        policy.check().expect("good parameters");
        Run { speculation: policy.build(context), belief: context.belief, longest: context.max_draft_len }
    }

    pub fn of_spec(policy: &PolicySpec, context: &PolicyContext) -> Run {
        Run::of(policy.definition(), context)
    }

    /// Runs one step as the engine does. `confidence(i, j)` is the confidence of the j-th draft token (from 0) of
    /// request i; `run[i]` is the number of draft tokens of request i that would be accepted. Asserts that lengths
    /// respect the limits. The policy observes the outcome, unless it is an oracle (a policy that knows more than a
    /// server can). Returns the draft tokens with their drafted and verified lengths.
    pub fn step(&mut self, batch: &Batch, confidence: impl Fn(usize, usize) -> f64, run: &[u32]) -> Drafts {
        let mut batch = batch.clone();
        if let Speculation::Policy(policy) = &mut self.speculation {
            assert!(
                policy.limits().depth <= self.longest || policy.limits().tree_tokens > 0,
                "over the engine's longest draft"
            );
            if let Some(n) = policy.max_batch(&batch.view()) {
                assert!((1..=batch.ids.len()).contains(&n), "a batch of {n}");
                batch.truncate(n);
            }
        }
        let view = batch.view();
        let n = view.len();
        let mut drafts = Drafts::default();
        drafts.reset(n, self.longest);
        match &mut self.speculation {
            Speculation::Off => drafts.verify_len.resize(n, 0),
            Speculation::Oracle(oracle) => {
                let (draft, target) = (Linear::new(self.belief.draft), Linear::new(self.belief.target));
                let Belief { context_reads, drafting, .. } = self.belief;
                let mut plan = DraftPlan { draft_len: vec![0; n], ..DraftPlan::default() };
                let source = ACCEPTANCE.build(1, &Workload::default()).expect("the default source");
                let requests = view.ids.iter().copied().max().map_or(0, |id| id as usize + 1);
                let mut truths = Truths::new(&*source, self.longest, requests);
                for (i, &id) in view.ids.iter().enumerate() {
                    let output_len = view.emitted[i] + 100;
                    truths.start(RequestTruth { id, prompt_len: 0, output_len, category: 0, recording: None });
                }
                let hidden = Some(Hidden::new(&*source, &truths));
                oracle.propose(
                    &view,
                    &Truth {
                        run,
                        draft: &draft,
                        target: &target,
                        context_reads,
                        drafting,
                        overhead: Time::ZERO,
                        hidden,
                        host: Host::NONE,
                    },
                    &mut plan,
                );
                assert!(
                    plan.draft_len.iter().zip_eq(view.limit).all(|(d, l)| d <= l),
                    "an oracle respects limits itself"
                );
                drafts.draft_len.clone_from(&plan.draft_len);
                drafts.verify_len.clone_from(&plan.draft_len);
            }
            Speculation::Policy(policy) => {
                let rows =
                    |i: usize| (0..batch.limit[i].min(self.longest) as usize).map(|j| confidence(i, j)).collect();
                let mut script =
                    Scripted { confidence: (0..n).map(rows).collect(), run: run.to_vec(), ..Scripted::default() };
                let mut accepted = Vec::new();
                drafts = script.decide(policy, &view, self.longest, &mut accepted);
                let seen = StepOutcome {
                    ids: &batch.ids,
                    drafted: &drafts.draft_len,
                    draft_time: Time(1 << 30),
                    verify_time: Time(1 << 33),
                    ..outcome(&drafts, &drafts.verify_len, &accepted)
                };
                policy.observe(&seen);
            }
        }
        for ((&v, &d), &l) in drafts.verify_len.iter().zip_eq(&drafts.draft_len).zip_eq(view.limit) {
            assert!(v <= d && d <= l, "verified {v} ≤ drafted {d} ≤ limit {l}");
        }
        drafts
    }
}
