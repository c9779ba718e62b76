//! Compares the observed ranking of policies with the simulated ranking.

use crate::compare::live_runs::PolicyValue;
use serde::Serialize;

/// The result of comparing two rankings of the same policies, pair by pair of policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ranking {
    /// Number of pairs of policies that have the same order in both rankings.
    pub agree: u32,
    /// Number of pairs of policies that have opposite orders in the two rankings.
    pub disagree: u32,
    /// Number of pairs of policies that are tied in the first ranking only.
    pub tied_first: u32,
    /// Number of pairs of policies that are tied in the second ranking only.
    pub tied_second: u32,
    /// Number of pairs of policies that are tied in both rankings.
    pub tied_both: u32,
}

impl Ranking {
    /// Compares two rankings of the same items. `first` and `second` have the value of each item in the two rankings.
    /// In a ranking, two values are tied if they differ by at most the ranking's noise × the smaller value.
    pub fn compare(first: &[f64], first_noise: f64, second: &[f64], second_noise: f64) -> Ranking {
        assert_eq!(first.len(), second.len(), "two rankings of the same items");
        let mut pairs = Ranking::default();
        for i in 0..first.len() {
            for j in 0..i {
                let a = order(first[i], first[j], first_noise);
                let b = order(second[i], second[j], second_noise);
                *match (a, b) {
                    (0, 0) => &mut pairs.tied_both,
                    (0, _) => &mut pairs.tied_first,
                    (_, 0) => &mut pairs.tied_second,
                    _ if a == b => &mut pairs.agree,
                    _ => &mut pairs.disagree,
                } += 1;
            }
        }
        pairs
    }

    /// Kendall's τ-b, which counts ties: (agree − disagree) / √(pairs not tied in the first × pairs not tied in the
    /// second). `None` if all pairs of a ranking are tied.
    pub fn tau(&self) -> Option<f64> {
        let untied = f64::from(self.agree + self.disagree);
        let product = (untied + f64::from(self.tied_second)) * (untied + f64::from(self.tied_first));
        (product > 0.0).then(|| (f64::from(self.agree) - f64::from(self.disagree)) / product.sqrt())
    }
}

/// −1 if `a` is below `b`, 1 if `a` is above `b`, 0 if they are tied: if they differ by at most `noise` × the smaller
/// value.
fn order(a: f64, b: f64, noise: f64) -> i8 {
    let smaller = a.abs().min(b.abs());
    match a - b {
        d if d.abs() <= noise * smaller => 0,
        d if d < 0.0 => -1,
        _ => 1,
    }
}

/// An observed ranking of the policies, compared with the simulated ranking.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// The name of the value by which the policies are ranked, such as the service rate.
    pub by: String,
    /// Values that differ by at most this share are tied: the largest distance between repeated live runs of one
    /// policy.
    pub noise: f64,
    /// True if every policy's value was observed in at least two live runs, so that the noise is known.
    pub repeated: bool,
    pub policies: Vec<RankedPolicy>,
    /// The ranking by live values, compared pair by pair of policies with the ranking by values that are simulated with
    /// the live runs' acceptance.
    pub pairs: Ranking,
    /// Kendall's τ-b of the two rankings in `pairs`; `None` if all pairs are tied in one of them.
    pub tau: Option<f64>,
    /// Kendall's τ-b between the ranking by live values and the ranking by values that are simulated with the
    /// experiment's acceptance source.
    pub tau_modelled: Option<f64>,
}

/// One policy in a ranking, with the live and the simulated values by which it is ranked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankedPolicy {
    pub policy: String,
    /// The median, over live runs, of the value by which the policy is ranked.
    pub live: f64,
    /// The value by which the policy is ranked, simulated with the acceptance that live runs revealed.
    pub recorded: f64,
    /// The value by which the policy is ranked, simulated with the experiment's acceptance source.
    pub modelled: Option<f64>,
}

/// Ranks policies by one value; `by` is its name. `None` if a policy has no value that is simulated with the live runs'
/// acceptance.
pub fn rank(by: &str, values: &[PolicyValue]) -> Option<Ranked> {
    let noise = values.iter().filter_map(|v| v.rate.spread).fold(0.0, f64::max);
    let live: Vec<f64> = values.iter().map(|v| v.rate.reference()).collect();
    let recorded: Vec<f64> = values.iter().map(|v| v.rate.predicted.recorded).collect::<Option<_>>()?;
    let modelled: Option<Vec<f64>> = values.iter().map(|v| v.rate.predicted.modelled).collect();
    let pairs = Ranking::compare(&live, noise, &recorded, noise);
    let policy = |(v, (&live, &recorded)): (&PolicyValue, (&f64, &f64))| RankedPolicy {
        policy: v.policy.clone(),
        live,
        recorded,
        modelled: v.rate.predicted.modelled,
    };
    Some(Ranked {
        by: by.to_owned(),
        noise,
        repeated: values.iter().all(|v| v.rate.spread.is_some()),
        tau: pairs.tau(),
        tau_modelled: modelled.and_then(|m| Ranking::compare(&live, noise, &m, noise).tau()),
        policies: values.iter().zip(live.iter().zip(&recorded)).map(policy).collect(),
        pairs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::live_runs::Simulated;
    use crate::compare::numbers::Unit;

    /// `tau` must equal Kendall's τ-b as its definition over all pairs gives it, also if one pair is tied.
    #[test]
    fn tau_counts_ties() {
        let (x, y) = ([1.0, 2.0, 2.0, 3.0], [1.0, 3.0, 2.0, 4.0]);
        let pairs = Ranking::compare(&x, 0.0, &y, 0.0);
        assert_eq!((pairs.agree, pairs.disagree, pairs.tied_first), (5, 0, 1));
        assert!((pairs.tau().unwrap() - 5.0 / (5.0f64 * 6.0).sqrt()).abs() < 1e-12);
        assert_eq!(Ranking::compare(&[1.0, 2.0, 3.0], 0.0, &[3.0, 2.0, 1.0], 0.0).tau(), Some(-1.0));
        assert_eq!(Ranking::compare(&[1.0, 2.0, 3.0], 0.0, &[1.0, 2.0, 3.0], 0.0).tau(), Some(1.0));
        assert_eq!(Ranking::compare(&[1.0, 1.0], 0.0, &[1.0, 2.0], 0.0).tau(), None);
    }

    #[test]
    fn differences_within_the_noise_are_ties() {
        let pairs = Ranking::compare(&[1.00, 1.04, 2.0], 0.05, &[1.04, 1.00, 2.0], 0.05);
        assert_eq!((pairs.agree, pairs.disagree, pairs.tied_both), (2, 0, 1));
        let strict = Ranking::compare(&[1.00, 1.04, 2.0], 0.0, &[1.04, 1.00, 2.0], 0.0);
        assert_eq!((strict.agree, strict.disagree), (2, 1));
    }

    fn value(name: &str, live: [f64; 2], simulated: f64) -> PolicyValue {
        let predicted = Simulated { recorded: Some(simulated), ..Simulated::default() };
        PolicyValue { policy: name.to_owned(), rate: predicted.row("x", Unit::Plain, live.to_vec()) }
    }

    #[test]
    fn policies_closer_than_two_live_runs_are_tied() {
        let near = rank("x", &[value("a", [1.0, 1.1], 1.06), value("b", [1.08, 1.08], 1.0)]).unwrap();
        assert!(near.noise > 0.09 && near.pairs.disagree == 0 && near.tau.is_none());
    }

    #[test]
    fn policies_further_apart_must_keep_their_order() {
        let far = rank("x", &[value("a", [1.0, 1.0], 3.0), value("b", [2.0, 2.0], 1.0)]).unwrap();
        assert_eq!((far.pairs.disagree, far.tau), (1, Some(-1.0)));
    }
}
