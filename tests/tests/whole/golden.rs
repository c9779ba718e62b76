//! Golden integers: what every policy does on one small workload. A change of any number is a change of behaviour; a policy
//! without its line fails.

use crate::world::World;
use foretoken_policies::{EmaTier, PolicySpec, SpeculationGate};
use foretoken_sim::acceptance::{AcceptanceSpec, Beta, Mixture, Rates};
use foretoken_sim::*;
use itertools::Itertools;

/// (policy, steps, drafted, accepted, preemptions, digest of the order in which requests finish).
type Line = (&'static str, u64, u64, u64, u64, u64);

const GOLDEN: &[Line] = &[
    ("autoregressive", 1826, 0, 0, 10, 0xf28d96990e001c60),
    ("fixed-3", 782, 30012, 4599, 14, 0xaf5cd14cdcc3652c),
    ("ema-tier", 630, 30329, 4788, 17, 0x9f144a5c630252fa),
    ("sglang-gen1", 630, 30329, 4788, 17, 0x9f144a5c630252fa),
    ("sglang-gen2[initial_steps=4]", 665, 29806, 4738, 17, 0xbd3d5ef0523fc538),
    ("sglang-gen3", 696, 3510, 1745, 19, 0xd38582dfb90c156a),
    ("sglang-throughput", 600, 20459, 4346, 32, 0xc2af22765a462f84),
    ("smartspec", 668, 4173, 1874, 28, 0x7c008fa1f097db9e),
    ("smartspec-joint", 668, 4173, 1874, 28, 0x7c008fa1f097db9e),
    ("smartspec-request", 718, 3949, 1685, 29, 0x2338aa46cdcba538),
    ("smartspec-confidence", 579, 16348, 4244, 25, 0xb02493f08d464da8),
    ("smartspec-dsd", 691, 10999, 2573, 28, 0x8190f58c8388e932),
    ("turbospec-v1", 681, 30770, 4745, 24, 0xab00678cee1583fc),
    ("smartspec-medusa", 931, 20825, 2595, 0, 0x3462a256b2f99b4e),
    ("adaspec", 615, 13730, 3700, 31, 0x4cb9457e50cdb056),
    ("adaspec-", 608, 13284, 4104, 25, 0xf14355201e3c6090),
    ("adaspec-code", 575, 12958, 4085, 31, 0x35e7c5eabbe92bda),
    ("vllm-dynamic", 790, 6938, 2303, 12, 0x4b8b45a7b7c09a16),
    ("vllm-adaptive", 646, 93784, 2883, 27, 0x6d0ec6b82e75c258),
    ("dspark", 570, 85776, 3900, 26, 0x08be09f6db9bd092),
    ("disable-by-batch-size", 793, 2493, 1472, 15, 0x0967e08013426538),
    ("draft-len-schedule", 705, 2481, 1550, 14, 0xf6e2f71060ccee02),
    ("confidence-stop", 568, 55024, 4959, 23, 0x9769013166c7c886),
    ("vllm-draft-confidence", 570, 79648, 4680, 26, 0x4478aa4bc504f3ea),
    (
        "speculation-gate[acceptance_rate_threshold=0.3 acceptance_rate_window_size=16 draft_len_schedule=[[2,4],[8,3],[200,2]]]",
        1381,
        860,
        606,
        14,
        0x3b8e80ce212a8c32,
    ),
    ("trtllm-auto", 793, 2493, 1472, 15, 0x0967e08013426538),
    ("mlc-table", 703, 2643, 1562, 13, 0xbfdfdc554b19eb06),
    ("verify-budget", 936, 40476, 4470, 16, 0x6e67be0be4eae5d8),
    ("measured-two-arm", 707, 39366, 4745, 15, 0x339f8d790d89ae74),
    ("measured-cost-depth", 940, 27002, 4190, 21, 0x3f29a06d7bc471ee),
    ("mlx-vlm-expand", 792, 20994, 4390, 19, 0x64f02b7e2cdad8a2),
    ("aimd", 786, 3696, 1837, 29, 0xe159ea6c8af29900),
    ("downshift", 821, 12309, 3822, 17, 0xd772e277a6759cd6),
    ("threshold", 569, 16754, 4714, 24, 0x7f3b22ce56a0ac48),
    ("threshold-hf", 569, 16754, 4714, 24, 0x7f3b22ce56a0ac48),
    ("threshold-adaspec-repo", 579, 12652, 4105, 31, 0xfe5f1824af56f956),
    ("hf-dynamic", 639, 22486, 4712, 25, 0xf4a5d100385b80d2),
    ("hf-heuristic", 583, 31212, 4560, 28, 0xb0628537a8292094),
    ("svip", 624, 12792, 4223, 26, 0xd0040821a9e365ee),
    ("adaedl", 574, 12803, 4110, 31, 0xfe5f1824af56f956),
    ("dsde", 569, 59174, 4991, 24, 0x817e25c7bb214afc),
    ("tetris", 784, 39131, 4665, 16, 0xb80f3e71ee148f3e),
    ("specinfer", 580, 189980, 5177, 0, 0x54e9a1b5aa5b5af0),
    ("specinfer-star", 560, 77216, 5004, 21, 0xdb04caa2843437d2),
    ("eagle2", 598, 490212, 7440, 22, 0xb07037124d42bd7c),
    ("adaserve-like", 545, 110699, 5347, 0, 0x62c27e15239aecbc),
    ("banditspec-literal", 696, 39397, 4756, 15, 0x339f8d790d89ae74),
    ("banditspec", 892, 11894, 3733, 20, 0x96c1fe15a53ed27e),
    ("exp3spec", 766, 35394, 4644, 18, 0x3193237900e30bb8),
    ("cascade-like", 827, 20307, 4257, 22, 0x6428b1c7e546ffbe),
    ("nightjar-like", 729, 26001, 4103, 21, 0x793aa88164e974c4),
    ("oracle-goodput", 562, 4669, 4669, 27, 0x602b2b20c4188a50),
    ("oracle-length", 561, 5003, 5003, 25, 0xfa587f92090677be),
    ("clairvoyant-static", 1826, 0, 0, 10, 0xf28d96990e001c60),
    ("random", 751, 39892, 4414, 26, 0xc8b6fd701230d8a4),
];

/// Policies that are one rule with these defaults.
const SAME: &[(&str, &str)] = &[
    ("autoregressive", "clairvoyant-static"),
    ("ema-tier", "sglang-gen1"),
    ("smartspec", "smartspec-joint"),
    ("disable-by-batch-size", "trtllm-auto"),
    ("threshold", "threshold-hf"),
];

/// FNV-1a over the requests' ids in the order in which they finished.
fn finish_order(run: &Run) -> u64 {
    let mut order: Vec<usize> = (0..run.records.len()).collect();
    order.sort_by_key(|&i| (run.records.finish[i], i));
    order.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &i| (hash ^ i as u64).wrapping_mul(0x0100_0000_01b3))
}

/// Few requests whose drafts are mostly right, then more at once than any table has a length for, mostly wrong, then few again.
fn workload() -> Workload {
    let request = |i: u32, at: f64, category: u16| {
        let (prompt, output) = (40 + i * 37 % 60, 50 + i * 53 % 70);
        Request { category, ..Request::new(Time::from_s(at), prompt, output) }
    };
    let calm = |from: f64| (0..12).map(move |i| (from + f64::from(i) * 0.8, 0));
    let burst = (0..150).map(|i| (12.0 + f64::from(i) * 0.004, 1));
    let all = calm(0.0).chain(burst).chain(calm(30.0));
    let mut workload: Workload = all.zip(0..).map(|((at, category), i)| request(i, at, category)).collect();
    workload.categories = ["easy", "hard"].map(str::to_owned).to_vec();
    workload
}

/// What a policy drafts and verifies of it, a decode request, as it changes from step to step.
fn lengths(run: &Run) -> Vec<(u32, f64)> {
    let decodes = run.steps.iter().filter(|s| s.batch_size > 0);
    let mut lengths: Vec<_> =
        decodes.map(|s| (s.draft_passes, f64::from(s.verified) / f64::from(s.batch_size))).collect();
    lengths.dedup();
    lengths
}

/// The policy with its defaults; the gate, which has none, with some, and SGLang's second generation with a start in which it
/// differs from the first.
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

/// Policies of one length, of trees of one size, and one whose requests share a fixed total.
const STATIC: [&str; 7] =
    ["autoregressive", "fixed", "clairvoyant-static", "verify-budget", "specinfer", "specinfer-star", "eagle2"];

#[test]
fn every_policy_has_its_golden_line() {
    let workload = workload();
    let beta = |mean: f64| Beta { a: 20.0 * mean, b: 20.0 * (1.0 - mean) };
    let categories = [("easy".to_owned(), beta(0.9)), ("hard".to_owned(), beta(0.25))].into();
    let source = Rates::Mixture(Mixture { categories, ..Mixture::default() });
    let truth = AcceptanceSpec { source, ..AcceptanceSpec::default() }.build(7, &workload).expect("a good mixture");
    let mut world = World::new(&workload);
    world.acceptance = &*truth;
    world.draft = Coefficients { alpha_s: 5e-9, gamma_s: 3e-6, delta_s: 0.9e-3 };
    world.config.draft_prefill = true;
    world.keep_steps = true;
    // Tight enough to preempt.
    world.config.num_gpu_blocks = 1100;
    let belief = world.belief();
    let line = |spec: &PolicySpec| {
        let run = world.run(spec.build(&world.context(&belief, 7)));
        let (t, changes) = (&run.totals, lengths(&run).len() - 1);
        let as_it_should = if STATIC.contains(&spec.name()) { changes == 0 } else { changes >= 2 };
        assert!(as_it_should, "{} changed its length {changes} times", spec.label());
        (spec.label(), t.steps, t.drafted, t.accepted(), t.preemptions, finish_order(&run))
    };
    let made: Vec<_> = PolicySpec::all().iter().map(given).map(|spec| line(&spec)).collect();
    let same = made.iter().tuple_combinations().filter(|(a, b)| a.1 == b.1 && a.2 == b.2 && a.5 == b.5);
    let same: Vec<_> = same.map(|(a, b)| (a.0.as_str(), b.0.as_str())).collect();
    let table: String = made
        .iter()
        .map(|(name, steps, drafted, accepted, preempted, digest)| {
            format!("    (\"{name}\", {steps}, {drafted}, {accepted}, {preempted}, 0x{digest:016x}),\n")
        })
        .collect();
    let made: Vec<_> = made.iter().map(|(name, a, b, c, d, e)| (name.as_str(), *a, *b, *c, *d, *e)).collect();
    assert!(made == GOLDEN, "what policies do has changed; it is now\n{table}and the same are {same:?}");
    assert_eq!(same, SAME, "policies that this world does not tell apart");
}
