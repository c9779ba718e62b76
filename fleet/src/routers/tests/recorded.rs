//! Compares routers with decisions that their programs' own code made on the same states (`tests/routers/`).

use super::states::{KvState, REPLICAS, SEED, STATES, State};
use super::*;
use crate::routers::dynamo_kv::Candidate;
use crate::routers::prefix_hash::bounded;

/// Reads the recorded decisions of the fixture `name`: one base-36 digit each, from the second line on.
fn decisions(name: &str) -> Vec<u32> {
    let path = format!("{}/../tests/routers/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let lines = text.lines().skip(1).flat_map(str::chars);
    lines.map(|c| c.to_digit(36).expect("a decision is a digit or a letter")).collect()
}

/// Goes through the recorded states in order and calls `decide` with the state's number, the request, and the replicas
/// as a router sees them.
fn replay(mut decide: impl FnMut(usize, &Asked, &[Seen])) {
    let mut seen = vec![Seen::default(); REPLICAS];
    for index in 0..STATES {
        let State { prompt_len, prefix, in_flight, reports } = State::of(index);
        for ((replica, in_flight), report) in seen.iter_mut().zip(in_flight).zip(reports) {
            replica.in_flight = in_flight;
            if let Some(report) = report {
                let load = Load {
                    running: report.running,
                    waiting: report.waiting,
                    waiting_tokens: report.waiting_tokens,
                    used_blocks: report.kv,
                    usable_blocks: 1000,
                    ..Load::default()
                };
                replica.report = Some(Report { at: Time::ZERO, load, tok_s: f64::from(report.tok_s) });
                replica.reports += 1;
            }
        }
        let prompt = (prompt_len, prefix);
        let request = asked(index as u32, Time(index), &prompt);
        decide(index as usize, &request, &seen);
    }
}

/// The share of the states (0 to 1) in which our router chooses the replica that the original program chose. Also
/// asserts that both choose every replica at least once.
fn agreement(router: &RouterSpec, fixture: &str) -> f64 {
    let theirs = decisions(fixture);
    assert_eq!(theirs.len(), STATES as usize, "{fixture}");
    let mut ours = router.build(&context(REPLICAS, SEED, &[]));
    let (mut equal, mut chosen) = (0u32, [[false; REPLICAS]; 2]);
    replay(|index, request, seen| {
        let (our, their) = (ours.route(request, seen), theirs[index] as usize);
        (chosen[0][our], chosen[1][their]) = (true, true);
        equal += u32::from(our == their);
    });
    assert_eq!(chosen, [[true; REPLICAS]; 2], "{fixture}");
    f64::from(equal) / STATES as f64
}

#[test]
fn routers_decide_as_their_programs() {
    let cache_aware = SmgCacheAware { eviction_interval_s: 1e6, ..Default::default() };
    for (router, fixture) in [
        (RouterSpec::RoundRobin(Default::default()), "smg-round-robin"),
        (RouterSpec::Random(Default::default()), "smg-random"),
        (RouterSpec::PowerOfTwo(Default::default()), "smg-power-of-two"),
        (RouterSpec::SmgLeastLoad(Default::default()), "smg-least-load"),
        (RouterSpec::SmgCacheAware(cache_aware), "smg-cache-aware"),
        (RouterSpec::VllmDp(Default::default()), "vllm-dp"),
    ] {
        assert_eq!(agreement(&router, fixture), 1.0, "{fixture}");
    }
}

/// Compares our limit on the requests in flight of a replica with SMG's. SMG's hash differs from ours, so the fixture
/// has two characters for each state: the replica to which SMG's hash points, and the replica that SMG chose.
#[test]
fn prefix_hash_bounds_load_as_smg() {
    let theirs = decisions("smg-prefix-hash");
    let mut bounds = 0;
    replay(|index, _, seen| {
        let [home, decision] = [theirs[2 * index], theirs[2 * index + 1]].map(|r| r as usize);
        assert_eq!(bounded(seen, home, &PrefixHash::default()), decision, "state {index}: {seen:?}");
        bounds += u32::from(home != decision);
    });
    assert!(bounds > 500, "the bound acts in {bounds} states");
}

/// In each state, the workers with the least cost by our formula are the workers with the least cost by Dynamo's crate.
/// The fixture has for each state a number whose bit n says whether worker n is one of them.
#[test]
fn dynamo_costs_are_least_where_its_crate_says() {
    let theirs = decisions("dynamo-kv");
    assert_eq!(theirs.len(), STATES as usize);
    let mut ties = 0;
    for (index, &least) in theirs.iter().enumerate() {
        let state = KvState::of(index as u64);
        let settings = DynamoKv {
            overlap_score_credit: state.overlap_score_credit,
            overlap_score_credit_decay: state.overlap_score_credit_decay,
            prefill_load_scale: state.prefill_load_scale,
            decode_active_request_weight: state.decode_active_request_weight,
            ..DynamoKv::default()
        };
        let candidates = state.workers.iter().map(|worker| Candidate {
            prefill_tokens: worker.prefill_tokens,
            decode_blocks: worker.blocks,
            requests: worker.requests,
            overlap_blocks: worker.overlap as f64,
        });
        let fewest = state.workers.iter().map(|worker| worker.prefill_tokens).min().unwrap();
        let costs: Vec<f64> = candidates.map(|c| settings.cost(&c, state.tokens, 16, fewest)).collect();
        let lowest = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let ours: u32 = (0..costs.len()).filter(|&w| costs[w] == lowest).map(|w| 1 << w).sum();
        assert_eq!(ours, least, "state {index}: {costs:?}");
        ties += u32::from(!least.is_power_of_two());
    }
    assert!(ties > 500, "{ties} states have ties");
}
