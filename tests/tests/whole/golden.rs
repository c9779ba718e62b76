//! Golden integers: what every policy does on one small workload. A change of any number is a change of behaviour; a policy
//! without its line fails.

use crate::world::{World, poisson};
use foretoken_policies::PolicySpec;
use foretoken_sim::acceptance::AcceptanceSpec;
use foretoken_sim::*;

/// (policy, steps, drafted, accepted, preemptions, digest of the order in which requests finish).
type Line = (&'static str, u64, u64, u64, u64, u64);

const GOLDEN: &[Line] = &[
    ("autoregressive", 708, 0, 0, 24, 0x2a8c7ed8430bcee9),
    ("fixed-3", 484, 8097, 2682, 6, 0x6dc9e77ceca083fd),
    ("ema-tier", 484, 8097, 2682, 6, 0x6dc9e77ceca083fd),
    ("sglang-gen1", 484, 8097, 2682, 6, 0x6dc9e77ceca083fd),
    ("sglang-gen2", 484, 8097, 2682, 6, 0x6dc9e77ceca083fd),
    ("sglang-gen3", 484, 8097, 2682, 6, 0x6dc9e77ceca083fd),
    ("sglang-throughput", 468, 8884, 2713, 5, 0xbcd6e8c49c4bd729),
    ("smartspec", 505, 6724, 2504, 9, 0x05e3e3d2cff10f17),
    ("smartspec-joint", 505, 6724, 2504, 9, 0x05e3e3d2cff10f17),
    ("smartspec-request", 494, 7359, 1797, 35, 0x61474cedf3289ae5),
    ("smartspec-confidence", 419, 6980, 2779, 14, 0x4717de6706c77183),
    ("smartspec-dsd", 499, 7005, 2521, 8, 0xd13af23ffe906f0d),
    ("turbospec-v1", 398, 13860, 2716, 22, 0x2c476f99b5ffe865),
    ("smartspec-medusa", 470, 20973, 2816, 15, 0xe69b55c70f5eab59),
    ("adaspec", 477, 8149, 2696, 7, 0xf96bf3cd12db16f1),
    ("adaspec-", 469, 8098, 2718, 12, 0xf0e6a2809a90c913),
    ("adaspec-code", 485, 7338, 2592, 11, 0x34ae7827a9c9a92d),
    ("vllm-dynamic", 484, 8097, 2682, 6, 0x6dc9e77ceca083fd),
    ("vllm-adaptive", 348, 19736, 2916, 23, 0x86c6c0de5d147893),
    ("dspark", 364, 20160, 2868, 16, 0xa6e6c45c215900b3),
    ("disable-by-batch-size", 484, 8097, 2682, 6, 0x6dc9e77ceca083fd),
    ("draft-len-schedule", 515, 5742, 2291, 9, 0x57e5c511767871c3),
    ("confidence-stop", 381, 15703, 2935, 14, 0xd51f739219dcee4b),
    ("vllm-draft-confidence", 380, 22144, 2596, 24, 0xdf03f4705e79edfb),
    ("threshold", 400, 7763, 2849, 13, 0x4f4b4fe5d0b1c647),
    ("threshold-hf", 400, 7763, 2849, 13, 0x4f4b4fe5d0b1c647),
    ("threshold-adaspec-repo", 513, 6060, 2441, 12, 0x62a529ed952e9317),
    ("hf-dynamic", 419, 7498, 2766, 8, 0xa300e28b0d937d81),
    ("hf-heuristic", 437, 7371, 2514, 19, 0x3cbeead96af046d7),
    ("svip", 498, 4612, 2387, 12, 0x37633239ccec079d),
    ("adaedl", 558, 3879, 1979, 13, 0x98a6b2ba35a060ed),
    ("dsde", 345, 16620, 2955, 14, 0x449b3ba8ca60ea1f),
    ("tetris", 456, 10360, 2789, 8, 0x4ec7881cca1b9995),
    ("specinfer", 328, 46320, 3071, 37, 0x0231649d5a13fb41),
    ("specinfer-star", 334, 19336, 2973, 23, 0xf9da19e362da9269),
    ("eagle2", 394, 142052, 3321, 8, 0xaef6cbd3988a04d7),
    ("adaserve-like", 274, 120912, 3584, 36, 0xd9aac80fd4196e0f),
    ("banditspec-literal", 525, 5916, 2406, 8, 0x1cf539e55e90760d),
    ("banditspec", 501, 7398, 2503, 8, 0x3efd84f35e57c6e1),
    ("exp3spec", 501, 7293, 2545, 6, 0xa2db344fa045ae89),
    ("cascade-like", 521, 6442, 2414, 12, 0xeaedf7d5ee95839b),
    ("nightjar-like", 504, 6978, 2370, 8, 0x23fcd7371b65bff3),
    ("oracle-goodput", 477, 2919, 2919, 7, 0xbc6595cd6c9187b7),
    ("oracle-length", 469, 2979, 2979, 7, 0x514f66f6bac63c69),
    ("clairvoyant-static", 708, 0, 0, 24, 0x2a8c7ed8430bcee9),
    ("random", 439, 11151, 2552, 16, 0x2be6cbe3eeaca7a5),
];

/// FNV-1a over the requests' ids in the order in which they finished.
fn finish_order(run: &Run) -> u64 {
    let mut order: Vec<usize> = (0..run.records.len()).collect();
    order.sort_by_key(|&i| (run.records.finish[i], i));
    order.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &i| (hash ^ i as u64).wrapping_mul(0x0100_0000_01b3))
}

#[test]
fn every_policy_has_its_golden_line() {
    let workload = poisson(60, 8.0, 200, 90, 7);
    let truth = AcceptanceSpec::default().build(7, &workload).expect("the default source");
    let mut world = World::new(&workload);
    world.acceptance = &*truth;
    world.draft = Coefficients { alpha_s: 5e-9, gamma_s: 3e-6, delta_s: 0.9e-3 };
    world.config.draft_prefill = true;
    // Tight enough to preempt.
    world.config.num_gpu_blocks = 150;
    world.config.max_num_batched_tokens = 512;
    let belief = world.belief();
    let line = |spec: &PolicySpec| {
        let run = world.run(spec.build(&world.context(&belief, 7)));
        let t = &run.totals;
        (spec.label(), t.steps, t.drafted, t.accepted(), t.preemptions, finish_order(&run))
    };
    let made: Vec<_> = PolicySpec::all().iter().map(line).collect();
    let table: String = made
        .iter()
        .map(|(name, steps, drafted, accepted, preempted, digest)| {
            format!("    (\"{name}\", {steps}, {drafted}, {accepted}, {preempted}, 0x{digest:016x}),\n")
        })
        .collect();
    let made: Vec<_> = made.iter().map(|(name, a, b, c, d, e)| (name.as_str(), *a, *b, *c, *d, *e)).collect();
    assert!(made == GOLDEN, "what policies do has changed; it is now\n{table}");
}
