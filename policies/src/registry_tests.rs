//! Tests of the table of policies: policies' names, labels, looks and checks, what the engine requires of every policy,
//! and the golden decisions (a snapshot of the accepted decisions of each policy).

use super::*;
use crate::goodput::smartspec::Smartspec;
use crate::plain::fixed::Fixed;
use crate::testing::{Batch, CONTEXT, Run, any_batch, any_belief};
use itertools::zip_eq;
use proptest::prelude::*;
use std::collections::HashSet;

/// Policies with other settings than the defaults of their presets. A preset is a policy with default settings under a
/// name. The decisions of these policies are in the golden snapshot too.
const VARIANTS: &[&str] = &[
    r#"{"fixed": {"k": 1}}"#,
    r#"{"fixed": {"k": 5}}"#,
    r#"{"smartspec": {"rate": "per-draft"}}"#,
    r#"{"smartspec-dsd": {"proposer": "ngram"}}"#,
    r#"{"turbospec-v1": {"coefficients": "h100-8b"}}"#,
    r#"{"smartspec-medusa": {"heads": 2, "max_topk": 2}}"#,
    r#"{"adaspec": {"drafter": "off", "slo": "expected"}}"#,
    r#"{"threshold": {"tau": 0.5, "scope": "batch-mean", "cost": "runs-all"}}"#,
    r#"{"sglang-gen2": {"initial_steps": 4}}"#,
    r#"{"vllm-dynamic": {"num_speculative_tokens_per_batch_size": [[1, 4, 5], [6, 6, 2]]}}"#,
    r#"{"confidence-stop": {"tau": 0.9, "cap": 8}}"#,
    r#"{"oracle-goodput": {"form": "batch"}}"#,
    r#"{"random": {"per_request": true}}"#,
    r#"{"adaspec-code": {"eliminate": "off"}}"#,
    r#"{"vllm-adaptive": {"k": 6, "warmup_refits": 3}}"#,
    r#"{"vllm-adaptive": {"cost_lookup": "linear", "refit_interval": 1, "warmup_refits": 1}}"#,
    r#"{"dspark": {"gamma": 5, "align_to_graph": true}}"#,
    r#"{"dspark": {"table": "flat", "allow_degenerate": true}}"#,
    r#"{"tetris": {"k": 2, "extra": 3}}"#,
    r#"{"hf-dynamic": {"num_assistant_tokens_schedule": "heuristic-transient", "tuning": false}}"#,
    r#"{"banditspec": {"bonus": "ucbspec"}}"#,
    r#"{"adaedl": {"k_min": 6}}"#,
    r#"{"dsde": {"batch_cap": false}}"#,
];

fn policy(json: &str) -> PolicySpec {
    serde_json::from_str(json).expect("a policy")
}

/// All presets (policies with default settings under a name), then the policies of [`VARIANTS`], which have other
/// settings.
fn shown() -> Vec<PolicySpec> {
    PolicySpec::all().into_iter().chain(VARIANTS.iter().map(|v| policy(v))).collect()
}

#[test]
fn labels_tell_settings_apart_and_looks_tell_policies_apart() {
    let labels: Vec<String> = shown().iter().map(PolicySpec::label).collect();
    let presets = PolicySpec::all().len();
    for (label, name) in zip_eq(&labels[..presets], PolicySpec::all_names()) {
        let usual = match *name {
            "fixed" => "fixed-3",
            "true-cost" => "true-cost(smartspec)",
            "true-calibration" => "true-calibration(adaspec)",
            "true-rates" => "true-rates(smartspec)",
            name => name,
        };
        assert_eq!(label, usual);
    }
    for (label, variant) in zip_eq(&labels[presets..], VARIANTS) {
        let name = policy(variant).name();
        let settings = label.strip_prefix(name).and_then(|rest| rest.strip_prefix('[')?.strip_suffix(']'));
        assert!(name == "fixed" || settings.is_some_and(|s| s.contains('=')), "{label}, of {variant}");
    }
    let different: HashSet<&String> = labels.iter().collect();
    assert_eq!(different.len(), labels.len());
    let mut looks = HashSet::new();
    for policy in PolicySpec::all() {
        assert!(looks.insert(policy.look()), "{} looks like another policy", policy.label());
    }
    let fixed: HashSet<Look> = [1, 3, 5].into_iter().map(|k| PolicySpec::Fixed(Fixed { k }).look()).collect();
    assert_eq!(fixed.len(), 3);
}

#[test]
fn names_and_defaults_are_one_table() {
    let names: Vec<&str> = PolicySpec::all().iter().map(PolicySpec::name).collect();
    assert_eq!(names, PolicySpec::all_names());
    let seers: Vec<&str> = PolicySpec::all().iter().filter(|p| p.sees_hidden_truth()).map(PolicySpec::name).collect();
    let bounds = [
        "oracle-goodput", "oracle-tree", "knows-rates", "knows-confidences", "knows-lengths", "one-step-ahead",
        "oracle-length", "clairvoyant-static",
    ];
    let wrappers = ["true-cost", "true-calibration", "true-rates"];
    assert_eq!(seers, [&bounds[..], &wrappers].concat());
    for policy in PolicySpec::all() {
        assert!(policy.check().is_ok() && !policy.summary().is_empty() && !policy.source().is_empty());
        assert!(!policy.definition().about().sees.is_empty() && !policy.definition().about().differences.is_empty());
        // `{ name = {} }` gives the default settings, and a policy that was written is read back unchanged.
        let empty = format!("{{\"{}\":{{}}}}", policy.name());
        assert_eq!(serde_json::from_str::<PolicySpec>(&empty).expect("all defaults"), policy);
        let unknown = format!("{{\"{}\":{{\"no_such_key\":1}}}}", policy.name());
        assert!(serde_json::from_str::<PolicySpec>(&unknown).is_err(), "{}", policy.name());
    }
    for policy in shown() {
        let written = serde_json::to_string(&policy).expect("plain values");
        assert_eq!(serde_json::from_str::<PolicySpec>(&written).expect("what was written"), policy);
    }
}

/// A policy that drafts trees can be better than `oracle-goodput`, so reports must know which policies draft trees. A
/// policy drafts trees if a request may have more draft tokens than levels.
#[test]
fn presets_that_draft_trees_say_so() {
    for spec in PolicySpec::all() {
        let Speculation::Policy(policy) = spec.build(&CONTEXT) else { continue };
        let limits = policy.limits();
        assert_eq!(spec.definition().drafts_trees(), limits.max_tree_tokens > limits.max_depth, "{}", spec.name());
    }
}

#[test]
fn every_preset_has_a_line_of_its_own() {
    let mut lines = HashSet::new();
    for policy in PolicySpec::all() {
        assert!(lines.insert(policy.summary()), "{} shares its line: {}", policy.name(), policy.summary());
    }
}

#[test]
fn only_oracles_are_built_as_oracles() {
    for policy in shown() {
        let oracle = matches!(policy.build(&CONTEXT), Speculation::Oracle(_));
        let definition = policy.definition();
        let sees = policy.sees_hidden_truth() && definition.tries(8).is_empty() && definition.wraps().is_none();
        assert_eq!(oracle, sees, "{}", policy.label());
    }
}

#[test]
fn errors_say_where() {
    let bad = PolicySpec::Smartspec(Smartspec { ema_keep: f64::NAN, ..Smartspec::default() });
    let error = bad.check().expect_err("NaN");
    assert_eq!(
        (error.key, error.to_string()),
        ("ema_keep", "smartspec.ema_keep: NaN is not a share from 0 to 1".into())
    );
    let bad = PolicySpec::Smartspec(Smartspec { initial_acceptance: -0.5, ..Smartspec::default() });
    assert_eq!(bad.check().expect_err("negative").key, "initial_acceptance");
    let bad = PolicySpec::Smartspec(Smartspec { absorbing_steps: 0, ..Smartspec::default() });
    assert_eq!(bad.check().expect_err("zero").key, "absorbing_steps");
}

/// The setting that states each policy's longest draft length, and the length. Policies without such a setting have no
/// line. After an intended change, and for a new policy: `INSTA_UPDATE=always cargo test --release -p
/// foretoken-policies longest`.
#[test]
fn stated_longest_lengths() {
    let asked = |policy: &PolicySpec| {
        let (key, longest) = policy.definition().asks_for()?;
        Some(format!("{}: {key} = {longest}\n", policy.label()))
    };
    insta::assert_snapshot!("longest", shown().iter().filter_map(asked).collect::<String>());
}

/// Five decode requests and a prefill chunk. One request may not draft (limit 0), and of one request the draft model
/// has skipped one context token.
fn small_batch() -> Batch {
    let mut batch = Batch::new(&[120, 900, 64, 2000, 333], &[8, 8, 0, 3, 8]);
    batch.gap[1] = 1;
    batch.prefill.add(0, 16);
    batch.draft_prefill.add(0, 16);
    batch
}

/// Three steps on the batch of [`small_batch`], each as `draft lengths/verify lengths` with one digit per request.
/// Confidences fall with depth and change from step to step and from request to request.
fn decisions(policy: &PolicySpec) -> String {
    let confidence = |step: usize, i: usize, j: usize| 0.98 - 0.2 * ((i + step) % 3) as f64 - 0.07 * j as f64;
    // Passes are so expensive in this policy context (the costs and limits from which policies are built) that the best
    // draft length differs from the number of draft tokens that would be accepted.
    let mut context = CONTEXT;
    context.belief.draft.delta_s = 2e-3;
    context.belief.target.gamma_s = 400e-6;
    let runs = [[4, 1, 0, 2, 0], [8, 0, 0, 3, 1], [1, 1, 0, 0, 2]];
    let mut run = Run::of_spec(policy, &context);
    let mut batch = small_batch();
    let steps: Vec<String> = runs
        .iter()
        .enumerate()
        .map(|(step, accepted)| {
            batch.step = step as u64;
            let made = run.step(&batch, |i, j| confidence(step, i, j), accepted);
            let digits = |lens: &[u32]| lens.iter().map(u32::to_string).collect::<String>();
            format!("{}/{}", digits(&made.draft_len), digits(&made.verify_len))
        })
        .collect();
    steps.join(" ")
}

/// The golden snapshot has one line of decisions per policy; a change of any decision shows here first. After an
/// intended change, and for a new policy: `INSTA_UPDATE=always cargo test --release -p foretoken-policies golden`.
#[test]
fn golden() {
    let lines: String = shown().iter().map(|p| format!("{}: {}\n", p.label(), decisions(p))).collect();
    insta::assert_snapshot!("decisions", lines);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// No policy exceeds a request's limit on draft tokens, verifies a token that it did not draft, or fails on
    /// requests that may not draft; `Run::step` asserts this. Several steps run, so that learned states occur too.
    #[test]
    fn limits_hold(
        batches in prop::collection::vec(any_batch(12, 8), 1..6),
        belief in any_belief(),
        confidence in 0.01f64..=1.0,
        wanted in prop::collection::vec(0u32..=8, 12),
        max_draft_len in 0u32..=8,
        slo in prop_oneof![Just(f64::INFINITY), 0.0f64..0.1],
    ) {
        for policy in shown() {
            let mut run = Run::of_spec(&policy, &PolicyContext { belief, profile: &belief, max_draft_len, seed: 5, ..CONTEXT });
            for batch in &batches {
                let mut batch = batch.clone();
                batch.limit.iter_mut().for_each(|l| *l = (*l).min(max_draft_len));
                batch.slo_tpot_s.fill(slo);
                let accepted: Vec<u32> = batch.limit.iter().zip(&wanted).map(|(&l, &w)| l.min(w)).collect();
                let made = run.step(&batch, |_, j| confidence.powi(j as i32 + 1).max(1e-6), &accepted);
                // Policies that choose a prefix of the batch may leave requests at its end out of the step.
                let all = made.verify_len.len() == batch.limit.len();
                prop_assert!(all || policy.name() == "smartspec-joint", "{}", policy.label());
            }
        }
    }
}
