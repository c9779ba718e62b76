//! Checks that the inner loop allocates nothing (ARCHITECTURE.md): a run with thousands of additional steps makes
//! hardly more allocations than a short run. Also checks that an engine that forgets ended requests needs no memory for
//! these.

use allocation_counter::measure;
use foretoken_sim::acceptance::{AcceptanceSpec, Rates};
use foretoken_sim::metrics::PIECE;
use foretoken_sim::online::GivenOut;
use foretoken_sim::*;
use std::sync::atomic::AtomicBool;

/// A policy that drafts the same number of tokens for every request.
struct Always(u32);

impl SpecPolicy for Always {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.0).as_in_vllm(&[])
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.0);
    }
}

/// Calls `then` with a simulation of `workload` with the engine's settings `config`.
fn simulate(config: &EngineConfig, workload: &Workload, then: impl FnOnce(&Simulation)) {
    let spec = AcceptanceSpec { source: Rates::Constant { rate: 0.8 }, ..AcceptanceSpec::default() };
    let acceptance = spec.build(1, workload).expect("a rate between 0 and 1");
    let target = Linear::new(Coefficients { alpha_s: 1e-7, gamma_s: 1e-5, delta_s: 1e-2 });
    then(&Simulation {
        workload,
        arrivals: Arrivals::Open,
        config,
        draft: &target,
        target: &target,
        context_reads: ContextReads::Once,
        drafting: Drafting::Autoregressive,
        noise_cv: 0.0,
        acceptance: &*acceptance,
        seed: 1,
        slo_tpot_s: f64::INFINITY,
        keep_steps: false,
        keep_lives: true,
        interrupt: &AtomicBool::new(false),
    });
}

fn speculation(draft_len: u32) -> Speculation {
    match draft_len {
        0 => Speculation::Off,
        len => Speculation::Policy(Box::new(Always(len))),
    }
}

/// Serves 8 requests with `output_len` output tokens each. Returns the numbers of allocations and of steps.
fn allocations_and_steps(config: &EngineConfig, draft_len: u32, output_len: u32) -> (u64, u64) {
    let workload: Workload = (0..8).map(|_| Request::new(Time::ZERO, 16, output_len)).collect();
    let mut steps = 0;
    let mut counted = 0;
    simulate(config, &workload, |simulation| {
        counted = measure(|| steps = simulation.run(speculation(draft_len)).totals.steps).count_total;
    });
    (counted, steps)
}

#[test]
fn further_steps_allocate_nothing() {
    for draft_at in [DraftAt::StepStart, DraftAt::StepEnd] {
        for draft_len in [0, 4] {
            let draft_at = Some(draft_at);
            let config = EngineConfig { draft_at, max_draft_len: 4, skip_stretches: false, ..EngineConfig::default() };
            let (few, some_steps) = allocations_and_steps(&config, draft_len, 4000);
            let (more, many_steps) = allocations_and_steps(&config, draft_len, 8000);
            let (further, steps) = (more.saturating_sub(few), many_steps - some_steps);
            // The longer run may make a few more allocations than the short one: lists that grow with the output, such
            // as a request's list of KV blocks, double their size.
            assert!(few > 8, "a run allocates at its start: the count sees nothing");
            assert!(steps > 1000 && further < 64, "{draft_at:?}, {draft_len} drafts: {further} in {steps} steps");
        }
    }
}

/// Request number `i` of a steady load (one request every 0.05 s). The prompts of all requests begin with the same
/// prefix block.
fn request(i: u64) -> Request {
    let arrival = Time::from_s(0.05 * i as f64);
    Request { prefix: vec![7, 1000 + i], ..Request::new(arrival, 64, 20 + (i % 30) as u32) }
}

/// The most bytes that a server holds at a time while it serves `requests` requests one after another.
fn peak_of_a_server(config: &EngineConfig, draft_len: u32, requests: u64) -> u64 {
    let workload = Workload { prefix_block: config.block_size, ..Workload::default() };
    let mut peak = 0;
    simulate(config, &workload, |simulation| {
        let served = measure(|| {
            let mut engine = simulation.online(speculation(draft_len));
            let (mut out, mut ended) = (GivenOut::default(), 0);
            for i in 0..requests {
                let request = request(i);
                engine.run_to(Time(request.arrival.0.saturating_sub(1)), &mut out);
                engine.give_new(request);
                ended += out.emitted.drain(..).filter(|e| e.ended).count();
                out.steps.clear();
            }
            engine.run_to(Time(1 << 62), &mut out);
            ended += out.emitted.iter().filter(|e| e.ended).count();
            assert_eq!(ended as u64, requests);
        });
        peak = served.bytes_max;
    });
    peak
}

/// The most bytes that a run holds at a time, if it takes its `requests` requests one at a time.
fn peak_of_a_run(config: &EngineConfig, draft_len: u32, requests: u64) -> u64 {
    let workload = Workload { prefix_block: config.block_size, ..Workload::default() };
    let mut peak = 0;
    simulate(config, &workload, |simulation| {
        let ran = measure(|| {
            let (mut all, mut ended) = ((0..requests).map(request), 0);
            let mut give = |piece: RequestRecords| {
                ended += piece.len() as u64;
                true
            };
            simulation.stream(speculation(draft_len), &mut all, &mut give);
            assert_eq!(ended, requests);
        });
        peak = ran.bytes_max;
    });
    peak
}

#[test]
fn ended_requests_take_no_memory() {
    for draft_at in [DraftAt::StepStart, DraftAt::StepEnd] {
        for (draft_len, prefix_caching) in [(0, false), (4, true)] {
            let draft_at = Some(draft_at);
            let config = EngineConfig {
                draft_at,
                max_draft_len: 4,
                prefix_caching,
                num_gpu_blocks: 400,
                ..EngineConfig::default()
            };
            let (few, many) = [10_000, 40_000].map(|n| peak_of_a_server(&config, draft_len, n)).into();
            assert!(many <= few + few / 50, "{draft_at:?}, {draft_len} drafts: {few} and {many} bytes");
        }
    }
    // A run gives out its request records in pieces of `PIECE` requests. It holds two pieces at most: the one that is
    // not complete, and the one that is given out.
    let config = EngineConfig { max_draft_len: 4, num_gpu_blocks: 400, ..EngineConfig::default() };
    let (few, many) = [1, 2].map(|pieces| peak_of_a_run(&config, 4, pieces * PIECE as u64)).into();
    assert!(many <= few + few / 50, "{few} and {many} bytes");
    assert!(many <= 64 << 20, "{many} bytes");
}
