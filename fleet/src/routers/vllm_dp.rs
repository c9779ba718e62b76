//! vLLM's load balancer between data-parallel engines.

use super::least_requests::least;
use crate::Signals;
use crate::router::{About, Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use serde::{Deserialize, Serialize};

/// The engine with the lowest load (vLLM 0.33 `v1/engine/core_client.py`,
/// `DPLBAsyncMPClient.get_core_engine_for_request`, one API server). An engine's load is the larger of two numbers: its
/// waiting and running requests by the last report plus the requests sent since, and the client's own count of requests
/// in flight. If requests wait and the KV use is above 0.5, 6 · waiting · (KV use − 0.5) is added. If several engines
/// have the lowest load, the first in the order of comparison is taken. With every request this order starts one engine
/// later.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VllmDp {}

impl RouterDefinition for VllmDp {
    fn about(&self) -> About {
        About {
            summary: "the engine with the fewest requests, waiting ones weighted by KV use",
            source: "vLLM 0.33, vllm/v1/engine/core_client.py, DPLBAsyncMPClient",
            needs: Needs { ends: true, reports: true, ..Needs::default() },
            usual_signals: Signals { interval_s: 0.1, delay_s: 0.0 },
            scales: true,
            ..About::default()
        }
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        Box::new(Balancer { counts: vec![Counts::default(); context.replicas], start: 0 })
    }
}

struct Balancer {
    counts: Vec<Counts>,
    /// The index of the engine with which the comparison of loads starts for the next request.
    start: usize,
}

/// What vLLM's client counts for an engine: waiting and running requests by the engine's last load report, plus the
/// requests sent since.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Number of the engine's load reports that had arrived when the counts were last set from a report.
    reports: u64,
    waiting: u64,
    running: u64,
    kv_use: f64,
}

impl Router for Balancer {
    fn route(&mut self, _: &Asked, replicas: &[Seen]) -> usize {
        for (counts, replica) in self.counts.iter_mut().zip(replicas) {
            if let Some(report) = replica.report.filter(|_| counts.reports != replica.reports) {
                let (waiting, running) = (report.load.waiting.into(), report.load.running.into());
                *counts = Counts { reports: replica.reports, waiting, running, kv_use: report.load.kv_use() };
            }
        }
        let n = self.counts.len();
        let load = |engine: usize| {
            let counts = &self.counts[engine];
            let requests = u64::from(replicas[engine].in_flight).max(counts.waiting + counts.running);
            requests as f64 + counts.waiting as f64 * 6.0 * (counts.kv_use - 0.5).max(0.0)
        };
        let engines = (0..n).map(|i| (self.start + i) % n);
        let best = (self.start + least(engines.map(load))) % n;
        self.counts[best].waiting += 1;
        self.start = (self.start + 1) % n;
        best
    }

    fn joined(&mut self) {
        self.counts.push(Counts::default());
    }

    fn left(&mut self, replica: usize) {
        self.counts.remove(replica);
    }
}
