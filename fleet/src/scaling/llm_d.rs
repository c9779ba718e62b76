//! llm-d's rule that scales a fleet by its saturation.
//!
//! Sources, all of llm-d/llm-d-workload-variant-autoscaler: `internal/engines/analyzers/saturation_v2/analyzer.go` at
//! b28a4f66 (capacity, demand, required and spare tokens), `internal/engines/pipeline/cost_aware_optimizer.go` at
//! 74afe4ce (from tokens to replicas), and the defaults of the package `config` (0.80, 5, 0.85, 0.70). A Kubernetes HPA
//! carries the number of replicas out, so the number goes through the HPA's stabilisation windows
//! (`pkg/controller/podautoscaler/horizontal.go`, `stabilizeRecommendationWithBehaviors`).

use super::watched::{Decides, EngineLimits, Traffic, Watched, Wish, seconds, share};
use foretoken_sim::Time;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// llm-d's saturation rule, version 2. A replica's capacity is the smaller of two numbers of tokens:
/// `kv_cache_threshold` of its KV pool, and the tokens that it held when requests queued. A replica's demand is the
/// tokens that it holds, plus the mean prompt length for each waiting request. Replicas are added if demand /
/// `scale_up_threshold` is above the capacity of all replicas, booting ones included. Replicas are removed while demand
/// / `scale_down_boundary` is below the capacity of the serving replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LlmDSaturation {
    /// Share of the KV pool that counts as capacity, above 0 and at most 1.
    pub kv_cache_threshold: f64,
    /// Number of waiting requests from which requests count as queued on the replica, at least 1. The tokens that the
    /// replica then holds count as its capacity.
    pub queue_length_threshold: u32,
    /// Replicas are added when the demand is above this share of the capacity; above 0 and at most 1.
    pub scale_up_threshold: f64,
    /// Replicas are removed when the demand is below this share of the capacity; above 0 and below
    /// `scale_up_threshold`.
    pub scale_down_boundary: f64,
    /// Replicas are added only up to the smallest number that the rule wanted in this many last seconds (the HPA's
    /// `scaleUp` window), ≥ 0.
    pub up_window_s: f64,
    /// Replicas are removed only down to the largest number that the rule wanted in this many last seconds (the HPA's
    /// `scaleDown` window), ≥ 0.
    pub down_window_s: f64,
}

impl Default for LlmDSaturation {
    fn default() -> LlmDSaturation {
        LlmDSaturation {
            kv_cache_threshold: 0.80,
            queue_length_threshold: 5,
            scale_up_threshold: 0.85,
            scale_down_boundary: 0.70,
            up_window_s: 0.0,
            down_window_s: 300.0,
        }
    }
}

impl LlmDSaturation {
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        share("kv_cache_threshold", self.kv_cache_threshold)?;
        if self.queue_length_threshold == 0 {
            return Err(("queue_length_threshold", "0 requests always wait".into()));
        }
        share("scale_up_threshold", self.scale_up_threshold)?;
        share("scale_down_boundary", self.scale_down_boundary)?;
        if self.scale_down_boundary >= self.scale_up_threshold {
            let (down, up) = (self.scale_down_boundary, self.scale_up_threshold);
            return Err(("scale_down_boundary", format!("{down} is not below scale_up_threshold = {up}")));
        }
        seconds("up_window_s", self.up_window_s, true)?;
        seconds("down_window_s", self.down_window_s, true)
    }
}

/// The tokens that a replica can hold before requests queue (its compute-bound capacity) are the mean of this number of
/// observations (`RollingAverageWindowSize`).
const OBSERVED: usize = 10;
/// Mean prompt and output lengths are taken over the requests that ended in this many seconds (the `[5m]` of the
/// collector's queries).
const MEANS_S: f64 = 300.0;
/// Mean output lengths, tokens, from which a workload counts as medium (the first number) and as long (the second).
/// Below the first number it counts as short (`classifyOutputLength`).
const BUCKETS: [f64; 2] = [100.0, 500.0];

/// The state of llm-d's saturation rule during a run.
pub(super) struct Saturation {
    settings: LlmDSaturation,
    limits: EngineLimits,
    /// Observed numbers of tokens that a replica held when requests queued on it, the newest last; one list each for
    /// workloads with short, medium and long outputs.
    observed: [VecDeque<f64>; 3],
    /// Counts of the requests sent and ended so far, as they were at earlier decisions, with the times of the
    /// decisions.
    counts: VecDeque<(Time, Traffic)>,
    /// Numbers of replicas that the rule wanted at earlier decisions, with the times of the decisions.
    wishes: VecDeque<(Time, u32)>,
}

impl Saturation {
    pub fn new(settings: LlmDSaturation, limits: EngineLimits) -> Saturation {
        Saturation {
            settings,
            limits,
            observed: Default::default(),
            counts: VecDeque::from([(Time::ZERO, Traffic::default())]),
            wishes: VecDeque::new(),
        }
    }

    /// [mean prompt length, mean output length] of the requests that ended in the last five minutes, tokens; zeros if
    /// no request ended.
    fn means(&mut self, now: Time, traffic: Traffic) -> [f64; 2] {
        let from = now.saturating_sub(Time::from_s(MEANS_S));
        while self.counts.len() > 1 && self.counts[1].0 <= from {
            self.counts.pop_front();
        }
        let before = self.counts[0].1;
        self.counts.push_back((now, traffic));
        let ended = traffic.ended - before.ended;
        let mean = |tokens: u64| if ended == 0 { 0.0 } else { tokens as f64 / ended as f64 };
        [
            mean(traffic.ended_prompt_tokens - before.ended_prompt_tokens),
            mean(traffic.output_tokens - before.output_tokens),
        ]
    }

    /// The compute-bound capacity of a replica, tokens (`computeK2`). If requests queue on the replica: the tokens that
    /// it holds now (`in_use`). Otherwise the mean of earlier such observations; without observations, an estimate from
    /// the engine's limits; without an estimate, `k1` (`kv_cache_threshold` of the KV pool). `input` and `output` are
    /// the mean lengths of prompts and outputs.
    fn k2(&mut self, waiting: u32, in_use: i64, [input, output]: [f64; 2], k1: i64) -> i64 {
        let observed = &mut self.observed[BUCKETS.iter().filter(|from| output >= **from).count()];
        if waiting >= self.settings.queue_length_threshold && in_use > 0 {
            if observed.len() == OBSERVED {
                observed.pop_front();
            }
            observed.push_back(in_use as f64);
            return in_use;
        }
        let mean = observed.iter().sum::<f64>() / observed.len().max(1) as f64;
        if mean > 0.0 {
            return mean as i64;
        }
        let (budget, seqs) = (f64::from(self.limits.max_num_batched_tokens), f64::from(self.limits.max_num_seqs));
        let derived = match output > 0.0 {
            true => ((budget * output / (input + output)).min(seqs) * (input + output / 2.0)) as i64,
            false => 0,
        };
        if derived > 0 { derived } else { k1 }
    }

    /// The number of replicas that the HPA sets, given the number `wish` that the rule wants now. The HPA takes into
    /// account the numbers wanted in its stabilisation windows.
    fn stabilised(&mut self, now: Time, current: u32, wish: u32) -> u32 {
        if self.wishes.is_empty() {
            // The HPA starts with the current number of replicas as its first recommendation.
            self.wishes.push_back((now, current));
        }
        let since = |window_s: f64| now.saturating_sub(Time::from_s(window_s));
        let (up_from, down_from) = (since(self.settings.up_window_s), since(self.settings.down_window_s));
        let (mut up, mut down) = (wish, wish);
        for &(at, earlier) in &self.wishes {
            if at > up_from {
                up = up.min(earlier);
            }
            if at > down_from {
                down = down.max(earlier);
            }
        }
        self.wishes.retain(|&(at, _)| at > up_from.min(down_from));
        self.wishes.push_back((now, wish));
        current.max(up).min(down)
    }
}

impl Decides for Saturation {
    fn decide(&mut self, watched: &Watched) -> Option<Wish> {
        let means = self.means(watched.now, watched.traffic);
        let block = i64::from(self.limits.block_size);
        let mut capacities = Vec::with_capacity(watched.reports.len());
        let mut demand = 0.0;
        for report in watched.reports.iter().flatten().filter(|report| report.load.usable_blocks > 0) {
            let in_use = i64::from(report.load.used_blocks) * block;
            let k1 =
                (i64::from(report.load.usable_blocks) as f64 * block as f64 * self.settings.kv_cache_threshold) as i64;
            capacities.push(self.k2(report.load.waiting, in_use, means, k1).min(k1));
            demand += (in_use + i64::from(report.load.waiting) * means[0] as i64) as f64;
        }
        let each = median(&mut capacities)? as f64;
        let (ready, current) = (f64::from(watched.serving()), watched.current());
        let required = demand / self.settings.scale_up_threshold - f64::from(current) * each;
        let spare = ready * each - demand / self.settings.scale_down_boundary;
        let wish = match each > 0.0 {
            true if required > 0.0 => current + (required / each).ceil() as u32,
            true if spare > 0.0 => current - ((spare / each).floor() as u32).min(current - 1),
            _ => current,
        };
        let replicas = self.stabilised(watched.now, current, wish);
        let load = 100.0 * demand / (ready * each).max(1.0);
        let what = if replicas < current {
            format!("{spare:.0} tokens to spare")
        } else {
            format!("{required:.0} tokens short")
        };
        Some(Wish { replicas, reason: format!("{what}, load {load:.0} % of {each:.0} tokens a replica") })
    }
}

/// The median. For an even number of values it is the mean of the middle two, rounded down. `None` without values.
fn median(values: &mut [i64]) -> Option<i64> {
    values.sort_unstable();
    let n = values.len();
    match n {
        0 => None,
        _ if n.is_multiple_of(2) => Some((values[n / 2 - 1] + values[n / 2]) / 2),
        _ => Some(values[n / 2]),
    }
}
