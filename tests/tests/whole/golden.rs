//! The results of every policy on one small workload, as a snapshot of whole numbers. If a number changes, the
//! behaviour has changed. A policy without a line in the snapshot fails the test. After an intended change, and for a
//! new policy, run: `INSTA_UPDATE=always cargo test --release -p foretoken-tests --test whole golden`.

use crate::setup::Setup;
use foretoken_policies::{EmaTier, PolicySpec, SpeculationGate};
use foretoken_sim::acceptance::{AcceptanceSpec, Beta, Mixture, Rates};
use foretoken_sim::*;
use itertools::Itertools;

/// FNV-1a hash of the requests' ids, in the order in which the requests finished.
fn finish_order(run: &Run) -> u64 {
    let mut order: Vec<usize> = (0..run.records.len()).collect();
    order.sort_by_key(|&i| (run.records.finish[i], i));
    order.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &i| (hash ^ i as u64).wrapping_mul(0x0100_0000_01b3))
}

/// Three loads, one after the other: few requests whose draft tokens are mostly right, then a burst whose draft tokens
/// are mostly wrong, then few requests whose draft tokens are mostly right again. The burst has more requests than the
/// policies' tables of draft lengths by batch size cover.
fn workload() -> Workload {
    let request = |i: u32, at: f64, category: u16| {
        let (prompt, output) = (40 + i * 37 % 60, 50 + i * 53 % 70);
        Request { category, ..Request::new(Time::from_s(at), prompt, output) }
    };
    let calm = |from: f64| (0..12).map(move |i| (from + f64::from(i) * 0.8, 0));
    let burst = (0..150).map(|i| (12.0 + f64::from(i) * 0.004, 1));
    let arrivals = calm(0.0).chain(burst).chain(calm(30.0));
    let mut workload: Workload = arrivals.zip(0..).map(|((at, category), i)| request(i, at, category)).collect();
    workload.categories = ["easy", "hard"].map(str::to_owned).to_vec();
    workload
}

/// For each step with decodes, (number of draft passes, mean number of verified draft tokens of a decode request).
/// Successive steps with equal numbers are one entry.
fn lengths(run: &Run) -> Vec<(u32, f64)> {
    let decodes = run.steps.iter().filter(|s| s.batch_size > 0);
    let mut lengths: Vec<_> =
        decodes.map(|s| (s.draft_passes, f64::from(s.verified) / f64::from(s.batch_size))).collect();
    lengths.dedup();
    lengths
}

/// The policy with its default settings, with two exceptions. The policy `SpeculationGate` has no defaults, so it gets
/// values. The policy `SglangGen2` gets a start value with which it decides differently from SGLang's first generation
/// of this policy.
fn given(policy: &PolicySpec) -> PolicySpec {
    match policy {
        PolicySpec::SglangGen2(params) => PolicySpec::SglangGen2(EmaTier { initial_steps: 4, ..params.clone() }),
        PolicySpec::SpeculationGate(_) => PolicySpec::SpeculationGate(SpeculationGate {
            acceptance_rate_window_size: Some(16),
            acceptance_rate_threshold: Some(0.3),
            draft_len_schedule: vec![(2, 4), (8, 3), (200, 2)],
            ..SpeculationGate::default()
        }),
        other => other.clone(),
    }
}

#[test]
fn every_policy_has_its_golden_line() {
    let workload = workload();
    let beta = |mean: f64| Beta { a: 20.0 * mean, b: 20.0 * (1.0 - mean) };
    let categories = [("easy".to_owned(), beta(0.9)), ("hard".to_owned(), beta(0.25))].into();
    let source = Rates::Mixture(Mixture { categories, ..Mixture::default() });
    let truth = AcceptanceSpec { source, ..AcceptanceSpec::default() }.build(7, &workload).expect("a good mixture");
    let mut setup = Setup::new(&workload);
    setup.acceptance = &*truth;
    setup.draft = Coefficients { alpha_s: 5e-9, gamma_s: 3e-6, delta_s: 0.9e-3 };
    setup.config.draft_prefill = true;
    setup.keep_steps = true;
    // The number of KV blocks is small enough to cause preemptions.
    setup.config.num_gpu_blocks = 1100;
    let belief = setup.belief();
    let mut one_length = Vec::new();
    let mut line = |spec: &PolicySpec| {
        let run = setup.run(spec.build(&setup.context(&belief, 7)));
        let (t, changes) = (&run.totals, lengths(&run).len() - 1);
        assert_ne!(changes, 1, "{} changed its length once: this setup is too small for it", spec.label());
        if changes == 0 {
            one_length.push(spec.label());
        }
        (spec.label(), t.steps, t.drafted, t.accepted(), t.preemptions, finish_order(&run))
    };
    let made: Vec<_> = PolicySpec::all().iter().map(given).map(|spec| line(&spec)).collect();
    // Pairs of policies whose runs are equal, because with these settings both make the same decisions.
    let alike = made.iter().tuple_combinations().filter(|(a, b)| a.1 == b.1 && a.2 == b.2 && a.5 == b.5);
    let same: String = alike.map(|(a, b)| format!("{} = {}\n", a.0, b.0)).collect();
    let lines = made.iter().map(|(label, steps, drafted, accepted, preemptions, order)| {
        format!(
            "{label}: {steps} steps, {drafted} drafted, {accepted} accepted, {preemptions} preemptions, \
             finish order 0x{order:016x}\n"
        )
    });
    let lines: String = lines.collect();
    // Policies that never changed their draft length or tree size. The snapshot lists them. If another policy stops
    // adapting, the list changes.
    let one_length = one_length.join(" ");
    insta::assert_snapshot!(
        "runs",
        format!("{lines}\nnot told apart:\n{same}\nnever changing their length:\n{one_length}\n")
    );
}

/// No policy may decide differently if the engine forgets ended requests and gives their ids to later requests.
/// Policies that depend on the ids themselves return false from `ids_may_return` and are left out.
#[test]
fn every_policy_decides_the_same_if_ended_requests_are_forgotten() {
    let workload = workload();
    let truth = AcceptanceSpec::default().build(7, &workload).expect("the default");
    let mut setup = Setup::new(&workload);
    setup.acceptance = &*truth;
    setup.draft = Coefficients { alpha_s: 5e-9, gamma_s: 3e-6, delta_s: 0.9e-3 };
    setup.config.draft_prefill = true;
    setup.config.num_gpu_blocks = 1100;
    let belief = setup.belief();
    let mut left_out = Vec::new();
    for arrivals in [Arrivals::Open, Arrivals::Closed { clients: 9 }] {
        setup.arrivals = arrivals;
        for spec in PolicySpec::all().iter().map(given) {
            let build = || spec.build(&setup.context(&belief, 7));
            if !build().ids_may_return() {
                left_out.push(spec.label());
                continue;
            }
            let (whole, streamed) = (setup.run(build()), setup.stream(build()));
            assert_eq!(whole.records, streamed.records, "{} ({arrivals:?})", spec.label());
            assert_eq!(whole.warnings, streamed.warnings, "{}", spec.label());
        }
    }
    left_out.dedup();
    assert_eq!(left_out, ["true-rates(smartspec)"]);
}
