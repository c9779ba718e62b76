//! Data-parallel ranks of one server in lock step.

use crate::setup::{Setup, assert_same, requests, routers, speculation};
use foretoken_fleet::{Fleet, RouterContext, RouterSpec};
use foretoken_sim::{
    Arrivals, DraftAt, LatencyModel, PassShape, PromptBalance, Request, Run, Simulation, Time, Version, Workload,
    in_lock_step,
};
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

/// Runs ranks of draft lengths `lengths`; `target` in the place of the setup's model if there is one.
fn ranks(setup: &Setup, router: &RouterSpec, lengths: &[u32], target: Option<&dyn LatencyModel>) -> Run {
    balanced_ranks(setup, router, lengths, target, None)
}

fn balanced_ranks(
    setup: &Setup,
    router: &RouterSpec,
    lengths: &[u32],
    target: Option<&dyn LatencyModel>,
    balance: Option<PromptBalance>,
) -> Run {
    let engine = |(r, &k): (usize, &u32)| {
        let simulation = setup.simulation(&NEVER, 1 + r as u64);
        (Simulation { target: target.unwrap_or(simulation.target), ..simulation }, speculation(k))
    };
    let engines = in_lock_step(lengths.iter().enumerate().map(engine).collect(), balance);
    let block_size = vec![setup.config.block_size; lengths.len()];
    let context = RouterContext {
        replicas: lengths.len(),
        seed: 5,
        block_size: &block_size,
        slo_s: setup.slo_s,
        true_steps: &setup.workload.output_len,
    };
    let router = (router.build(&context), router.needs());
    let mut fleet = Fleet::new(&setup.workload, engines, router, setup.signals, setup.slo_s[1]);
    fleet.be_in_lock_step();
    fleet.run(setup.arrivals, &NEVER).run
}

fn named(name: &str) -> RouterSpec {
    routers().into_iter().find(|router| router.name() == name).expect(name)
}

/// (Release, when drafts are made): all orders of a step of vLLM.
const ORDERS: [(Version, Option<DraftAt>); 3] =
    [(Version::V0_33, None), (Version::V0_32, Some(DraftAt::StepStart)), (Version::V0, None)];

#[test]
fn one_rank_is_an_engine() {
    for (version, draft_at) in ORDERS {
        for (arrivals, noise_cv) in [(Arrivals::Open, 0.0), (Arrivals::Closed { clients: 12 }, 0.2)] {
            let mut setup = Setup::new(requests(150, 8.0, 80, 1));
            (setup.config.version, setup.config.draft_at) = (version, draft_at);
            (setup.arrivals, setup.noise_cv, setup.config.max_model_len) = (arrivals, noise_cv, 2000);
            for k in [0, 3] {
                let rank = ranks(&setup, &named("vllm-dp"), &[k], None);
                assert_same(&setup.alone(k), &rank, &format!("{version:?} {draft_at:?} {arrivals:?} k = {k}"));
            }
        }
    }
}

/// Four equal requests come at a time, one for each rank, so that all ranks have the same passes. Costs that know
/// nothing of other ranks then give the times of separate replicas.
#[test]
fn equal_loads_in_lock_step_are_replicas() {
    for (version, draft_at) in ORDERS {
        let four = |r: Request| std::iter::repeat_n(r, 4);
        let base = requests(60, 3.0, 80, 4);
        let mut setup =
            Setup::new((0..60).flat_map(|id| four(base.get(id))).map(|r| Request { category: 0, ..r }).collect());
        (setup.config.version, setup.config.draft_at, setup.config.max_model_len) = (version, draft_at, 2000);
        let round_robin = named("round-robin");
        let apart = setup.fleet(&round_robin, &[0; 4], 5).run;
        assert_same(&apart, &ranks(&setup, &round_robin, &[0; 4], None), &format!("{version:?}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Steps of different ranks end together, or a whole pass apart. Every request ends.
    #[test]
    fn no_pass_ends_before_the_longest(seed in 0..1000u64, n in 2..6usize, k in 0..4u32, closed: bool) {
        let mut setup = Setup::new(requests(80, 20.0, 60, seed));
        (setup.config.version, setup.config.draft_at) = (Version::V0_32, Some(DraftAt::StepStart));
        setup.keep_steps = true;
        setup.arrivals = if closed { Arrivals::Closed { clients: 3 * n as u32 } } else { Arrivals::Open };
        let run = ranks(&setup, &named("vllm-dp"), &vec![k; n], None);
        prop_assert!((0..80).all(|id| run.records.finished(id)));
        let mut steps: Vec<(Time, Time)> = run.steps.iter().map(|step| (step.start, step.end)).collect();
        steps.sort_by_key(|step| step.1);
        let apart = steps.windows(2).map(|pair| pair[1].1 - pair[0].1);
        // A pass takes at least 11 ms, and no two passes of a server overlap.
        prop_assert!(apart.clone().all(|gap| gap == Time::ZERO || gap >= Time::from_s(0.011)));
        prop_assert!(apart.filter(|gap| *gap == Time::ZERO).count() > 0);
    }
}

/// A millisecond for each token of all ranks.
struct ByAll;

impl LatencyModel for ByAll {
    fn pass(&self, shape: PassShape) -> Time {
        self.pass_beside(shape, shape.batched)
    }

    fn pass_beside(&self, _: PassShape, all: u64) -> Time {
        Time(1_000_000_000 * all)
    }
}

fn two(second_at: f64) -> Setup {
    let mut setup = Setup::new(Workload::from_iter([
        Request::new(Time::ZERO, 100, 30),
        Request::new(Time::from_s(second_at), 600, 5),
    ]));
    (setup.config.version, setup.config.draft_at) = (Version::V0_32, Some(DraftAt::StepStart));
    (setup.config.step_overhead_s, setup.config.max_num_seqs) = (0.0, 256);
    setup
}

/// Dummy passes count, and all passes are padded to the longest, up to the largest CUDA graph.
#[test]
fn the_tokens_of_all_ranks_count() {
    let run = ranks(&two(100.0), &named("round-robin"), &[0; 4], Some(&ByAll));
    let ms = |t: Time| t.as_s() * 1e3;
    let first = &run.records;
    // Four ranks of 100 tokens, then of one; a prompt of 600 tokens is longer than the largest graph.
    assert_eq!(ms(first.first_token[0]), 400.0);
    assert_eq!(ms(first.finish[0]), 400.0 + 29.0 * 4.0);
    assert_eq!(ms(first.first_token[1] - first.arrival[1]), 603.0);
}

/// The second rank enters a dummy pass as soon as the pass before it was planned. The request that comes at 405 ms, in
/// a pass from 404 to 408 ms, waits for the dummy pass from 408 to 412 ms.
#[test]
fn a_rank_without_work_has_entered_its_dummy_pass() {
    let run = ranks(&two(0.405), &named("round-robin"), &[0; 4], Some(&ByAll));
    assert_eq!((run.records.first_token[1].as_s() * 1e3).round(), 412.0 + 603.0);
}

/// Both ranks decode in steps of 2 ms from 200 ms on. The prompt that comes at 205 ms could begin at 206 ms. It is held
/// back until the 20th step, at 238 ms, because the other rank has none.
#[test]
fn a_prompt_waits_for_prompts_of_the_other_ranks() {
    let long = || Request::new(Time::ZERO, 100, 300);
    let mut setup = two(0.0);
    setup.workload = Workload::from_iter([long(), long(), Request::new(Time::from_s(0.205), 600, 5)]);
    let first = |balance| {
        let run = balanced_ranks(&setup, &named("round-robin"), &[0; 2], Some(&ByAll), balance);
        (run.records.first_token[2].as_s() * 1e3).round()
    };
    let balance = PromptBalance { timeout_iters: 20, batching_wait_iters: 0 };
    assert_eq!((first(None), first(Some(balance))), (206.0 + 602.0, 238.0 + 602.0));
}
