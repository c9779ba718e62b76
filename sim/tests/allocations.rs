//! Checks that the inner loop allocates nothing (ARCHITECTURE.md): a run with thousands of further steps makes hardly
//! more allocations.

use allocation_counter::measure;
use foretoken_sim::acceptance::{AcceptanceSpec, Rates};
use foretoken_sim::*;
use std::sync::atomic::AtomicBool;

/// A policy that drafts the same number of tokens for every request.
struct Always(u32);

impl SpecPolicy for Always {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.0).as_in_vllm(&[])
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.0);
    }
}

/// Serves 8 requests with `output_len` output tokens each. Returns the numbers of allocations and of steps.
fn allocations_and_steps(config: &EngineConfig, draft_len: u32, output_len: u32) -> (u64, u64) {
    let workload: Workload = (0..8).map(|_| Request::new(Time::ZERO, 16, output_len)).collect();
    let spec = AcceptanceSpec { source: Rates::Constant { rate: 0.8 }, ..AcceptanceSpec::default() };
    let acceptance = spec.build(1, &workload).expect("a rate between 0 and 1");
    let target = Linear::new(Coefficients { alpha_s: 1e-7, gamma_s: 1e-5, delta_s: 1e-2 });
    let mut steps = 0;
    let counted = measure(|| {
        let simulation = Simulation {
            workload: &workload,
            arrivals: Arrivals::Open,
            config,
            draft: &target,
            target: &target,
            context_reads: ContextReads::Once,
            drafting: Drafting::Autoregressive,
            noise_cv: 0.0,
            acceptance: &*acceptance,
            seed: 1,
            slo_tpot_s: f64::INFINITY,
            keep_steps: false,
            keep_lives: true,
            interrupt: &AtomicBool::new(false),
        };
        let speculation = match draft_len {
            0 => Speculation::Off,
            len => Speculation::Policy(Box::new(Always(len))),
        };
        steps = simulation.run(speculation).totals.steps;
    });
    (counted.count_total, steps)
}

#[test]
fn further_steps_allocate_nothing() {
    for draft_at in [DraftAt::StepStart, DraftAt::StepEnd] {
        for draft_len in [0, 4] {
            let draft_at = Some(draft_at);
            let config = EngineConfig { draft_at, max_draft_len: 4, skip_stretches: false, ..EngineConfig::default() };
            let (few, some_steps) = allocations_and_steps(&config, draft_len, 4000);
            let (more, many_steps) = allocations_and_steps(&config, draft_len, 8000);
            let (further, steps) = (more.saturating_sub(few), many_steps - some_steps);
            // A few more allocations are expected: lists that grow with the output, such as a request's blocks, double
            // their size.
            assert!(few > 8, "a run allocates at its start: the count sees nothing");
            assert!(steps > 1000 && further < 64, "{draft_at:?}, {draft_len} drafts: {further} in {steps} steps");
        }
    }
}
