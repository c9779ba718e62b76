//! Counts the instructions of the engine core and compares the counts with committed limits:
//! `cd benches && cargo bench --bench instructions` (needs valgrind and `cargo install gungraun-runner`; x86-64
//! only).
//!
//! Times on shared machines vary by 40 %; instruction counts do not vary. A benchmark fails if it takes over 5 % more
//! instructions than the count that is committed here. When a change makes the engine cheaper, lower the count.

#![allow(missing_docs)]

use foretoken_sim::acceptance::RankLaw;
use foretoken_sim::luck::{Luck, Stream, threshold};
use foretoken_sim::*;
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use std::hint::black_box;
use std::sync::atomic::AtomicBool;

mod yardstick;
use yardstick::*;

/// The committed numbers of a benchmark's run: its size in request-steps (one request in one step), and its number of
/// instructions.
struct Count {
    /// Number of request-steps in the run: the sum over all steps of the number of decode requests.
    request_steps: u64,
    /// Number of instructions of the whole run (rustc 1.95, baseline x86-64).
    instructions: u64,
}

/// A run without draft tokens, simulated step by step: 95 instructions for each request in each step (request-step).
const STEPPING: Count = Count { request_steps: 2_550_000, instructions: 243_100_000 };
/// A run without draft tokens, in which the decode steps between two arrivals or completions are computed in one go: 25
/// instructions for each request in each step (request-step).
const SKIPPING: Count = Count { request_steps: 2_550_000, instructions: 63_200_000 };
/// A run with four draft tokens in each round (a request's draft tokens of one step): 195 instructions for each request
/// in each step (request-step).
const FIXED_4: Count = Count { request_steps: 762_786, instructions: 148_600_000 };
/// A run without draft tokens under all rules of vLLM 0.33 with async scheduling: 182 instructions for each request in
/// each step (request-step).
const FULL_STEPPING: Count = Count { request_steps: 2_550_000, instructions: 464_700_000 };
/// A run with four draft tokens in each round (a request's draft tokens of one step) under all rules of vLLM 0.33 with
/// async scheduling: 551 instructions for each request in each step (request-step).
const FULL_FIXED_4: Count = Count { request_steps: 769_798, instructions: 424_200_000 };

impl Count {
    /// The gungraun settings of a benchmark. With them the benchmark fails if it takes over 5 % more instructions than
    /// the committed count.
    fn gate(&self) -> LibraryBenchmarkConfig {
        let mut callgrind = Callgrind::default();
        callgrind.hard_limits([(EventKind::Ir, self.instructions + self.instructions / 20)]);
        let mut config = LibraryBenchmarkConfig::default();
        config.tool(callgrind);
        config
    }

    /// Runs the benchmark's workload with draft length `k`, 0 for autoregressive. Panics if the run's number of
    /// request-steps differs from the committed number.
    fn run(&self, y: &Yardstick, k: u32, skip_stretches: bool) -> Run {
        let run = black_box(y.run(k, skip_stretches));
        assert_eq!(run.totals.request_steps, self.request_steps, "the yardstick is another one");
        run
    }
}

#[library_benchmark]
#[bench::poisson(args = (10_000, 4.0), setup = Yardstick::new, config = STEPPING.gate())]
fn autoregressive_stepping(y: Yardstick) -> Run {
    STEPPING.run(&y, 0, false)
}

#[library_benchmark]
#[bench::poisson(args = (10_000, 4.0), setup = Yardstick::new, config = SKIPPING.gate())]
fn autoregressive_skipping(y: Yardstick) -> Run {
    SKIPPING.run(&y, 0, true)
}

#[library_benchmark]
#[bench::poisson(args = (10_000, 12.0), setup = Yardstick::new, config = FIXED_4.gate())]
fn fixed_4(y: Yardstick) -> Run {
    FIXED_4.run(&y, 4, true)
}

#[library_benchmark]
#[bench::poisson(args = (10_000, 4.0), setup = Yardstick::full, config = FULL_STEPPING.gate())]
fn full_autoregressive_stepping(y: Yardstick) -> Run {
    FULL_STEPPING.run(&y, 0, false)
}

#[library_benchmark]
#[bench::poisson(args = (10_000, 12.0), setup = Yardstick::full, config = FULL_FIXED_4.gate())]
fn full_fixed_4(y: Yardstick) -> Run {
    FULL_FIXED_4.run(&y, 4, true)
}

library_benchmark_group!(
    name = yardsticks,
    benchmarks =
        [autoregressive_stepping, autoregressive_skipping, fixed_4, full_autoregressive_stepping, full_fixed_4]
);
main!(library_benchmark_groups = yardsticks);
