//! Compares the policy `dspark` with recorded decisions of SGLang's DSpark planner: in which steps it limits the draft
//! tokens to verify, which draft tokens are verified, and the estimated tokens per second.

use super::*;
use crate::recorded::{draw, histories, near};
use crate::testing::{Batch, CONTEXT};
use serde_json::Value;

const ROUNDS: u64 = 20;
const SLOTS: u64 = 7;

#[derive(Deserialize)]
struct History {
    seed: u64,
    gamma: u32,
    lag: u32,
    overlap: bool,
    table: Value,
    grid: Option<Vec<u32>>,
    spread: f64,
    levels: u64,
    budgets: Vec<Option<usize>>,
    thetas: Vec<Option<f64>>,
    lens: String,
}

/// Parses SGLang's JSON file of a cost table: steps per second, or seconds of a step, by tokens.
fn table(file: &Value) -> CostTable {
    let list = |key: &str| serde_json::from_value::<Vec<f64>>(file[key].clone()).expect("numbers");
    let points = |x: &str, y: &str| list(x).into_iter().map(|x| x as u32).zip(list(y)).collect();
    match file["bias_seconds"].as_f64() {
        Some(bias_s) => CostTable::Sum {
            bias_s,
            by_requests: points("bs_probes", "alpha_seconds"),
            by_tokens: points("m_probes", "theta_seconds"),
        },
        None => CostTable::Steps {
            tokens: list("sample_batch_tokens").into_iter().map(|n| n as u32).collect(),
            steps_per_s: list("sample_steps_per_sec"),
        },
    }
}

/// The ids of the requests that take part in step `round` of the recording. A slot is a place in the engine's batch. In
/// the first step every slot gets a request. Later a slot gets a new request with probability 1/8; otherwise its
/// request takes part in the step with probability 4/5.
fn present(seed: u64, round: u64, generations: &mut [u64]) -> Vec<u32> {
    let mut ids = Vec::new();
    for slot in 1..=SLOTS {
        let new = round == 0 || draw(seed, 5, slot, round).is_multiple_of(8);
        generations[slot as usize] += u64::from(new);
        if new || !draw(seed, 6, slot, round).is_multiple_of(5) {
            ids.push((100 * slot + generations[slot as usize]) as u32);
        }
    }
    if ids.is_empty() {
        ids.push((100 + generations[1]) as u32);
    }
    ids
}

fn replay(h: &History) {
    let params = Dspark {
        gamma: Some(h.gamma),
        lag_steps: h.lag,
        overlap_schedule: h.overlap,
        align_to_graph: h.grid.is_some(),
        ..Dspark::default()
    };
    let mut policy = Scheduler::new(params, &CONTEXT);
    policy.table = table(&h.table);
    policy.capture_sizes = h.grid.clone().unwrap_or_default();
    let mut generations = [0; SLOTS as usize + 1];
    let mut lens = h.lens.split(' ');
    for round in 0..ROUNDS {
        let ids = present(h.seed, round, &mut generations);
        let n = ids.len();
        let mut batch = Batch::new(&vec![100; n], &vec![h.gamma; n]);
        batch.ids = ids;
        let mut drafts = Drafts::default();
        drafts.reset(n, h.gamma);
        drafts.draft_len.fill(h.gamma);
        drafts.verify_len = vec![h.gamma; n];
        for (i, &id) in batch.ids.iter().enumerate() {
            for j in 0..h.gamma {
                let sure = draw(h.seed, 8, 64 * u64::from(id) + u64::from(j), round) % h.levels;
                let confidence = (1.0 - sure as f64 / h.levels as f64 * h.spread) as f32;
                drafts.set_confidence(i, j as usize, confidence.into());
            }
        }
        let at = round as usize;
        policy.propose(&batch.view(), &mut DraftPlan { draft_len: vec![0; n], ..DraftPlan::default() });
        policy.select(&batch.view(), &mut drafts);
        let made: String = drafts.verify_len.iter().map(u32::to_string).collect();
        let where_at = || format!("history {}, round {round}: budget {:?}", h.seed, h.budgets[at]);
        assert_eq!(Some(made.as_str()), lens.next(), "{}", where_at());
        assert_eq!(policy.own_estimate.is_some(), h.budgets[at].is_some(), "{}", where_at());
        if let (Some(ours), Some(theirs)) = (policy.own_estimate, h.thetas[at]) {
            assert!(near(ours, theirs), "{}: {ours} for {theirs}", where_at());
        }
    }
}

#[test]
fn budgets_and_lengths_are_sglangs() {
    let all: Vec<History> = histories("sglang-dspark.jsonl.zst");
    all.iter().for_each(replay);
    let count = |f: fn(&History) -> bool| all.iter().filter(|h| f(h)).count();
    assert!(all.len() >= 300 && count(|h| h.table["bias_seconds"].is_null()) >= 100);
    assert!(count(|h| !h.table["bias_seconds"].is_null()) >= 100 && count(|h| !h.overlap) >= 50);
    assert!(count(|h| h.lag > 2) >= 100 && count(|h| h.grid.is_some()) >= 100);
}
