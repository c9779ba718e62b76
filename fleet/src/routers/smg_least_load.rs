//! Chooses the replica that finishes its waiting tokens soonest. A penalty grows steeply as a replica's KV blocks fill
//! up.

use super::checks;
use super::smg_expected_wait::{ExpectedWait, Scorer};
use crate::router::{About, Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use serde::{Deserialize, Serialize};

/// The replica that drains soonest (SMG 1.13 `policies/least_load.rs`). Its score, in seconds, is (waiting tokens + p ·
/// running requests + p · requests that its report does not know + tokens sent since its last report) / its tokens a
/// second + w · k / (1 − k), with p `mean_prefill_tokens`, w `kv_pressure_weight_s`, and k the share of KV blocks in
/// use. If the best scores of several replicas differ by at most a microsecond, one of these replicas is drawn at
/// random. SMG's limit on waiting requests, which is off by default, is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SmgLeastLoad {
    /// w: seconds that the score rises when half of the KV blocks are in use (k = 0.5), ≥ 0.
    pub kv_pressure_weight_s: f64,
    /// Tokens a second that are assumed for a replica until it reports a rate, > 0.
    pub default_throughput_tok_s: f64,
    /// p: prompt tokens that are assumed for a running request, for a request on the way to a replica, and for each
    /// request of a replica that has not reported; at least 1.
    pub mean_prefill_tokens: u32,
}

impl Default for SmgLeastLoad {
    fn default() -> SmgLeastLoad {
        SmgLeastLoad { kv_pressure_weight_s: 0.15, default_throughput_tok_s: 2000.0, mean_prefill_tokens: 1024 }
    }
}

impl RouterDefinition for SmgLeastLoad {
    fn about(&self) -> About {
        About {
            summary: "the replica that drains soonest, with a barrier before its KV blocks are full",
            source: "SMG 1.13, src/policies/least_load.rs",
            needs: Needs { ends: true, reports: true, ..Needs::default() },
            usual_signals: checks::smg_signals(),
            scales: true,
            ..About::default()
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        checks::not_negative("kv_pressure_weight_s", self.kv_pressure_weight_s)?;
        checks::positive("default_throughput_tok_s", self.default_throughput_tok_s)?;
        checks::positive("mean_prefill_tokens", f64::from(self.mean_prefill_tokens))
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        let settings = ExpectedWait {
            kv_pressure_weight_s: self.kv_pressure_weight_s,
            default_throughput_tok_s: self.default_throughput_tok_s,
            mean_prefill_tokens: self.mean_prefill_tokens,
        };
        Box::new(Drains { scorer: Scorer::new(settings, context.seed, context.replicas) })
    }
}

struct Drains {
    scorer: Scorer,
}

impl Router for Drains {
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize {
        if replicas.len() == 1 {
            return 0;
        }
        let all: Vec<usize> = (0..replicas.len()).collect();
        self.scorer.choose(&all, request, replicas, 0)
    }

    fn joined(&mut self) {
        self.scorer.joined();
    }

    fn left(&mut self, replica: usize) {
        self.scorer.left(replica);
    }
}
