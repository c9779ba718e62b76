//! Instruction counts of the engine core with limits: `cargo bench -p foretoken-sim --bench instructions` (needs
//! valgrind and `cargo install gungraun-runner`; x86-64 only).
//!
//! Times on shared machines vary by 40 %, instruction counts do not. A yardstick fails when it takes over 5 % more than
//! the count committed here. When a change makes the engine cheaper, lower the number.

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

/// Committed counts (rustc 1.95, baseline x86-64): instructions of a whole run.
const STEPPING: u64 = 276_400_000;
const SKIPPING: u64 = 77_800_000;
const FIXED_4: u64 = 258_300_000;
/// The same under all rules of vLLM 0.33 with async scheduling.
const FULL_STEPPING: u64 = 687_700_000;
const FULL_FIXED_4: u64 = 705_700_000;

/// Fails a benchmark at over 5 % more than the committed count.
fn gate(committed: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, committed + committed / 20)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

#[library_benchmark]
#[bench::poisson(args = (10_000, 4.0), setup = Yardstick::new, config = gate(STEPPING))]
fn autoregressive_stepping(y: Yardstick) -> Run {
    black_box(y.run(0, false))
}

#[library_benchmark]
#[bench::poisson(args = (10_000, 4.0), setup = Yardstick::new, config = gate(SKIPPING))]
fn autoregressive_skipping(y: Yardstick) -> Run {
    black_box(y.run(0, true))
}

#[library_benchmark]
#[bench::poisson(args = (10_000, 12.0), setup = Yardstick::new, config = gate(FIXED_4))]
fn fixed_4(y: Yardstick) -> Run {
    black_box(y.run(4, true))
}

#[library_benchmark]
#[bench::poisson(args = (10_000, 4.0), setup = Yardstick::full, config = gate(FULL_STEPPING))]
fn full_autoregressive_stepping(y: Yardstick) -> Run {
    black_box(y.run(0, false))
}

#[library_benchmark]
#[bench::poisson(args = (10_000, 12.0), setup = Yardstick::full, config = gate(FULL_FIXED_4))]
fn full_fixed_4(y: Yardstick) -> Run {
    black_box(y.run(4, true))
}

library_benchmark_group!(
    name = yardsticks,
    benchmarks =
        [autoregressive_stepping, autoregressive_skipping, fixed_4, full_autoregressive_stepping, full_fixed_4]
);
main!(library_benchmark_groups = yardsticks);
