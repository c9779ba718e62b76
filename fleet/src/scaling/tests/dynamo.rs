//! A second implementation of Dynamo's planner, written from its Python code, for replicas that compute prompts and
//! decode, and for the target "sla".

use super::super::dynamo_planner::Planner;
use super::super::watched::{Decides, Watched};
use super::super::{DynamoPlanner, Traffic};
use super::{Dice, LIMITS, grown, later, report};
use foretoken_sim::{Load, Time};
use std::collections::HashMap;

const MAX_TOKENS: f64 = 2048.0;
const TTFT_MS: f64 = 500.0;
const ITL_MS: f64 = 50.0;

/// What Dynamo's planner remembers between two decisions, in the second implementation.
struct Second {
    samples: Vec<([f64; 2], f64)>,
    isl: Vec<f64>,
    decode_len: Vec<f64>,
    prefill: Vec<f64>,
    accept: f64,
    before: HashMap<usize, Load>,
    seen: Traffic,
    at_floor: Traffic,
    next_floor_s: f64,
    bound: u32,
}

fn average(window: &[f64]) -> f64 {
    let kept: Vec<f64> = window.iter().copied().skip_while(|value| *value == 0.0).collect();
    let last = &kept[kept.len().saturating_sub(64)..];
    if last.is_empty() { 0.0 } else { last.iter().sum::<f64>() / last.len() as f64 }
}

/// Fits the step time linearly to the samples: solves the normal equations of the three coefficients by elimination.
fn regression(samples: &[([f64; 2], f64)]) -> Option<[f64; 3]> {
    if samples.len() < 5 {
        return None;
    }
    // The columns of the samples' matrix are divided by these numbers, so that elimination loses few digits.
    let scale = [1.0, 100.0, 100_000.0];
    let mut m = [[0.0; 4]; 3];
    for (x, y) in samples {
        let row = [1.0, x[0] / scale[1], x[1] / scale[2]];
        for i in 0..3 {
            (0..3).for_each(|j| m[i][j] += row[i] * row[j]);
            m[i][3] += row[i] * y;
        }
    }
    for i in 0..3 {
        let pivot = (i..3).max_by(|a, b| m[*a][i].abs().total_cmp(&m[*b][i].abs())).unwrap();
        m.swap(i, pivot);
        if m[i][i].abs() < 1e-9 {
            return None;
        }
        for j in (0..3).filter(|j| *j != i) {
            let factor = m[j][i] / m[i][i];
            (0..4).for_each(|k| m[j][k] -= factor * m[i][k]);
        }
    }
    let solved: [f64; 3] = std::array::from_fn(|i| m[i][3] / m[i][i] / scale[i]);
    (solved[1] >= 0.0 && solved[2] >= 0.0).then_some(solved)
}

fn predict(model: [f64; 3], prefill: f64, kv: f64) -> f64 {
    f64::max(1e-6, model[0] + model[1] * prefill + model[2] * kv)
}

impl Second {
    fn bucket(&self, x: [f64; 2]) -> (i64, i64) {
        let of = |axis: usize| {
            let all = self.samples.iter().map(|s| s.0[axis]);
            let (low, high) = (all.clone().fold(f64::INFINITY, f64::min), all.fold(f64::NEG_INFINITY, f64::max));
            if high <= low { 0 } else { (((x[axis] - low) / (high - low) * 4.0) as i64).clamp(0, 3) }
        };
        (of(0), of(1))
    }

    fn ttft_ms(&self, model: [f64; 3], queued: f64, kv: f64) -> f64 {
        let total = queued + average(&self.isl);
        let iterations = (total / MAX_TOKENS).ceil() as u32;
        let (mut remaining, mut time) = (total, 0.0);
        for _ in 0..iterations {
            let chunk = f64::min(remaining, MAX_TOKENS);
            time += predict(model, chunk, kv);
            remaining -= chunk;
        }
        time * 1000.0
    }

    fn itl_ms(&self, model: [f64; 3], kv: f64) -> f64 {
        predict(model, average(&self.prefill), kv + average(&self.decode_len)) * 1000.0 / self.accept
    }

    fn engine_rps(&self, model: [f64; 3], isl: f64, osl: f64, max_kv: f64) -> f64 {
        let ctx = isl + osl / 2.0;
        let hard_cap = i64::min(i64::max(1, (max_kv / f64::max(1.0, ctx)) as i64), 128);
        let (mut low, mut high) = (1, hard_cap.max(1));
        while low < high {
            let mid = (low + high + 1) / 2;
            if mid as f64 * self.accept * isl / osl.max(1.0) <= MAX_TOKENS - mid as f64 {
                low = mid;
            } else {
                high = mid - 1;
            }
        }
        let mut best = 0.0;
        for bs in 1..=low {
            let bs = bs as f64;
            let kv = bs * ctx;
            let prefill = f64::min(bs * self.accept * isl / osl.max(1.0), MAX_TOKENS);
            let wt = predict(model, prefill, kv);
            let rps = f64::min(bs * self.accept / (osl * wt), f64::max(0.0, MAX_TOKENS - bs) / (isl * wt));
            let ttft = self.ttft_ms(model, prefill.floor(), kv.floor());
            if wt * 1000.0 / self.accept > ITL_MS || ttft > TTFT_MS {
                if bs == 1.0 {
                    best = rps;
                }
                break;
            }
            best = rps;
        }
        best
    }

    fn tick(&mut self, now_s: f64, engines: &[(usize, Option<Load>)], booting: u32, traffic: Traffic) -> Option<u32> {
        let new = traffic.sent - self.seen.sent;
        if new > 0 {
            self.isl.push((traffic.prompt_tokens - self.seen.prompt_tokens) as f64 / new as f64);
        }
        self.seen = traffic;
        let (mut tokens, mut rounds) = (0, 0);
        for &(id, load) in engines {
            let Some(load) = load else { continue };
            let old = self.before.insert(id, load).unwrap_or_default();
            if load.steps == old.steps {
                continue;
            }
            let steps = (load.steps - old.steps) as f64;
            let wall = (load.busy.0 - old.busy.0) as f64;
            let kv = (load.context_time - old.context_time) as f64 / wall;
            let prefill = (load.prefill_tokens - old.prefill_tokens) as f64 / steps;
            if load.request_steps > old.request_steps {
                self.decode_len.push(kv / ((load.request_steps - old.request_steps) as f64 / steps));
            }
            self.prefill.push(prefill);
            self.samples.push(([prefill, kv], wall / 1e12 / steps));
            if self.samples.len() > 64 {
                let mut counts: Vec<((i64, i64), usize, usize)> = Vec::new();
                for (i, sample) in self.samples.iter().enumerate() {
                    let key = self.bucket(sample.0);
                    match counts.iter_mut().find(|c| c.0 == key) {
                        Some(count) => count.1 += 1,
                        None => counts.push((key, 1, i)),
                    }
                }
                let most = counts.iter().map(|c| c.1).max().unwrap();
                let oldest = counts.iter().find(|c| c.1 == most).unwrap().2;
                self.samples.remove(oldest);
            }
            tokens += load.emitted - old.emitted;
            rounds += load.request_steps - old.request_steps;
        }
        self.before.retain(|id, _| engines.iter().any(|e| e.0 == *id));
        if rounds > 0 {
            self.accept = f64::max(1.0, tokens as f64 / rounds as f64);
        }
        let model = regression(&self.samples);
        if now_s >= self.next_floor_s {
            self.next_floor_s += 180.0;
            let (sent, ended) = (traffic.sent - self.at_floor.sent, traffic.ended - self.at_floor.ended);
            if let (Some(model), true) = (model, sent > 0 && ended > 0) {
                let isl = (traffic.prompt_tokens - self.at_floor.prompt_tokens) as f64 / sent as f64;
                let osl = (traffic.output_tokens - self.at_floor.output_tokens) as f64 / ended as f64;
                let known = engines.iter().any(|e| e.1.is_some());
                let rps = self.engine_rps(model, isl, osl, if known { 64_000.0 } else { 0.0 });
                self.bound = u32::max((sent as f64 / 180.0 / rps).ceil() as u32, 1);
            }
            self.at_floor = traffic;
        }
        let workers = engines.len() as u32;
        let stats: Vec<Load> = engines.iter().filter_map(|e| e.1).collect();
        let model = model?;
        if booting > 0 || stats.len() as u32 != workers {
            return None;
        }
        let consolidation = if workers > 1 { f64::from(workers) / f64::from(workers - 1) } else { 1.0 };
        let (mut prefill_down, mut decode_down) = (workers > 1, workers > 1);
        let (mut prefill_up, mut decode_up) = (true, true);
        for load in stats {
            let queued = load.waiting_tokens as f64;
            let kv = f64::from(load.used_blocks * 16);
            prefill_up &= self.ttft_ms(model, queued, kv) > TTFT_MS;
            decode_up &= self.itl_ms(model, kv) > ITL_MS;
            let post_kv = (kv * consolidation).floor();
            let own = self.ttft_ms(model, 0.0, post_kv);
            let budget = (TTFT_MS - own) * 0.8;
            if budget <= 0.0 || self.ttft_ms(model, (queued * consolidation).floor(), post_kv) - own >= budget {
                prefill_down = false;
            }
            let combined = ((kv + queued) * consolidation).floor();
            if combined >= 64_000.0 || self.itl_ms(model, combined) >= ITL_MS * 0.8 {
                decode_down = false;
            }
        }
        let desired = if prefill_up || decode_up {
            workers + 1
        } else if prefill_down && decode_down {
            workers - 1
        } else {
            workers
        };
        Some(desired.max(1).max(self.bound))
    }
}

#[test]
fn decisions_equal_those_of_a_second_implementation() {
    let mut changes = [0; 4];
    for seed in 0..100 {
        let mut dice = Dice::new(1000 + seed);
        let mut first = Planner::new(DynamoPlanner::default(), LIMITS);
        let mut second = Second {
            samples: vec![],
            isl: vec![],
            decode_len: vec![],
            prefill: vec![],
            accept: 1.0,
            before: HashMap::new(),
            seen: Traffic::default(),
            at_floor: Traffic::default(),
            next_floor_s: 180.0,
            bound: 0,
        };
        let (mut traffic, mut now_s) = (Traffic::default(), 0);
        let mut engines: Vec<(usize, Option<Load>)> = vec![(0, None)];
        for round in 0..100 {
            now_s += dice.whole(5, 60);
            traffic = grown(&mut dice, traffic);
            for engine in &mut engines {
                engine.1 = Some(later(&mut dice, engine.1.unwrap_or_default(), 1 + seed % 4));
            }
            match dice.whole(0, 5) {
                0 => engines.push((round + 1, None)),
                1 if engines.len() > 1 => drop(engines.pop()),
                _ => {}
            }
            let now = Time::from_s(now_s as f64);
            let reports: Vec<_> = engines.iter().map(|e| e.1.map(|load| report(load, now))).collect();
            let numbers: Vec<usize> = engines.iter().map(|e| e.0).collect();
            let booting = dice.whole(0, 4).saturating_sub(3) as u32;
            let watched = Watched { now, reports: &reports, numbers: &numbers, booting, min_replicas: 1, traffic };
            let a = first.decide(&watched);
            let b = second.tick(now_s as f64, &engines, booting, traffic);
            assert_eq!(a.as_ref().map(|wish| wish.replicas), b, "seed {seed}, round {round}: {a:?}");
            let kind = b.map_or(0, |b| 1 + (b as usize + 1).saturating_sub(engines.len()).min(2));
            changes[kind] += 1;
        }
    }
    assert!(changes.iter().all(|n| *n > 100), "{changes:?}");
}
