//! The invariants of INVARIANTS.md, tested as properties of small random simulations. The types guarantee invariant 8.

use super::fixture::{Erratic, Fixture, WILD_TREE, host_law, lookups};
use crate::engine::Order;
use crate::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

static LOOKUPS: LazyLock<Arc<dyn AcceptanceSource>> = LazyLock::new(|| lookups(0.4));

pub(super) fn workloads() -> impl Strategy<Value = Workload> {
    // A quarter of the requests arrive at the same time as the one before.
    let gap = prop_oneof![1 => Just(0), 3 => 0u64..400];
    let request = (gap, 1u32..200, 1u32..60, 0usize..4);
    prop::collection::vec(request, 1..25).prop_map(|list| {
        let mut w = Workload { prefix_block: 32, ..Workload::default() };
        let mut at = 0;
        for (gap, prompt, output, blocks) in list {
            at += gap * 1_000_000_000;
            let mut r = Request::new(Time(at), prompt, output);
            r.priority = (gap % 3) as i32;
            r.prefix = (0..blocks.min(prompt as usize / 32) as u64).collect();
            w.push(r);
        }
        w
    })
}

/// Engine settings with which every release of vLLM starts, for draft trees of up to [`WILD_TREE`] tokens.
pub(super) fn configs() -> impl Strategy<Value = EngineConfig> {
    let sizes = (1u32..12, 32u32..300, prop::sample::select(vec![4u32, 16]), 16u32..60, 60u32..400);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let gap = prop::sample::select(vec![DraftGap::CatchUpNextUse, DraftGap::AlwaysExtend, DraftGap::Permanent]);
    let kv =
        prop::sample::select(vec![DraftKv::None, DraftKv::EqualSplit { ratio: 0.5 }, DraftKv::Separate { blocks: 12 }]);
    let version = prop::sample::select(vec![Version::V0, Version::V0_32, Version::V0_33, Version::V0_33]);
    let methods = vec![DraftMethod::DraftModel, DraftMethod::Eagle3, DraftMethod::Mtp, DraftMethod::Ngram];
    let orders = prop::sample::select(vec![Order::StepStart, Order::StepEnd, Order::Async]);
    let runners = prop::sample::select(vec![None, Some(Runner::V1), Some(Runner::V2)]);
    let rules = (version, prop::sample::select(methods), 1u32..4, 0u32..3, orders, runners);
    (sizes, flags, gap, kv, rules).prop_map(
        |(size, flag, draft_gap, draft_kv, (version, method, interval, threshold, order, runner))| {
            let v0 = version == Version::V0;
            let whole = v0 || !flag.0;
            EngineConfig {
                version,
                method,
                runner: runner.filter(|_| !v0),
                // With the order `Async`, `async_scheduling` is left out, so that it is on wherever the other settings
                // allow it.
                async_scheduling: (order != Order::Async).then_some(false),
                draft_at: (order == Order::StepStart && !v0).then_some(DraftAt::StepStart),
                scheduling_policy: if flag.1 { SchedulingPolicy::Priority } else { SchedulingPolicy::Fcfs },
                max_num_seqs: size.0,
                max_num_batched_tokens: if whole { size.1.max(size.4) } else { size.1 },
                block_size: size.2,
                // The pool must hold one tree of up to [`WILD_TREE`] tokens and its lookahead slots.
                num_gpu_blocks: if size.2 == 4 { size.3 + 30 } else { size.3 },
                max_model_len: size.4,
                chunked_prefill: Some(!whole),
                prefix_caching: flag.2,
                scheduler_reserve_full_isl: (!v0).then_some(flag.3),
                prefill_schedule_interval: if v0 { 1 } else { interval },
                long_prefill_token_threshold: if v0 { 0 } else { threshold * 20 },
                draft_prefill: flag.4,
                budget_charge: if flag.5 { BudgetCharge::Full } else { BudgetCharge::Trimmed },
                watermark: Some(if flag.3 { 0.05 } else { 0.0 }),
                draft_gap,
                draft_kv,
                ..EngineConfig::default()
            }
        },
    )
}

/// Changes the engine's settings so that draft tokens are made at the start of a step.
fn drafting_first(config: EngineConfig) -> EngineConfig {
    EngineConfig { draft_at: Some(DraftAt::StepStart), async_scheduling: None, ..config }
}

pub(super) fn arrivals() -> impl Strategy<Value = Arrivals> {
    prop_oneof![Just(Arrivals::Open), (1u32..5).prop_map(|clients| Arrivals::Closed { clients })]
}

/// Checks the invariants of INVARIANTS.md on a run. `lookahead` is the most draft tokens of a request. `order` is the
/// order of the phases of the run's steps.
fn check(f: &Fixture, run: &Run, lookahead: u32, order: Order) -> Result<(), TestCaseError> {
    let r = &run.records;
    // Invariant 1: every arrived request has ended with a recorded outcome. (Invariant 2, no livelock: the run ended.)
    prop_assert!(r.outcome.iter().all(|&o| o != Outcome::InFlight));
    // Invariant 2: the clock never goes back.
    for pair in run.steps.windows(2) {
        prop_assert!(pair[0].end <= pair[1].start && pair[0].start < pair[0].end);
    }
    let mut emitted = 0;
    for i in 0..r.len() {
        emitted += u64::from(r.emitted[i]);
        if r.finished(i) {
            // Invariant 4: a finished request has emitted its whole output and no token more, as far as `max_model_len`
            // allows.
            let (prompt, output) = (f.workload.prompt_len[i], f.workload.output_len[i]);
            let longest = f.config.max_model_len + u32::from(f.config.version == Version::V0);
            prop_assert_eq!(r.emitted[i], output.min(longest - prompt));
            prop_assert!(r.arrival[i] <= r.first_scheduled[i] && r.first_scheduled[i] < r.first_token[i]);
            prop_assert!(r.first_token[i] <= r.finish[i]);
        }
        prop_assert!(r.accepted[i] <= r.verified[i] && r.verified[i] <= r.drafted[i]);
    }
    prop_assert_eq!(emitted, run.totals.emitted);
    prop_assert_eq!(run.totals.accepted(), r.accepted.iter().map(|&x| u64::from(x)).sum::<u64>());
    prop_assert_eq!(run.totals.drafted, r.drafted.iter().map(|&x| u64::from(x)).sum::<u64>());
    for s in &run.steps {
        // Invariant 5: no step exceeds `max_num_seqs` and the token budget.
        prop_assert!(s.batch_size + s.chunks <= f.config.max_num_seqs);
        // v0 charges no draft tokens to the token budget.
        let drafts = if f.config.version == Version::V0 { 0 } else { s.verified };
        let charged = u64::from(s.batch_size) + u64::from(drafts) + s.chunk_tokens;
        prop_assert!(charged <= u64::from(f.config.max_num_batched_tokens), "{charged} tokens in a step");
        held_blocks(f, run, s, lookahead, order == Order::Async)?;
    }
    if order == Order::Async {
        // With async scheduling, requests come and go between the scheduler call and the start of the step, so the
        // records do not tell which requests ran before a preemption.
        return Ok(());
    }
    run.steps.windows(2).try_for_each(|pair| no_admission_beside_a_preemption(f, run, &pair[0], &pair[1]))
}

/// Invariant 3: the KV blocks in use belong to the requests in flight. The blocks have at least as many slots as the
/// decode requests have tokens in KV and the step has new tokens, together. For each request they have at most the
/// slots for its prompt, its output, `lookahead` draft tokens and `lookahead` reserved KV slots. With async scheduling
/// (`ahead`) 1 + `lookahead` further slots are allowed.
fn held_blocks(f: &Fixture, run: &Run, s: &StepRecord, lookahead: u32, ahead: bool) -> Result<(), TestCaseError> {
    let null = u32::from(f.config.version != Version::V0);
    prop_assert!(s.used_blocks + null <= f.config.num_gpu_blocks, "one is the null block, but for v0");
    let r = &run.records;
    // With async scheduling a request counts as in flight until the output of the previous step is taken, and it holds
    // blocks as if all its draft tokens were accepted.
    let there = |i: usize| r.finish[i] > s.start || (ahead && r.finish[i] == s.start);
    let in_flight = (0..r.len()).filter(|&i| r.first_scheduled[i] <= s.start && there(i));
    let beyond = 2 * lookahead + if ahead { 1 + lookahead } else { 0 };
    let most = in_flight.map(|i| (f.workload.prompt_len[i] + r.emitted[i] + beyond).div_ceil(f.config.block_size));
    let most = most.sum::<u32>();
    prop_assert!(s.used_blocks <= most, "{} blocks where {} hold all requests in flight", s.used_blocks, most);
    // Requests with a common prefix share the blocks of this prefix, so their tokens need fewer slots than are counted
    // here.
    if !f.config.prefix_caching || f.workload.prefix_ids.is_empty() {
        let least = s.context + u64::from(s.batch_size) + u64::from(s.verified) + s.chunk_tokens;
        let held = u64::from(s.used_blocks) * u64::from(f.config.block_size);
        prop_assert!(held >= least, "{held} tokens of blocks under {least}");
    }
    Ok(())
}

/// Number of steps with a preemption for which [`no_admission_beside_a_preemption`] was checked.
static PREEMPTING: AtomicU64 = AtomicU64::new(0);

/// vLLM V1 admits no request in a step that preempts a request. So the requests that run after scheduling are the
/// requests that ran before scheduling, without those requests that ended or were preempted.
fn no_admission_beside_a_preemption(
    f: &Fixture,
    run: &Run,
    last: &StepRecord,
    s: &StepRecord,
) -> Result<(), TestCaseError> {
    let r = &run.records;
    let up_to = |times: &[Time], at: Time| times.iter().filter(|&&t| t <= at).count() as u32;
    // If a request is rejected during scheduling, its client (closed loop) sends the next request in the middle of the
    // step. Then the counts of running requests below would be wrong, so such steps are not checked.
    let rejects = (0..r.len()).any(|i| r.outcome[i] == Outcome::Rejected && r.finish[i] == s.start);
    if s.preempted == 0 || f.config.version == Version::V0 || rejects {
        return Ok(());
    }
    let running = |s: &StepRecord| up_to(&r.arrival, s.start) - up_to(&r.finish, s.start) - s.waiting;
    let ended = (0..r.len()).filter(|&i| r.finished(i) && r.finish[i] == last.end).count() as u32;
    let (before, after) = (running(last) - ended, running(s) + s.preempted);
    prop_assert!(after <= before, "{before} ran before {s:?}, {after} with those it preempted");
    PREEMPTING.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// What a policy's draft tokens revealed of the truth: for (request, output position), whether the draft token was
/// right.
type Revealed = BTreeMap<(RequestId, u32), bool>;

/// A policy's wrapper. It records which draft tokens are right, as far as the verified chains of the wrapped policy
/// show it.
struct Reveals {
    policy: Erratic,
    emitted: Vec<u32>,
    revealed: Arc<Mutex<Revealed>>,
}

impl Around for Reveals {
    fn inner(&self) -> &dyn SpecPolicy {
        &self.policy
    }

    fn inner_mut(&mut self) -> &mut dyn SpecPolicy {
        &mut self.policy
    }

    fn around_propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.emitted = batch.emitted.to_vec();
        self.policy.propose(batch, plan);
    }

    fn around_observe(&mut self, o: &StepOutcome) {
        let mut revealed = self.revealed.lock().unwrap();
        for i in (0..o.ids.len()).filter(|_| !o.drafts.in_trees()) {
            // A chain reveals all its accepted draft tokens and the first rejected one.
            for depth in 0..o.verified[i].min(o.accepted[i] + 1) {
                let (place, right) = ((o.ids[i], self.emitted[i] + depth), depth < o.accepted[i]);
                assert_eq!(*revealed.entry(place).or_insert(right), right, "{place:?} was drafted for again");
            }
        }
        drop(revealed);
        self.policy.observe(o);
    }
}

fn revealed(f: &Fixture, policy: Erratic) -> Revealed {
    let revealed = Arc::default();
    let around = Reveals { policy, emitted: Vec::new(), revealed: Arc::clone(&revealed) };
    f.with(|s| s.run(Speculation::Policy(Box::new(around))));
    std::mem::take(&mut *revealed.lock().unwrap())
}

pub(super) fn cases() -> ProptestConfig {
    ProptestConfig { cases: 400, ..ProptestConfig::default() }
}

#[test]
fn invariants_1_to_5() {
    proptest!(cases(), |(
        w in workloads(),
        config in configs(),
        arrivals in arrivals(),
        limit in 0u32..6,
        drafts in (any::<bool>(), any::<bool>()),
    )| {
        let mut f = Fixture::new(w);
        f.config = config;
        f.arrivals = arrivals;
        f.drafting = if drafts.0 { Drafting::Autoregressive } else { Drafting::Parallel };
        if !drafts.0 {
            // Runner V2 cannot draft in parallel with the drafters of this test. So the setting is left out, and the
            // vLLM release chooses V1 for parallel drafting.
            f.config.runner = None;
        }
        f.lookup = drafts.1.then(|| LOOKUPS.clone());
        check(&f, &f.plain(), 0, f.order(None, false))?;
        check(&f, &f.erratic(limit), limit, f.order(Some(limit), false))?;
        check(&f, &f.wild(limit), WILD_TREE, f.order(Some(limit), true))?;
        // Invariant 3: no block of the target's pool and of the draft model's own pool is in use at the end.
        prop_assert_eq!(f.memory_after(true), (0, 0));
        prop_assert_eq!(f.memory_after(false), (0, 0));
    });
    let preempting = PREEMPTING.load(Ordering::Relaxed);
    assert!(preempting > 100, "only {preempting} steps preempted");
}

/// Which draft tokens are right does not depend on the policy: if two policies make the draft token at the same
/// position of a request, the token is right for both policies or wrong for both.
#[test]
fn the_luck_is_one() {
    let shared = Cell::new(0);
    proptest!(cases(), |(w in workloads(), config in configs(), limits in (1u32..6, 1u32..6))| {
        let mut f = Fixture::new(w);
        f.config = drafting_first(config);
        let ours = revealed(&f, Erratic::new(limits.0, false));
        let theirs = revealed(&f, Erratic { seed: 77, ..Erratic::new(limits.1, true) });
        for (place, right) in &ours {
            if let Some(again) = theirs.get(place) {
                prop_assert_eq!(right, again, "{:?}", place);
                shared.set(shared.get() + 1);
            }
        }
    });
    assert!(shared.get() > 100, "only {} places were drafted for by both", shared.get());
}

proptest! {
    #![proptest_config(cases())]

    /// The results are the same byte for byte whether or not stretches (decode steps without decisions) are computed in
    /// one go.
    #[test]
    fn skipping_changes_nothing(
        w in workloads(),
        config in configs(),
        arrivals in arrivals(),
        overhead in 0u32..3,
        (shared, keep_lives) in any::<(bool, bool)>(),
    ) {
        let mut f = Fixture::new(w);
        if !shared {
            (f.workload.prefix_ids, f.workload.prefix_start) = (Vec::new(), Vec::new());
        }
        let host = host_law(f64::from(overhead % 2) * 1e-3);
        f.config = EngineConfig { step_overhead_s: f64::from(overhead) * 1e-3, host, ..config };
        f.arrivals = arrivals;
        f.keep_steps = false;
        let run = |f: &Fixture, skip| {
            let config = EngineConfig { skip_stretches: skip, ..f.config.clone() };
            f.with(|s| Simulation { config: &config, noise_cv: 0.1, keep_lives, ..s }.run(Speculation::Off))
        };
        let (skipped, stepped) = (run(&f, true), run(&f, false));
        prop_assert_eq!(&skipped.records, &stepped.records);
        prop_assert_eq!(&skipped.series, &stepped.series);
        prop_assert_eq!(format!("{:?}", skipped.totals), format!("{:?}", stepped.totals));
    }

    /// A KV pool that only counts its blocks gives the same run as a KV pool whose blocks have ids. With prefix caching
    /// and without shared prefixes, the pool counts up to the first preemption.
    #[test]
    fn counting_blocks_changes_nothing(w in workloads(), config in configs(), limit in 0u32..6, caching in any::<bool>()) {
        let mut f = Fixture::new(w);
        f.config = EngineConfig { prefix_caching: caching, ..config };
        if caching {
            (f.workload.prefix_ids, f.workload.prefix_start) = (Vec::new(), Vec::new());
        }
        let (counted, named) = (f.erratic(limit), f.erratic_addressed(limit));
        prop_assert_eq!(counted.records, named.records);
        prop_assert_eq!(counted.steps, named.steps);
    }

    /// Invariant 7: with a drafter whose limit is 0 draft tokens, records and steps equal those without a drafter. This
    /// holds if the draft model takes no KV blocks and processes no prompts.
    #[test]
    fn invariant_7(w in workloads(), config in configs()) {
        let mut f = Fixture::new(w);
        f.config = EngineConfig { draft_kv: DraftKv::None, draft_prefill: false, ..config };
        f.config.draft_gap = DraftGap::CatchUpNextUse;
        f.config.budget_charge = BudgetCharge::Full;
        let (plain, zero) = (f.plain(), f.erratic(0));
        prop_assert_eq!(plain.records, zero.records);
        prop_assert_eq!(plain.steps, zero.steps);
    }

    /// Invariant 9: if every time in the inputs is multiplied by a power of two, all times of the run are multiplied by
    /// exactly this number.
    #[test]
    fn invariant_9(w in workloads(), config in configs(), limit in 0u32..6, shift in 1u32..4) {
        let by = 1u64 << shift;
        let mut f = Fixture::new(w);
        // Draft tokens are made at the start of a step here. In the other two orders of a step's phases vLLM's loop
        // sometimes sleeps for a fixed time (1 ms), which does not scale.
        f.config = drafting_first(config);
        let mut g = Fixture::new(f.workload.clone());
        g.config = f.config.clone();
        (f.config.host, g.config.host) = (host_law(1e-3), host_law(1e-3 * by as f64));
        g.workload.arrival.iter_mut().for_each(|t| *t = *t * by);
        let scale = |c: Coefficients| Coefficients {
            alpha_s: c.alpha_s * by as f64,
            gamma_s: c.gamma_s * by as f64,
            delta_s: c.delta_s * by as f64,
        };
        g.target = scale(f.target);
        g.draft = scale(f.draft);
        let (a, b) = (f.wild(limit), g.wild(limit));
        prop_assert_eq!(a.steps.len(), b.steps.len());
        for (x, y) in a.steps.iter().zip(&b.steps) {
            prop_assert_eq!((x.start * by, x.end * by, x.emitted), (y.start, y.end, y.emitted));
        }
    }

    /// Invariant 6: equal inputs give equal runs.
    #[test]
    fn invariant_6_in_one_thread(w in workloads(), config in configs()) {
        let mut f = Fixture::new(w);
        f.config = config;
        let again = f.with(|s| s.run(Speculation::Policy(Box::new(Erratic::new(4, true)))));
        let run = f.wild(4);
        prop_assert_eq!(run.records, again.records);
        prop_assert_eq!(run.steps, again.steps);
    }
}
