//! Makes one recommendation from the candidate policies' results at each load.
//!
//! A candidate's loss at a load is its cost (such as mean E2E) / the best candidate's cost − 1. Candidates are
//! compared by their largest loss over the loads. If the best fixed length loses at most 1 % at every load, it is
//! advised. Otherwise, all candidates count whose largest loss is at most 1 % above the smallest such loss; of these,
//! the candidate whose largest draft length is smallest is advised. A load at which every candidate falls behind the
//! arrivals is left out, because its latencies grow with the length of the run. If all loads are of this kind, no
//! load is left out.

use super::answer::{Best, Verdict};
use super::at_load::AtLoad;
use super::candidates::{Candidate, TIE, gain};
use super::question::Question;
use foretoken_policies::PolicySpec;
use foretoken_sim::metrics::Interval;

/// The advice on the server's policy, and the indices of the candidate policies that the advice names.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The index of the advised candidate policy, which is compared with the server's policy.
    pub best: Option<usize>,
    /// The index of the candidate policy that is the best fixed draft length.
    pub single: Option<usize>,
    /// The index of the candidate policy with draft lengths by batch size: vLLM's table, or SGLang's adaptive policy.
    pub by_table: Option<usize>,
    /// True if there are several loads, and no fixed draft length is good at all of them. A length is good at a load if
    /// its cost (such as mean E2E) is at most 1 % above the cost of the best fixed length there.
    pub depends_on_load: bool,
    /// What to do with the server's policy.
    pub verdict: Verdict,
}

/// The loads that count for the advice. A load counts if some candidate policy keeps up with its arrivals. If there
/// is no such load, all loads count.
pub fn decisive(all: &[AtLoad]) -> Vec<&AtLoad> {
    let carried: Vec<&AtLoad> = all.iter().filter(|at| at.overload.is_none()).collect();
    if carried.is_empty() { all.iter().collect() } else { carried }
}

/// The candidate policy with index `at`, with its largest loss over `loads`. `None` if the candidate breaks the limit
/// on TPOT at one of the loads.
pub fn with_loss(loads: &[&AtLoad], at: usize) -> Option<Best> {
    let candidate = &loads[0].candidates[at];
    let loss = |load: &&AtLoad| Some((load.candidates[at].cost? / load.least()? - 1.0, load.load.clone()));
    let losses: Option<Vec<(f64, String)>> = loads.iter().map(loss).collect();
    let (worst_loss, worst_at) = losses?.into_iter().reduce(|a, b| if b.0 > a.0 { b } else { a })?;
    let (policy, name) = (candidate.policy.clone(), candidate.name.clone());
    Some(Best { policy, name, longest: candidate.longest, worst_loss, worst_at })
}

/// Decides which policy to advise. `error` is the calibration's error between runs, as a share: the error with which
/// a fit to all other runs predicts the summed step times of a run.
pub fn decide(ask: &Question, all: &[AtLoad], error: f64) -> Decision {
    let loads = decisive(all);
    let candidates = &loads[0].candidates;
    let compared: Vec<Option<Best>> = (0..candidates.len()).map(|at| with_loss(&loads, at)).collect();
    let best_of = |among: &dyn Fn(&Candidate) -> bool, tie: f64| {
        let those = || (0..candidates.len()).filter(|&at| among(&candidates[at]) && compared[at].is_some());
        let loss = |at: usize| compared[at].as_ref().map_or(f64::INFINITY, |best| best.worst_loss);
        let least = those().map(loss).fold(f64::INFINITY, f64::min);
        those().filter(|&at| loss(at) <= least + tie).min_by_key(|&at| (candidates[at].longest, !candidates[at].fixed))
    };
    let single = best_of(&|c| c.fixed, TIE);
    let by_table = best_of(&|c| matches!(c.spec, PolicySpec::VllmDynamic(_) | PolicySpec::SglangGen3(_)), 0.0);
    let everywhere = single.filter(|&at| compared[at].as_ref().is_some_and(|best| best.worst_loss <= TIE));
    let best = everywhere.or_else(|| best_of(&|_| true, TIE));
    // True if the cost (such as mean E2E) of candidate policy `at` at a load is at most 1 % above the least cost of a
    // fixed draft length.
    let good_at = |load: &AtLoad, at: usize| {
        let singles = load.candidates.iter().filter(|c| c.fixed).filter_map(|c| c.cost);
        let least = singles.fold(f64::INFINITY, f64::min);
        load.candidates[at].cost.is_some_and(|cost| cost <= least * (1.0 + TIE))
    };
    let fixed = || (0..candidates.len()).filter(|&at| candidates[at].fixed);
    let depends_on_load = loads.len() > 1 && !fixed().any(|at| loads.iter().all(|load| good_at(load, at)));
    let verdict = verdict(ask, &loads, best, error);
    Decision { best, single, by_table, depends_on_load, verdict }
}

fn verdict(ask: &Question, loads: &[&AtLoad], best: Option<usize>, error: f64) -> Verdict {
    let Some(best) = best else {
        let which = if loads.len() == 1 { "" } else { " at every load" };
        return Verdict::Unknown(format!("no candidate keeps the limit{which}: loosen it, or observe a lower load"));
    };
    let now = loads[0].candidates.iter().position(|c| c.spec == ask.now.spec).expect("what runs now is a candidate");
    let plain = loads[0].candidates[best].longest == 0;
    let gains: Vec<Option<Interval>> = loads.iter().map(|load| gain_over(load, now, best)).collect();
    let beyond = |sign: f64| {
        let sure = |g: &Interval| (sign * g.mean > g.half_width.unwrap_or(0.0).hypot(error)).then_some(sign * g.mean);
        gains.iter().flatten().filter_map(sure).fold(0.0, f64::max)
    };
    let (most, lost) = (beyond(1.0), beyond(-1.0));
    // If the server's policy breaks the limit on TPOT at a load, it has no cost at this load, so no gain over it can
    // be calculated. The best candidate keeps this limit at all loads and is therefore advised.
    let broken = loads.iter().any(|load| load.candidates[now].cost.is_none());
    match best == now {
        true if plain => Verdict::DoNotSpeculate,
        true => Verdict::Stay,
        false if !(broken || most > lost) => Verdict::Stay,
        false if plain => Verdict::DoNotSpeculate,
        false => Verdict::Change,
    }
}

/// Gain in cost (such as mean E2E) of candidate policy number `after` over candidate policy number `before` at a
/// load: 1 − cost of `after` / cost of `before`.
pub fn gain_over(load: &AtLoad, before: usize, after: usize) -> Option<Interval> {
    gain(&load.candidates[before].costs, &load.candidates[after].costs)
}
