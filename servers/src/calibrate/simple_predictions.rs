//! Two simple predictions of a server's latencies, made from the same inputs as the simulation: linear interpolation
//! between two observed draft lengths, and a closed formula.

use crate::calibrate::kept::Kept;
use crate::calibrate::source::Source;
use crate::compare::fluid::{CurvePoint, Fluid, line_through, tokens_a_round};
use crate::compare::numbers::{Numbers, RunRecords};
use foretoken_sim::{LatencyModel, PassShape};
use foretoken_traces::truth::NOT_DRAFTED;

/// The mean latencies of observed closed loops with equally many clients, in seconds.
#[derive(Clone, Copy)]
struct LoopLatencies {
    /// Number of clients of the closed loops, which is the number of requests in flight.
    clients: f64,
    ttft: f64,
    tpot: f64,
}

/// Predicts the latencies of the observed run `source` by linear interpolation in clients and in draft length, between
/// the observed closed loops of the shortest and of the longest fitted draft length. `None` without closed loops of two
/// lengths.
pub(crate) fn interpolated(source: &Source, k: u32, fitted: &[Source], kept: &Kept) -> Option<Numbers> {
    let lengths: Vec<u32> = fitted.iter().filter_map(|s| s.k).collect();
    let (shortest, longest) = (*lengths.iter().min()?, *lengths.iter().max()?);
    let (low, high) = (closed_loops(fitted, shortest), closed_loops(fitted, longest));
    if shortest == longest || low.is_empty() || high.is_empty() {
        return None;
    }
    let latency_s = |read: fn(&LoopLatencies) -> f64, clients: f64| {
        let value = |loops: &[LoopLatencies]| {
            let points: Vec<CurvePoint> = loops.iter().map(|l| CurvePoint { x: l.clients, y: read(l) }).collect();
            line_through(&points, clients)
        };
        let ends = [(shortest, value(&low)), (longest, value(&high))].map(|(k, y)| CurvePoint { x: f64::from(k), y });
        line_through(&ends, f64::from(k)).max(1e-6)
    };
    serve(source, kept, &|n, _| latency_s(|l| l.ttft, n), &|n| latency_s(|l| l.tpot, n))
}

/// The latencies of the observed closed loops with draft length `k`, sorted by clients. If several runs have the same
/// number of clients, takes the median of their latencies.
fn closed_loops(fitted: &[Source], k: u32) -> Vec<LoopLatencies> {
    let mut loops: Vec<(u32, Vec<Numbers>)> = Vec::new();
    for source in fitted.iter().filter(|s| s.k == Some(k)) {
        let Some(clients) = source.recording.head.clients else { continue };
        let numbers = Numbers::of(&[RunRecords::requests_only(&source.run.run.records)]);
        match loops.iter_mut().find(|(same, _)| *same == clients) {
            Some((_, all)) => all.push(numbers),
            None => loops.push((clients, vec![numbers])),
        }
    }
    loops.sort_by_key(|(clients, _)| *clients);
    let joined = |(clients, all): &(u32, Vec<Numbers>)| {
        let known: Vec<Numbers> = all.iter().copied().filter(|n| n.tpot.is_some()).collect();
        let median = Numbers::median(&known);
        Some(LoopLatencies { clients: f64::from(*clients), ttft: median.ttft?.mean, tpot: median.tpot?.mean })
    };
    loops.iter().filter_map(joined).collect()
}

/// Predicts the latencies of the observed run `source` by a closed formula: in the fitted time of a step, a request
/// gets (1 − a^(k+1)) / (1 − a) tokens on average. a is one acceptance rate for all positions.
pub(crate) fn by_formula(source: &Source, k: u32, kept: &Kept) -> Option<Numbers> {
    let a = one_rate(kept);
    let (target, draft) = (kept.cost.target.cost.build(), kept.cost.draft.cost.build());
    let step = |n: f64, prompt: f64| step_s(&*target, &*draft, kept.cost.step_overhead_s, k, n, prompt);
    let tpot = |n: f64| step(n.max(1.0), 0.0) / tokens_a_round(a, k);
    let ttft = |n: f64, prompt: u32| step((n - 1.0).max(0.0), f64::from(prompt)) + step(n, 0.0) / 2.0;
    serve(source, kept, &ttft, &tpot)
}

/// Seconds of a step in which `n` requests verify `k` draft tokens each and a prompt of `prompt` tokens runs. The first
/// draft pass runs over the tokens of the target's pass and one more per request, each later one over a token per
/// request. `overhead_s` is the host's time.
fn step_s(target: &dyn LatencyModel, draft: &dyn LatencyModel, overhead_s: f64, k: u32, n: f64, prompt: f64) -> f64 {
    let shape = |tokens: f64| PassShape { batched: tokens.round() as u64, ..PassShape::default() };
    let tokens = n * f64::from(k + 1) + prompt;
    let mut seconds = target.pass(shape(tokens)).as_s() + overhead_s;
    if k > 0 {
        seconds += draft.pass(shape(tokens + n)).as_s() + f64::from(k - 1) * draft.pass(shape(n)).as_s();
    }
    seconds
}

/// The acceptance rate in the formula for the tokens that a request gets in a step: the share of right draft tokens
/// over all observed positions. Without a truth table, the rate at the first draft position.
fn one_rate(kept: &Kept) -> f64 {
    let Some(table) = &kept.table else { return kept.rates.first().copied().unwrap_or(0.0) };
    let known = table.outputs.iter().flat_map(|o| &o.ranks).filter(|rank| **rank != NOT_DRAFTED);
    let (mut right, mut all) = (0u64, 0u64);
    known.for_each(|rank| {
        right += u64::from(*rank == 1);
        all += 1;
    });
    if all > 0 { right as f64 / all as f64 } else { 0.0 }
}

/// Serves the requests of `source` on a model without steps. Its latencies depend only on the number of requests in
/// flight and on the prompt: `ttft(requests, prompt tokens)` and `tpot(requests)`, in seconds.
fn serve(source: &Source, kept: &Kept, ttft: &dyn Fn(f64, u32) -> f64, tpot: &dyn Fn(f64) -> f64) -> Option<Numbers> {
    let fluid = Fluid { ttft, tpot, most: kept.engine.max_num_seqs as usize };
    let records = fluid.serve(&source.run.workload, source.recording.head.clients);
    let numbers = Numbers::of(&[RunRecords::requests_only(&records)]);
    numbers.tpot.is_some().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::calibration::Calibration;
    use crate::calibrate::source::open_all;
    use crate::calibrate::synthetic::LAW;
    use foretoken_sim::{Coefficients, Linear};

    #[test]
    fn the_one_rate_is_the_share_of_right_tokens() {
        let (runs, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let paths = [0, 3].map(|k| LAW.write(runs.path(), k, 4, 1));
        let folder = to.path().join("calibration");
        Calibration::of(open_all(&paths).unwrap(), vec![]).unwrap().write(&folder, false).unwrap();
        let mut kept = Kept::read(&folder).unwrap();
        assert!(kept.table.is_some() && (one_rate(&kept) - LAW.rate).abs() < 0.03, "{}", one_rate(&kept));
        (kept.table, kept.rates) = (None, vec![0.4, 0.2]);
        assert_eq!(one_rate(&kept), 0.4, "the rate at the first position");
    }

    /// Four requests with three draft tokens each and a prompt of 20 tokens: the target's pass has 36 tokens, the first
    /// draft pass 40, the two others four each.
    #[test]
    fn the_first_draft_pass_has_the_tokens_of_the_step() {
        let law = |gamma_s, delta_s| Linear::new(Coefficients { alpha_s: 0.0, gamma_s, delta_s });
        let (target, draft) = (law(1e-4, 10e-3), law(1e-5, 1e-3));
        let seconds = |k, n, prompt| step_s(&target, &draft, 2e-3, k, n, prompt);
        assert!((seconds(3, 4.0, 20.0) - (2e-3 + 13.6e-3 + 1.4e-3 + 2.0 * 1.04e-3)).abs() < 1e-9);
        assert!((seconds(0, 4.0, 20.0) - (2e-3 + 12.4e-3)).abs() < 1e-9);
    }
}
