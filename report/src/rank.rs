//! Ranks the policies of a setting (a combination of swept values) by mean end-to-end latency. The logarithms of
//! latencies are compared, paired by seed.

use crate::figures::view::{Mean, Scale, View};
use crate::{Report, Role, Swept};
use foretoken_sim::metrics::Interval;

/// A policy is as good as the fastest policy if its mean latency is at most this share longer and the interval of the
/// difference over seeds contains 0.
pub const AS_GOOD: f64 = 0.01;

/// A policy is close to the fastest policy at the same swept values if its mean latency is longer by at most this
/// share.
pub const CLOSE: f64 = 0.05;

/// The policies that a server can run, ranked at one combination of swept values from the fastest to the slowest.
pub struct Ranking<'a> {
    /// Label of the policy with the least mean end-to-end latency.
    pub leader: &'a str,
    /// The other ranked policies with their distances to the fastest one, the faster ones first.
    pub others: Vec<Behind<'a>>,
}

/// A policy other than the fastest one at a combination of swept values, and its distance to the fastest one.
pub struct Behind<'a> {
    pub policy: &'a str,
    /// By how many percent the policy's mean latency is longer than the fastest policy's, with the interval over seeds.
    pub slower: Mean,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// At most [`AS_GOOD`] (1 %) slower than the fastest policy on average, and the interval of the difference contains
    /// 0.
    Tied,
    /// Slower than the fastest policy, in one of three cases: the interval of the difference does not contain 0; the
    /// policy is more than [`AS_GOOD`] (1 %) slower on average and slower in every seed; or there is only one seed.
    Slower,
    /// More than [`AS_GOOD`] (1 %) slower on average but not in every seed, and the interval of the difference contains
    /// 0. Only more seeds can decide.
    Noisy,
}

impl Ranking<'_> {
    /// Labels of the policies that are as good as the fastest one.
    pub fn ties(&self) -> Vec<&str> {
        self.who_are(Verdict::Tied)
    }

    /// Labels of the policies that are slower on average, but not in every seed. Only more seeds can decide about them.
    pub fn noisy(&self) -> Vec<&str> {
        self.who_are(Verdict::Noisy)
    }

    /// The fastest of the policies that are certainly slower than the fastest policy (verdict `Slower`; with one seed,
    /// all slower policies); `None` if there is none.
    pub fn next(&self) -> Option<&Behind<'_>> {
        self.others.iter().find(|b| b.verdict == Verdict::Slower)
    }

    fn who_are(&self, verdict: Verdict) -> Vec<&str> {
        self.others.iter().filter(|b| b.verdict == verdict).map(|b| b.policy).collect()
    }

    /// By which share the mean latency of `policy` is longer than the fastest policy's, such as 0.1 for 10 %. 0 for the
    /// fastest policy; `None` if `policy` is not ranked.
    pub fn behind(&self, policy: &str) -> Option<f64> {
        match policy == self.leader {
            true => Some(0.0),
            false => self.others.iter().find(|b| b.policy == policy).map(|b| b.slower.mean / 100.0),
        }
    }
}

/// Ranks the policies that a server can run at one combination of swept values. Leaves out autoregressive decoding, and
/// policies that lack a finite speedup in some seed. `None` if no policy remains.
pub fn rank<'a>(report: &Report, view: &View<'a>, combination: &[Swept]) -> Option<Ranking<'a>> {
    let is_contender =
        |name: &str| report.cells.iter().any(|c| c.key().policy == name && c.entry.role == Role::Contender);
    let names = view.policies.iter().map(|p| p.0).filter(|name| is_contender(name));
    let mut all: Vec<(&str, Vec<f64>)> = names.filter_map(|n| Some((n, logs(view, combination, n)?))).collect();
    let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
    all.sort_by(|a, b| mean(&b.1).total_cmp(&mean(&a.1)));
    let ((leader, best), others) = all.split_first()?;
    let behind = |(policy, own): &(&'a str, Vec<f64>)| {
        let differences: Vec<f64> = best.iter().zip(own).map(|(best, own)| best - own).collect();
        let percent: Vec<f64> = differences.iter().map(|d| 100.0 * d.exp_m1()).collect();
        Some(Behind { policy, slower: Scale::Change.mean(&percent)?, verdict: verdict(&differences) })
    };
    Some(Ranking { leader, others: others.iter().filter_map(behind).collect() })
}

/// Judges a policy that is not the fastest one. `differences` has one value per seed: ln(its mean latency / the fastest
/// policy's mean latency).
fn verdict(differences: &[f64]) -> Verdict {
    let Some(i) = Interval::of(differences) else { return Verdict::Slower };
    let Some(half) = i.half_width else { return Verdict::Slower };
    match () {
        () if i.mean > half => Verdict::Slower,
        () if i.mean <= AS_GOOD.ln_1p() => Verdict::Tied,
        () if differences.iter().all(|d| *d > 0.0) => Verdict::Slower,
        () => Verdict::Noisy,
    }
}

/// The logarithms of a policy's speedups, one per seed. `None` if the speedup is missing or not finite in some seed.
fn logs(view: &View, combination: &[Swept], policy: &str) -> Option<Vec<f64>> {
    let cells = view.cells(policy, |s| s == combination);
    let log_of = |seed: &u64| {
        let speedup = cells.iter().find(|c| c.key().seed == *seed)?.speedup?;
        Some(speedup.ln()).filter(|log| log.is_finite())
    };
    let seeds: Vec<u64> = view.seeds.iter().copied().filter(|s| view.has_seed(combination, *s)).collect();
    let all: Option<Vec<f64>> = seeds.iter().map(log_of).collect();
    all.filter(|all| !all.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_tied_slower_or_too_noisy() {
        for (name, differences, wanted) in [
            ("a little slower, not told apart", &[0.010, -0.005, 0.012][..], Verdict::Tied),
            ("a little slower in every seed, told apart", &[0.020, 0.021, 0.022], Verdict::Slower),
            ("much slower in every seed, though the interval is wide", &[0.23, 0.68, 1.4], Verdict::Slower),
            ("much slower on average, faster in one seed", &[0.9, -0.1, 0.8], Verdict::Noisy),
            ("one seed", &[0.01], Verdict::Slower),
        ] {
            assert_eq!(verdict(differences), wanted, "{name}");
        }
    }
}
