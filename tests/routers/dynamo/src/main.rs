//! Records which workers Dynamo's `DefaultWorkerSelector` chooses. Run it with `cargo run --release -- dynamo-kv.txt`.
//!
//! A state is a request and the loads of the workers. The selector draws one of the workers with the least cost at
//! random, so it is asked many times in each state. The fixture, the file of recorded decisions, has one digit per
//! state; the bits of the digit are the workers that the selector chose at least once.

#[path = "../../../../fleet/src/routers/tests/states.rs"]
#[allow(dead_code)]
mod states;

use dynamo_kv_router::protocols::{RoutingConstraints, WorkerConfigLike, WorkerWithDpRank};
use dynamo_kv_router::scheduling::{OverlapSignals, ScheduleMode, SchedulingRequest};
use dynamo_kv_router::{
    DefaultWorkerSelector, KvRouterConfig, WorkerLoadProjection, WorkerSelectionInput, WorkerSelector,
};
use states::{KvState, STATES};
use std::collections::HashMap;

/// How often Dynamo's worker selector is asked in each state. Of four workers with equal costs, one is never drawn in
/// about 4 · 0.75^100 of the states.
const ASKED: u32 = 100;

struct Worker;

impl WorkerConfigLike for Worker {
    fn data_parallel_start_rank(&self) -> u32 {
        0
    }

    fn data_parallel_size(&self) -> u32 {
        1
    }

    fn max_num_batched_tokens(&self) -> Option<u64> {
        None
    }

    fn total_kv_blocks(&self) -> Option<u64> {
        None
    }
}

fn chosen(state: &KvState) -> u32 {
    let config = KvRouterConfig {
        router_temperature: 0.0,
        overlap_score_credit: state.overlap_score_credit,
        overlap_score_credit_decay: state.overlap_score_credit_decay,
        prefill_load_scale: state.prefill_load_scale,
        decode_active_request_weight: state.decode_active_request_weight,
        ..KvRouterConfig::default()
    };
    let selector = DefaultWorkerSelector::new(Some(config), "aggregated");
    let workers: HashMap<u64, Worker> = (0..state.workers.len() as u64).map(|id| (id, Worker)).collect();
    let of = |id: usize| WorkerWithDpRank::from_worker_id(id as u64);
    let mut overlap = OverlapSignals {
        tier_overlap_blocks: Default::default(),
        effective_overlap_blocks: Default::default(),
        effective_cached_tokens: Default::default(),
    };
    let mut worker_loads = HashMap::default();
    for (id, worker) in state.workers.iter().enumerate() {
        overlap.effective_overlap_blocks.insert(of(id), worker.overlap as f64);
        overlap.effective_cached_tokens.insert(of(id), 16 * worker.overlap as usize);
        let load = WorkerLoadProjection {
            active_prefill_tokens: worker.prefill_tokens as usize,
            active_decode_blocks: worker.blocks as usize,
            active_requests: worker.requests as usize,
            additional_active_blocks: 0,
        };
        worker_loads.insert(of(id), load);
    }
    let request = SchedulingRequest {
        mode: ScheduleMode::QueryOnly { request_id: None },
        token_seq: None,
        isl_tokens: state.tokens as usize,
        lora_name: None,
        expected_output_tokens: None,
        affinity_target: None,
        pinned_worker: None,
        allowed_worker_ids: None,
        routing_constraints: RoutingConstraints::default(),
        router_config_override: None,
        track_prefill_tokens: true,
        priority_jump: 0.0,
        strict_priority: 0,
        policy_class: None,
        session_context: None,
        overlap,
        kv_transfer_candidates: None,
        retain_kv_transfer_chain: false,
        shared_cache_hits: None,
        worker_loads,
        resp_tx: None,
    };
    let choose = |_| {
        let input = WorkerSelectionInput::configured(&workers, &request, request.eligibility(), 16);
        1 << selector.select_worker(input).expect("there are workers").worker.worker_id
    };
    (0..ASKED).map(choose).fold(0, |all, one: u32| all | one)
}

fn main() {
    let to = std::env::args().nth(1).expect("name the file to write");
    let digit = |index: u64| char::from_digit(chosen(&KvState::of(index)), 36).expect("four workers make one digit");
    let all: Vec<char> = (0..STATES).map(digit).collect();
    let lines: Vec<String> = all.chunks(100).map(|line| line.iter().collect()).collect();
    let text = format!("dynamo-kv-router 1.6.1 DefaultWorkerSelector\n{}\n", lines.join("\n"));
    std::fs::write(to, text).expect("the file can be written");
}
