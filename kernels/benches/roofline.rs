//! Compares the CPU's kernels with the processor's limits. For each level of vector instructions the bench measures how
//! many multiply-adds per second a core makes, and the core's bandwidth to each cache and to memory. The same run then
//! prints each operation's share of these limits, with one thread and with all threads. Three model shapes are
//! measured, with random bf16 weights: the small target model that ships with this crate, and Llamas of a hundred
//! million and of a billion parameters.
//!
//!     cargo bench -p foretoken-kernels --bench roofline -- [--level avx2] [--shape pair|100m|1b] [--fma-units 2]
//!
//! The peak arithmetic rate is the best of six kernels. With vector instructions and a known clock, it must be at least
//! 90 % of 2 × lanes × FMA units × clock; otherwise the bench fails and says why. The clock is measured in the same
//! run. The number of FMA units (multiply-add units of a core) follows from the processor's design, or `--fma-units`
//! gives it. An operation's share of bandwidth is its bytes per second divided by a measured bandwidth. This bandwidth
//! is the best of reading, copying and triad (a + b · c) over an array of as many bytes as the operation reads.

#![allow(missing_docs)]

use foretoken_kernels::cpu::speed::{self, Processor, Speed, bandwidth, processor};
use foretoken_kernels::cpu::{Cpu, Level};
use foretoken_kernels::device::Device;
use foretoken_kernels::forward::{Limits, Llama};
use foretoken_kernels::model::{LlamaShape, preset};
use foretoken_kernels::paged::{Batch, Logits};
use foretoken_kernels::weights::{Dtype, RandomWeights, Weights};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Number of context tokens over which attention is timed.
const CONTEXT: usize = 1024;
/// Number of tokens in the prompt whose prefill pass is timed.
const PROMPT: usize = 128;
/// The measured peak of multiply-adds must reach at least this share of the peak that is computed from the processor's
/// design.
const CREDIBLE: f64 = 0.9;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |flag: &str| arguments.iter().position(|a| a == flag).and_then(|at| arguments.get(at + 1));
    // `cargo test --benches` runs this program without `--bench`, only to test that it works. The program then measures
    // less.
    let quick = !arguments.iter().any(|a| a == "--bench");
    if let Some(level) = option("--level").filter(|l| Level::of(l).is_none()) {
        eprintln!(
            "this processor has no level {level}: {:?}",
            Level::all().iter().map(|l| l.key()).collect::<Vec<_>>()
        );
        return ExitCode::FAILURE;
    }
    let units = option("--fma-units").map(|n| n.parse().expect("--fma-units is a number"));
    println!("{}", processor().name.unwrap_or_else(|| "a processor that does not say its name".into()));
    let mut credible = true;
    for level in Level::all().into_iter().rev().filter(|level| option("--level").is_none_or(|l| l == level.key())) {
        println!("\n== {}: {}", level.name(), Speed::measure(level));
        credible &= peak_is_credible(level, units);
        for (name, shape) in shapes().into_iter().filter(|s| option("--shape").is_none_or(|n| n == s.0)) {
            // Plain code (without vector instructions) has about a hundredth of the speed of vector code, so the large
            // shapes would take too long.
            if (quick || level.width().is_none()) && name != "pair" {
                continue;
            }
            Bench { level, shape, least: if quick { Duration::ZERO } else { Duration::from_secs(1) } }.run(name);
        }
    }
    if credible { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the measured peak of multiply-adds as a share of the peak that follows from the processor's design. Returns
/// true if the share is at least [`CREDIBLE`]. Three cases are not judged and return true: plain code, a clock that
/// cannot be measured, and runs without `--bench`, which may share the machine with other work.
fn peak_is_credible(level: Level, units: Option<u32>) -> bool {
    let (Some(width), Some(clock)) = (level.width(), speed::clock(50)) else { return true };
    let peak = speed::peak(level, 50);
    let (units, whence) = match (units, fma_units(&processor(), level)) {
        (Some(given), _) => (given, "given"),
        (None, Some(known)) => (known, "known of this design"),
        // The number of FMA units is not known, so it is guessed: it is the number whose computed peak is closest to
        // the measured peak. A core with two units that reaches half its peak would be taken for a core with one unit.
        (None, None) => ((peak / clock / f64::from(2 * width)).round().max(1.0) as u32, "guessed from the measurement"),
    };
    let promised = clock * f64::from(2 * width * units);
    let share = peak / promised;
    println!(
        "peak {:.1} GFLOP/s, {:.0} % of 2 × {width} lanes × {units} units ({whence}) × {:.2} GHz",
        peak / 1e9,
        share * 100.0,
        clock / 1e9
    );
    let kept = share >= CREDIBLE || !std::env::args().any(|a| a == "--bench");
    if !kept {
        eprintln!(
            "FAILED: less than {:.0} %. Either another process shares the core, or it has fewer units than that (--fma-units), or none of \
             the kernels reaches its peak: shares of it would flatter.",
            CREDIBLE * 100.0
        );
    }
    kept
}

/// Number of multiply-add instructions of the level `level` that a core starts per cycle; `None` for an unknown
/// design and for plain code. Sources: Intel's and AMD's software optimization manuals; Fog, "The microarchitecture
/// of Intel, AMD and VIA CPUs".
fn fma_units(processor: &Processor, level: Level) -> Option<u32> {
    let (vendor, family, model) = processor.design.as_ref()?;
    match (vendor.as_str(), family, level.width()?) {
        // AMD Zen (model below 0x30) splits a 256-bit instruction into two halves, so it starts one such
        // instruction per cycle. Zen 2 starts two per cycle.
        ("AuthenticAMD", 0x17, 8) => Some(if *model < 0x30 { 1 } else { 2 }),
        // AMD Zen 3 and later have two 256-bit multiply-add units. Zen 4 uses both units for one 512-bit
        // instruction.
        ("AuthenticAMD", 0x19.., 8) => Some(2),
        ("AuthenticAMD", 0x19, 16) => Some(1),
        // AMD Zen 5 has two 512-bit multiply-add units in servers and desktops. Some laptops have 256-bit units;
        // for laptops the result is `None`.
        ("AuthenticAMD", 0x1A, 16) => matches!(model, 0x00..=0x1F | 0x40..=0x4F).then_some(2),
        // Intel Haswell and all later designs have two 256-bit multiply-add units. The efficiency cores of hybrid
        // processors are not distinguished from their other cores.
        ("GenuineIntel", 6, 8) => Some(2),
        // Intel's servers (Skylake to Cascade Lake, Ice Lake, Sapphire, Emerald and Granite Rapids) have two
        // 512-bit multiply-add units. Some of the smaller models have only one unit; they also count as two,
        // because the model number does not distinguish them.
        ("GenuineIntel", 6, 16) => match model {
            0x55 | 0x6A | 0x6C | 0x8F | 0xCF | 0xAD | 0xAE => Some(2),
            // Intel's laptops and desktops (Ice Lake, Tiger Lake and Rocket Lake) have one 512-bit multiply-add
            // unit.
            0x7D | 0x7E | 0x8C | 0x8D | 0xA7 => Some(1),
            _ => None,
        },
        _ => None,
    }
}

fn shapes() -> Vec<(&'static str, LlamaShape)> {
    let pair = preset("tiny-target").expect("it is shipped");
    let hundred = LlamaShape {
        layers: 12,
        hidden: 768,
        heads: 12,
        kv_heads: 4,
        head_dim: 64,
        intermediate: 2048,
        vocab: 16_000,
        ..pair.clone()
    };
    vec![("pair", pair), ("100m", hundred), ("1b", preset("tinyllama-1.1b").expect("a preset"))]
}

struct Bench {
    level: Level,
    shape: LlamaShape,
    /// Each measurement runs its operation again and again until the runs together take this time, at least 3 and at
    /// most 5000 times. The shortest run counts.
    least: Duration,
}

impl Bench {
    fn run(&self, name: &str) {
        let (s, level) = (&self.shape, self.level);
        let per_layer = s.hidden as usize * (2 * s.q_width() + 2 * s.kv_width() + 3 * s.intermediate as usize);
        let (body, head) = (per_layer * s.layers as usize, (s.hidden * s.vocab) as usize);
        println!("\n{name}: {:.1} million weights read by a pass", (body + head) as f64 / 1e6);
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        let mut one_thread: Vec<f64> = Vec::new();
        for threads in if all > 1 { vec![1, all] } else { vec![1] } {
            let mut cpu = Cpu::at(level, threads).expect("threads start");
            let weights = RandomWeights { seed: 1, dtype: Dtype::Bf16 };
            let limits = Limits { kv_blocks: 80, max_rows: PROMPT, max_logit_rows: 8 };
            let mut llama = Llama::load(&mut cpu, s, &weights, limits).expect("it fits");
            let mut seconds: Vec<(String, f64, Roof)> = Vec::new();
            let mut pass = |cpu: &mut Cpu, rows: usize, context: usize, logits: Logits| {
                let mut batch = Batch::default();
                let tokens: Vec<u32> = (0..rows as u32).map(|i| i % s.vocab).collect();
                batch.push_chain(&tokens, context, &(0..80).collect::<Vec<u32>>(), logits);
                cpu.session(|cpu| self.shortest(|| llama.forward(cpu, &batch).expect("no errors")))
            };
            let bytes = 2 * (body + head);
            let prompt = pass(&mut cpu, PROMPT, 0, Logits::Last);
            seconds.push((format!("prompt of {PROMPT}"), prompt, Roof::Flops(2 * (PROMPT * body + head))));
            for rows in [1, 2, 4, 8] {
                let flops = 2 * rows * (body + head);
                let roof = if rows < 8 { Roof::Bytes(bytes, flops) } else { Roof::Flops(flops) };
                seconds.push((format!("pass of {rows}"), pass(&mut cpu, rows, 16, Logits::All), roof));
            }
            seconds.extend(self.products(&mut cpu, &weights));
            for rows in [1, 4] {
                seconds.push(self.attention(&mut cpu, rows));
            }
            if threads == 1 {
                self.print(&seconds);
                one_thread = seconds.iter().map(|s| s.1).collect();
            } else {
                println!("  {threads} threads against one:       time             their bandwidth to as many bytes");
                for ((what, now, roof), before) in seconds.iter().zip(&one_thread) {
                    let width = match *roof {
                        Roof::Flops(_) => String::new(),
                        Roof::Bytes(bytes, _) => self.bandwidth_of(threads, bytes),
                    };
                    println!("  {what:28} {:8.1} µs  {:.2}x  {width}", now * 1e6, before / now);
                }
            }
        }
    }

    /// Times the matrix products of 8 rows with each weight matrix of a layer and with the LM head.
    fn products(&self, cpu: &mut Cpu, weights: &RandomWeights) -> Vec<(String, f64, Roof)> {
        let (s, rows) = (&self.shape, 8);
        let (hidden, inner) = (s.hidden as usize, s.intermediate as usize);
        let shapes = [
            ("queries, keys, values", s.q_width() + 2 * s.kv_width(), hidden),
            ("attention's output", hidden, s.q_width()),
            ("gate and up", 2 * inner, hidden),
            ("down", hidden, inner),
            ("head", s.vocab as usize, hidden),
        ];
        let each = shapes.into_iter().map(|(what, outputs, inputs)| {
            let Ok(matrix) = cpu.matrix(&[(weights.tensor(what), outputs)], inputs, Dtype::Bf16);
            let (Ok(mut x), Ok(mut out)) = (cpu.buffer(rows, inputs), cpu.buffer(rows, outputs));
            x.set_rows(rows);
            (0..rows).for_each(|row| x.row_mut(row).fill(0.5));
            let run = |cpu: &mut Cpu| {
                self.shortest(|| {
                    let Ok(()) = cpu.matmul(&x, &matrix, &mut out);
                })
            };
            let seconds = cpu.session(run);
            (format!("{what}, {rows} rows"), seconds, Roof::Flops(2 * rows * outputs * inputs))
        });
        each.collect()
    }

    /// Times attention over all layers, one layer after the other, for the queries of the last `rows` tokens of a
    /// context of [`CONTEXT`] tokens.
    fn attention(&self, cpu: &mut Cpu, rows: usize) -> (String, f64, Roof) {
        let s = &self.shape;
        let width = s.q_width() + 2 * s.kv_width();
        let (Ok(mut kv), Ok(mut qkv), Ok(mut out)) =
            (cpu.kv(s, Dtype::Bf16, 80), cpu.buffer(rows, width), cpu.buffer(rows, s.q_width()));
        qkv.set_rows(rows);
        for row in 0..rows {
            qkv.row_mut(row).iter_mut().enumerate().for_each(|(i, x)| *x = (i % 13) as f32 * 0.1 - 0.6);
        }
        let mut batch = Batch::default();
        batch.push_chain(&vec![0; rows], CONTEXT - rows, &(0..80).collect::<Vec<u32>>(), Logits::Skip);
        let Ok(()) = cpu.rope_and_store(&mut qkv, &batch, &mut kv, 0);
        let run = |cpu: &mut Cpu| {
            self.shortest(|| {
                for layer in 0..s.layers as usize {
                    let Ok(()) = cpu.attention(&qkv, &batch, &kv, layer, &mut out);
                }
            })
        };
        let seconds = cpu.session(run);
        let tokens = s.layers as usize * CONTEXT;
        let roof = Roof::Bytes(4 * tokens * s.kv_width(), 4 * rows * tokens * s.q_width());
        (format!("attention of {rows} at {CONTEXT}"), seconds, roof)
    }

    /// Compares the bandwidth of `threads` threads that run at the same time with the bandwidth of one thread that runs
    /// alone. Each of the `threads` threads uses its own array of `bytes / threads` bytes, and the single thread uses
    /// one array of `bytes` bytes. If `bytes` is larger than the last cache, every array has `bytes` bytes, because a
    /// smaller array might fit into a cache. A bandwidth is the best of reading, copying and triad. Returns the text
    /// "(all threads) / (one thread): GB/s of all threads".
    fn bandwidth_of(&self, threads: usize, bytes: usize) -> String {
        let level = self.level;
        let part = if processor().caches.last().is_some_and(|last| bytes > *last) { bytes } else { bytes / threads };
        let together: f64 = std::thread::scope(|scope| {
            let each = |_| scope.spawn(move || bandwidth(level, part, 5).best());
            (0..threads).map(each).collect::<Vec<_>>().into_iter().map(|t| t.join().expect("it measures")).sum()
        });
        let alone = bandwidth(level, bytes, 5).best();
        format!("{:.2}x: {:.0} GB/s", together / alone, together / 1e9)
    }

    fn print(&self, seconds: &[(String, f64, Roof)]) {
        let peak = speed::peak(self.level, 20);
        let share = |part: f64| format!("{:5.0} %", part * 100.0);
        println!("  one thread                       time     of the peak   of the bandwidth to as many bytes");
        let mut known: Vec<(usize, f64)> = Vec::new();
        for (what, seconds, roof) in seconds {
            let (bytes, flops) = match *roof {
                Roof::Flops(flops) => (None, flops),
                Roof::Bytes(bytes, flops) => (Some(bytes), flops),
            };
            let of_width = bytes.map(|bytes| {
                let width = match known.iter().find(|k| k.0 == bytes) {
                    Some(&(_, width)) => width,
                    None => bandwidth(self.level, bytes, 5).best(),
                };
                known.push((bytes, width));
                let (mb, gb) = (bytes as f64 / 1e6, width / 1e9);
                format!("{} of {gb:.0} GB/s to {mb:.1} MB", share(bytes as f64 / seconds / width))
            });
            let of_peak = share(flops as f64 / seconds / peak);
            println!("  {what:28} {:8.1} µs  {of_peak}       {}", seconds * 1e6, of_width.unwrap_or_default());
        }
    }

    /// Calls `run` several times and returns the shortest time of a call, in seconds.
    fn shortest(&self, mut run: impl FnMut()) -> f64 {
        let begin = Instant::now();
        let (mut least, mut tries) = (Duration::MAX, 0);
        while tries < 3 || (begin.elapsed() < self.least && tries < 5000) {
            let from = Instant::now();
            run();
            least = least.min(from.elapsed());
            tries += 1;
        }
        least.as_secs_f64()
    }
}

/// What bounds the speed of an operation: its arithmetic, or the bytes that it reads.
enum Roof {
    /// The arithmetic bounds the speed. The field is the number of floating-point operations.
    Flops(usize),
    /// The bytes that are read bound the speed. The fields are the number of bytes read and the number of
    /// floating-point operations.
    Bytes(usize, usize),
}
