//! The oracle's provable claim (policies.md 13): on every state that a policy visits, its realised token goodput of that
//! step is at least that policy's, or that of any fixed length. Over a whole trace nothing is provable.

use crate::world::{World, poisson};
use foretoken_policies::{OracleGoodput, PolicySpec};
use foretoken_sim::acceptance::AcceptanceSpec;
use foretoken_sim::*;

const LONGEST: u32 = 6;

/// Follows `choose` through a run, and holds the oracle's choice against it and against every fixed length.
struct Witness<F> {
    oracle: Box<dyn OraclePolicy>,
    choose: F,
    strictly_better: u64,
    states: u64,
}

/// Tokens and time of a step, in integers.
fn realised(batch: &BatchView, truth: &Truth, lens: &[u32]) -> (u128, u128) {
    let deepest = lens.iter().copied().max().unwrap_or(0);
    let mut time = truth.overhead + truth.target.pass(shape::verify_pass(batch, lens, truth.context_reads));
    time += (1..=deepest).map(|pass| truth.draft.pass(shape::draft_pass(batch, lens, pass))).sum();
    if deepest == 0 {
        time += shape::draft_idle_pass(batch).map_or(Time::ZERO, |idle| truth.draft.pass(idle));
    }
    let tokens: u32 = lens.iter().zip(truth.run).map(|(&d, &run)| 1 + d.min(run)).sum();
    (tokens.into(), time.0.into())
}

impl<F: FnMut(&BatchView, u32) -> u32 + Send> OraclePolicy for Witness<F> {
    fn limit(&self) -> u32 {
        LONGEST
    }

    fn propose(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        let mut best = DraftPlan { draft_len: vec![0; batch.len()], ..DraftPlan::default() };
        self.oracle.propose(batch, truth, &mut best);
        let oracle = realised(batch, truth, &best.draft_len);
        for (i, len) in plan.draft_len.iter_mut().enumerate() {
            *len = (self.choose)(batch, i as u32).min(batch.limit[i]);
        }
        let fixed = (0..=LONGEST).map(|k| batch.limit.iter().map(|&l| l.min(k)).collect::<Vec<u32>>());
        for lens in fixed.chain([plan.draft_len.clone()]) {
            let other = realised(batch, truth, &lens);
            assert!(
                oracle.0 * other.1 >= other.0 * oracle.1,
                "step {}: {lens:?} beats {:?}",
                batch.step,
                best.draft_len
            );
            self.strictly_better += u64::from(oracle.0 * other.1 > other.0 * oracle.1);
        }
        self.states += 1;
    }
}

impl<F> Drop for Witness<F> {
    fn drop(&mut self) {
        assert!(self.states > 1000 && self.strictly_better > self.states, "the test met too little to compare");
    }
}

#[test]
fn the_oracle_is_at_least_as_good_on_every_state() {
    let workload = poisson(300, 6.0, 300, 120, 3);
    let truth = AcceptanceSpec::default().build(4, &workload).unwrap();
    let mut world = World::new(&workload);
    world.acceptance = &*truth;
    world.config.step_overhead_s = 1e-3;
    world.config.draft_prefill = true;
    world.draft = Coefficients { alpha_s: 5e-9, gamma_s: 3e-6, delta_s: 0.9e-3 };
    world.config.max_draft_len = LONGEST;
    let belief = world.belief();
    let context = world.context(&belief, 1);
    let oracle = || match PolicySpec::OracleGoodput(OracleGoodput::default()).build(&context) {
        Speculation::Oracle(oracle) => oracle,
        _ => unreachable!("an oracle is built as one"),
    };
    let fixed = |_: &BatchView, _: u32| 3;
    world.run(Speculation::Oracle(Box::new(Witness {
        oracle: oracle(),
        choose: fixed,
        strictly_better: 0,
        states: 0,
    })));
    let luck = luck::Luck::new(9, Stream::Policy, 0);
    let random = move |batch: &BatchView, i: u32| (luck.bits(batch.step * 512 + u64::from(i)) % 7) as u32;
    world.run(Speculation::Oracle(Box::new(Witness {
        oracle: oracle(),
        choose: random,
        strictly_better: 0,
        states: 0,
    })));
}
