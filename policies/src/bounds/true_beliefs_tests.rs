//! Tests of the wrappers `true-cost`, `true-calibration` and `true-rates`, which give another policy the truth. A
//! policy's decisions depend on a belief (an assumption about costs, confidences or rates) exactly if its `beliefs`
//! name the belief. A wrapper refuses policies without the belief that it replaces.

use super::*;
use crate::shared::belief::Belief;
use crate::testing::{BELIEF, Batch, CONTEXT, Run};
use foretoken_sim::{Coefficients, Drafts};
use std::sync::Arc;

fn policy(json: &str) -> PolicySpec {
    serde_json::from_str(json).expect("a policy")
}

/// The policies that a server can run. Left out are oracles, policies that see hidden truth (what no server knows, such
/// as true costs), and settings that turn speculation off, such as `autoregressive`.
fn servers() -> impl Iterator<Item = PolicySpec> {
    PolicySpec::all()
        .into_iter()
        .filter(|p| matches!(p.build(&CONTEXT), Speculation::Policy(_)) && !p.sees_hidden_truth())
}

/// Drafted and verified lengths of 60 steps, in which the batch grows and shrinks.
fn decisions(policy: &PolicySpec, context: &PolicyContext) -> Vec<(Vec<u32>, Vec<u32>)> {
    let mut run = Run::of_spec(policy, context);
    let step = |step: usize| {
        let n = 1 + step * 7 % 48;
        let mut batch = Batch::new(&vec![600; n], &vec![8; n]);
        batch.step = step as u64;
        batch.gap[0] = 3;
        batch.slo_tpot_s.fill(0.03);
        let accepted: Vec<u32> = (0..n).map(|i| ((i * 5 + step * 3) % 9) as u32).collect();
        let Drafts { draft_len, verify_len, .. } =
            run.step(&batch, |i, j| 0.97 - 0.11 * ((i + step) % 5) as f64 - 0.05 * j as f64, &accepted);
        (draft_len, verify_len)
    };
    (0..60).map(step).collect()
}

#[test]
fn confidences_are_believed_where_they_are_read() {
    let reads = |policy: &PolicySpec| match policy.build(&CONTEXT) {
        Speculation::Policy(running) => running.wants().confidence,
        _ => unreachable!("they were chosen so"),
    };
    let wrong: Vec<_> =
        servers().filter(|p| p.definition().beliefs().confidence != reads(p)).map(|p| p.label()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The decisions of a policy change with its own cost formula if, and only if, its `beliefs` (the assumptions that it
/// states) name the cost. Two policies use costs only in a state that these steps do not bring about: `adaserve-like`
/// for a request that is late by its TPOT limit, `nightjar-like` when it starts to draft again.
#[test]
fn costs_are_believed_where_they_change_decisions() {
    let model = |delta_s: f64, gamma_s: f64| Coefficients { alpha_s: 1e-8, gamma_s, delta_s };
    let costs = [
        (model(0.1e-3, 1e-6), model(20e-3, 5e-6)),
        (model(6e-3, 100e-6), model(8e-3, 40e-6)),
        (model(0.5e-3, 2e-6), model(2e-3, 900e-6)),
    ];
    let changes = |policy: &PolicySpec| {
        let under = |(draft, target): (Coefficients, Coefficients)| {
            let belief = Belief { draft, target, ..BELIEF };
            decisions(policy, &PolicyContext { belief, profile: &belief, ..CONTEXT })
        };
        let [a, b, c] = costs.map(under);
        a != b || b != c
    };
    let wrong: Vec<_> = servers().filter(|p| p.definition().beliefs().cost != changes(p)).map(|p| p.label()).collect();
    assert_eq!(wrong, ["adaserve-like", "nightjar-like"]);
}

/// The decisions of a policy change with the requests' own rates if, and only if, its `beliefs` (the assumptions that
/// it states) name the rate.
#[test]
fn rates_are_believed_where_they_change_decisions() {
    let rates = |rate: f64| -> Arc<[f64]> { vec![rate; 64].into() };
    let (low, high) = (rates(0.02), rates(0.98));
    for policy in servers() {
        let knows = |rates| decisions(&policy, &PolicyContext { own_rates: Some(rates), ..CONTEXT });
        assert_eq!(policy.definition().beliefs().rate, knows(&low) != knows(&high), "{}", policy.label());
    }
}

#[test]
fn a_wrapper_gives_its_truth() {
    let other = Belief { target: Coefficients { gamma_s: 2e-3, ..BELIEF.target }, ..BELIEF };
    let low: Arc<[f64]> = vec![0.1; 64].into();
    let truths = Some(crate::Truths { line: other, passes: &other, own_rates: Some(&low) });
    let smartspec = PolicySpec::Smartspec(Smartspec::default());
    let with_truths = PolicyContext { truths, ..CONTEXT };
    let same = |wrapped: &str, context: PolicyContext| {
        decisions(&policy(wrapped), &with_truths) == decisions(&smartspec, &context)
    };
    let believes_other = PolicyContext { belief: other, profile: &other, ..CONTEXT };
    let knows_low = PolicyContext { own_rates: Some(&low), ..CONTEXT };
    assert!(same(r#"{"true-cost": {"policy": {"smartspec": {}}}}"#, believes_other));
    assert!(same(r#"{"true-rates": {"policy": {"smartspec": {}}}}"#, knows_low));
    let both = PolicyContext { own_rates: Some(&low), ..believes_other };
    assert!(same(r#"{"true-rates": {"policy": {"true-cost": {"policy": {"smartspec": {}}}}}}"#, both));
    assert!(!same(r#"{"true-cost": {"policy": {"smartspec": {}}}}"#, CONTEXT));
}

#[test]
fn of_two_wrappers_the_one_that_shows_more_decides() {
    let shown = |json: &str| match policy(json).build(&CONTEXT) {
        Speculation::Policy(running) => running.wants().shown,
        _ => unreachable!("a policy that a server can run is in it"),
    };
    let calibrated = r#"{"true-calibration": {"policy": {"tetris": {}}}}"#;
    assert_eq!(shown(r#"{"true-cost": {"policy": {"adaspec": {}}}}"#), Shown::Confidence);
    assert_eq!(shown(calibrated), Shown::Calibrated);
    assert_eq!(shown(&format!(r#"{{"true-rates": {{"policy": {calibrated}}}}}"#)), Shown::OwnRate);
    let rates = r#"{"true-rates": {"policy": {"tetris": {}}}}"#;
    assert_eq!(shown(&format!(r#"{{"true-calibration": {{"policy": {rates}}}}}"#)), Shown::OwnRate);
}

#[test]
fn what_has_nothing_to_put_right_is_refused() {
    let refused = |json: &str, says: &str| {
        let error = policy(json).check().expect_err(json);
        assert_eq!(error.key, "policy");
        assert!(error.to_string().contains(says), "{error}");
    };
    refused(r#"{"true-cost": {"policy": {"fixed": {}}}}"#, "true-cost.policy: fixed-3 has no belief about the cost");
    refused(r#"{"true-calibration": {"policy": {"smartspec": {}}}}"#, "has no belief about confidences");
    refused(r#"{"true-rates": {"policy": {"ema-tier": {}}}}"#, "has no belief about acceptance rates");
    refused(r#"{"true-cost": {"policy": {"oracle-goodput": {}}}}"#, "sees the truth already");
    refused(r#"{"true-cost": {"policy": {"clairvoyant-static": {}}}}"#, "sees the truth already");
    refused(r#"{"true-cost": {"policy": {"smartspec": {"ema_keep": 7.0}}}}"#, "smartspec.ema_keep: 7 is not a share");
    refused(
        r#"{"true-cost": {"policy": {"true-cost": {"policy": {"smartspec": {}}}}}}"#,
        "true-cost(smartspec) has no belief about the cost",
    );
}
