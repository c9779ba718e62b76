//! Tests of [`super`]: names, labels, looks, checks, what every policy owes the engine, and the golden decisions.

use super::*;
use crate::Bonus;
use crate::testing::{Batch, CONTEXT, Run, any_batch, any_belief};
use crate::{Cost, Drafter, Form, Rate, Scope, SloMode};
use crate::{Proposer, TurbospecCoefficients};
use itertools::zip_eq;
use proptest::prelude::*;
use std::collections::HashSet;

/// Every preset, and settings that a comparison shows beside them.
fn shown() -> Vec<PolicySpec> {
    let mut all = PolicySpec::all();
    all.extend([
        PolicySpec::Fixed(Fixed { k: 1 }),
        PolicySpec::Fixed(Fixed { k: 5 }),
        PolicySpec::Smartspec(Smartspec { rate: Rate::PerDraft, ..Smartspec::default() }),
        PolicySpec::SmartspecDsd(SmartspecDsd { proposer: Proposer::Ngram, ..SmartspecDsd::default() }),
        PolicySpec::TurbospecV1(Turbospec { coefficients: TurbospecCoefficients::H100Llama8b, ..Turbospec::default() }),
        PolicySpec::SmartspecMedusa(SmartspecMedusa { heads: 2, max_topk: 2, ..SmartspecMedusa::default() }),
        PolicySpec::Adaspec(Adaspec { drafter: Drafter::Off, slo: SloMode::Expected, ..Adaspec::default() }),
        PolicySpec::Threshold(Threshold {
            tau: 0.5,
            scope: Scope::BatchMean,
            cost: Cost::RunsAll,
            ..Threshold::default()
        }),
        PolicySpec::SglangGen2(EmaTier { initial_steps: 4, ..EmaTier::gen2() }),
        PolicySpec::VllmDynamic(VllmDynamic { num_speculative_tokens_per_batch_size: vec![(1, 4, 5), (6, 6, 2)] }),
        PolicySpec::ConfidenceStop(ConfidenceStop { tau: 0.9, cap: 8 }),
        PolicySpec::OracleGoodput(OracleGoodput { form: Form::Batch }),
        PolicySpec::Random(Random { per_request: true }),
        PolicySpec::AdaspecCode(crate::AdaspecCode { eliminate: crate::Eliminate::Off, ..Default::default() }),
        PolicySpec::VllmAdaptive(crate::VllmAdaptive { k: Some(6), warmup_refits: 3, ..Default::default() }),
        PolicySpec::VllmAdaptive(crate::VllmAdaptive {
            cost_lookup: crate::CostLookup::Linear,
            refit_interval: 1,
            warmup_refits: 1,
            ..Default::default()
        }),
        PolicySpec::Dspark(crate::Dspark { gamma: Some(5), align_to_graph: true, ..Default::default() }),
        PolicySpec::Dspark(crate::Dspark {
            table: crate::SpsTable::Flat,
            allow_degenerate: true,
            ..Default::default()
        }),
        PolicySpec::Tetris(crate::Tetris { k: 2, extra: 3, ..Default::default() }),
        PolicySpec::HfDynamic(crate::HfDynamic {
            num_assistant_tokens_schedule: crate::Schedule::HeuristicTransient,
            tuning: false,
            ..Default::default()
        }),
        PolicySpec::Banditspec(Banditspec { bonus: Bonus::Ucbspec, ..Banditspec::default() }),
        PolicySpec::Adaedl(Adaedl { k_min: 6, ..Adaedl::default() }),
        PolicySpec::Dsde(Dsde { batch_cap: false, ..Dsde::default() }),
    ]);
    all
}

#[test]
fn labels_tell_settings_apart_and_looks_tell_policies_apart() {
    let labels: Vec<String> = shown().iter().map(PolicySpec::label).collect();
    let presets = PolicySpec::all().len();
    for (label, name) in zip_eq(&labels[..presets], PolicySpec::all_names()) {
        assert_eq!(label, if *name == "fixed" { "fixed-3" } else { name });
    }
    assert_eq!(
        labels[presets..],
        [
            "fixed-1",
            "fixed-5",
            "smartspec[rate=per-draft]",
            "smartspec-dsd[proposer=ngram]",
            "turbospec-v1[coefficients=h100-8b]",
            "smartspec-medusa[heads=2 max_topk=2]",
            "adaspec[drafter=off slo=expected]",
            "threshold[cost=runs-all scope=batch-mean tau=0.5]",
            "sglang-gen2[initial_steps=4]",
            "vllm-dynamic[num_speculative_tokens_per_batch_size=[[1,4,5],[6,6,2]]]",
            "confidence-stop[cap=8 tau=0.9]",
            "oracle-goodput[form=batch]",
            "random[per_request=true]",
            "adaspec-code[eliminate=off]",
            "vllm-adaptive[k=6 warmup_refits=3]",
            "vllm-adaptive[cost_lookup=linear refit_interval=1 warmup_refits=1]",
            "dspark[align_to_graph=true gamma=5]",
            "dspark[allow_degenerate=true table=flat]",
            "tetris[extra=3 k=2]",
            "hf-dynamic[num_assistant_tokens_schedule=heuristic-transient tuning=false]",
            "banditspec[bonus=ucbspec]",
            "adaedl[k_min=6]",
            "dsde[batch_cap=false]",
        ]
    );
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
    assert_eq!(seers, ["oracle-goodput", "oracle-length", "clairvoyant-static"]);
    for policy in PolicySpec::all() {
        assert!(policy.check().is_ok() && !policy.summary().is_empty() && !policy.source().is_empty());
        assert!(!policy.definition().sees().is_empty() && !policy.definition().differences().is_empty());
        // `{ name = {} }` is the default, and what is written reads back.
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
        let sees = policy.sees_hidden_truth() && policy.definition().tries(8).is_empty();
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

/// Five requests, one of them without room; a chunk rides along and one request has a gap.
fn small_batch() -> Batch {
    let mut batch = Batch::new(&[120, 900, 64, 2000, 333], &[8, 8, 0, 3, 8]);
    batch.gap[1] = 1;
    batch.prefill.add(0, 16);
    batch.draft_prefill.add(0, 16);
    batch
}

/// `draft lengths / verify lengths` of three steps on the small batch. Confidences fall with depth, and not
/// every step is as promising for every request.
fn decisions(policy: &PolicySpec) -> String {
    let confidence = |step: usize, i: usize, j: usize| 0.98 - 0.2 * ((i + step) % 3) as f64 - 0.07 * j as f64;
    // Dear enough that what is worth drafting differs from what would be accepted.
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

/// One line a policy: a change of any decision shows here first.
#[test]
fn golden() {
    let golden: &[(&str, &str)] = &[
        ("autoregressive", "00000/00000 00000/00000 00000/00000"),
        ("fixed-3", "33033/33033 33033/33033 33033/33033"),
        ("ema-tier", "33033/33033 33033/33033 33033/33033"),
        ("sglang-gen1", "33033/33033 33033/33033 33033/33033"),
        ("sglang-gen2", "33033/33033 33033/33033 33033/33033"),
        ("sglang-gen3", "33033/33033 33033/33033 33033/33033"),
        ("sglang-throughput", "33033/33033 33033/33033 33033/33033"),
        ("smartspec", "22022/22022 22022/22022 22022/22022"),
        ("smartspec-joint", "22022/22022 22022/22022 22022/22022"),
        ("smartspec-request", "22022/22022 32030/32030 52030/52030"),
        ("smartspec-confidence", "85035/75035 53033/43033 38038/37037"),
        ("smartspec-dsd", "22022/22022 22022/22022 22022/22022"),
        ("turbospec-v1", "88038/22022 22022/22022 22022/22022"),
        ("smartspec-medusa", "22022/22022 22022/22022 22022/22022"),
        ("adaspec", "33033/33033 22022/22022 33033/23023"),
        ("adaspec-", "33033/33033 22022/22022 33033/33033"),
        ("adaspec-code", "55035/55035 33033/32033 55035/55035"),
        ("vllm-dynamic", "33033/33033 33033/33033 33033/33033"),
        ("vllm-adaptive", "88038/88038 88038/33032 88038/24014"),
        ("dspark", "88038/88038 88038/88038 88038/27027"),
        ("disable-by-batch-size", "33033/33033 33033/33033 33033/33033"),
        ("draft-len-schedule", "22022/22022 22022/22022 22022/22022"),
        ("confidence-stop", "88038/88038 77037/66036 88038/88038"),
        ("vllm-draft-confidence", "88038/55035 88038/33033 88038/55035"),
        ("speculation-gate", "33033/33033 33033/33033 33033/33033"),
        ("trtllm-auto", "33033/33033 33033/33033 33033/33033"),
        ("mlc-table", "44034/44034 44034/44034 44034/44034"),
        ("verify-budget", "44034/42031 44034/32032 44034/14014"),
        ("measured-two-arm", "22022/22022 22022/22022 22022/22022"),
        ("measured-cost-depth", "66036/66036 55035/55035 44034/44034"),
        ("mlx-vlm-expand", "22022/22022 22022/22022 22022/22022"),
        ("aimd", "11011/11011 22021/22021 31032/31032"),
        ("downshift", "33033/33033 31031/31031 31031/31031"),
        ("threshold", "87037/87037 74034/74034 48038/48038"),
        ("threshold-hf", "87037/87037 74034/74034 48038/48038"),
        ("threshold-adaspec-repo", "55035/55035 33033/33033 55035/55035"),
        ("hf-dynamic", "87037/87037 74034/74034 58018/58018"),
        ("hf-heuristic", "55035/55035 44034/44034 63033/63033"),
        ("svip", "31031/31031 11011/11011 13013/13013"),
        ("adaedl", "77037/77037 44034/44034 44034/44034"),
        ("dsde", "55035/55035 66036/66036 86036/86036"),
        ("tetris", "44034/44034 44034/44034 44034/44034"),
        ("specinfer", "88038/86036 88038/65035 88038/58038"),
        ("specinfer-star", "88038/88038 88038/88038 88038/88038"),
        ("eagle2", "55035/55035 55035/53033 55035/35035"),
        ("adaserve-like", "88038/85035 88038/54034 88038/48038"),
        ("banditspec-literal", "11011/11011 22022/22022 33033/33033"),
        ("banditspec", "11011/11011 22022/22022 33033/33033"),
        ("exp3spec", "22022/22022 44034/44034 33033/33033"),
        ("cascade-like", "00000/00000 00000/00000 00000/00000"),
        ("nightjar-like", "33033/33033 33033/33033 33033/33033"),
        ("oracle-goodput", "21020/21020 30031/30031 11002/11002"),
        ("oracle-length", "41020/41020 80031/80031 11002/11002"),
        ("clairvoyant-static", "00000/00000 00000/00000 00000/00000"),
        ("random", "33033/33033 88038/88038 44034/44034"),
        ("fixed-1", "11011/11011 11011/11011 11011/11011"),
        ("fixed-5", "55035/55035 55035/55035 55035/55035"),
        ("smartspec[rate=per-draft]", "22022/22022 22022/22022 22022/22022"),
        ("smartspec-dsd[proposer=ngram]", "88038/55035 88038/55035 88038/55035"),
        ("turbospec-v1[coefficients=h100-8b]", "88038/55035 55035/55035 55035/55035"),
        ("smartspec-medusa[heads=2 max_topk=2]", "22022/22022 22022/22022 22022/22022"),
        ("adaspec[drafter=off slo=expected]", "88038/64034 88038/43033 88038/26026"),
        ("threshold[cost=runs-all scope=batch-mean tau=0.5]", "88038/66036 88038/44034 88038/66036"),
        ("sglang-gen2[initial_steps=4]", "44034/44034 44034/44034 44034/44034"),
        (
            "vllm-dynamic[num_speculative_tokens_per_batch_size=[[1,4,5],[6,6,2]]]",
            "22022/22022 22022/22022 22022/22022",
        ),
        ("confidence-stop[cap=8 tau=0.9]", "33033/22022 11011/11011 33033/22022"),
        ("oracle-goodput[form=batch]", "22022/22022 33033/33033 11011/11011"),
        ("random[per_request=true]", "54038/54038 75036/75036 86035/86035"),
        ("adaspec-code[eliminate=off]", "55035/55035 33033/33033 55035/55035"),
        ("vllm-adaptive[k=6 warmup_refits=3]", "66036/66036 66036/66036 66036/66036"),
        ("vllm-adaptive[cost_lookup=linear refit_interval=1 warmup_refits=1]", "88038/88038 88038/42032 88038/14014"),
        ("dspark[align_to_graph=true gamma=5]", "55035/55035 55035/55035 55035/55035"),
        ("dspark[allow_degenerate=true table=flat]", "88038/88038 88038/88038 88038/88038"),
        ("tetris[extra=3 k=2]", "55035/42031 55035/32032 55035/14014"),
        (
            "hf-dynamic[num_assistant_tokens_schedule=heuristic-transient tuning=false]",
            "87037/87037 74034/74034 48038/48038",
        ),
        ("banditspec[bonus=ucbspec]", "11011/11011 22022/22022 33033/33033"),
        ("adaedl[k_min=6]", "77037/77037 66036/66036 66036/66036"),
        ("dsde[batch_cap=false]", "55035/55035 66036/66036 86036/86036"),
    ];
    let made: Vec<(String, String)> = shown().iter().map(|p| (p.label(), decisions(p))).collect();
    let table: String = made.iter().map(|(label, lens)| format!("        (\"{label}\", \"{lens}\"),\n")).collect();
    let made: Vec<(&str, &str)> = made.iter().map(|(label, lens)| (label.as_str(), lens.as_str())).collect();
    assert!(made == golden, "decisions changed; they are now\n{table}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// No policy exceeds a limit, verifies what it did not draft, or is upset by requests that may not draft at all;
    /// `Run::step` asserts it. Several steps, so that learned states are met too.
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
                // Who chooses a prefix may leave requests out.
                let all = made.verify_len.len() == batch.limit.len();
                prop_assert!(all || policy.name() == "smartspec-joint", "{}", policy.label());
            }
        }
    }
}
