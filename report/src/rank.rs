//! Ranks the policies of a setting by mean end-to-end latency, plain decoding included. The logarithms of latencies are
//! compared, paired by seed.

use crate::figures::view::{Mean, Scale, View};
use crate::which::{AS_GOOD, Choice, which};
use crate::{Report, Role, Swept};
use foretoken_sim::metrics::Interval;

/// A policy is close to the fastest policy at the same swept values if its mean latency is longer by at most this
/// share.
pub const CLOSE: f64 = 0.05;

/// The policies that a server can run, plain decoding included, ranked at one combination of swept values from the
/// fastest to the slowest.
pub struct Ranking<'a> {
    /// Label of the policy with the least mean end-to-end latency.
    pub leader: &'a str,
    /// Label of the policy to run: the fastest one, or one that is as good ([`which`]).
    pub taken: &'a str,
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
    /// At most [`AS_GOOD`] (1 %) slower than the fastest policy on average.
    Tied,
    /// More than [`AS_GOOD`] (1 %) slower on average than the fastest policy, in one of three cases: the interval of
    /// the difference does not contain 0; the policy is slower in every seed; or there is only one seed.
    Slower,
    /// More than [`AS_GOOD`] (1 %) slower on average but not in every seed, and the interval of the difference contains
    /// 0. Only more seeds can decide.
    Noisy,
}

impl Ranking<'_> {
    /// Labels of the policies that are as good as the fastest one, the fastest one included, without the policy to run.
    pub fn ties(&self) -> Vec<&str> {
        let all = [self.leader].into_iter().chain(self.who_are(Verdict::Tied));
        all.filter(|policy| *policy != self.taken).collect()
    }

    /// Labels of the policies that are slower on average, but not in every seed. Only more seeds can decide about them.
    pub fn noisy(&self) -> Vec<&str> {
        self.who_are(Verdict::Noisy)
    }

    /// The fastest of the policies that are certainly slower than the fastest policy (verdict `Slower`; with one seed,
    /// all slower policies), without the policies `named`. `None` if there is none.
    pub fn next(&self, named: &[&str]) -> Option<&Behind<'_>> {
        self.others.iter().find(|b| b.verdict == Verdict::Slower && !named.contains(&b.policy))
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

/// Ranks the policies that a server can run at one combination of swept values. Leaves out policies that lack a finite
/// speedup in some seed. `None` if no policy but plain decoding remains.
pub fn rank<'a>(report: &'a Report, view: &View<'a>, combination: &[Swept]) -> Option<Ranking<'a>> {
    let is_contender =
        |name: &str| report.cells.iter().any(|c| c.key().policy == name && c.entry.role == Role::Contender);
    let names = view.policies.iter().map(|p| p.0).filter(|name| is_contender(name));
    let mut all: Vec<(&str, Vec<f64>)> = names.filter_map(|n| Some((n, logs(view, combination, n)?))).collect();
    // Speedups are ratios to plain decoding, which is a candidate as every other policy.
    let seeds = all.first()?.1.len();
    all.extend(baseline(report).map(|name| (name, vec![0.0; seeds])));
    let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
    all.sort_by(|a, b| mean(&b.1).total_cmp(&mean(&a.1)));
    let loss = |logs: &[f64]| (mean(&all[0].1) - mean(logs)).exp_m1();
    let choices: Vec<Choice> =
        all.iter().map(|(name, logs)| Choice::new(Some(loss(logs)), fixed_length(report, name))).collect();
    let taken = all[which(&choices)?].0;
    let ((leader, best), others) = all.split_first()?;
    let behind = |(policy, own): &(&'a str, Vec<f64>)| {
        let differences: Vec<f64> = best.iter().zip(own).map(|(best, own)| best - own).collect();
        let percent: Vec<f64> = differences.iter().map(|d| 100.0 * d.exp_m1()).collect();
        Some(Behind { policy, slower: Scale::Change.mean(&percent)?, verdict: verdict(&differences) })
    };
    Some(Ranking { leader, taken, others: others.iter().filter_map(behind).collect() })
}

/// The policy to run at all of these combinations of swept values, by [`which`], as (its largest loss: the share by
/// which it is slower than the fastest policy of a combination; its label). Leaves out policies that are not ranked at
/// every combination. `None` if no policy remains.
pub fn for_all<'a>(report: &Report, rankings: &[&Ranking<'a>]) -> Option<(f64, &'a str)> {
    let first = rankings.first()?;
    let names: Vec<&str> = [first.leader].into_iter().chain(first.others.iter().map(|b| b.policy)).collect();
    let loss = |name: &str| {
        let each: Option<Vec<f64>> = rankings.iter().map(|r| r.behind(name)).collect();
        each.map(|each| each.into_iter().fold(0.0, f64::max))
    };
    let choices: Vec<Choice> = names.iter().map(|name| Choice::new(loss(name), fixed_length(report, name))).collect();
    let taken = which(&choices)?;
    Some((choices[taken].loss?, names[taken]))
}

/// The label of plain decoding, to which speedups are ratios; `None` if no such run is in the report.
pub fn baseline(report: &Report) -> Option<&str> {
    report.cells.iter().find(|c| c.entry.role == Role::Baseline).map(|c| c.key().policy.as_str())
}

/// The draft length of the policy `name`, if the policy always drafts the same number of tokens.
pub fn fixed_length(report: &Report, name: &str) -> Option<u32> {
    report.cells.iter().find(|c| c.key().policy == name).and_then(|c| c.entry.fixed)
}

/// Judges a policy that is not the fastest one. `differences` has one value per seed: ln(its mean latency / the fastest
/// policy's mean latency).
fn verdict(differences: &[f64]) -> Verdict {
    let Some(i) = Interval::of(differences) else { return Verdict::Slower };
    match i.half_width {
        _ if i.mean <= AS_GOOD.ln_1p() => Verdict::Tied,
        Some(half) if i.mean <= half && differences.iter().any(|d| *d <= 0.0) => Verdict::Noisy,
        _ => Verdict::Slower,
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
            ("a little slower in every seed, but within 1 %", &[0.008, 0.009, 0.009], Verdict::Tied),
            ("one seed", &[0.011], Verdict::Slower),
            ("one seed, within 1 %", &[0.009], Verdict::Tied),
        ] {
            assert_eq!(verdict(differences), wanted, "{name}");
        }
    }
}
