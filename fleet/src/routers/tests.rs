//! Compares every router on 10,000 random states: with decisions that the code of the router's original program made,
//! or with a second implementation, which is as simple as possible. A second implementation is written from the
//! original source alone or, for our own routers, from their rule.

mod dynamo;
mod keys;
mod llm_d;
mod own;
mod recorded;
mod states;

use super::*;
use crate::Report;
use crate::router::{Asked, Ended, Seen};
use foretoken_sim::{Load, Luck, Stream, Time};
use std::collections::HashMap;

const STATES: u64 = 10_000;

/// The random numbers of one test case, from which its request and the states of its replicas are made.
#[derive(Clone, Copy)]
struct Draw(Luck);

impl Draw {
    fn of(test: u64, state: u64) -> Draw {
        Draw(Luck::new(test, Stream::Arrivals, state))
    }

    fn below(self, which: u64, n: u64) -> u64 {
        self.0.bits(which) % n
    }
}

/// A random prompt: its length and the ids of its shared blocks of 16 tokens. Half of the prompts have no shared
/// blocks, the others 0 to 11.
fn prompt(draw: Draw) -> (u32, Vec<u64>) {
    let shared = if draw.below(50, 2) == 0 { 0 } else { draw.below(51, 12) };
    let text = draw.below(52, 6);
    let prefix: Vec<u64> = (0..shared).map(|block| 100 * (text + 1) + block).collect();
    (shared as u32 * 16 + 1 + draw.below(53, 300) as u32, prefix)
}

fn asked(id: u32, now: Time, (prompt_len, prefix): &(u32, Vec<u64>)) -> Asked<'_> {
    Asked { id, now, prompt_len: *prompt_len, category: (id % 3) as u16, prefix, prefix_block: 16, tpot_s: 0.05 }
}

/// `n` random replicas. Loads are small numbers, so that equal loads are common. A few replicas have not reported.
fn replicas(draw: Draw, n: usize) -> Vec<Seen> {
    let one = |r: u64| {
        let drawn = |which: u64, below: u64| draw.below(100 + 10 * r + which, below);
        let load = Load {
            running: drawn(0, 20) as u32,
            waiting: drawn(1, 6) as u32,
            waiting_tokens: drawn(2, 4000),
            used_blocks: drawn(3, 101) as u32,
            usable_blocks: 100,
            emitted: drawn(4, 10_000),
            ..Load::default()
        };
        let report = Report { at: Time::ZERO, load, tok_s: [0.0, 800.0, 2500.0][drawn(5, 3) as usize] };
        let reported = drawn(6, 10) > 0;
        Seen {
            in_flight: drawn(7, 60) as u32,
            sent: drawn(8, 4),
            report: reported.then_some(report),
            reports: if reported { 1 + drawn(9, 3) } else { 0 },
        }
    };
    (0..n as u64).map(one).collect()
}

fn context<'a>(replicas: usize, seed: u64, true_steps: &'a [u32]) -> RouterContext<'a> {
    RouterContext { replicas, seed, block_size: &[16; 16], slo_s: [0.5, 0.05], true_steps }
}

/// Lets the router choose a replica for each of `STATES` random requests, among `n` replicas. Asserts that each choice
/// equals the choice of the second implementation `second`, and that every replica is chosen at least once.
fn compare(router: &RouterSpec, n: usize, mut second: impl FnMut(&Asked, &[Seen]) -> usize) {
    let test = 1000 + n as u64;
    let mut first = router.build(&context(n, 7, &[]));
    let mut chosen = vec![0u32; n];
    for state in 0..STATES {
        let draw = Draw::of(test, state);
        let prompt = prompt(draw);
        let request = asked(state as u32, Time(state * 20_000_000_000), &prompt);
        let seen = replicas(draw, n);
        let choice = first.route(&request, &seen);
        assert_eq!(choice, second(&request, &seen), "{}, state {state}: {seen:?}", router.name());
        chosen[choice] += 1;
    }
    assert!(chosen.iter().all(|&count| count > 0), "{}: {chosen:?}", router.name());
}

/// A uniform whole number from 0 to `n` − 1: draw number `which` from the router's random stream for the request.
fn uniform(request: &Asked, which: u64, n: usize) -> usize {
    (Luck::new(7, Stream::Router, request.id.into()).unit(which) * n as f64) as usize
}

/// The router `random` chooses every replica with the same probability. Chi-square test with 4 degrees of freedom; its
/// 0.999-quantile is 18.47.
#[test]
fn random_is_uniform() {
    let mut counts = [0.0; 5];
    compare(&RouterSpec::Random(Default::default()), 5, |request, seen| {
        let choice = uniform(request, 0, seen.len());
        counts[choice] += 1.0;
        choice
    });
    let expected = STATES as f64 / 5.0;
    let chi: f64 = counts.iter().map(|n: &f64| (n - expected).powi(2) / expected).sum();
    assert!(chi < 18.47, "{counts:?}");
}

#[test]
fn least_requests() {
    compare(&RouterSpec::LeastRequests(Default::default()), 6, |_, seen| {
        let mut order: Vec<usize> = (0..seen.len()).collect();
        order.sort_by_key(|&r| seen[r].in_flight);
        order[0]
    });
}

/// Every router has valid default settings, a summary and a source, and is read back unchanged from its JSON and from
/// its name. An unknown name is refused.
#[test]
fn the_table_is_whole() {
    let all = RouterSpec::all();
    assert!(all.len() >= 13);
    for router in &all {
        assert!(router.definition().check().is_ok() && !router.definition().about().source.is_empty());
        assert!(!router.definition().about().summary.is_empty() && router.usual_signals().check().is_ok());
        let text = serde_json::to_string(router).unwrap();
        assert_eq!(&serde_json::from_str::<RouterSpec>(&text).unwrap(), router, "{text}");
        let name = serde_json::to_string(router.name()).unwrap();
        assert_eq!(&serde_json::from_str::<RouterSpec>(&name).unwrap(), router, "the name alone");
    }
    assert!(serde_json::from_str::<RouterSpec>("\"robin\"").is_err());
}
