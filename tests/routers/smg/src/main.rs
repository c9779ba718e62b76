//! Records the decisions of the routing policies of SMG (a router for LLM servers) on states, each of which is a
//! request with the loads of the workers. `fleet/src/routers/tests/states.rs` draws the states.
//! Run it with `cargo run --release -- FOLDER`.

#![allow(dead_code, unused_imports, unexpected_cfgs)]

mod config;
mod mesh;
mod observability;
#[path = "../source/policies/mod.rs"]
mod policies;
#[path = "../../../../fleet/src/routers/tests/states.rs"]
mod states;
mod worker;

use openai_protocol::worker::{SchedulerLoadSnapshot, WorkerLoadResponse};
use policies::{
    CacheAwareConfig, CacheAwarePolicy, LeastLoadPolicy, LoadBalancingPolicy, PowerOfTwoPolicy, PrefixHashConfig,
    PrefixHashPolicy, RandomPolicy, RoundRobinPolicy, SelectWorkerInfo,
};
use states::{Load, State, REPLICAS, SEED, STATES};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use worker::{HashRing, Set, Worker};

struct Fleet {
    set: Vec<Arc<Set>>,
    workers: Vec<Arc<dyn Worker>>,
    ring: Arc<HashRing>,
}

impl Fleet {
    fn new() -> Fleet {
        let url = |r| format!("http://worker-{r}:8000");
        let set: Vec<Arc<Set>> =
            (0..REPLICAS).map(|r| Arc::new(Set { url: url(r), load: AtomicUsize::new(0) })).collect();
        let workers = set.iter().map(|worker| Arc::clone(worker) as Arc<dyn Worker>).collect();
        Fleet { set, workers, ring: Arc::new(HashRing::new((0..REPLICAS).map(url))) }
    }

    fn set(&self, in_flight: &[u32]) {
        for (worker, &load) in self.set.iter().zip(in_flight) {
            worker.load.store(load as usize, Ordering::Relaxed);
        }
    }

    fn decide(&self, policy: &dyn LoadBalancingPolicy, index: u64, tokens: &[u32]) -> usize {
        rand::begin(SEED, index);
        let info =
            SelectWorkerInfo { tokens: Some(tokens), hash_ring: Some(Arc::clone(&self.ring)), ..Default::default() };
        policy.select_worker(&self.workers, &info).expect("all workers are healthy")
    }
}

fn report(load: &Load) -> WorkerLoadResponse {
    let rank = SchedulerLoadSnapshot {
        num_running_reqs: load.running as i32,
        num_waiting_reqs: load.waiting as i32,
        num_waiting_uncached_tokens: load.waiting_tokens as i32,
        token_usage: f64::from(load.kv) / 1000.0,
        gen_throughput: f64::from(load.tok_s),
        ..Default::default()
    };
    WorkerLoadResponse { dp_rank_count: 1, loads: vec![rank], ..Default::default() }
}

/// The worker that the routing policy chooses in each state, as one character. If `idle` is true, each state gets two
/// characters: first the choice when no request is in flight, then the choice with the state's requests in flight.
fn decisions(policy: &dyn LoadBalancingPolicy, idle: bool) -> Vec<char> {
    let fleet = Fleet::new();
    let mut decisions = Vec::new();
    let mut note = |worker: usize| decisions.push(char::from_digit(worker as u32, 36).expect("few workers"));
    for index in 0..STATES {
        let state = State::of(index);
        let tokens = state.tokens(index);
        let new = state.reports.iter().enumerate().filter_map(|(r, load)| Some((r, load.as_ref()?)));
        let loads: HashMap<String, WorkerLoadResponse> =
            new.map(|(r, load)| (fleet.set[r].url.clone(), report(load))).collect();
        policy.update_loads(&loads);
        if idle {
            fleet.set(&[0; REPLICAS]);
            note(fleet.decide(policy, index, &tokens));
        }
        fleet.set(&state.in_flight);
        note(fleet.decide(policy, index, &tokens));
    }
    decisions
}

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("name the folder for the fixtures"));
    let cache_aware = CacheAwareConfig { eviction_interval_secs: 0, ..Default::default() };
    let policies: [(&str, Box<dyn LoadBalancingPolicy>); 6] = [
        ("round-robin", Box::new(RoundRobinPolicy::new())),
        ("random", Box::new(RandomPolicy::new())),
        ("power-of-two", Box::new(PowerOfTwoPolicy::new())),
        ("least-load", Box::new(LeastLoadPolicy::new())),
        ("cache-aware", Box::new(CacheAwarePolicy::with_config(cache_aware))),
        ("prefix-hash", Box::new(PrefixHashPolicy::new(PrefixHashConfig::default()))),
    ];
    for (name, policy) in policies {
        let all = decisions(&*policy, name == "prefix-hash");
        let lines: Vec<String> = all.chunks(100).map(|line| line.iter().collect()).collect();
        let text = format!("smg 1.13.0 {}\n{}\n", policy.name(), lines.join("\n"));
        std::fs::write(folder.join(format!("smg-{name}.txt")), text).expect("the file can be written");
    }
}
