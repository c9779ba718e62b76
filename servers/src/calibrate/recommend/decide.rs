//! Makes one recommendation from the candidate policies' results at each load.
//!
//! A candidate's loss at a load is its cost (such as mean E2E) / the best candidate's cost − 1. Candidates are
//! compared by their largest loss over the loads, and one is taken by the rule of `foretoken_report::which`. A load at
//! which every candidate falls behind the arrivals is left out, because its latencies grow with the length of the run.
//! If all loads are of this kind, no load is left out.

use super::answer::{Best, Verdict};
use super::at_load::AtLoad;
use super::candidates::Candidate;
use super::gain::Gain;
use super::question::Question;
use foretoken_policies::PolicySpec;
use foretoken_report::{AS_GOOD, which};

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
    let loss = |at: usize| compared[at].as_ref().map(|best| best.worst_loss);
    // A candidate that is not among those asked for has no loss, so that it cannot be taken.
    let best_of = |among: &dyn Fn(&Candidate) -> bool| {
        let choice =
            |at: usize| candidates[at].choice(loss(at).filter(|_| among(&candidates[at])), Some(&ask.now.spec));
        which(&(0..candidates.len()).map(choice).collect::<Vec<_>>())
    };
    let single = best_of(&|c| c.fixed);
    let by_table = best_of(&|c| matches!(c.spec, PolicySpec::VllmDynamic(_) | PolicySpec::SglangGen3(_)));
    let best = best_of(&|_| true);
    // True if the cost (such as mean E2E) of candidate policy `at` at a load is at most 1 % above the least cost of a
    // fixed draft length.
    let good_at = |load: &AtLoad, at: usize| {
        let singles = load.candidates.iter().filter(|c| c.fixed).filter_map(|c| c.cost);
        let least = singles.fold(f64::INFINITY, f64::min);
        load.candidates[at].cost.is_some_and(|cost| cost <= least * (1.0 + AS_GOOD))
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
    let gains: Vec<Option<Gain>> = loads.iter().map(|load| gain_over(load, now, best)).collect();
    let beyond = |sign: f64| {
        let sure = |g: &Gain| (sign * g.log() > g.half_width.unwrap_or(0.0).hypot(error)).then_some(sign * g.log());
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
pub fn gain_over(load: &AtLoad, before: usize, after: usize) -> Option<Gain> {
    Gain::of(&load.candidates[before].costs, &load.candidates[after].costs)
}
