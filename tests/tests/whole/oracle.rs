//! Tests what docs/model.md 13 proves about the oracle, a policy that knows which draft tokens are right. In every
//! state that another policy reaches, the oracle's step has at least the token goodput (emitted tokens per second) of
//! that policy's step, and at least that of every fixed length. For the steps of a whole trace together, this cannot be
//! proved.

use crate::setup::{Setup, poisson};
use foretoken_policies::{OracleGoodput, PolicySpec};
use foretoken_sim::acceptance::AcceptanceSpec;
use foretoken_sim::host::{HostStep, SpeculatingSeconds, WithoutGraph};
use foretoken_sim::*;
use itertools::Itertools;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LONGEST: u32 = 6;

/// A policy that drafts the lengths that `choose` gives. In each state it asserts that the choice of the oracle (which
/// knows which draft tokens are right) has at least the goodput of these lengths and of every fixed length.
struct Witness<F> {
    oracle: Box<dyn OraclePolicy>,
    choose: F,
    strictly_better: u64,
    states: u64,
}

/// Emitted tokens and duration (picoseconds) of a step with draft lengths `lens`, as exact integers.
fn realised(batch: &BatchView, truth: &Truth, lens: &[u32]) -> (u128, u128) {
    let deepest = lens.iter().copied().max().unwrap_or(0);
    let mut time = truth.overhead + truth.target.pass(shape::verify_pass(batch, lens, truth.context_reads));
    time += (1..=deepest).map(|pass| truth.draft.pass(shape::draft_pass(batch, lens, pass))).sum();
    if deepest == 0 {
        time += shape::draft_idle_pass(batch).map_or(Time::ZERO, |idle| truth.draft.pass(idle));
    }
    let verify = shape::verify_pass(batch, lens, truth.context_reads);
    let drafts = lens.iter().map(|&len| u64::from(len)).sum();
    let decodes = batch.len() as u64;
    time += truth.host.time(HostStep { decodes, requests: verify.requests, tokens: verify.batched, drafts }).whole();
    let tokens: u32 = lens.iter().zip_eq(truth.run).map(|(&d, &run)| 1 + d.min(run)).sum();
    (tokens.into(), time.0.into())
}

impl<F: FnMut(&BatchView, u32) -> u32 + Send> OraclePolicy for Witness<F> {
    fn limit(&self) -> u32 {
        LONGEST
    }

    fn propose(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        let mut best = DraftPlan { draft_len: vec![0; batch.len()], ..DraftPlan::default() };
        self.oracle.propose(batch, truth, &mut best);
        let oracle = realised(batch, truth, &best.draft_len);
        for (i, len) in plan.draft_len.iter_mut().enumerate() {
            *len = (self.choose)(batch, i as u32).min(batch.limit[i]);
        }
        let fixed = (0..=LONGEST).map(|k| batch.limit.iter().map(|&l| l.min(k)).collect::<Vec<u32>>());
        for lens in fixed.chain([plan.draft_len.clone()]) {
            let other = realised(batch, truth, &lens);
            assert!(
                oracle.0 * other.1 >= other.0 * oracle.1,
                "step {}: {lens:?} beats {:?}",
                batch.step,
                best.draft_len
            );
            self.strictly_better += u64::from(oracle.0 * other.1 > other.0 * oracle.1);
        }
        self.states += 1;
    }
}

impl<F> Drop for Witness<F> {
    fn drop(&mut self) {
        assert!(self.states > 1000 && self.strictly_better > self.states, "the test met too little to compare");
    }
}

#[test]
fn the_oracle_is_at_least_as_good_on_every_state() {
    let workload = poisson(300, 6.0, 300, 120, 3);
    let truth = AcceptanceSpec::default().build(4, &workload).unwrap();
    let mut setup = Setup::new(&workload);
    setup.acceptance = &*truth;
    setup.config.step_overhead_s = 1e-3;
    setup.config.host = HostLaw {
        token_s: 1e-5,
        speculating: SpeculatingSeconds { step_s: 1e-3, request_s: 1e-4, token_s: 2e-5 },
        without_graph: WithoutGraph { above: 4, step_s: 1e-3, speculating_s: 4e-3 },
        ..HostLaw::default()
    };
    setup.config.draft_prefill = true;
    setup.draft = Coefficients { alpha_s: 5e-9, gamma_s: 3e-6, delta_s: 0.9e-3 };
    setup.config.max_draft_len = LONGEST;
    let belief = setup.belief();
    let context = setup.context(&belief, 1);
    let oracle = || match PolicySpec::OracleGoodput(OracleGoodput::default()).build(&context) {
        Speculation::Oracle(oracle) => oracle,
        _ => unreachable!("an oracle is built as one"),
    };
    let fixed = |_: &BatchView, _: u32| 3;
    setup.run(Speculation::Oracle(Box::new(Witness {
        oracle: oracle(),
        choose: fixed,
        strictly_better: 0,
        states: 0,
    })));
    let luck = luck::Luck::new(9, Stream::Policy, 0);
    let random = move |batch: &BatchView, i: u32| (luck.bits(batch.step * 512 + u64::from(i)) % 7) as u32;
    setup.run(Speculation::Oracle(Box::new(Witness {
        oracle: oracle(),
        choose: random,
        strictly_better: 0,
        states: 0,
    })));
}

/// Runs a policy. In every state that the policy reaches, compares the goodput of the policy's step with the goodput
/// that the oracle (which knows which draft tokens are right) would have.
struct AgainstOracle {
    policy: Box<dyn SpecPolicy>,
    oracle: Box<dyn OraclePolicy>,
    name: String,
    /// For each request and output position, whether a draft token is right. These values are drawn again outside of
    /// the run, and equal those that the run draws.
    rows: Vec<TruthRow>,
    draft: Linear,
    target: Linear,
    overhead: Time,
    /// The emitted tokens and the duration (picoseconds) of the step that the oracle would make in the present state.
    best: (u128, u128),
    /// Number of decode requests, summed over the steps that were compared.
    compared: Arc<AtomicU64>,
}

impl Around for AgainstOracle {
    fn inner(&self) -> &dyn SpecPolicy {
        &*self.policy
    }

    fn inner_mut(&mut self) -> &mut dyn SpecPolicy {
        &mut *self.policy
    }

    fn around_propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        let runs = batch.ids.iter().zip_eq(batch.emitted).zip_eq(batch.limit);
        // The policy's own limit on draft tokens may be below the longest draft length of the engine. The oracle (which
        // knows which draft tokens are right) then gets the same limit.
        let run: Vec<u32> = runs.map(|((&id, &emitted), &limit)| self.rows[id as usize].run(emitted, limit)).collect();
        let truth = Truth {
            run: &run,
            draft: &self.draft,
            target: &self.target,
            context_reads: ContextReads::Once,
            drafting: Drafting::Autoregressive,
            overhead: self.overhead,
            hidden: None,
            host: Host::NONE,
        };
        let mut choice = DraftPlan { draft_len: vec![0; batch.len()], ..DraftPlan::default() };
        self.oracle.propose(batch, &truth, &mut choice);
        self.best = realised(batch, &truth, &choice.draft_len);
        self.policy.propose(batch, plan);
    }

    fn around_observe(&mut self, o: &StepOutcome) {
        if !o.ids.is_empty() {
            let tokens = o.accepted.iter().map(|&a| u128::from(a) + 1).sum::<u128>();
            // The step's duration (draft and verify passes), as the executor reported it.
            let time = u128::from((o.draft_time + o.verify_time).0);
            let (best_tokens, best_time) = self.best;
            let before = self.compared.fetch_add(o.ids.len() as u64, Ordering::Relaxed);
            assert!(best_tokens * time >= tokens * best_time, "{}: beats the oracle after {before}", self.name);
        }
        self.policy.observe(o);
    }
}

/// The theorem of docs/model.md 13, for every policy that drafts chains: in one step no policy has more goodput than
/// the oracle, which knows which draft tokens are right. Trees are left out, because they propose tokens that a chain
/// cannot propose.
#[test]
fn no_policy_beats_the_oracle_on_a_state_it_visits() {
    for seed in 1..=20 {
        let luck = luck::Luck::new(seed, Stream::Policy, 1);
        let workload = poisson(24, 2.0 + 10.0 * luck.unit(0), 100 + (luck.unit(1) * 900.0) as u32, 40, seed);
        let source = AcceptanceSpec::default().build(seed, &workload).expect("the default source");
        let mut setup = Setup::new(&workload);
        setup.acceptance = &*source;
        setup.config.step_overhead_s = 1e-3 * luck.unit(2);
        setup.config.max_draft_len = LONGEST;
        setup.config.draft_prefill = luck.unit(3) < 0.5;
        setup.config.num_gpu_blocks = 200 + (luck.unit(4) * 2000.0) as u32;
        setup.draft = Coefficients { alpha_s: 5e-9, gamma_s: 3e-6, delta_s: 2e-3 * luck.unit(5) };
        let rows = || {
            let truth = |id: usize| {
                let mut row = TruthRow::default();
                let output_len = workload.output_len[id];
                let request = RequestTruth {
                    id: id as u32,
                    prompt_len: 0,
                    output_len,
                    category: workload.category[id],
                    recording: None,
                };
                source.start(request, LONGEST, &mut row);
                row
            };
            (0..workload.len()).map(truth).collect::<Vec<_>>()
        };
        let belief = setup.belief();
        let context = setup.context(&belief, seed);
        for spec in PolicySpec::all() {
            let Speculation::Policy(policy) = spec.build(&context) else { continue };
            if policy.limits().tree_tokens > 0 {
                continue;
            }
            let Speculation::Oracle(oracle) = PolicySpec::OracleGoodput(OracleGoodput::default()).build(&context)
            else {
                unreachable!("an oracle is built as one")
            };
            let compared = Arc::default();
            let run = setup.run(Speculation::Policy(Box::new(AgainstOracle {
                policy,
                oracle,
                name: format!("{} (seed {seed})", spec.label()),
                rows: rows(),
                draft: Linear::new(setup.draft),
                target: Linear::new(setup.target),
                overhead: Time::from_s(setup.config.step_overhead_s),
                best: (1, 1),
                compared: Arc::clone(&compared),
            })));
            let compared = compared.load(Ordering::Relaxed);
            assert!(compared > 0 && compared == run.totals.request_steps, "{}: {compared} compared", spec.label());
        }
    }
}
