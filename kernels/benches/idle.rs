//! Measures how much slower a forward pass is after idle time, and why. The bench times one pass of the small target
//! model that ships with this crate: right after another pass, and after gaps (idle times) of several lengths. [`Gap`]
//! lists what the thread does in a gap. A server that waits loses three things: cache contents, a high clock frequency
//! and cached address translations. The kind of the gap decides which of these three are lost. Each repeat measures all
//! kinds of gaps in turn, so that a change of the machine's speed affects all kinds alike. The results are medians.

#![allow(missing_docs)]

use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::device::Device;
use foretoken_kernels::forward::{Limits, Llama};
use foretoken_kernels::model::preset;
use foretoken_kernels::paged::{Batch, Logits};
use foretoken_kernels::weights::{Dtype, RandomWeights};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Number of passes that run after a gap (idle time) and before the next measurement, so that the gap no longer slows
/// the next measurement.
const SETTLING: usize = 8;

/// What the measuring thread does during a gap, the idle time between two passes.
#[derive(Clone, Copy, Debug)]
enum Gap {
    /// The thread sleeps: the core halts, and another thread may use it.
    Sleep,
    /// The thread spins (busy-waits) until the gap ends: the core keeps its clock frequency, and the caches keep their
    /// contents.
    Spin,
    /// The thread sleeps, then spins for this number of microseconds. After the spin, the core's clock frequency is
    /// high again, but the caches still lack what another thread evicted during the sleep.
    SleepThenSpin(u64),
    /// The thread sleeps, then runs this number of passes without timing them. After these passes, the caches hold the
    /// same data as right after any pass.
    SleepThenPasses(usize),
    /// The thread reads this number of bytes, then spins until the gap ends. 1 MiB replaces the contents of the core's
    /// own caches, 64 MiB also the contents of the shared cache.
    Evict(usize),
}

fn main() {
    let quick = !std::env::args().any(|a| a == "--bench");
    let (turns, gaps_us) = if quick { (1, vec![100]) } else { (150, vec![300, 1000, 3000, 10_000]) };
    let ways = [
        Gap::Spin,
        Gap::Sleep,
        Gap::SleepThenSpin(200),
        Gap::SleepThenSpin(5000),
        Gap::SleepThenPasses(1),
        Gap::SleepThenPasses(4),
        Gap::Evict(1 << 20),
        Gap::Evict(64 << 20),
    ];
    let mut cpu = Cpu::new(1).expect("a thread");
    let shape = preset("tiny-target").expect("it is shipped");
    let weights = RandomWeights { seed: 1, dtype: Dtype::Bf16 };
    let limits = Limits { kv_blocks: 200, max_rows: 16, max_logit_rows: 16 };
    let mut llama = Llama::load(&mut cpu, &shape, &weights, limits).expect("it fits");
    let mut other = vec![1u8; 64 << 20];
    cpu.session(|cpu| {
        for rows in [1usize, 4] {
            let mut batch = Batch::default();
            for request in 0..rows as u32 {
                let table: Vec<u32> = (0..12).map(|b| request * 12 + b).collect();
                batch.push_chain(&[7], 150, &table, Logits::All);
            }
            let mut pass = || {
                let begin = Instant::now();
                llama.forward(cpu, &batch).expect("no errors");
                begin.elapsed().as_secs_f64() * 1e6
            };
            (0..50).for_each(|_| {
                pass();
            });
            for &gap_us in &gaps_us {
                let gap = Duration::from_micros(gap_us);
                let mut at_once: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
                let mut behind = at_once.clone();
                for _ in 0..turns {
                    for ((way, at_once), behind) in ways.iter().zip(&mut at_once).zip(&mut behind) {
                        for _ in 0..SETTLING {
                            pass();
                        }
                        at_once.push(pass());
                        spend(*way, gap, &mut other, &mut pass);
                        behind.push(pass());
                    }
                }
                let base = median(&mut at_once.concat());
                print!("{rows} decodes, gaps of {gap_us:5} µs: {base:6.1} µs at once");
                for ((way, mut at_once), mut behind) in ways.iter().zip(at_once).zip(behind) {
                    print!("  {way:?} {:+.1} %", (median(&mut behind) / median(&mut at_once) - 1.0) * 100.0);
                }
                println!();
            }
        }
    });
}

fn spend(way: Gap, gap: Duration, other: &mut [u8], pass: &mut impl FnMut() -> f64) {
    let begin = Instant::now();
    let spin = |until: Duration| while begin.elapsed() < until {};
    match way {
        Gap::Spin => spin(gap),
        Gap::Sleep => std::thread::sleep(gap),
        Gap::SleepThenSpin(us) => {
            std::thread::sleep(gap);
            spin(gap + Duration::from_micros(us));
        }
        Gap::SleepThenPasses(n) => {
            std::thread::sleep(gap);
            for _ in 0..n {
                pass();
            }
        }
        Gap::Evict(bytes) => {
            let sum: u64 = other[..bytes].iter().step_by(64).map(|&x| u64::from(x)).sum();
            black_box(sum);
            spin(gap);
        }
    }
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
