//! llm-d's headroom filter and latency scorer: they compare predicted latencies with the SLO bounds.

use super::checks;
use super::llm_d_default::{Cached, best_of};
use crate::predictor::{Features, Predictor};
use crate::router::{About, Asked, Ended, Needs, Router, RouterContext, RouterDefinition, Seen};
use foretoken_sim::{Luck, RequestId, Stream, Time};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Sends the request to one of the replicas whose predicted TTFT and TPOT are within the bounds: to the replica with
/// the least (or the most) headroom. With probability `epsilon_explore_neg` it tries a replica that misses a bound. If
/// no replica is within the bounds, an idle replica is preferred, then a replica that misses only TPOT, then a replica
/// that misses only TTFT (llm-d `filter/sloheadroomtier` and `scorer/latency`). llm-d predicts with boosted trees in a
/// separate program. Here a linear fit to the same features learns from the fleet's requests. Until requests have ended
/// on a replica, the router compares the replicas' loads, as llm-d does without predictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LlmDSlo {
    /// Probability of trying a replica that is predicted to miss a bound, [0, 1].
    pub epsilon_explore_neg: f64,
    /// Weight of the headroom in TTFT (the bound minus the prediction), ≥ 0.
    pub ttft_weight: f64,
    /// Weight of the headroom in TPOT (the bound minus the prediction), ≥ 0.
    pub tpot_weight: f64,
    /// Whether little or much headroom (bound minus predicted latency) is preferred among the replicas within the
    /// bounds.
    pub headroom_selection_strategy: Headroom,
    /// Factor on the TPOT bound before it is compared, > 0. Below 1 leaves a reserve.
    pub slo_buffer_factor: f64,
}

/// Whether replicas with little or with much headroom (bound minus predicted latency) are preferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Headroom {
    /// Prefers the replica with the least headroom: requests are packed, and other replicas stay free.
    #[default]
    Least,
    /// Prefers the replica with the most headroom: requests are spread.
    Most,
}

impl Default for LlmDSlo {
    fn default() -> LlmDSlo {
        LlmDSlo {
            epsilon_explore_neg: 0.01,
            ttft_weight: 0.8,
            tpot_weight: 0.2,
            headroom_selection_strategy: Headroom::Least,
            slo_buffer_factor: 1.0,
        }
    }
}

impl RouterDefinition for LlmDSlo {
    fn about(&self) -> About {
        About {
            summary: "predicted latencies against the bounds: packs where they are kept",
            source: "llm-d-inference-scheduler 520af478, filter/sloheadroomtier/plugin.go, scorer/latency/plugin.go",
            needs: Needs { ends: true, first_tokens: true, reports: true },
            usual_signals: checks::llm_d_signals(),
            reads_prefixes: true,
            ..About::default()
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        checks::share("epsilon_explore_neg", self.epsilon_explore_neg)?;
        checks::not_negative("ttft_weight", self.ttft_weight)?;
        checks::not_negative("tpot_weight", self.tpot_weight)?;
        checks::positive("slo_buffer_factor", self.slo_buffer_factor)
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        Box::new(Latencies {
            settings: self.clone(),
            seed: context.seed,
            ttft_s: context.slo_s[0],
            cached: Cached::new(context, 256, 31_250),
            ttft: Predictor::default(),
            tpot: Predictor::default(),
            asked: HashMap::new(),
            silent_tokens: vec![0; context.replicas],
            scores: Vec::new(),
        })
    }
}

struct Latencies {
    settings: LlmDSlo,
    seed: u64,
    ttft_s: f64,
    cached: Cached,
    ttft: Predictor,
    tpot: Predictor,
    /// The requests in flight, each with the features from which the router predicted its latencies when it was sent.
    asked: HashMap<RequestId, Sent>,
    /// For each replica, the prompt tokens of its requests that have no first token yet.
    silent_tokens: Vec<u64>,
    scores: Vec<f64>,
}

/// What the router stores about a request in flight: when it was sent, the features from which its latencies were
/// predicted, its prompt tokens, and when its first token came.
struct Sent {
    at: Time,
    features: Features,
    tokens: u64,
    first_token: Option<Time>,
}

/// A replica's predicted headrooms (bound minus predicted latency), seconds; negative if the bound would be missed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Headrooms {
    pub ttft: f64,
    pub tpot: f64,
    /// Number of requests in flight on the replica.
    pub in_flight: u32,
}

impl Headrooms {
    fn kept(&self) -> bool {
        self.ttft >= 0.0 && self.tpot >= 0.0
    }
}

impl Router for Latencies {
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize {
        let shares = self.cached.shares(request);
        let features: Vec<Features> = replicas
            .iter()
            .zip(shares)
            .zip(&self.silent_tokens)
            .map(|((replica, &share), &silent)| Features::of(request, replica, share, silent))
            .collect();
        self.scores = match (self.ttft.is_ready(), self.tpot.is_ready()) {
            (true, true) => {
                let bound = request.tpot_s * self.settings.slo_buffer_factor;
                let headroom = |(f, r): (&Features, &Seen)| Headrooms {
                    ttft: finite(self.ttft_s) - self.ttft.predict(f),
                    tpot: finite(bound) - self.tpot.predict(f),
                    in_flight: r.in_flight,
                };
                let headrooms: Vec<Headrooms> = features.iter().zip(replicas).map(headroom).collect();
                let explore = Luck::new(self.seed, Stream::Router, request.id.into()).unit(1);
                scores(&headrooms, &self.settings, explore < self.settings.epsilon_explore_neg)
            }
            _ => composite(replicas, self.cached.shares(request)),
        };
        let best = best_of(&self.scores, self.seed, request);
        self.cached.sent(request, best, &replicas[best]);
        let tokens = u64::from(request.prompt_len);
        self.silent_tokens[best] += tokens;
        let sent = Sent { at: request.now, features: features[best], tokens, first_token: None };
        self.asked.insert(request.id, sent);
        best
    }

    fn first_token(&mut self, id: RequestId, replica: usize, at: Time) {
        if let Some(sent) = self.asked.get_mut(&id) {
            sent.first_token = Some(at);
            self.silent_tokens[replica] -= sent.tokens;
            self.ttft.learn(&sent.features, at.saturating_sub(sent.at).as_s());
        }
    }

    fn ended(&mut self, id: RequestId, replica: usize, end: Ended) {
        let Some(sent) = self.asked.remove(&id) else { return };
        match sent.first_token {
            Some(first) if end.emitted > 1 => {
                let tpot = end.at.saturating_sub(first).as_s() / f64::from(end.emitted - 1);
                self.tpot.learn(&sent.features, tpot);
            }
            Some(_) => {}
            None => self.silent_tokens[replica] -= sent.tokens,
        }
    }
}

/// Returns `bound_s`, in seconds, cut to 1e9 s, so that headrooms are finite even without a bound (infinity).
fn finite(bound_s: f64) -> f64 {
    bound_s.min(1e9)
}

/// Scores each replica by its headroom (bound minus predicted latency); the highest score wins. If some replicas are
/// within both bounds and some are not, the candidates are the replicas within the bounds, or with `explore` the
/// replicas that miss a bound. Otherwise all replicas are candidates. A replica that is not a candidate gets −∞. If the
/// candidates miss a bound, only the replicas of [`least_severe`] are scored by headroom, and the other candidates get
/// 0.
pub(super) fn scores(all: &[Headrooms], settings: &LlmDSlo, explore: bool) -> Vec<f64> {
    let keeps = |kept: bool| (0..all.len()).filter(|&i| all[i].kept() == kept).collect::<Vec<usize>>();
    let (positive, negative) = (keeps(true), keeps(false));
    let mut scores = vec![f64::NEG_INFINITY; all.len()];
    let (tier, kept) = match (positive.is_empty(), negative.is_empty()) {
        (false, false) => {
            if explore {
                (negative, false)
            } else {
                (positive, true)
            }
        }
        (false, true) => (positive, true),
        _ => (negative, false),
    };
    let bucket = if kept { tier.clone() } else { least_severe(all, &tier) };
    tier.iter().for_each(|&i| scores[i] = 0.0);
    score_bucket(all, &bucket, settings, !kept, &mut scores);
    scores
}

/// Chooses among the replicas `tier`, which all miss a bound, the replicas that miss their bounds least. These are the
/// idle replicas; if there are none, the replicas that miss only TPOT; then the replicas that miss only TTFT; then the
/// replicas that miss both.
fn least_severe(all: &[Headrooms], tier: &[usize]) -> Vec<usize> {
    let those = |want: &dyn Fn(&Headrooms) -> bool| tier.iter().copied().filter(|&i| want(&all[i])).collect::<Vec<_>>();
    let idle = those(&|h| h.in_flight == 0);
    let only_tpot = those(&|h| h.ttft >= 0.0 && h.tpot < 0.0);
    let only_ttft = those(&|h| h.ttft < 0.0 && h.tpot >= 0.0);
    let both = those(&|h| h.ttft < 0.0 && h.tpot < 0.0);
    [idle, only_tpot, only_ttft, both].into_iter().find(|bucket| !bucket.is_empty()).unwrap_or_default()
}

/// Scores are multiples of 1 / `STEPS` (hundredths), so that nearly equal scores become equal.
const STEPS: f64 = 100.0;
/// If the largest and the smallest headroom (bound minus predicted latency) of the replicas differ by at most this
/// number of seconds, the headrooms count as equal.
const EPS: f64 = 1e-9;

fn score_bucket(all: &[Headrooms], bucket: &[usize], settings: &LlmDSlo, least: bool, scores: &mut [f64]) {
    let range = |of: &dyn Fn(&Headrooms) -> f64| {
        let values = bucket.iter().map(|&i| of(&all[i]).abs());
        values.fold((f64::MAX, -f64::MAX), |(low, high), v| (low.min(v), high.max(v)))
    };
    let ((ttft_low, ttft_high), (tpot_low, tpot_high)) = (range(&|h| h.ttft), range(&|h| h.tpot));
    let (ttft_range, tpot_range) = (ttft_high - ttft_low, tpot_high - tpot_low);
    let sum = settings.ttft_weight + settings.tpot_weight;
    let (mut alpha, mut beta) =
        if sum <= 0.0 { (1.0, 0.0) } else { (settings.ttft_weight / sum, settings.tpot_weight / sum) };
    if ttft_range <= EPS && tpot_range > EPS {
        (alpha, beta) = (0.0, 1.0);
    } else if tpot_range <= EPS && ttft_range > EPS {
        (alpha, beta) = (1.0, 0.0);
    }
    for &i in bucket {
        let place = |value: f64, low: f64, range: f64| if range > EPS { (value.abs() - low) / range } else { 0.5 };
        let combined =
            alpha * place(all[i].ttft, ttft_low, ttft_range) + beta * place(all[i].tpot, tpot_low, tpot_range);
        let most = settings.headroom_selection_strategy == Headroom::Most && !least;
        let weight = if most { combined } else { 1.0 - combined };
        scores[i] = ((weight * STEPS).trunc() + 1.0) / STEPS;
    }
}

/// llm-d's scores without a prediction: the mean of the share of free KV blocks, the waiting queue's score and the
/// cached share of the prompt, rounded to hundredths.
pub(super) fn composite(replicas: &[Seen], shares: &[f64]) -> Vec<f64> {
    let waiting = |r: &Seen| r.report.map_or(0, |report| report.load.waiting);
    let most = replicas.iter().map(waiting).max().unwrap_or(0);
    let score = |(replica, share): (&Seen, &f64)| {
        let queue = if most == 0 { 1.0 } else { f64::from(most - waiting(replica)) / f64::from(most) };
        let free = 1.0 - replica.report.map_or(0.0, |report| report.load.kv_use());
        (STEPS * (free / 3.0 + queue / 3.0 + share / 3.0)).round() / STEPS
    };
    replicas.iter().zip(shares).map(score).collect()
}
