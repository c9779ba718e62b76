//! Tests of sessions (conversations): the turns of a session follow each other, and a turn finds the text of the turns
//! before it in the prefix cache.

use super::fixture::Fixture;
use super::invariants::configs;
use crate::*;
use proptest::prelude::*;

const BLOCK: u32 = 16;

/// Sessions that start a second apart. Session s has `turns[s]` turns. Each turn has `new` tokens of new prompt text
/// and `answer` tokens of output.
fn sessions(turns: &[u32], new: u32, answer: u32, gap: Time) -> Workload {
    let mut order: Vec<(u32, u32)> = (0u32..).zip(turns).flat_map(|(s, &n)| (0..n).map(move |t| (t, s))).collect();
    order.sort_unstable();
    let id = |turn, session| order.iter().position(|&o| o == (turn, session));
    let request = |&(turn, session): &(u32, u32)| {
        let prompt = turn * (new + answer) + new;
        let mut r = Request::new(Time::from_s(f64::from(turn * 1000 + session)), prompt, answer);
        r.prefix = (0..(prompt + answer).div_ceil(BLOCK)).map(|b| u64::from(session) << 32 | u64::from(b)).collect();
        r
    };
    let mut w: Workload = order.iter().map(request).collect();
    w.prefix_block = BLOCK;
    w.next_turn = order.iter().map(|&(t, s)| id(t + 1, s).map_or(RequestId::MAX, |at| at as RequestId)).collect();
    w.gap = vec![gap; w.len()];
    w
}

fn fixture(w: Workload) -> Fixture {
    let mut f = Fixture::new(w);
    f.arrivals = Arrivals::Sessions;
    f.config.prefix_caching = true;
    f.config.num_gpu_blocks = 4000;
    f
}

/// vLLM computes the KV of an answer's last token only when the token is part of the next prompt. So a turn finds in
/// the cache the full blocks of all tokens of the previous turns, without the last answer's last token.
#[test]
fn a_turn_computes_only_what_is_new() {
    for (new, answer) in [(100, 40), (64, 32), (33, 1), (48, 17)] {
        for version in [Version::default(), Version::V0_32] {
            let mut f = fixture(sessions(&[4, 3, 1], new, answer, Time::from_s(2.0)));
            f.config.version = version;
            for run in [f.plain(), f.erratic(3)] {
                let r = &run.records;
                for id in 0..f.workload.len() as RequestId {
                    let Some((next, _)) = f.workload.following(id) else { continue };
                    let before = f.workload.prompt_len[id as usize] + answer;
                    assert_eq!(
                        r.cached_tokens[next as usize],
                        (before - 1) / BLOCK * BLOCK,
                        "{new} {answer} {version:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn without_prefix_caching_a_turn_computes_all() {
    let mut f = fixture(sessions(&[3, 3], 100, 40, Time::from_s(2.0)));
    f.config.prefix_caching = false;
    assert!(f.plain().records.cached_tokens.iter().all(|&tokens| tokens == 0));
}

proptest! {
    /// For each order of a step's phases and each vLLM release, with preemptions: every turn ends once. A first turn is
    /// sent at its session's start. A later turn is sent exactly at the end of the turn before it plus its gap (the
    /// time that the client waits).
    #[test]
    fn every_turn_is_sent_a_gap_after_the_last_one_ended(
        turns in prop::collection::vec(1u32..5, 1..8),
        config in configs(),
        new in 1u32..60,
        answer in 1u32..30,
        gap in 0u64..3,
        limit in 0u32..5,
    ) {
        let w = sessions(&turns, new, answer, Time::from_s(gap as f64));
        let mut f = Fixture::new(w);
        (f.config, f.arrivals) = (config, Arrivals::Sessions);
        let run = if limit == 0 { f.plain() } else { f.erratic(limit) };
        let (r, w) = (&run.records, &f.workload);
        for id in 0..w.len() as RequestId {
            prop_assert!(r.outcome[id as usize] != Outcome::InFlight);
            if let Some((next, gap)) = w.following(id) {
                prop_assert_eq!(r.arrival[next as usize], r.finish[id as usize] + gap);
            }
        }
        for id in w.first_turns() {
            prop_assert_eq!(r.arrival[id as usize], w.arrival[id as usize]);
        }
    }
}
