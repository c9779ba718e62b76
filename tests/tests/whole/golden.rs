//! Golden integers: what every policy does on one small workload. A change of any number is a change of behaviour; a policy
//! without its line fails.

use crate::world::{World, poisson};
use foretoken_policies::PolicySpec;
use foretoken_sim::acceptance::AcceptanceSpec;
use foretoken_sim::*;

/// (policy, steps, drafted, accepted, preemptions, digest of the order in which requests finish).
type Line = (&'static str, u64, u64, u64, u64, u64);

const GOLDEN: &[Line] = &[];

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
