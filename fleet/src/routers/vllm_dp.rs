//! vLLM's balancer between data-parallel engines.

use super::least_requests::least;
use crate::Signals;
use crate::router::{Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use serde::{Deserialize, Serialize};

/// The engine with the lowest 4 · (waiting requests) + (running requests) (vLLM `v1/engine/core_client.py`,
/// `DPLBAsyncMPClient.get_core_engine_for_request`, one API server). The counts come every 100 ms; between two of them
/// the client adds each request that it sends to the waiting ones. Of equal engines the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VllmDp {}

impl RouterDefinition for VllmDp {
    fn summary(&self) -> &'static str {
        "the engine with the least 4 · waiting + running requests"
    }

    fn source(&self) -> &'static str {
        "vLLM, vllm/v1/engine/core_client.py, DPLBAsyncMPClient"
    }

    fn needs(&self) -> Needs {
        Needs { reports: true, ..Needs::default() }
    }

    fn usual_signals(&self) -> Signals {
        Signals { interval_s: 0.1, delay_s: 0.0 }
    }

    fn scales(&self) -> bool {
        true
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        Box::new(Balancer { counts: vec![Counts::default(); context.replicas] })
    }
}

struct Balancer {
    counts: Vec<Counts>,
}

/// The client's counts for an engine: the last report, plus the requests sent since.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Number of the engine's reports that had arrived when the counts were set.
    reports: u64,
    waiting: u64,
    running: u64,
}

impl Router for Balancer {
    fn route(&mut self, _: &Asked, replicas: &[Seen]) -> usize {
        for (counts, replica) in self.counts.iter_mut().zip(replicas) {
            if let Some(report) = replica.report.filter(|_| counts.reports != replica.reports) {
                let (waiting, running) = (report.load.waiting.into(), report.load.running.into());
                *counts = Counts { reports: replica.reports, waiting, running };
            }
        }
        let best = least(self.counts.iter().map(|counts| 4 * counts.waiting + counts.running));
        self.counts[best].waiting += 1;
        best
    }

    fn joined(&mut self) {
        self.counts.push(Counts::default());
    }

    fn left(&mut self, replica: usize) {
        self.counts.remove(replica);
    }
}
