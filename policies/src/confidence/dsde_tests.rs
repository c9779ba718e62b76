//! Tests of the policy `dsde`: a request's warm-up, its shortest and longest draft length, its lengths and the batch's
//! cap computed by hand, and a comparison with a second implementation.

use super::*;
use crate::testing::{Batch, CONTEXT, outcome};
use foretoken_sim::{Drafts, RequestId};
use itertools::Itertools;
use proptest::prelude::*;

const SMALL: Dsde = Dsde {
    history: 6,
    decay: 0.9,
    short_window: 3,
    sensitivity: 2.0,
    temperature: 0.0,
    initial: 2,
    k_min: 1,
    k_max: 8,
    batch_cap: true,
};

/// The verified draft tokens of one request in one step: (request id, verified draft tokens, accepted draft tokens,
/// divergences in nats).
type Round = (RequestId, u32, u32, Vec<f64>);

fn feed(policy: &mut Running, rounds: &[Round]) {
    let mut drafts = Drafts::default();
    drafts.reset(rounds.len(), 32);
    drafts.want(Wants::DIVERGENCE);
    for (i, (_, verified, accepted, nats)) in rounds.iter().enumerate() {
        for (j, &x) in nats.iter().enumerate().take((*verified).min(accepted + 1) as usize) {
            drafts.set_divergence(i, j, x);
        }
    }
    let ids: Vec<RequestId> = rounds.iter().map(|r| r.0).collect();
    let verified: Vec<u32> = rounds.iter().map(|r| r.1).collect();
    let accepted: Vec<u32> = rounds.iter().map(|r| r.2).collect();
    policy.observe(&StepOutcome { ids: &ids, ..outcome(&drafts, &verified, &accepted) });
}

fn lengths(policy: &mut Running, ids: &[RequestId]) -> Vec<u32> {
    let mut batch = Batch::new(&vec![100; ids.len()], &vec![32; ids.len()]);
    batch.ids = ids.to_vec();
    let mut plan = DraftPlan { draft_len: vec![0; ids.len()], ..DraftPlan::default() };
    policy.propose(&batch.view(), &mut plan);
    plan.draft_len
}

#[test]
fn a_new_request_doubles_on_full_acceptance() {
    let mut p = Running::new(Dsde { history: 100, ..SMALL }, &CONTEXT);
    assert_eq!(lengths(&mut p, &[3, 5]), [2, 2]);
    feed(&mut p, &[(3, 2, 2, vec![0.1; 2]), (5, 2, 1, vec![0.1; 2])]);
    assert_eq!(lengths(&mut p, &[3, 5]), [4, 2]);
    feed(&mut p, &[(3, 4, 4, vec![0.1; 4]), (5, 0, 0, vec![])]);
    feed(&mut p, &[(3, 8, 8, vec![0.1; 8])]);
    assert_eq!(lengths(&mut p, &[3, 5]), [8, 2]);
    // Request 3 may draft at most 3 tokens in this step. All 3 are accepted, but 3 is less than the request's length of
    // 8, so the length stays 8.
    feed(&mut p, &[(3, 3, 3, vec![0.1; 3])]);
    assert_eq!(lengths(&mut p, &[3, 5]), [8, 2]);
}

/// A request's shortest and longest draft length (k_min, k_max) by hand. In the warm-up at most 4 draft tokens of a
/// step are accepted, and the divergences are 0.1, 0.1, 0.4, 0.2 (mean 0.2, half the maximum): k_max = round(4 · 1.25)
/// = 5, k_min = ⌈0.5⌉ = 1.
#[test]
fn bounds_and_lengths_by_hand() {
    let warm = |p: &mut Running, id| {
        feed(p, &[(id, 4, 4, vec![0.1, 0.1, 0.4, 0.2])]);
        // This step's divergences fill the history, which ends the warm-up. They do not enter the warm-up's sums. The
        // step fixes the request's shortest and longest draft length.
        feed(p, &[(id, 3, 2, vec![0.3, 0.05, 0.1])]);
    };
    let mut p = Running::new(SMALL, &CONTEXT);
    warm(&mut p, 0);
    assert_eq!(p.states[0].bounds, Some((1, 5)));
    // The request's last six divergences in nats, oldest first. The short window, the newest third, is the last two.
    let x = [0.1f64, 0.4, 0.2, 0.3, 0.05, 0.1].map(|x| x);
    let w = [0.59049, 0.6561, 0.729, 0.81, 0.9, 1.0];
    let variance = |x: &[f64], w: &[f64]| {
        let total: f64 = w.iter().sum();
        let mean = x.iter().zip_eq(w).map(|(x, w)| x * w).sum::<f64>() / total;
        x.iter().zip_eq(w).map(|(x, w)| w * (x - mean) * (x - mean)).sum::<f64>() / total
    };
    let wvir = variance(&x[4..], &w[4..]) / variance(&x, &w);
    let mean = (x[3] + x[4] + x[5]) / 3.0;
    let product = wvir * ((2.0 * mean).exp() - 1.0);
    assert!((0.01..0.05).contains(&product), "{product}");
    assert_eq!(lengths(&mut p, &[0]), [5]);
    // The draft length falls as exp(2 · mean divergence / temperature) rises. So a low temperature makes it shorter.
    let mut cold = Running::new(Dsde { temperature: 0.05, ..SMALL }, &CONTEXT);
    warm(&mut cold, 0);
    let product = wvir * ((2.0 * mean / (0.05 + 1e-8)).exp() - 1.0);
    assert!(product > 1.0);
    assert_eq!(lengths(&mut cold, &[0]), [1]);
}

#[test]
fn a_steady_history_counts_as_unsteady_and_the_cap_is_the_mean() {
    let mut p = Running::new(SMALL, &CONTEXT);
    // The variance of the request's divergences is below 1e-6, so the variance ratio WVIR counts as 20. The product x
    // of WVIR and SF = e^0.02 − 1 is 0.404.
    feed(&mut p, &[(0, 5, 5, vec![0.01; 5]), (1, 5, 5, vec![0.01; 5])]);
    feed(&mut p, &[(0, 5, 5, vec![0.01; 5]), (1, 5, 5, vec![0.01; 5])]);
    // The warm-up sets k_max = round(5 · 1.5) = 8 (7.5 rounds to even) and k_min = 1. With x = 0.404 the draft length
    // is ⌈(k_max − k_min)(1 − x) + k_min⌉ = ⌈7 · 0.596 + 1⌉ = 6.
    assert_eq!(p.states[0].bounds, Some((1, 8)));
    assert_eq!(lengths(&mut p, &[0, 1]), [6, 6]);
    // Request 1 now diverges: its length falls to 1. The length of request 0 falls to the mean, ⌈(6 + 1) / 2⌉ = 4.
    let far = vec![0.5, 3.0, 0.1, 2.0, 4.0];
    feed(&mut p, &[(0, 5, 5, vec![0.01; 5]), (1, 5, 5, far.clone())]);
    assert_eq!(lengths(&mut p, &[0, 1]), [4, 1]);
    let mut free = Running::new(Dsde { batch_cap: false, ..SMALL }, &CONTEXT);
    for nats in [vec![0.01; 5], vec![0.01; 5], far] {
        feed(&mut free, &[(0, 5, 5, vec![0.01; 5]), (1, 5, 5, nats)]);
    }
    assert_eq!(lengths(&mut free, &[0, 1]), [6, 1]);
}

#[test]
fn the_engine_cuts_the_bounds() {
    let p = Running::new(Dsde::default(), &CONTEXT);
    assert_eq!((p.rule.initial, p.rule.k_min, p.rule.k_max, p.limits().depth), (5, 6, 8, 8));
    let p = Running::new(Dsde::default(), &PolicyContext { max_draft_len: 4, ..CONTEXT });
    assert_eq!((p.rule.initial, p.rule.k_min, p.rule.k_max, p.limits().depth), (4, 4, 4, 4));
}

#[test]
fn bad_settings_are_named() {
    let key = |p: Dsde| p.check().expect_err("refused").key;
    assert_eq!(key(Dsde { history: 1, ..SMALL }), "history");
    assert_eq!(key(Dsde { decay: 0.0, ..SMALL }), "decay");
    assert_eq!(key(Dsde { short_window: 0, ..SMALL }), "short_window");
    assert_eq!(key(Dsde { temperature: -1.0, ..SMALL }), "temperature");
    assert_eq!(key(Dsde { k_min: 9, ..SMALL }), "k_min");
    assert_eq!(key(Dsde { initial: 0, ..SMALL }), "initial");
    assert_eq!(key(Dsde { initial: SMALL.k_max + 1, ..SMALL }), "initial");
}

/// A second implementation of DSDE's published code, which recomputes everything from whole lists.
#[derive(Clone, Default)]
struct Second {
    all: Vec<f64>,
    warm_accepted: Vec<u32>,
    warm_nats: Vec<f64>,
    bounds: Option<(u32, u32)>,
    k: u32,
}

impl Second {
    fn history(&self) -> &[f64] {
        &self.all[self.all.len().saturating_sub(SMALL.history as usize)..]
    }

    fn length(&self, step: &[f64]) -> u32 {
        let (k_min, k_max) = self.bounds.expect("after the warm-up");
        let h = self.history();
        let variance = |x: &[f64]| {
            let weight = |i: usize| 0.9f64.powi((x.len() - 1 - i) as i32);
            let total: f64 = (0..x.len()).map(weight).sum();
            let mean = (0..x.len()).map(|i| weight(i) * x[i]).sum::<f64>() / total;
            (0..x.len()).map(|i| weight(i) * (x[i] - mean).powi(2)).sum::<f64>() / total
        };
        let wvir = match h.len() {
            0 | 1 => 0.0,
            n if variance(h) >= 1e-6 => variance(&h[n - (n / 3).max(1)..]) / variance(h),
            _ => 20.0,
        };
        let x = wvir * ((2.0 * step.iter().sum::<f64>() / step.len() as f64).exp() - 1.0);
        if x > 1.0 { k_min } else { (((k_max - k_min) as f64 * (1.0 - x)) + k_min as f64).ceil() as u32 }
    }

    fn adjust(&mut self, accepted: u32, step: &[f64], cap: Option<u32>) {
        let cumulative = self.history().len() as u32;
        if self.bounds.is_none() && cumulative < SMALL.history {
            self.warm_accepted.push(accepted);
            self.warm_nats.extend(step);
            self.k = if accepted >= self.k { (self.k * 2).min(8) } else { self.k.max(1) };
        }
        if self.bounds.is_none() && cumulative >= SMALL.history {
            self.bounds = Some(match self.warm_accepted.iter().max() {
                None => (1, 8),
                Some(&most) => {
                    let mean = self.warm_nats.iter().sum::<f64>() / self.warm_nats.len() as f64;
                    let greatest = self.warm_nats.iter().copied().fold(0.0, f64::max);
                    let greatest = if greatest == 0.0 { 1.0 } else { greatest };
                    let k_max =
                        ((f64::from(most) * (1.0 + 0.5 * (mean / greatest))).round_ties_even() as u32).clamp(1, 8);
                    (((f64::from(k_max) * 0.1).ceil() as u32).clamp(1, k_max), k_max)
                }
            });
        }
        if self.bounds.is_some() {
            self.k = self.length(step).min(cap.unwrap_or(u32::MAX));
        }
    }
}

proptest! {
    #[test]
    fn equals_a_second_reading(
        steps in prop::collection::vec(
            prop::collection::vec((0u32..=8, 0u32..=8, prop::collection::vec(0.0f64..1.5, 8)), 3),
            1..20,
        ),
    ) {
        let mut p = Running::new(SMALL, &CONTEXT);
        let mut second = vec![Second { k: 2, ..Second::default() }; 3];
        for step in steps {
            let rounds: Vec<Round> = step
                .into_iter()
                .enumerate()
                .map(|(id, (verified, accepted, nats))| (id as RequestId, verified, accepted.min(verified), nats))
                .collect();
            feed(&mut p, &rounds);
            let known = |r: &Round| -> Vec<f64> {
                r.3.iter().take(r.1.min(r.2 + 1) as usize).copied().collect()
            };
            let drafted: Vec<&Round> = rounds.iter().filter(|r| r.1 > 0).collect();
            drafted.iter().for_each(|r| second[r.0 as usize].all.extend(known(r)));
            let free: Vec<u32> = drafted
                .iter()
                .filter(|r| second[r.0 as usize].bounds.is_some())
                .map(|r| second[r.0 as usize].length(&known(r)))
                .collect();
            let mean = f64::from(free.iter().sum::<u32>()) / free.len() as f64;
            let cap = (!free.is_empty()).then(|| mean.ceil() as u32);
            drafted.iter().for_each(|r| second[r.0 as usize].adjust(r.2, &known(r), cap));
            let expected: Vec<u32> = second.iter().map(|s| s.k).collect();
            prop_assert_eq!(lengths(&mut p, &[0, 1, 2]), expected);
        }
    }
}
