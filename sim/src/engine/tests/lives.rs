//! The parts of a request's latency (waiting, prompts, draft passes, …; docs/model.md 14.1) sum to the end-to-end
//! latency.

use super::fixture::{Fixture, Steady, YARDSTICK, host_law};
use super::invariants::{arrivals, configs, workloads};
use crate::metrics::Lives;
use crate::*;
use proptest::prelude::*;

fn pass(context: u64, batched: u64) -> u128 {
    u128::from(Linear::new(YARDSTICK).pass(PassShape { requests: 1, batched, context, pairs: 0 }).0)
}

/// Runs with random noise on the pass times, so that the times differ from the latency model's.
fn noisy(f: &Fixture, speculation: Speculation) -> Run {
    f.with(|s| Simulation { noise_cv: 0.1, ..s }.run(speculation))
}

fn check(run: &Run, drafts: bool) -> Result<(), TestCaseError> {
    let r = &run.records;
    let done: Vec<usize> = (0..r.len()).filter(|&i| r.finished(i)).collect();
    let Some(lives) = run.totals.lives else {
        prop_assert!(done.is_empty());
        return Ok(());
    };
    let whole: u128 = done.iter().map(|&i| u128::from((r.finish[i] - r.arrival[i]).0)).sum();
    let waiting: u128 = done.iter().map(|&i| u128::from((r.first_scheduled[i] - r.arrival[i]).0)).sum();
    prop_assert_eq!((lives.requests, lives.whole, lives.waiting), (done.len() as u64, whole, waiting));
    // The host's part is the latency minus all other parts. When a request enters or leaves the running list in the
    // middle of a pass, its shares of the six parts of the pass's time (decoding, prompts, …) are rounded down. Each of
    // the six is off by up to 1 ps each time, so the host's part may be below zero by the sum of these errors.
    let readings = 2 * (done.len() as i128 + r.preemptions.iter().map(|&n| i128::from(n)).sum::<i128>());
    prop_assert!(lives.host() >= -6 * readings, "{} ps", lives.host());
    if r.preemptions.iter().all(|&n| n == 0) {
        prop_assert_eq!(lives.kv_lost, 0);
    }
    if done.iter().any(|&i| r.preemptions[i] > 0) {
        prop_assert!(lives.kv_lost > 0);
    }
    if !drafts {
        prop_assert_eq!((lives.drafting, lives.verifying, lives.rejected), (0, 0, 0));
    }
    let mean = done.iter().map(|&i| r.e2e_s(i)).sum::<f64>() / done.len() as f64;
    let sum = metrics::Lived::of(&lives).expect("some finished").sum_s();
    prop_assert!((sum - mean).abs() <= 1e-9 * mean, "{sum} s is not {mean} s");
    Ok(())
}

proptest! {
    /// The parts of a request's latency sum to its end-to-end latency: without drafting, with fixed and with random
    /// draft lengths, for every order of a step's phases, arrival process and vLLM release, with preemptions and with
    /// noise.
    #[test]
    fn the_parts_of_a_life_are_its_whole(
        w in workloads(),
        config in configs(),
        arrivals in arrivals(),
        limit in 1u32..6,
        overhead in 0u32..3,
    ) {
        let mut f = Fixture::new(w);
        f.config = EngineConfig { step_overhead_s: f64::from(overhead) * 1e-3, ..config };
        f.config.host = host_law(f64::from(overhead % 2) * 1e-3);
        f.arrivals = arrivals;
        f.keep_steps = false;
        check(&noisy(&f, Speculation::Off), false)?;
        check(&noisy(&f, Speculation::Policy(Box::new(Steady(limit)))), true)?;
        check(&f.wild(limit), true)?;
        // From here on runs have no noise on the pass times, and the proposals of the policy take time.
        f.config.decision_s.propose = 1e-4;
        check(&f.erratic(limit), true)?;
    }
}

#[test]
fn one_request_by_hand() {
    let mut f = Fixture::new([Request::new(Time::from_s(1.0), 100, 4)].into_iter().collect());
    f.config.step_overhead_s = 2e-3;
    f.config.draft_prefill = false;
    let plain = f.plain().totals.lives.unwrap();
    let (decoding, overhead) = (pass(100, 1) + pass(101, 1) + pass(102, 1), 2_000_000_000);
    let whole = pass(0, 100) + decoding + 4 * overhead;
    assert_eq!(
        plain,
        Lives { requests: 1, whole, prompts: pass(0, 100), decoding, ..Lives::default() },
        "four steps: the prompt, then three tokens"
    );
    assert_eq!(plain.host(), 4 * 2_000_000_000);

    // Every draft token is right: one step verifies two draft tokens and gives all three tokens.
    f.rate = 1.0;
    let run = |f: &Fixture| f.with(|s| s.run(Speculation::Policy(Box::new(Steady(2))))).totals.lives.unwrap();
    let right = run(&f);
    let extra = pass(100, 3) - pass(100, 1);
    assert_eq!((right.decoding, right.prompts, right.host()), (pass(100, 1), pass(0, 100), 2 * 2_000_000_000));
    assert_eq!((right.verifying, right.rejected, right.waiting, right.kv_lost), (extra, 0, 0, 0));
    let draft = Linear::new(f.draft);
    let drafting = |context| u128::from(draft.pass(PassShape { requests: 1, batched: 1, context, pairs: 0 }).0);
    assert_eq!(right.drafting, drafting(100) + drafting(101));

    // No draft token is right: every step verifies two draft tokens and accepts none.
    f.rate = 0.0;
    let wrong = run(&f);
    let extra: u128 = (100..103).map(|c| pass(c, 3) - pass(c, 1)).sum();
    assert_eq!((wrong.decoding, wrong.verifying, wrong.rejected), (decoding, 0, extra));
}

#[test]
fn a_second_request_waits_for_the_first() {
    let mut f =
        Fixture::new([(0.0, 3), (0.0, 2)].map(|(at, n)| Request::new(Time::from_s(at), 10, n)).into_iter().collect());
    f.config.max_num_seqs = 1;
    let lives = f.plain().totals.lives.unwrap();
    let first = pass(0, 10) + pass(10, 1) + pass(11, 1);
    assert_eq!((lives.waiting, lives.prompts), (first, 2 * pass(0, 10)));
    assert_eq!(lives.decoding, pass(10, 1) + pass(11, 1) + pass(10, 1));
    assert_eq!((lives.host(), lives.kv_lost), (0, 0));
}
