//! The workers that this program, which records the decisions of SMG (a router for LLM servers), gives to SMG's
//! policies. Methods that the recorded policies do not use do nothing.

#[path = "../source/worker/expected_wait.rs"]
pub mod expected_wait;
#[path = "../source/worker/hash_ring.rs"]
pub mod hash_ring;

pub use hash_ring::HashRing;

use kv_index::{ContentHash, OverlapScores};
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

pub const UNKNOWN_MODEL_ID: &str = "unknown";

pub trait Worker: Send + Sync + Debug {
    fn url(&self) -> &str;
    fn load(&self) -> usize;

    fn model_id(&self) -> &str {
        UNKNOWN_MODEL_ID
    }

    fn is_available(&self) -> bool {
        true
    }

    fn is_healthy_and_eligible(&self) -> bool {
        true
    }

    fn routing_state(&self) -> RoutingState {
        RoutingState { load: self.load(), overloaded: false }
    }

    fn increment_processed(&self) {}

    fn admitted_age(&self) -> Duration {
        Duration::MAX
    }

    fn warmup_growth(&self, _: usize) -> usize {
        0
    }

    fn divert_until_ms(&self) -> u64 {
        0
    }

    fn note_diverted(&self, _: u64) {}
}

pub struct RoutingState {
    pub load: usize,
    pub overloaded: bool,
}

impl RoutingState {
    pub fn eligible(&self) -> bool {
        true
    }
}

/// A worker whose number of requests in flight this program sets.
#[derive(Debug)]
pub struct Set {
    pub url: String,
    pub load: AtomicUsize,
}

impl Worker for Set {
    fn url(&self) -> &str {
        &self.url
    }

    fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }
}

/// An index of the servers' KV events. It is always empty, because no server of the recorder sends KV events.
pub struct KvIndex;

impl KvIndex {
    pub fn is_empty(&self) -> bool {
        true
    }

    pub fn name(&self) -> &'static str {
        ""
    }

    pub fn worker_id(&self, _: &str) -> Option<u32> {
        None
    }

    pub fn worker_block_count(&self, _: u32) -> usize {
        0
    }

    pub fn find_matches(&self, _: &[ContentHash], _: bool) -> OverlapScores {
        unreachable!("the index is empty")
    }
}

#[derive(Debug)]
pub struct KvEventMonitor;

impl KvEventMonitor {
    pub fn get_indexer(&self, _: &str) -> Option<Arc<KvIndex>> {
        None
    }

    pub fn block_size(&self, _: &str) -> Option<usize> {
        None
    }
}

/// Types of load snapshots. This program, which records SMG's decisions, passes loads with `update_loads` instead and
/// publishes no snapshots.
pub mod load_state {
    use openai_protocol::worker::WorkerLoadResponse;
    use std::sync::Arc;

    pub type LoadReceiver = tokio::sync::watch::Receiver<Arc<LoadSnapshot>>;

    #[derive(Debug)]
    pub struct LoadSnapshot;

    impl LoadSnapshot {
        pub fn get(&self, _: &str) -> Option<&WorkerLoadResponse> {
            None
        }
    }
}

/// Types of a worker's warm-up. No worker warms up here, because SMG asks for it only with KV events.
pub mod liveness {
    use std::time::Duration;

    pub struct Warmup {
        pub share: f32,
        pub divert_every: u64,
    }

    impl Warmup {
        pub fn applies(&self, _: Duration, _: Option<usize>, _: usize, _: usize) -> bool {
            false
        }

        pub fn is_thin(&self, _: usize, _: usize) -> bool {
            false
        }

        pub fn period(&self) -> u64 {
            1
        }
    }

    pub fn warmup() -> Warmup {
        Warmup { share: 0.0, divert_every: 0 }
    }

    pub fn now_ms() -> u64 {
        0
    }
}
