//! A second implementation of llm-d's saturation rule, written from its Go code: the analyser, the optimizer, and the
//! HPA that carries out the number of replicas.

use super::super::llm_d::Saturation;
use super::super::watched::{Decides, Watched};
use super::super::{LlmDSaturation, Traffic};
use super::{Dice, LIMITS, grown, later, report};
use foretoken_sim::{Load, Time};
use std::collections::HashMap;

/// What llm-d's Go program remembers between two calls, in the second implementation.
#[derive(Default)]
struct Second {
    history: HashMap<&'static str, Vec<f64>>,
    traffic: Vec<(u64, Traffic)>,
    recommendations: Vec<(u64, u32)>,
}

fn classify(output: f64) -> &'static str {
    if output < 100.0 {
        "short"
    } else if output < 500.0 {
        "medium"
    } else {
        "long"
    }
}

impl Second {
    /// The number of replicas that llm-d's Go program wants at `now_s`, a whole number of seconds. `pending` is the
    /// number of replicas that boot.
    fn replicas(&mut self, now_s: u64, loads: &[Option<Load>], pending: u32, traffic: Traffic) -> Option<u32> {
        let old = self.traffic.iter().rev().find(|(at, _)| *at + 300 <= now_s).map_or(Traffic::default(), |t| t.1);
        self.traffic.push((now_s, traffic));
        let n = (traffic.ended - old.ended) as f64;
        let (mut avg_in, mut avg_out) = (0.0, 0.0);
        if n > 0.0 {
            avg_in = (traffic.ended_prompt_tokens - old.ended_prompt_tokens) as f64 / n;
            avg_out = (traffic.output_tokens - old.output_tokens) as f64 / n;
        }
        let mut effective: Vec<i64> = Vec::new();
        let mut total_demand = 0i64;
        for load in loads.iter().flatten() {
            let in_use = i64::from(load.used_blocks * 16);
            let mut replica_demand = in_use;
            if avg_in > 0.0 {
                replica_demand += i64::from(load.waiting) * (avg_in as i64);
            }
            total_demand += replica_demand;
            let k1 = (f64::from(load.usable_blocks * 16) * 0.80) as i64;
            let history = self.history.entry(classify(avg_out)).or_default();
            let k2 = if load.waiting >= 5 && in_use > 0 {
                history.push(in_use as f64);
                in_use
            } else if !history.is_empty() {
                let last = &history[history.len().saturating_sub(10)..];
                (last.iter().sum::<f64>() / last.len() as f64) as i64
            } else {
                let mut derived = 0;
                if avg_out > 0.0 {
                    let steady = f64::min(2048.0 * avg_out / (avg_in + avg_out), 128.0);
                    derived = (steady * (avg_in + avg_out / 2.0)) as i64;
                }
                if derived > 0 { derived } else { k1 }
            };
            effective.push(if k2 < k1 { k2 } else { k1 });
        }
        if effective.is_empty() {
            return None;
        }
        effective.sort_unstable();
        let middle = effective.len() / 2;
        let per = match effective.len() % 2 {
            0 => (effective[middle - 1] + effective[middle]) / 2,
            _ => effective[middle],
        } as f64;
        let ready = loads.len() as f64;
        let current = loads.len() as u32 + pending;
        let required = (total_demand as f64 / 0.85 - (ready + f64::from(pending)) * per).max(0.0);
        let spare = (ready * per - total_demand as f64 / 0.70).max(0.0);
        let mut target = i64::from(current);
        if per > 0.0 && required > 0.0 {
            target += (required / per).ceil() as i64;
        } else if per > 0.0 && spare > 0.0 {
            target -= ((spare / per).floor() as i64).min(i64::from(current) - 1);
        }
        let target = target as u32;
        if self.recommendations.is_empty() {
            self.recommendations.push((now_s, current));
        }
        let recent = self.recommendations.iter().filter(|(at, _)| *at + 300 > now_s).map(|r| r.1);
        let down = recent.chain([target]).max().unwrap();
        self.recommendations.push((now_s, target));
        let mut stabilised = current;
        if stabilised < target {
            stabilised = target;
        }
        if stabilised > down {
            stabilised = down;
        }
        Some(stabilised)
    }
}

#[test]
fn decisions_equal_those_of_a_second_implementation() {
    let mut changes = [0; 3];
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let mut first = Saturation::new(LlmDSaturation::default(), LIMITS);
        let mut second = Second::default();
        let (mut traffic, mut now_s) = (Traffic::default(), 0);
        for _ in 0..100 {
            now_s += dice.whole(1, 120);
            traffic = grown(&mut dice, traffic);
            let n = dice.whole(1, 6) as usize;
            let loads: Vec<Option<Load>> = (0..n)
                .map(|_| (dice.whole(0, 9) > 0).then(|| later(&mut dice, Load::default(), 1 + seed % 4)))
                .collect();
            let now = Time::from_s(now_s as f64);
            let reports: Vec<_> = loads.iter().map(|load| load.map(|load| report(load, now))).collect();
            let numbers: Vec<usize> = (0..n).collect();
            let booting = dice.whole(0, 2) as u32;
            let watched = Watched { now, reports: &reports, numbers: &numbers, booting, min_replicas: 1, traffic };
            let (a, b) = (first.decide(&watched), second.replicas(now_s, &loads, booting, traffic));
            assert_eq!(a.as_ref().map(|wish| wish.replicas), b, "seed {seed}, {now_s} s: {a:?}");
            if let Some(b) = b {
                changes[(1 + b.cmp(&(n as u32 + booting)) as i8) as usize] += 1;
            }
        }
    }
    assert!(changes.iter().all(|n| *n > 100), "{changes:?}");
}
