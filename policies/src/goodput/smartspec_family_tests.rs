//! The policies `smartspec…` and `turbospec…` in simulated runs of the engine: behaviour that tests of single steps
//! cannot show.

use crate::testing::{BELIEF, CONTEXT};
use crate::{Belief, PolicyContext, PolicySpec, Smartspec, SmartspecMedusa};
use foretoken_sim::acceptance::{AcceptanceSpec, RankLaw, Rates};
use foretoken_sim::{
    Arrivals, Coefficients, DraftAt, Drafting, Ending, EngineConfig, Linear, Request, Run, Simulation, Time, Version,
    Workload,
};
use std::sync::atomic::AtomicBool;

/// `n` requests, one every 30 ms, with 100 to 299 prompt tokens and 60 output tokens.
fn workload(n: u64) -> Workload {
    let request = |i: u64| Request::new(Time::from_s(0.03 * i as f64), 100 + (i * 37 % 200) as u32, 60);
    (0..n).map(request).collect()
}

/// Simulates the policy with true costs that equal its belief (its cost estimate). Every draft token is accepted with
/// probability `rate`, whatever its rank among the draft model's guesses.
fn run(policy: &PolicySpec, belief: Belief, version: Version, workload: &Workload, rate: f64) -> Run {
    let draft_at = Some(DraftAt::StepStart);
    let config = EngineConfig { version, draft_at, max_draft_len: 8, max_model_len: 2048, ..EngineConfig::default() };
    let context = PolicyContext {
        belief,
        profile: &belief,
        max_num_seqs: config.max_num_seqs,
        max_num_batched_tokens: config.max_num_batched_tokens,
        ..CONTEXT
    };
    let ranks = RankLaw::new(vec![rate]).expect("a probability");
    let acceptance = AcceptanceSpec { source: Rates::Constant { rate }, ranks, ..AcceptanceSpec::default() };
    let simulation = Simulation {
        workload,
        arrivals: Arrivals::Open,
        config: &config,
        draft: &Linear::new(belief.draft),
        target: &Linear::new(belief.target),
        context_reads: belief.context_reads,
        drafting: belief.drafting,
        noise_cv: 0.0,
        acceptance: &*acceptance.build(1, workload).expect("a constant rate"),
        seed: 1,
        slo_tpot_s: f64::INFINITY,
        keep_steps: true,
        keep_lives: false,
        interrupt: &AtomicBool::new(false),
    };
    simulation.run(policy.build(&context))
}

fn family() -> impl Iterator<Item = PolicySpec> {
    let in_family = |p: &PolicySpec| p.name().starts_with("smartspec") || p.name().starts_with("turbospec");
    PolicySpec::all().into_iter().filter(in_family)
}

#[test]
fn every_preset_serves_every_request_and_beats_no_speculation() {
    let workload = workload(40);
    for drafting in [Drafting::Autoregressive, Drafting::Parallel] {
        let belief = Belief { drafting, ..BELIEF };
        for version in [Version::V0_33, Version::V0] {
            let plain = run(&PolicySpec::all()[0], belief, version, &workload, 0.8).totals.busy;
            for policy in family() {
                let run = run(&policy, belief, version, &workload, 0.8);
                assert_eq!((run.ending, run.totals.emitted), (Ending::Done, 40 * 60), "{}", policy.label());
                assert!(run.totals.accepted() > 0 && run.totals.busy < plain, "{}", policy.label());
                assert_eq!(run.warnings, Vec::<String>::new(), "{}", policy.label());
            }
        }
    }
}

/// If no draft token is accepted, `smartspec` stops drafting, and the draft model no longer prefills new requests.
#[test]
fn hopeless_drafts_are_not_prepared_for() {
    let workload = workload(200);
    let draft_s = |skip_draft_prefill_above: f64| {
        let policy = PolicySpec::Smartspec(Smartspec { skip_draft_prefill_above, ..Smartspec::default() });
        let run = run(&policy, BELIEF, Version::V0_33, &workload, 0.0);
        assert_eq!(run.totals.emitted, 200 * 60);
        (run.totals.draft_time.as_s(), run.warnings)
    };
    let ((skipping, warnings), (never, _)) = (draft_s(0.7), draft_s(1.0));
    assert!(warnings.iter().any(|w| w.contains("skipped the draft prefill")), "{warnings:?}");
    assert!(skipping < 0.5 * never, "{skipping} s of drafting, {never} s without skipping");
}

/// Tokens of a tree are accepted as the paper's model says: the mean tokens per request and step of a run equal the
/// corrected Eq. 10 of SmartSpec.
#[test]
fn the_expected_length_of_trees_is_what_comes_out() {
    // Verification is nearly free in this belief (the policy's cost estimate), so the widest tree is the best in every
    // step.
    let target = Coefficients { gamma_s: 1e-6, ..BELIEF.target };
    let belief = Belief { drafting: Drafting::Parallel, target, ..BELIEF };
    let params = SmartspecMedusa { initial_acceptance: 0.5, ema_keep: 1.0, ..SmartspecMedusa::default() };
    let workload: Workload = (0..30).map(|i| Request::new(Time::from_s(100.0 * i as f64), 100, 400)).collect();
    let run = run(&PolicySpec::SmartspecMedusa(params), belief, Version::V0_33, &workload, 0.5);
    // Each request runs alone and acceptance rates are not learnt, so the tree is the same in every step. `rounds` is
    // the number of steps, summed over the requests.
    let rounds = run.totals.rounds() as f64;
    let tokens = run.totals.verified as f64 / rounds;
    let widths = [3u32, 3, 3];
    assert_eq!(tokens, 39.0);
    let mut reached = 1.0;
    let expected: f64 = widths
        .iter()
        .map(|&k| {
            reached *= 1.0 - 0.5f64.powi(k as i32);
            reached
        })
        .sum();
    let mean = run.totals.accepted() as f64 / rounds;
    assert!((mean - expected).abs() < 0.03 * expected, "{mean} accepted a round, {expected} expected");
}
