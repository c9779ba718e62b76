//! Compares every router with a second implementation, which is as simple as possible: 10,000 decisions each, on random
//! states. It is written from the original source alone or, for our own routers, from their rule.

mod dynamo;
mod llm_d;
mod own;

use super::*;
use crate::Report;
use crate::router::{Asked, Ended, Seen};
use foretoken_sim::luck::mix;
use foretoken_sim::{Load, Luck, Stream, Time};
use std::collections::HashMap;

const STATES: u64 = 10_000;

/// The random draws for one test case (one request and the states of the replicas).
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
fn prompt(draw: Draw, id: u32) -> (u32, Vec<u64>) {
    let shared = if draw.below(50, 2) == 0 { 0 } else { draw.below(51, 12) };
    let text = draw.below(52, 6);
    let prefix: Vec<u64> = (0..shared).map(|block| 100 * (text + 1) + block).collect();
    let _ = id;
    (shared as u32 * 16 + 1 + draw.below(53, 300) as u32, prefix)
}

fn asked(id: u32, now: Time, (prompt_len, prefix): &(u32, Vec<u64>)) -> Asked<'_> {
    Asked { id, now, prompt_len: *prompt_len, category: (id % 3) as u16, prefix, prefix_block: 16, tpot_s: 0.05 }
}

/// Random replicas: loads are small numbers, so that equal loads are common; a few replicas have not reported.
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

/// Routes `STATES` random requests over `n` replicas, and compares each choice with that of the second implementation.
/// Every replica must be chosen at least once.
fn compare(router: &RouterSpec, n: usize, mut second: impl FnMut(&Asked, &[Seen]) -> usize) {
    let test = 1000 + n as u64;
    let mut first = router.build(&context(n, 7, &[]));
    let mut chosen = vec![0u32; n];
    for state in 0..STATES {
        let draw = Draw::of(test, state);
        let prompt = prompt(draw, state as u32);
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

#[test]
fn round_robin() {
    let mut next = 0;
    compare(&RouterSpec::RoundRobin(Default::default()), 5, |_, seen| {
        let choice = next;
        next = if next + 1 == seen.len() { 0 } else { next + 1 };
        choice
    });
}

/// Every replica is equally likely: chi-square with 4 degrees of freedom, 0.999-quantile 18.47.
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

/// The rule of SMG's `power_of_two.rs`. The second worker is the first plus a random offset, so that the two differ.
/// The worker with the lower share of KV blocks in use is taken; if a report is missing, the worker with fewer requests
/// in flight.
#[test]
fn power_of_two() {
    compare(&RouterSpec::PowerOfTwo(Default::default()), 6, |request, seen| {
        let a = uniform(request, 0, seen.len());
        let mut b = a + 1 + uniform(request, 1, seen.len() - 1);
        if b >= seen.len() {
            b -= seen.len();
        }
        let usage = |r: usize| seen[r].report.map(|report| f64::from(report.load.used_blocks) / 100.0);
        let keep_first = match (usage(a), usage(b)) {
            (Some(one), Some(two)) => one <= two,
            _ => seen[a].in_flight <= seen[b].in_flight,
        };
        if keep_first { a } else { b }
    });
}

/// The rule of SMG's `least_load.rs`: each worker's score in seconds comes from its polled load and from the tokens
/// that were sent since the poll.
#[test]
fn smg_least_load() {
    let mut polled: HashMap<usize, u64> = HashMap::new();
    let mut inflight: HashMap<usize, u64> = HashMap::new();
    compare(&RouterSpec::SmgLeastLoad(Default::default()), 5, |request, seen| {
        for (r, replica) in seen.iter().enumerate() {
            if polled.insert(r, replica.reports).unwrap_or(0) != replica.reports {
                inflight.insert(r, 0);
            }
        }
        let rates: Vec<f64> = seen.iter().filter_map(|r| Some(r.report?.tok_s)).filter(|rate| *rate > 0.0).collect();
        let nominal = if rates.is_empty() { 2000.0 } else { rates.iter().sum::<f64>() / rates.len() as f64 };
        let any = seen.iter().any(|r| r.report.is_some());
        let mut best = (f64::INFINITY, 0);
        for (r, replica) in seen.iter().enumerate() {
            let score = if let Some(report) = replica.report {
                let queued = report.load.waiting_tokens as f64 + inflight.get(&r).copied().unwrap_or(0) as f64;
                let through = if report.tok_s > 0.0 { report.tok_s } else { 2000.0 };
                let k = (f64::from(report.load.used_blocks) / 100.0).min(0.999);
                queued / through + 0.15 * k / (1.0 - k)
            } else if any {
                f64::from(replica.in_flight) * 1024.0 / nominal
            } else {
                f64::from(replica.in_flight)
            };
            if score < best.0 {
                best = (score, r);
            }
        }
        *inflight.entry(best.1).or_default() += u64::from(request.prompt_len);
        best.1
    });
}

/// vLLM's `core_client.py`: the client counts [waiting, running] requests of each engine. A report replaces an engine's
/// counts. A sent request adds 1 to the waiting count of its engine.
#[test]
fn vllm_dp() {
    let mut counts = [([0u64; 2], 0u64); 4];
    compare(&RouterSpec::VllmDp(Default::default()), 4, |_, seen| {
        for (count, replica) in counts.iter_mut().zip(seen) {
            if let Some(report) = replica.report
                && count.1 != replica.reports
            {
                *count = ([report.load.waiting.into(), report.load.running.into()], replica.reports);
            }
        }
        let mut best = (u64::MAX, 0);
        for (i, ([waiting, running], _)) in counts.iter().enumerate() {
            let score = waiting * 4 + running;
            if score < best.0 {
                best = (score, i);
            }
        }
        counts[best.1].0[0] += 1;
        best.1
    });
}

/// SMG's `prefix_hash.rs`. For each request, this version searches all points of the hash ring.
#[test]
fn prefix_hash() {
    compare(&RouterSpec::PrefixHash(Default::default()), 5, |request, seen| {
        let key = crate::prefix::beginning(request, 256);
        let points: Vec<(u64, usize)> =
            (0..5).flat_map(|r| (0..150).map(move |v| (mix(mix(r as u64 + 1) ^ v), r))).collect();
        let behind = points.iter().filter(|p| p.0 >= key).min();
        let home = behind.unwrap_or_else(|| points.iter().min().unwrap()).1;
        let total: u32 = seen.iter().map(|r| r.in_flight).sum();
        let threshold = f64::from(total + 1) / 5.0 * 1.25;
        let ok = |r: usize| total == 0 || f64::from(seen[r].in_flight) <= threshold;
        if ok(home) {
            return home;
        }
        let mut best: Option<usize> = None;
        for r in (0..5).filter(|&r| ok(r)) {
            if best.is_none_or(|b| seen[r].in_flight < seen[b].in_flight) {
                best = Some(r);
            }
        }
        best.unwrap_or(home)
    });
}

/// SMG's `cache_aware.rs`. Here the approximate tree is a plain list of (worker, page) entries in the order of their
/// last use.
#[test]
fn smg_cache_aware() {
    // Entries as (worker, page, tokens), in the order of their last use. A page is named by all block ids from the
    // start of the prompt up to it. The unshared end of a prompt has a name that no other prompt has.
    let mut tree: Vec<(usize, Vec<u64>, u64)> = Vec::new();
    let mut evicted_at = Time::ZERO;
    let settings = SmgCacheAware { max_tree_size: 2000, balance_abs_threshold: 50, ..Default::default() };
    compare(&RouterSpec::SmgCacheAware(settings), 4, |request, seen| {
        let every = Time::from_s(30.0);
        while evicted_at + every <= request.now {
            evicted_at += every;
            for worker in 0..4 {
                let held = |tree: &Vec<(usize, Vec<u64>, u64)>| {
                    tree.iter().filter(|p| p.0 == worker).map(|p| p.2).sum::<u64>()
                };
                while held(&tree) > 2000 {
                    let oldest = tree.iter().position(|p| p.0 == worker).unwrap();
                    let over = held(&tree) - 2000;
                    if tree[oldest].1[0] == u64::MAX && tree[oldest].2 > over {
                        tree[oldest].2 -= over;
                    } else {
                        tree.remove(oldest);
                    }
                }
            }
        }
        let least = (0..4).min_by_key(|&r| (seen[r].in_flight, seen[r].sent, r)).unwrap();
        let (low, high) =
            (seen.iter().map(|r| r.in_flight).min().unwrap(), seen.iter().map(|r| r.in_flight).max().unwrap());
        let uneven = high - low > 50 && high as f32 > low as f32 * 1.1f64 as f32;
        let mut choice = least;
        if !uneven {
            let (mut matched, mut tenant) = (0, None);
            for end in 1..=request.prefix.len() {
                let page = &request.prefix[..end];
                let Some(last) = tree.iter().rev().find(|p| p.1 == page) else { break };
                (matched, tenant) = (16 * end as u32, Some(last.0));
            }
            if matched as f32 / request.prompt_len as f32 > 0.5 {
                choice = tenant.unwrap();
            }
        }
        for end in 1..=request.prefix.len() {
            let page = request.prefix[..end].to_vec();
            tree.retain(|p| !(p.0 == choice && p.1 == page));
            tree.push((choice, page, 16));
        }
        let rest = u64::from(request.prompt_len) - 16 * request.prefix.len() as u64;
        if rest > 0 {
            tree.push((choice, vec![u64::MAX, request.id.into()], rest));
        }
        choice
    });
}

/// Every router's default settings are valid. It has a summary and a source, and is read back unchanged from its JSON
/// and from its name. An unknown name is refused.
#[test]
fn the_table_is_whole() {
    let all = RouterSpec::all();
    assert!(all.len() >= 13);
    for router in &all {
        assert!(router.definition().check().is_ok() && !router.definition().source().is_empty());
        assert!(!router.definition().summary().is_empty() && router.usual_signals().check().is_ok());
        let text = serde_json::to_string(router).unwrap();
        assert_eq!(&serde_json::from_str::<RouterSpec>(&text).unwrap(), router, "{text}");
        let name = serde_json::to_string(router.name()).unwrap();
        assert_eq!(&serde_json::from_str::<RouterSpec>(&name).unwrap(), router, "the name alone");
    }
    assert!(serde_json::from_str::<RouterSpec>("\"robin\"").is_err());
}
