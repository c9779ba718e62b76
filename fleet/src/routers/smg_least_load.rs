//! Chooses the replica that finishes its waiting tokens soonest. A penalty grows steeply as a replica's KV blocks fill
//! up.

use super::checks;
use super::least_requests::least;
use crate::Signals;
use crate::router::{Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use serde::{Deserialize, Serialize};

/// The replica that drains soonest (SMG `policies/least_load.rs`). Its score is (waiting tokens + tokens sent since its
/// last report) / its tokens a second + w · k / (1 − k), with k the share of KV blocks in use. Of equal replicas the
/// first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SmgLeastLoad {
    /// w: seconds that the score rises when half of the KV blocks are in use (k = 0.5), ≥ 0.
    pub kv_pressure_weight_s: f64,
    /// Tokens a second that are assumed for a replica until it reports a rate, > 0.
    pub default_throughput_tok_s: f64,
    /// Prompt tokens that are assumed for each request on a replica that has not reported, at least 1.
    pub mean_prefill_tokens: u32,
}

impl Default for SmgLeastLoad {
    fn default() -> SmgLeastLoad {
        SmgLeastLoad { kv_pressure_weight_s: 0.15, default_throughput_tok_s: 2000.0, mean_prefill_tokens: 1024 }
    }
}

impl RouterDefinition for SmgLeastLoad {
    fn summary(&self) -> &'static str {
        "the replica that drains soonest, with a barrier before its KV blocks are full"
    }

    fn source(&self) -> &'static str {
        "SMG, model_gateway/src/policies/least_load.rs"
    }

    fn needs(&self) -> Needs {
        Needs { ends: true, reports: true, ..Needs::default() }
    }

    fn usual_signals(&self) -> Signals {
        checks::smg_signals()
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        checks::not_negative("kv_pressure_weight_s", self.kv_pressure_weight_s)?;
        checks::positive("default_throughput_tok_s", self.default_throughput_tok_s)?;
        checks::positive("mean_prefill_tokens", f64::from(self.mean_prefill_tokens))
    }

    fn scales(&self) -> bool {
        true
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        let sent = vec![Sent::default(); context.replicas];
        Box::new(Drains { settings: self.clone(), sent })
    }
}

struct Drains {
    settings: SmgLeastLoad,
    sent: Vec<Sent>,
}

/// The prompt tokens that were sent to a replica since its last report reached the router.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// Number of the replica's reports that had arrived when `tokens` was set to 0.
    reports: u64,
    tokens: u64,
}

impl Router for Drains {
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize {
        for (sent, replica) in self.sent.iter_mut().zip(replicas) {
            if sent.reports != replica.reports {
                *sent = Sent { reports: replica.reports, tokens: 0 };
            }
        }
        if replicas.len() == 1 {
            return 0;
        }
        let rates = replicas.iter().filter_map(|r| r.report).map(|r| r.tok_s).filter(|rate| *rate > 0.0);
        let (sum, count) = rates.fold((0.0, 0u32), |(sum, n), rate| (sum + rate, n + 1));
        let nominal = if count > 0 { sum / f64::from(count) } else { self.settings.default_throughput_tok_s };
        let reported = replicas.iter().any(|r| r.report.is_some());
        let scores = self.sent.iter().zip(replicas).map(|(sent, replica)| self.score(sent, replica, nominal, reported));
        let best = least(scores);
        self.sent[best].tokens += u64::from(request.prompt_len);
        best
    }

    fn joined(&mut self) {
        self.sent.push(Sent::default());
    }

    fn left(&mut self, replica: usize) {
        self.sent.remove(replica);
    }
}

impl Drains {
    /// The score of a replica; the least score wins. If the replica has reported its load, the score is the seconds
    /// that [`SmgLeastLoad`] defines. If only other replicas have (`reported`), it is the seconds for the replica's
    /// requests in flight, of `mean_prefill_tokens` tokens each, at the rate `nominal` (tokens a second). If no replica
    /// has reported, it is the number of requests in flight.
    fn score(&self, sent: &Sent, replica: &Seen, nominal: f64, reported: bool) -> f64 {
        let settings = &self.settings;
        match replica.report {
            Some(report) => {
                let tokens = report.load.waiting_tokens as f64 + sent.tokens as f64;
                let rate = if report.tok_s > 0.0 { report.tok_s } else { settings.default_throughput_tok_s };
                let k = report.load.kv_use().clamp(0.0, 0.999);
                tokens / rate + settings.kv_pressure_weight_s * k / (1.0 - k)
            }
            None if reported => f64::from(replica.in_flight) * f64::from(settings.mean_prefill_tokens) / nominal,
            None => f64::from(replica.in_flight),
        }
    }
}
