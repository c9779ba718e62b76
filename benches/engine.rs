//! Speed of the engine core: `cd benches && cargo bench --bench engine`.
//!
//! The benchmark's workload (the yardstick) has 10,000 requests of 512 prompt and 256 output tokens with Poisson
//! arrivals. A target pass takes 11 ms, plus 55 µs for each token that it processes, plus 0.3 µs for each token of KV
//! that it reads. A request-step is one request in one step. Without draft tokens the workload runs at 4 requests/s
//! (2.55 M request-steps). It runs once step by step, and once with the decode steps between two arrivals or
//! completions (a stretch) computed in one go. With 4 draft tokens for each request in each step (acceptance 0.8) it
//! runs at 12 requests/s (0.76 M request-steps). "full" in the name of a benchmark means that all rules of vLLM 0.33
//! apply. Two more groups measure constant batch sizes, and a trace of BurstGPT's size and mean lengths (1.43 M
//! requests, 374 prompt and 122 output tokens, 0.27 requests/s).

#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use foretoken_sim::acceptance::RankLaw;
use foretoken_sim::luck::{Luck, Stream, threshold};
use foretoken_sim::*;
use std::sync::atomic::AtomicBool;

mod yardstick;
use yardstick::*;

fn engine(c: &mut Criterion) {
    let poisson = Yardstick::new(10_000, 4.0);
    let faster = Yardstick::new(10_000, 12.0);
    let (full, full_faster) = (Yardstick::full(10_000, 4.0), Yardstick::full(10_000, 12.0));
    let mut group = c.benchmark_group("yardstick");
    for (name, yardstick, k, skip) in [
        ("autoregressive-stepping", &poisson, 0, false),
        ("autoregressive-skipping", &poisson, 0, true),
        ("fixed-4", &faster, 4, true),
        ("full-autoregressive-stepping", &full, 0, false),
        ("full-fixed-4", &full_faster, 4, true),
    ] {
        let steps = yardstick.run(k, skip).totals.request_steps;
        group.throughput(Throughput::Elements(steps));
        group.bench_function(name, |b| b.iter(|| yardstick.run(k, skip)));
    }
    group.finish();

    let mut group = c.benchmark_group("constant-batch");
    for batch in [32, 128] {
        let yardstick = Yardstick::burst(batch, 4096);
        for (name, skip) in [("stepping", false), ("skipping", true)] {
            group.throughput(Throughput::Elements(yardstick.run(0, skip).totals.request_steps));
            group.bench_function(format!("{batch}-{name}"), |b| b.iter(|| yardstick.run(0, skip)));
        }
    }
    group.finish();
}

fn long_trace(c: &mut Criterion) {
    let yardstick = Yardstick::poisson(1_430_000, 0.27, 374, 122);
    let mut group = c.benchmark_group("long-trace");
    group.sample_size(10);
    for (name, k) in [("autoregressive-skipping", 0), ("fixed-4", 4)] {
        group.bench_function(name, |b| b.iter(|| yardstick.run(k, true)));
    }
    group.finish();
}

criterion_group!(benches, engine, long_trace);
criterion_main!(benches);
