//! What the CPU's kernels make of the processor: at each vector level it has, its multiply-adds a second and its bandwidth to as
//! much memory as an operation reads, measured in the same run, and every operation's share of one or the other. Three shapes: the
//! shipped pair's target, one of a hundred million parameters and one of a billion, with random weights; one thread, and all.
//!
//!     cargo bench -p foretoken-kernels --bench roofline -- [--level avx2] [--shape 100m]

#![allow(missing_docs)]

use foretoken_kernels::cpu::speed;
use foretoken_kernels::cpu::{Cpu, Level};
use foretoken_kernels::device::Device;
use foretoken_kernels::forward::{Limits, Llama};
use foretoken_kernels::model::{LlamaShape, preset};
use foretoken_kernels::paged::{Batch, Logits};
use foretoken_kernels::weights::{Dtype, RandomWeights};
use std::time::{Duration, Instant};

fn shapes() -> Vec<(&'static str, LlamaShape)> {
    let base = preset("tiny-target").expect("it is shipped");
    let hundred = LlamaShape {
        layers: 12,
        hidden: 768,
        heads: 12,
        kv_heads: 4,
        head_dim: 64,
        intermediate: 2048,
        vocab: 16_000,
        ..base.clone()
    };
    vec![("pair", base), ("100m", hundred), ("1b", preset("tinyllama-1.1b").expect("a preset"))]
}

/// Seconds, the shortest of as many tries as fit into a second and a half, at least three.
fn shortest(mut run: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let (mut least, mut tries) = (Duration::MAX, 0);
    while tries < 3 || (begin.elapsed() < Duration::from_millis(1500) && tries < 2000) {
        let from = Instant::now();
        run();
        least = least.min(from.elapsed());
        tries += 1;
    }
    least.as_secs_f64()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let said = |flag: &str| arguments.iter().position(|a| a == flag).and_then(|at| arguments.get(at + 1));
    for level in Level::all().into_iter().rev() {
        if said("--level").is_some_and(|l| l != level.key()) {
            continue;
        }
        for (name, shape) in shapes() {
            if said("--shape").is_some_and(|s| s != name) {
                continue;
            }
            measure(level, name, &shape);
        }
    }
}

fn measure(level: Level, name: &str, shape: &LlamaShape) {
    let clock = speed::clock(20).unwrap_or(f64::NAN);
    let peak = speed::peak(level, 20);
    println!(
        "\n{}, {name}: clock {:.2} GHz, {:.1} GFLOP/s, {:.1} FLOP a cycle",
        level.name(),
        clock / 1e9,
        peak / 1e9,
        peak / clock
    );
    let mut cpu = Cpu::at(level, 1).expect("a thread");
    let limits = Limits { kv_blocks: 200, max_rows: 128, max_logit_rows: 8 };
    let weights = RandomWeights { seed: 1, dtype: Dtype::Bf16 };
    let mut llama = Llama::load(&mut cpu, shape, &weights, limits).expect("it fits");
    let per_layer = {
        let (h, i) = (shape.hidden as usize, shape.intermediate as usize);
        h * (shape.q_width() + 2 * shape.kv_width()) + h * shape.q_width() + 3 * h * i
    };
    let body = per_layer * shape.layers as usize;
    let head = shape.hidden as usize * shape.vocab as usize;
    let table: Vec<u32> = (0..100).collect();
    // Prompt.
    let mut batch = Batch::default();
    batch.push_chain(&(0..128).map(|i| i % 200).collect::<Vec<_>>(), 0, &table, Logits::Last);
    let seconds = cpu.session(|cpu| shortest(|| llama.forward(cpu, &batch).expect("a pass")));
    let flops = (2 * body * 128 + 2 * head) as f64;
    println!(
        "prefill of 128: {:.3} ms, {:.1} GFLOP/s, {:.0} % of the peak",
        seconds * 1e3,
        flops / seconds / 1e9,
        flops / seconds / peak * 100.0
    );
    let bytes = 2 * (body + head);
    let width = speed::bandwidth(level, bytes, 5);
    println!(
        "{:.1} MB: read {:.1} copy {:.1} triad {:.1} GB/s ({:.1} B a cycle)",
        bytes as f64 / 1e6,
        width.read / 1e9,
        width.copy / 1e9,
        width.triad / 1e9,
        width.best() / clock
    );
    let mut plain = 0.0;
    for rows in [1, 2, 3, 4, 5, 6, 8] {
        let mut batch = Batch::default();
        batch.push_chain(&vec![7; rows], 16, &table, Logits::All);
        let seconds = cpu.session(|cpu| shortest(|| llama.forward(cpu, &batch).expect("a pass")));
        if rows == 1 {
            plain = seconds;
        }
        let flops = 2.0 * (rows * (body + head)) as f64 / seconds;
        println!(
            "pass of {rows}: {:.1} us, {:.2} plain ones, {:.0} % of the bandwidth, {:.0} % of the peak",
            seconds * 1e6,
            seconds / plain,
            bytes as f64 / seconds / width.best() * 100.0,
            flops / peak * 100.0
        );
    }
    // Matrices by themselves.
    let (h, i) = (shape.hidden as usize, shape.intermediate as usize);
    use foretoken_kernels::weights::Weights;
    for (what, outputs, inputs) in [
        ("qkv", shape.q_width() + 2 * shape.kv_width(), h),
        ("out", h, shape.q_width()),
        ("gate_up", 2 * i, h),
        ("down", h, i),
        ("head", shape.vocab as usize, h),
    ] {
        let Ok(matrix) = cpu.matrix(&[(weights.tensor(what), outputs)], inputs, Dtype::Bf16);
        print!("{what:8} {outputs}x{inputs}:");
        for rows in [1, 2, 3, 4, 6, 8, 16, 32, 128] {
            let (Ok(mut x), Ok(mut out)) = (cpu.buffer(rows, inputs), cpu.buffer(rows, outputs));
            x.set_rows(rows);
            (0..rows).for_each(|r| x.row_mut(r).fill(0.5));
            let seconds = cpu.session(|cpu| {
                shortest(|| {
                    let Ok(()) = cpu.matmul(&x, &matrix, &mut out);
                })
            });
            print!("  {rows}: {:.0}%", (2 * rows * outputs * inputs) as f64 / seconds / peak * 100.0);
        }
        println!();
    }
}
