//! Dynamo's planner, for replicas that both compute prompts and decode (Dynamo calls them "agg").
//!
//! Sources, all of ai-dynamo/dynamo, `components/src/dynamo/planner`: `core/throughput_scaling.py` at 0c9050c9 (the
//! least number of replicas), `core/load_scaling.py` at 0c6da1ec (the load loop, target "sla"),
//! `core/perf_model/agg.py` at 518a7027 (the request rate of an engine), `config/defaults.py` at 1ca60155. The accept
//! length (tokens that a request emits in a step) is computed as in PR #10435.

use super::step_model::StepModel;
use super::watched::{Decides, EngineLimits, Traffic, Watched, Wish, seconds, share};
use crate::report_board::Report;
use foretoken_sim::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Dynamo's planner. The floor, the least number of replicas, is ⌈requests a second / the rate of an engine that keeps
/// the bounds⌉; the requests of the last `throughput_interval_s` count. The load loop adds a replica if the predicted
/// latency of every replica misses a bound. It removes a replica if the remaining replicas could take its load. Step
/// times are a linear fit to the replicas' reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DynamoPlanner {
    /// Bound on time to first token, seconds, > 0; absent: `slo.ttft_s`, else Dynamo's 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_s: Option<f64>,
    /// Bound on the time between tokens, seconds, > 0; absent: `slo.tpot_s`, else Dynamo's 0.05.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itl_s: Option<f64>,
    /// Does the planner compute the floor, the least number of replicas, from the rate of requests?
    pub throughput_scaling: bool,
    /// Does the planner run the load loop, which adds and removes replicas by predicted latency? Without the load loop
    /// the number of replicas is the floor, the least number by the rate of requests.
    pub load_scaling: bool,
    /// Seconds between two computations of the floor (the least number of replicas by the rate of requests), > 0.
    pub throughput_interval_s: f64,
    /// Share of the latency bounds that the predicted latency may use after a replica is removed, above 0 and at
    /// most 1.
    pub down_sensitivity: f64,
    /// Most samples of step times that are kept for the linear fit, at least 5.
    pub max_samples: u32,
}

impl Default for DynamoPlanner {
    fn default() -> DynamoPlanner {
        DynamoPlanner {
            ttft_s: None,
            itl_s: None,
            throughput_scaling: true,
            load_scaling: true,
            throughput_interval_s: 180.0,
            down_sensitivity: 0.8,
            max_samples: 64,
        }
    }
}

impl DynamoPlanner {
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        self.ttft_s.map_or(Ok(()), |s| seconds("ttft_s", s, false))?;
        self.itl_s.map_or(Ok(()), |s| seconds("itl_s", s, false))?;
        if !self.throughput_scaling && !self.load_scaling {
            return Err((
                "load_scaling",
                "without it and without throughput_scaling the planner decides nothing".into(),
            ));
        }
        seconds("throughput_interval_s", self.throughput_interval_s, false)?;
        share("down_sensitivity", self.down_sensitivity)?;
        match self.max_samples as usize >= FEWEST {
            true => Ok(()),
            false => Err(("max_samples", format!("{} are fewer than the {FEWEST} that a fit needs", self.max_samples))),
        }
    }
}

/// The fewest samples of step times for a fit (`load_min_observations`).
const FEWEST: usize = 5;
/// Default bounds of Dynamo's configuration, seconds: time to first token, time between tokens.
const USUAL_S: [f64; 2] = [0.5, 0.05];

/// The state of the planner during a run.
pub(super) struct Planner {
    settings: DynamoPlanner,
    limits: EngineLimits,
    /// Bounds on time to first token and between tokens, seconds.
    bounds_s: [f64; 2],
    steps: StepModel,
    /// Means of recent samples, tokens: the prompt length of a request (`prompt`), the tokens in KV of a decoding
    /// request (`context`), the prompt tokens of a step (`prompt_tokens`).
    prompt: Recent,
    context: Recent,
    prompt_tokens: Recent,
    /// Tokens that a decoding request emits in a step, at least 1.
    accept: f64,
    /// For each replica, by its number: the last load report from which a sample of step times was made.
    sampled: BTreeMap<usize, Report>,
    /// The floor is the least number of replicas by the rate of requests. Request counts at the last decision (`seen`)
    /// and at the last computation of the floor (`at_floor`), and the time of the next computation of the floor.
    seen: Traffic,
    at_floor: Traffic,
    next_floor: Time,
    floor: u32,
    floor_reason: String,
}

/// What the load loop concludes for one of its two latencies (time to first token, or time between tokens): add a
/// replica, remove one, or keep the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Up,
    Down,
    Stay,
}

impl Planner {
    pub fn new(settings: DynamoPlanner, limits: EngineLimits) -> Planner {
        let bound = |own: Option<f64>, at: usize| {
            own.unwrap_or(if limits.slo_s[at].is_finite() { limits.slo_s[at] } else { USUAL_S[at] })
        };
        let most = settings.max_samples as usize;
        Planner {
            bounds_s: [bound(settings.ttft_s, 0), bound(settings.itl_s, 1)],
            steps: StepModel::new(most, FEWEST),
            prompt: Recent::new(most),
            context: Recent::new(most),
            prompt_tokens: Recent::new(most),
            accept: 1.0,
            sampled: BTreeMap::new(),
            seen: Traffic::default(),
            at_floor: Traffic::default(),
            next_floor: Time::from_s(settings.throughput_interval_s),
            floor: 0,
            floor_reason: String::new(),
            settings,
            limits,
        }
    }

    /// Takes samples of step times for the linear fit, and mean lengths, from the load reports that arrived since the
    /// last decision.
    fn learn(&mut self, watched: &Watched) {
        let (sent, tokens) =
            (watched.traffic.sent - self.seen.sent, watched.traffic.prompt_tokens - self.seen.prompt_tokens);
        if sent > 0 {
            self.prompt.add(tokens as f64 / sent as f64);
        }
        self.seen = watched.traffic;
        let (mut emitted, mut request_steps) = (0, 0);
        for (number, report) in watched.numbers.iter().zip(watched.reports).filter_map(|(n, r)| Some((*n, (*r)?))) {
            let before = self.sampled.insert(number, report).map(|report| report.load).unwrap_or_default();
            let (load, steps) = (report.load, report.load.steps - before.steps);
            if steps == 0 {
                continue;
            }
            let busy = load.busy.saturating_sub(before.busy);
            let decodes = load.request_steps - before.request_steps;
            let prompts = (load.prefill_tokens - before.prefill_tokens) as f64 / steps as f64;
            let kv = (load.context_time - before.context_time) as f64 / busy.0 as f64;
            if decodes > 0 {
                self.context.add(kv / (decodes as f64 / steps as f64));
            }
            self.prompt_tokens.add(prompts);
            self.steps.add(([prompts, kv], busy.as_s() / steps as f64));
            emitted += load.emitted - before.emitted;
            request_steps += decodes;
        }
        if request_steps > 0 {
            self.accept = (emitted as f64 / request_steps as f64).max(1.0);
        }
        self.sampled.retain(|number, _| watched.numbers.contains(number));
    }

    /// Computes the floor (the least number of replicas) from the requests since the last computation. The floor stays
    /// as it is if no request was sent or none ended, or if step times are not known.
    fn set_floor(&mut self, watched: &Watched) {
        let (now, then) = (watched.traffic, self.at_floor);
        self.at_floor = now;
        let (sent, ended) = (now.sent - then.sent, now.ended - then.ended);
        if sent == 0 || ended == 0 {
            return;
        }
        let prompt = (now.prompt_tokens - then.prompt_tokens) as f64 / sent as f64;
        let output = (now.output_tokens - then.output_tokens) as f64 / ended as f64;
        let rate = sent as f64 / self.settings.throughput_interval_s;
        let kv_tokens = watched.reports.iter().flatten().map(|report| self.kv_tokens(report)).max().unwrap_or(0);
        let engine = self.engine_rate(prompt, output, kv_tokens as f64);
        if engine > 0.0 {
            self.floor = ((rate / engine).ceil() as u32).max(watched.min_replicas);
            self.floor_reason = format!("floor {}: {rate:.2} of {engine:.2} requests/s", self.floor);
        }
    }

    fn kv_tokens(&self, report: &Report) -> u64 {
        u64::from(report.load.usable_blocks) * u64::from(self.limits.block_size)
    }

    /// The most requests a second that an engine serves within both latency bounds. `prompt` and `output` are mean
    /// lengths in tokens, `kv_tokens` is the size of the KV pool in tokens. 0 if step times are not known.
    pub(super) fn engine_rate(&mut self, prompt: f64, output: f64, kv_tokens: f64) -> f64 {
        let budget = f64::from(self.limits.max_num_batched_tokens);
        if prompt <= 0.0 || output <= 0.0 || !self.steps.fits() {
            return 0.0;
        }
        let context = prompt + output / 2.0;
        let by_kv = ((kv_tokens / context.max(1.0)) as u32).max(1);
        let cap = by_kv.min(self.limits.max_num_seqs).min(self.limits.max_num_batched_tokens.saturating_sub(1)).max(1);
        let prompts = |batch: u32| f64::from(batch) * self.accept * prompt / output.max(1.0);
        let balanced = |batch: u32| prompts(batch) <= budget - f64::from(batch);
        let mut rate = 0.0;
        for batch in 1..=cap {
            if batch > 1 && !balanced(batch) {
                break;
            }
            let kv = f64::from(batch) * context;
            let in_step = prompts(batch).min(budget);
            let step_s = self.steps.step_s(in_step, kv);
            let ttft_s = self.steps.prompts_s(in_step.floor() + self.prompt.mean(), budget, kv.floor());
            let keeps = step_s / self.accept <= self.bounds_s[1] && ttft_s <= self.bounds_s[0];
            if keeps || batch == 1 {
                let decoding = f64::from(batch) * self.accept / (output * step_s);
                rate = decoding.min((budget - f64::from(batch)).max(0.0) / (prompt * step_s));
            }
            if !keeps {
                break;
            }
        }
        rate
    }

    /// The load loop. Returns for time to first token and for time between tokens: the largest predicted latency over
    /// replicas, seconds, and whether to add a replica, remove one, or keep the number.
    fn load_loop(&self, watched: &Watched) -> [(f64, Side); 2] {
        let n = watched.serving();
        let rest = if n > 1 { f64::from(n) / f64::from(n - 1) } else { 1.0 };
        let budget = f64::from(self.limits.max_num_batched_tokens);
        let mut estimates = [Vec::new(), Vec::new()];
        let mut fits_fewer = [n > 1, n > 1];
        for report in watched.reports.iter().flatten() {
            let queued = report.load.waiting_tokens as f64;
            let kv = (u64::from(report.load.used_blocks) * u64::from(self.limits.block_size)) as f64;
            let ttft = |queued: f64, kv: f64| self.steps.prompts_s(queued + self.prompt.mean(), budget, kv);
            estimates[0].push(ttft(queued, kv));
            let fewer_kv = (kv * rest).floor();
            let alone = ttft(0.0, fewer_kv);
            let room = (self.bounds_s[0] - alone) * self.settings.down_sensitivity;
            fits_fewer[0] &= room > 0.0 && ttft((queued * rest).floor(), fewer_kv) - alone < room;

            let itl = |kv: f64| self.steps.step_s(self.prompt_tokens.mean(), kv + self.context.mean()) / self.accept;
            estimates[1].push(itl(kv));
            let all = ((kv + queued) * rest).floor();
            let pool = self.kv_tokens(report) as f64;
            fits_fewer[1] &= all < pool && itl(all) < self.bounds_s[1] * self.settings.down_sensitivity;
        }
        std::array::from_fn(|side| {
            let most = estimates[side].iter().copied().fold(0.0, f64::max);
            let says = match estimates[side].iter().all(|s| *s > self.bounds_s[side]) {
                true => Side::Up,
                false if fits_fewer[side] => Side::Down,
                false => Side::Stay,
            };
            (most, says)
        })
    }
}

impl Decides for Planner {
    fn decide(&mut self, watched: &Watched) -> Option<Wish> {
        self.learn(watched);
        let floor_is_due = watched.now >= self.next_floor;
        if floor_is_due {
            self.next_floor += Time::from_s(self.settings.throughput_interval_s);
            if self.settings.throughput_scaling {
                self.set_floor(watched);
            }
        }
        if !self.settings.load_scaling {
            let known = floor_is_due && self.floor > 0;
            return known.then(|| Wish { replicas: self.floor, reason: self.floor_reason.clone() });
        }
        let n = watched.serving();
        // While replicas boot, or while a replica has not reported, the load loop decides nothing.
        if watched.booting > 0 || watched.reports.iter().any(Option::is_none) || !self.steps.fits() {
            return None;
        }
        let [(ttft, prompts), (itl, decoding)] = self.load_loop(watched);
        let by_load = match (prompts, decoding) {
            (Side::Up, _) | (_, Side::Up) => n + 1,
            (Side::Down, Side::Down) => n - 1,
            _ => n,
        };
        let replicas = by_load.max(self.floor).max(watched.min_replicas);
        let reason = match self.floor > by_load {
            true => self.floor_reason.clone(),
            false => format!(
                "predicted TTFT {:.0} of {:.0} ms, ITL {:.1} of {:.1} ms",
                ttft * 1e3,
                self.bounds_s[0] * 1e3,
                itl * 1e3,
                self.bounds_s[1] * 1e3
            ),
        };
        Some(Wish { replicas, reason })
    }
}

/// The mean of the last `most` values of a quantity, such as the prompt length. Zeros that come before the first other
/// value are not stored.
struct Recent {
    values: VecDeque<f64>,
    most: usize,
}

impl Recent {
    fn new(most: usize) -> Recent {
        Recent { values: VecDeque::new(), most }
    }

    fn add(&mut self, value: f64) {
        if value == 0.0 && self.values.is_empty() {
            return;
        }
        if self.values.len() == self.most {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    /// The mean of the stored values of one quantity, such as the prompt length; 0 if there are none.
    fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len().max(1) as f64
    }
}
