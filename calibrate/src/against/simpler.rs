//! Two simpler predictions, fed with the same inputs: a line between two draft lengths, and the formula.

use crate::baselines::{Fluid, through, tokens_a_round};
use crate::kept::Kept;
use crate::numbers::Numbers;
use crate::source::Source;
use foretoken_sim::PassShape;

/// The line in K through what closed loops showed at the least and the greatest length that was fitted to.
pub(super) fn interpolated(source: &Source, k: u32, fitted: &[Source], kept: &Kept) -> Option<Numbers> {
    let lengths: Vec<u32> = fitted.iter().filter_map(|s| s.k).collect();
    let ends = [*lengths.iter().min()?, *lengths.iter().max()?];
    // At each length: requests in flight, TTFT and TPOT, closed loop by closed loop.
    let curve = |k: u32| {
        let mut points: Vec<(f64, Numbers)> = Vec::new();
        for s in fitted.iter().filter(|s| s.k == Some(k)) {
            if let (Some(clients), Some(numbers)) = (s.recording.head.clients, Numbers::of(&s.run.run)) {
                points.push((f64::from(clients), numbers));
            }
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Repeats of a loop are one point.
        let mut merged: Vec<(f64, Vec<Numbers>)> = Vec::new();
        for (n, numbers) in points {
            match merged.last_mut() {
                Some((same, all)) if *same == n => all.push(numbers),
                _ => merged.push((n, vec![numbers])),
            }
        }
        merged.into_iter().filter_map(|(n, all)| Some((n, Numbers::median(&all)?))).collect::<Vec<_>>()
    };
    let [low, high] = ends.map(curve);
    if ends[0] == ends[1] || low.is_empty() || high.is_empty() {
        return None;
    }
    let at = |of: fn(&Numbers) -> f64, n: f64| {
        let value = |curve: &[(f64, Numbers)]| through(&curve.iter().map(|(n, x)| (*n, of(x))).collect::<Vec<_>>(), n);
        through(&[(f64::from(ends[0]), value(&low)), (f64::from(ends[1]), value(&high))], f64::from(k)).max(1e-6)
    };
    fluid(source, kept, &|n, _| at(|x| x.ttft.mean, n), &|n| at(|x| x.tpot.mean, n))
}

/// (1 − a^(k+1)) / (1 − a) tokens in the fitted time of a step.
pub(super) fn by_formula(source: &Source, k: u32, kept: &Kept) -> Option<Numbers> {
    // One rate for all positions, as the formula has it: of the observed ones, the mean over what was reached.
    let a = kept.table.as_ref().map_or_else(
        || kept.rates.first().copied().unwrap_or(0.0),
        |t| {
            let known = t.outputs.iter().flat_map(|o| &o.ranks).filter(|r| **r != foretoken_traces::truth::NOT_DRAFTED);
            let (right, all) = known.fold((0u64, 0u64), |(r, n), rank| (r + u64::from(*rank == 1), n + 1));
            if all > 0 { right as f64 / all as f64 } else { 0.0 }
        },
    );
    let (target, draft) = (kept.cost.target.cost.build(), kept.cost.draft.cost.build());
    let shape = |tokens: f64| PassShape { batched: tokens.round() as u64, ..PassShape::default() };
    let step = |n: f64, prompt: f64| {
        let verified = n * f64::from(k + 1);
        let mut seconds = target.pass(shape(verified + prompt)).as_s() + kept.cost.step_overhead_s;
        if k > 0 {
            seconds += draft.pass(shape(verified + prompt + n)).as_s() + f64::from(k - 1) * draft.pass(shape(n)).as_s();
        }
        seconds
    };
    let tpot = |n: f64| step(n.max(1.0), 0.0) / tokens_a_round(a, k);
    fluid(source, kept, &|n, prompt| step((n - 1.0).max(0.0), f64::from(prompt)) + step(n, 0.0) / 2.0, &tpot)
}

fn fluid(source: &Source, kept: &Kept, ttft: &dyn Fn(f64, u32) -> f64, tpot: &dyn Fn(f64) -> f64) -> Option<Numbers> {
    let fluid = Fluid { ttft, tpot, most: kept.engine.max_num_seqs as usize };
    Numbers::of_records(&fluid.serve(&source.run.workload, source.recording.head.clients), None)
}
