//! Compares our versions of llm-d's scorers with second implementations.

use super::*;

/// Compares the router `llm-d-default` with a second implementation of the scorers in llm-d's default configuration.
/// The second implementation's prefix index is a plain list of blocks for each server.
#[test]
fn llm_d_default() {
    let mut lru: Vec<Vec<Vec<u64>>> = vec![Vec::new(); 4];
    compare(&RouterSpec::LlmDDefault(Default::default()), 4, |request, seen| {
        let total = (request.prompt_len / 16).min(256) as usize;
        // A block of a prompt that requests may share is named by the ids of all blocks up to it. An unshared block is
        // named by its request and index.
        let block = |i: usize| match i < request.prefix.len() {
            true => request.prefix[..=i].to_vec(),
            false => vec![u64::MAX, request.id.into(), i as u64],
        };
        let hashes: Vec<Vec<u64>> = (0..total).map(block).collect();
        let mut matched = [0; 4];
        for hash in &hashes {
            let servers: Vec<usize> = (0..4).filter(|&s| lru[s].contains(hash)).collect();
            if servers.is_empty() {
                break;
            }
            servers.iter().for_each(|&s| matched[s] += 1);
        }
        let queue: Vec<u32> = seen.iter().map(|r| r.report.map_or(0, |p| p.load.waiting)).collect();
        let (low, high) = (*queue.iter().min().unwrap(), *queue.iter().max().unwrap());
        let scores: Vec<f64> = (0..4)
            .map(|s| {
                let prefix = if total == 0 { 0.0 } else { matched[s] as f64 / total as f64 };
                let waiting = if low == high { 1.0 } else { f64::from(high - queue[s]) / f64::from(high - low) };
                let used = seen[s].report.map_or(0.0, |p| f64::from(p.load.used_blocks) / 100.0);
                2.0 * waiting + 2.0 * (1.0 - used) + 3.0 * prefix
            })
            .collect();
        let most = scores.iter().copied().fold(f64::MIN, f64::max);
        let equals: Vec<usize> = (0..4).filter(|&s| scores[s] == most).collect();
        let choice = equals[uniform(request, 0, equals.len())];
        for hash in hashes {
            lru[choice].retain(|held| *held != hash);
            lru[choice].push(hash);
        }
        let capacity = if seen[choice].report.is_some() { 100 } else { 31_250 };
        let over = lru[choice].len().saturating_sub(capacity);
        lru[choice].drain(..over);
        choice
    });
}

/// On random headrooms (bound minus predicted latency), the highest score goes to the same replicas in our scores and
/// in the scores of llm-d's `sloheadroomtier/plugin.go` and `latency/plugin.go`.
#[test]
fn llm_d_slo() {
    use crate::routers::llm_d_slo::{Headroom, Headrooms, scores};
    for state in 0..STATES {
        let draw = Draw::of(77, state);
        let n = 1 + draw.below(0, 6) as usize;
        // Headrooms in TTFT are multiples of 0.1 s, in TPOT of 1 ms, so that equal headrooms and zeros are common.
        let tenths = |which: u64| (draw.below(which, 21) as f64 - 8.0) / 10.0;
        let all: Vec<Headrooms> = (0..n as u64)
            .map(|r| Headrooms {
                ttft: tenths(10 + 3 * r),
                tpot: tenths(11 + 3 * r) / 100.0,
                in_flight: draw.below(12 + 3 * r, 3) as u32,
            })
            .collect();
        let most = draw.below(1, 2) == 1;
        let strategy = if most { Headroom::Most } else { Headroom::Least };
        let settings = LlmDSlo { headroom_selection_strategy: strategy, ..Default::default() };
        let explore = draw.below(2, 4) == 0;
        let ours = scores(&all, &settings, explore);
        let theirs = go_scores(&all.iter().map(|h| (h.ttft, h.tpot, h.in_flight)).collect::<Vec<_>>(), most, explore);
        let best = |scores: &[f64]| {
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            (0..n).filter(|&i| scores[i] == most).collect::<Vec<_>>()
        };
        assert_eq!(best(&ours), best(&theirs), "{all:?} {settings:?} {explore}: {ours:?} {theirs:?}");
    }
}

/// The scores that llm-d's Go plugins would compute; −1 for a replica that the filter removes.
fn go_scores(all: &[(f64, f64, u32)], most: bool, explore: bool) -> Vec<f64> {
    let positive: Vec<usize> = (0..all.len()).filter(|&i| all[i].0 >= 0.0 && all[i].1 >= 0.0).collect();
    let negative: Vec<usize> = (0..all.len()).filter(|i| !positive.contains(i)).collect();
    let kept = if all.len() <= 1 {
        (0..all.len()).collect()
    } else if !positive.is_empty() && !negative.is_empty() {
        if explore { negative } else { positive }
    } else if !positive.is_empty() {
        positive
    } else {
        negative
    };
    let mut scores = vec![-1.0; all.len()];
    kept.iter().for_each(|&i| scores[i] = 0.0);
    let fine: Vec<usize> = kept.iter().copied().filter(|&i| !(all[i].0 < 0.0 || all[i].1 < 0.0)).collect();
    let (bucket, least) = if !fine.is_empty() {
        (fine, !most)
    } else if kept.iter().any(|&i| all[i].2 == 0) {
        (kept.iter().copied().filter(|&i| all[i].2 == 0).collect(), true)
    } else {
        let missing = |ttft: bool, tpot: bool| -> Vec<usize> {
            kept.iter().copied().filter(|&i| (all[i].0 < 0.0) == ttft && (all[i].1 < 0.0) == tpot).collect()
        };
        let buckets = [missing(false, true), missing(true, false), missing(true, true)];
        (buckets.into_iter().find(|b| !b.is_empty()).unwrap(), true)
    };
    let abs = |i: usize| (all[i].0.abs(), all[i].1.abs());
    let (mut min, mut max) = ((f64::MAX, f64::MAX), (-f64::MAX, -f64::MAX));
    for &i in &bucket {
        min = (min.0.min(abs(i).0), min.1.min(abs(i).1));
        max = (max.0.max(abs(i).0), max.1.max(abs(i).1));
    }
    let range = (max.0 - min.0, max.1 - min.1);
    let (mut alpha, mut beta) = (0.8 / (0.8 + 0.2), 0.2 / (0.8 + 0.2));
    if range.0 <= 1e-9 && range.1 > 1e-9 {
        (alpha, beta) = (0.0, 1.0);
    } else if range.1 <= 1e-9 && range.0 > 1e-9 {
        (alpha, beta) = (1.0, 0.0);
    }
    for &i in &bucket {
        let ttft = if range.0 > 1e-9 { (abs(i).0 - min.0) / range.0 } else { 0.5 };
        let tpot = if range.1 > 1e-9 { (abs(i).1 - min.1) / range.1 } else { 0.5 };
        let combined = alpha * ttft + beta * tpot;
        let weight = if least { (1.0 - combined) * 100.0 } else { combined * 100.0 };
        scores[i] = (f64::from(weight as i32) + 0.0 + 1.0) / 100.0;
    }
    scores
}
