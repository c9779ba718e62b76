//! Compares the engine with a minimal simulation loop: `cd benches && cargo bench --bench bare`.
//!
//! The bare loop serves the same arrivals with the same random draws and the same step times. It has no KV blocks and
//! no policy, and it records only the end of the last request. Engine and loop run in turns, so that both see the same
//! state of the machine. The ratio is the engine's median time over the loop's median time.

#![allow(missing_docs)]

use foretoken_sim::acceptance::RankLaw;
use foretoken_sim::luck::{Luck, Stream, threshold};
use foretoken_sim::*;
use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

mod yardstick;
use yardstick::*;

const TURNS: usize = 15;

/// A request of the bare simulation loop whose prompt is computed, so that it decodes in each step.
struct Decoding {
    /// Number of output tokens that the request has emitted so far (`emitted`), and number that it still has to emit
    /// (`left`).
    emitted: u32,
    left: u32,
    /// Bitmap of which draft tokens of the request are right, by output position; empty if the run has no draft tokens.
    truth: TruthRow,
}

/// Serves the benchmark's workload in a minimal simulation loop. Returns the time at which the last request ends. `k`
/// is the draft length. With `skip` and without draft tokens, the steps between two arrivals or completions run in a
/// short inner loop.
fn bare(y: &Yardstick, k: u32, skip: bool) -> Time {
    let (w, target, coin) = (y.workload(), target(), y.coin());
    let (mut now, mut next, mut context) = (Time::ZERO, 0, 0u64);
    let mut running: Vec<Decoding> = Vec::new();
    let mut spare: Vec<TruthRow> = Vec::new();
    // The prompt at the head of the queue: the index of its request, and the number of its tokens that are not computed
    // yet.
    let mut prompt = (0, w.prompt_len[0]);
    loop {
        while next < w.len() && w.arrival[next] <= now {
            next += 1;
        }
        if running.is_empty() && prompt.0 == next {
            if next == w.len() {
                return now;
            }
            now = w.arrival[next];
            continue;
        }
        let n = running.len() as u64;
        if skip && k == 0 && prompt.0 == next {
            let until = w.arrival.get(next).copied().unwrap_or(Time::MAX);
            let steps = running.iter().map(|r| r.left).min().unwrap_or(0);
            let mut done = 0;
            while done < steps && now < until {
                now += target.pass(PassShape { requests: n, batched: n, context, pairs: 0 });
                context += n;
                done += 1;
            }
            running.iter_mut().for_each(|r| (r.emitted, r.left) = (r.emitted + done, r.left - done));
        } else {
            let mut budget = 2048 - n as u32 * (1 + k);
            let (mut tokens, mut begun) = (0, 0);
            while prompt.0 < next && budget > 0 {
                let chunk = prompt.1.min(budget);
                (prompt.1, budget, tokens) = (prompt.1 - chunk, budget - chunk, tokens + u64::from(chunk));
                if prompt.1 > 0 {
                    break;
                }
                begun += 1;
                prompt = (prompt.0 + 1, w.prompt_len.get(prompt.0 + 1).copied().unwrap_or(0));
            }
            now += target.pass(PassShape { requests: n, batched: n * u64::from(1 + k) + tokens, context, pairs: 0 });
            for r in &mut running {
                let got = if k == 0 { 1 } else { 1 + r.truth.run(r.emitted, k) };
                let got = got.min(r.left);
                (r.emitted, r.left, context) = (r.emitted + got, r.left - got, context + u64::from(got));
            }
            for id in prompt.0 - begun..prompt.0 {
                let mut truth = spare.pop().unwrap_or_default();
                if k > 0 {
                    let request = RequestTruth {
                        id: id as u32,
                        prompt_len: 0,
                        output_len: w.output_len[id],
                        category: 0,
                        recording: None,
                    };
                    coin.start(request, k, &mut truth);
                }
                context += u64::from(w.prompt_len[id]);
                running.push(Decoding { emitted: 1, left: w.output_len[id] - 1, truth });
            }
        }
        running.retain_mut(|r| {
            if r.left == 0 {
                context -= u64::from(w.prompt_len[0] + r.emitted - 1);
                spare.push(std::mem::take(&mut r.truth));
            }
            r.left > 0
        });
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    let (slower, faster) = (Yardstick::new(10_000, 4.0), Yardstick::new(10_000, 12.0));
    println!("{:26} {:>12} {:>12} {:>7}", "", "engine", "bare loop", "ratio");
    for (name, y, k, skip) in [
        ("autoregressive, stepping", &slower, 0, false),
        ("autoregressive, skipping", &slower, 0, true),
        ("fixed-4", &faster, 4, true),
    ] {
        let run = y.run(k, skip);
        let end = run.records.finish.iter().max().copied().unwrap_or_default();
        let ours = bare(y, k, skip);
        // Engine and bare loop simulate the same requests with the same draws, so they must end at nearly the same
        // time.
        let off = (ours.as_s() / end.as_s() - 1.0).abs();
        assert!(off < 1e-3, "{name}: the bare loop ends at {} s, the engine at {} s", ours.as_s(), end.as_s());
        let (mut engine, mut least) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let begun = Instant::now();
            black_box(y.run(k, skip));
            engine.push(begun.elapsed());
            let begun = Instant::now();
            black_box(bare(y, k, skip));
            least.push(begun.elapsed());
        }
        let (engine, least) = (median(engine), median(least));
        let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
        println!("{name:26} {:>12} {:>12} {:>7.2}", ms(engine), ms(least), engine.as_secs_f64() / least.as_secs_f64());
    }
}
