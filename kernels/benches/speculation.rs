//! Measures what speculation gains on the CPU at batch 1, with the small target and draft models that ship with this
//! crate. The result is tokens per second after the prompt, without draft tokens and with 1 to 8 draft tokens per step,
//! on one thread and on all threads. The bench also prints what explains the gain: how often draft tokens are accepted,
//! for each family of prompts (a kind of text) and each depth (a draft token's place in its chain).
//!
//!     cargo bench -p foretoken-kernels --bench speculation -- [--level avx2]
//!
//! Every prompt is answered without draft tokens and with each number of draft tokens in turn, several times over. Of
//! the times of one prompt with one number of draft tokens, the shortest counts, because another process on the machine
//! can make a run slower but never faster.

#![allow(missing_docs)]

#[path = "../tests/all/common/pair.rs"]
mod pair;

use foretoken_kernels::cpu::speed::processor;
use foretoken_kernels::cpu::{Cpu, Level};
use foretoken_kernels::device::Device;
use foretoken_traces::text::Family;
use pair::{Pair, Rounds, prompt};
use std::time::Duration;

/// The bench measures 1 to this number of draft tokens per step.
const MOST: usize = 8;

fn main() {
    // `cargo test --benches` runs this program without `--bench`, only to test that it works. The program then measures
    // less.
    let quick = !std::env::args().any(|a| a == "--bench");
    let (prompts, repeats) = if quick { (1, 1) } else { (8, 7) };
    let level = std::env::args().skip_while(|a| a != "--level").nth(1);
    let level = level.map_or(Level::best(), |key| Level::of(&key).expect("a level that this processor has"));
    println!("{}, {}", processor().name.unwrap_or_default(), level.name());
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    println!("tokens/s after the prompt at batch 1, {prompts} prompts a family, best of {repeats}\n");
    println!("threads   plain {}   best", (1..=MOST).map(|k| format!("   k = {k}")).collect::<String>());
    let (mut plainest, mut best) = (0.0, 0.0);
    for threads in [1, all] {
        let mut cpu = Cpu::at(level, threads).expect("threads start");
        let mut pair = Pair::load(&mut cpu);
        let speeds = cpu.pass(|cpu| Ok(speeds(&mut pair, cpu, prompts, repeats))).expect("no errors");
        let fastest = speeds[1..].iter().copied().fold(0.0, f64::max);
        println!(
            "{threads:7} {:7.0} {}   {:.2}x",
            speeds[0],
            speeds[1..].iter().map(|s| format!(" {s:7.0}")).collect::<String>(),
            fastest / speeds[0]
        );
        plainest = f64::max(plainest, speeds[0]);
        best = f64::max(best, fastest);
    }
    println!("\nbest speculation over fastest plain decoding: {:.2}x\n", best / plainest);
    let mut cpu = Cpu::at(level, 1).expect("threads start");
    let mut pair = Pair::load(&mut cpu);
    cpu.pass(|cpu| {
        acceptance(&mut pair, cpu, if quick { 1 } else { 64 });
        Ok(())
    })
    .expect("no errors");
}

/// Measures tokens per second over `prompts` prompts of each family (a kind of text). Entry 0 of the result is without
/// draft tokens, entry k with k draft tokens per step, up to [`MOST`]. Panics if the answer with draft tokens differs
/// from the answer without them.
fn speeds(pair: &mut Pair, cpu: &mut Cpu, prompts: u64, repeats: usize) -> Vec<f64> {
    let (mut tokens, mut times) = (0, vec![Duration::ZERO; MOST + 1]);
    for family in Family::ALL {
        for index in 0..prompts {
            let prompt = prompt(family, index);
            let mut shortest = vec![Duration::MAX; MOST + 1];
            let mut answer = Vec::new();
            for _ in 0..repeats {
                for (k, shortest) in shortest.iter_mut().enumerate() {
                    let (said, time) = match k {
                        0 => pair.plain(cpu, &prompt),
                        k => pair.speculative(cpu, &prompt, k, &mut Rounds::default()),
                    };
                    assert!(k == 0 || said == answer, "speculation changed an answer");
                    answer = said;
                    *shortest = time.min(*shortest);
                }
            }
            // The first token of the answer is not counted, because the prompt's pass generates it.
            tokens += answer.len() - 1;
            times.iter_mut().zip(shortest).for_each(|(sum, time)| *sum += time);
        }
    }
    times.iter().map(|time| tokens as f64 / time.as_secs_f64()).collect()
}

/// Prints, for each family of prompts (a kind of text), the mean length of an answer, and how often the draft model's
/// most likely token is the target's token. This share is given over all positions of the answers. It is also given for
/// each depth (a draft token's place in a chain of [`MOST`] draft tokens), over the chains in which all tokens before
/// this depth were accepted.
fn acceptance(pair: &mut Pair, cpu: &mut Cpu, prompts: u64) {
    println!("family       bytes  right {}", (1..=MOST).map(|d| format!("  d={d} ")).collect::<String>());
    let mut sum = 0.0;
    for family in Family::ALL {
        let (mut right, mut positions, mut rounds) = (0, 0, Rounds::default());
        for index in 0..prompts {
            let prompt = prompt(family, index);
            let (answer, _) = pair.speculative(cpu, &prompt, MOST, &mut rounds);
            let agreed = pair.agreement(cpu, &prompt, &answer);
            right += agreed.iter().filter(|a| **a).count();
            positions += agreed.len();
        }
        let depths = rounds.accepted.iter().zip(&rounds.reached);
        let depths: String = depths.map(|(a, n)| format!(" {:.3}", *a as f64 / *n as f64)).collect();
        let rate = right as f64 / positions as f64;
        sum += rate;
        println!("{family:<11} {:6.1}  {rate:.3} {depths}", positions as f64 / prompts as f64);
    }
    println!("mean                {:.3}", sum / Family::ALL.len() as f64);
}
