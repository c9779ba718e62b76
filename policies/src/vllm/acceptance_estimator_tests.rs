//! Tests of the acceptance estimator: the first predictions, one refit against a direct solution of its system of
//! equations, and what the estimator learns.

use super::*;
use crate::testing::outcome;
use foretoken_sim::{Drafts, Luck, Stream};
use itertools::Itertools;

/// A deterministic sequence that looks random: the fractional part of n times the golden ratio.
fn spread(n: u64) -> f64 {
    (n as f64 * 0.618_033_988_749_895).fract()
}

/// Lets the estimator observe one step of one request whose draft tokens had the confidences `q`.
fn step(estimator: &mut AcceptanceEstimator, q: &[f64], accepted: u32, verified: u32) {
    let mut drafts = Drafts::default();
    drafts.reset(1, q.len() as u32);
    q.iter().enumerate().for_each(|(j, &q)| drafts.set_confidence(0, j, q));
    estimator.observe(&outcome(&drafts, &[verified], &[accepted]));
}

#[test]
fn it_starts_uniform_and_clamps_the_feature() {
    let estimator = AcceptanceEstimator::new(3, 100);
    // At the start the acceptance probability is σ(0.5 · logit(q) − 0.2): σ(−0.2) for q = 0.5, and σ(ln 9 / 2 − 0.2) =
    // 1 / (1 + e^0.2 / 3) for q = 0.9.
    for (q, expected) in [(0.5, 0.450_166), (0.9, 1.0 / (1.0 + 0.2f64.exp() / 3.0))] {
        assert!((estimator.predict(q, 2) - expected).abs() < 1e-6, "{}", estimator.predict(q, 2));
    }
    assert_eq!([feature(1.0), feature(0.0), feature(0.5)], [40.0, -40.0, 0.0]);
    // In single precision 1 − 2⁻²⁵ is rounded to 1, so the feature logit(q) is cut to the greatest value, 40.
    assert_eq!(feature(1.0 - 0.5f64.powi(25)), 40.0);
    assert!((feature(0.999) - 999f32.ln()).abs() < 1e-3);
}

#[test]
fn only_what_verification_reached_is_observed() {
    let mut e = AcceptanceEstimator::new(4, 100);
    // 1 of 4 draft tokens is accepted: position 0 is right and position 1 is wrong. Then 2 of 2 are accepted: both are
    // right. No later position is observed.
    step(&mut e, &[0.9, 0.8, 0.7, 0.6], 1, 4);
    step(&mut e, &[0.9, 0.8, 0.7, 0.6], 2, 2);
    let seen: Vec<f32> = e.at.iter().map(|s| s.n).collect();
    assert_eq!(seen, [2.0, 2.0, 0.0, 0.0]);
    let (c0, c1) = (e.predict(0.9, 0) as f32, e.predict(0.8, 1) as f32);
    assert!((e.at[0].score - 2.0 * (1.0 - c0)).abs() < 1e-6 && (e.at[1].score - (1.0 - 2.0 * c1)).abs() < 1e-6);
}

/// Solves a system of equations by Gaussian elimination without pivoting, to check the estimator's Newton step.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for k in 0..n {
        for row in k + 1..n {
            let f = a[row][k] / a[k][k];
            (0..n).for_each(|column| a[row][column] -= f * a[k][column]);
            b[row] -= f * b[k];
        }
    }
    for k in (0..n).rev() {
        (k + 1..n).for_each(|column| b[k] -= a[k][column] * b[column]);
        b[k] /= a[k][k];
    }
    b
}

#[test]
fn a_refit_is_the_damped_newton_step_of_the_dense_system() {
    let mut e = AcceptanceEstimator::new(3, 40);
    // Slope and intercepts differ from those at the start, so that the weights of the observed draft tokens differ too.
    e.slope = 0.4;
    e.intercepts = vec![0.5, -0.2, 0.1];
    let before = e.clone();
    let mut seen = Vec::new();
    for n in 0..40u64 {
        let q: Vec<f64> = (0..3).map(|j| 0.05 + 0.9 * spread(7 * n + j + 1)).collect();
        let accepted = (0..3).take_while(|&j| spread(31 * n + j) < q[j as usize]).count() as u32;
        for j in 0..3.min(accepted + 1) {
            seen.push((q[j as usize], j as usize, j < accepted));
        }
        step(&mut e, &q, accepted, 3);
    }
    // The estimator's Newton step as one system of equations: information matrix with ridge, and score. The unknowns
    // are the slope, then the intercepts.
    let mut information = vec![vec![0.0; 4]; 4];
    let mut score = vec![0.0; 4];
    let mut n = [0.0; 3];
    for &(q, j, right) in &seen {
        let x =
            [feature(q).into(), f64::from(u8::from(j == 0)), f64::from(u8::from(j == 1)), f64::from(u8::from(j == 2))];
        let c = before.predict(q, j);
        for (a, &xa) in x.iter().enumerate() {
            (0..4).for_each(|b| information[a][b] += c * (1.0 - c) * xa * x[b]);
            score[a] += (f64::from(u8::from(right)) - c) * xa;
        }
        n[j] += 1.0;
    }
    (0..4).for_each(|k| information[k][k] += 1e-3);
    let full = solve(information.clone(), score.clone());
    let total: f64 = n.iter().sum();
    let slope = full[0] * total / (total + 50.0);
    assert!(slope + 0.4 > 0.0 && slope.abs() > 1e-3, "a step worth testing: {slope}");
    assert!((f64::from(e.slope) - 0.4 - slope).abs() < 1e-6);
    for j in 0..3 {
        let intercept =
            (score[j + 1] - information[0][j + 1] * slope) / information[j + 1][j + 1] * n[j] / (n[j] + 50.0);
        assert!((f64::from(e.intercepts[j] - before.intercepts[j]) - intercept).abs() < 1e-6);
    }
    assert_eq!((e.refits(), e.steps, e.at[0]), (1, 0, Sums::default()), "starts over");
}

#[test]
fn a_slope_never_turns_negative() {
    let mut e = AcceptanceEstimator::new(1, 100);
    // Draft tokens with confidence 0.99 are always rejected, draft tokens with confidence 0.1 are always accepted.
    for n in 0..100 {
        let sure = n % 2 == 0;
        step(&mut e, &[if sure { 0.99 } else { 0.1 }], u32::from(!sure), 1);
    }
    assert_eq!((e.refits(), e.slope), (1, 0.5));
    assert!(e.intercepts[0] < -0.2, "the intercept still learns");
}

#[test]
fn it_recovers_the_law_that_made_the_labels() {
    let (slope, intercepts) = (0.6, [0.3, -0.4]);
    let mut e = AcceptanceEstimator::new(2, 100);
    let luck = Luck::new(3, Stream::Policy, 0);
    let mut draws = 0;
    for _ in 0..30 * 100 {
        let mut drafts = Drafts::default();
        drafts.reset(16, 2);
        let mut accepted = vec![0; 16];
        for (i, a) in accepted.iter_mut().enumerate() {
            let mut alive = true;
            for (j, b) in intercepts.iter().enumerate() {
                draws += 2;
                let q = 0.02 + 0.96 * luck.unit(draws);
                drafts.set_confidence(i, j, q);
                let c = 1.0 / (1.0 + (-(slope * f64::from(feature(q)) + b)).exp());
                alive &= luck.unit(draws + 1) < c;
                *a += u32::from(alive);
            }
        }
        e.observe(&outcome(&drafts, &[2; 16], &accepted));
    }
    assert!((f64::from(e.slope) - slope).abs() < 0.1, "slope {}", e.slope);
    for (ours, law) in e.intercepts.iter().zip_eq(intercepts) {
        assert!((f64::from(*ours) - law).abs() < 0.15, "intercept {ours} for {law}");
    }
}

/// Two draft tokens are accepted with confidences near 1, then one is rejected. The weight of these tokens is almost 0,
/// so vLLM's refit moves the intercept far, and then every token has a predicted acceptance probability near 0.
#[test]
fn a_limit_keeps_a_refit_of_few_sure_tokens_small() {
    let refitted = |mut e: AcceptanceEstimator| {
        e.set(1.0, 0.0);
        step(&mut e, &[0.999_999, 0.999_999], 2, 2);
        step(&mut e, &[0.999_999, 0.999_999], 0, 2);
        assert_eq!(e.refits(), 1);
        (e.coefficients()[1], e.predict(0.9, 0))
    };
    let (jumped, chance) = refitted(AcceptanceEstimator::new(2, 2));
    assert!(jumped < -5.0 && chance < 0.05, "{jumped}, {chance}");
    let (limited, chance) = refitted(AcceptanceEstimator::new(2, 2).with_steps_up_to(1.0));
    assert!((-1.0..0.0).contains(&limited) && chance > 0.2, "{limited}, {chance}");
}
