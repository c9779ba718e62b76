//! Speed and memory of fleets: `cd benches && cargo bench --bench fleet` (Linux only).
//!
//! Each case runs in a process of its own, so that its peak memory is its own. A request-step is one request in one
//! step. The first cases are the fleet of `tests/peers/inference-lab`.

#![allow(missing_docs)]

use foretoken_fleet::{Fleet, RouterContext, RouterSpec, Signals};
use foretoken_sim::acceptance::{AcceptanceSpec, RankLaw, Rates};
use foretoken_sim::luck::{Luck, Stream, threshold};
use foretoken_sim::*;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

#[allow(dead_code, reason = "the fleets use the policy and the requests of the yardstick")]
mod yardstick;
use yardstick::*;

/// A case: its number of replicas, its router, its number of requests, their rate per second, and the draft length.
type Case = (usize, &'static str, u64, f64, u32);

const CASES: [Case; 5] = [
    (16, "least-requests", 100_000, 160.0, 0),
    (16, "least-requests", 100_000, 160.0, 3),
    (16, "least-requests", 100_000, 160.0, 5),
    (1_000, "power-of-two", 1_000_000, 10_000.0, 0),
    (1_000, "power-of-two", 1_000_000, 10_000.0, 3),
];

fn run((replicas, router, requests, rate, k): Case) {
    let yardstick = Yardstick::new(requests, rate);
    let workload = yardstick.workload();
    let config = EngineConfig { max_num_batched_tokens: 8192, num_gpu_blocks: 28_000, ..EngineConfig::default() };
    let target = Linear::new(Coefficients { alpha_s: 3.9e-8, gamma_s: 1.6e-5, delta_s: 6e-3 });
    let draft = Linear::new(Coefficients::FREE);
    let spec = AcceptanceSpec { source: Rates::Constant { rate: 0.7 }, ..AcceptanceSpec::default() };
    let acceptance = spec.build(1, workload).expect("the rate is a share");
    let interrupt = AtomicBool::new(false);
    let simulation = Simulation {
        workload,
        arrivals: Arrivals::Open,
        config: &config,
        draft: &draft,
        target: &target,
        context_reads: ContextReads::Once,
        drafting: Drafting::Autoregressive,
        noise_cv: 0.0,
        acceptance: &*acceptance,
        seed: 1,
        slo_tpot_s: f64::INFINITY,
        keep_steps: false,
        keep_lives: false,
        interrupt: &interrupt,
    };
    let begun = Instant::now();
    let parts = (0..replicas).map(|_| simulation.replica(speculation(k))).collect();
    let spec = RouterSpec::all().into_iter().find(|spec| spec.name() == router).expect("the router exists");
    let context = RouterContext {
        replicas,
        seed: 1,
        block_size: &vec![config.block_size; replicas],
        slo_s: [f64::INFINITY; 2],
        true_steps: &[],
    };
    let router_and_needs = (spec.build(&context), spec.needs());
    let fleet = Fleet::new(workload, parts, router_and_needs, Signals::default(), f64::INFINITY);
    let ran = fleet.run(Arrivals::Open, &interrupt).run;
    let wall = begun.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown").trim();
    let steps = ran.totals.request_steps as f64;
    let end = ran.records.finish.iter().max().copied().unwrap_or_default();
    println!(
        "{replicas:5} replicas, {router}, {requests:9} requests, {k} drafts: {wall:7.2} s, {:6.1} M request-steps, \
         {:6.1} M a second, memory {peak}, end {} s",
        steps / 1e6,
        steps / 1e6 / wall,
        end.as_s(),
    );
}

fn main() {
    // Cargo's arguments for benchmarks are no numbers.
    if let Some(case) = std::env::args().nth(1).and_then(|arg| arg.parse::<usize>().ok()) {
        return run(CASES[case]);
    }
    let this = std::env::current_exe().expect("the program has a path");
    for case in 0..CASES.len() {
        let status = Command::new(&this).arg(case.to_string()).status().expect("the program starts");
        assert!(status.success(), "case {case} failed");
    }
}
