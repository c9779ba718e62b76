//! For each replica, the numbers of waiting and running requests over time agree with the records of its requests.

use crate::setup::{Setup, Shared, requests};
use foretoken_fleet::{HandOff, LlmDSaturation, RouterSpec, Scaling, ScalingRule, Signals};
use foretoken_sim::{Arrivals, Run, StepRecord};

/// Checks the flows of a run (the numbers of waiting and running requests on each replica over time). The requests and
/// tokens of each flow must equal the replica's own counts. The waiting and running times of all flows must sum to the
/// end-to-end latencies of all requests.
fn check(run: &Run) {
    let (replicas, records) = (run.replicas.as_ref().unwrap(), &run.records);
    assert_eq!(replicas.flows.len(), replicas.each.len());
    for (flow, did) in replicas.flows.iter().zip(&replicas.each) {
        let sums = flow.bins.iter().fold([0; 3], |[sent, prompt, cached], bin| {
            [sent + bin.sent, prompt + bin.prompt_tokens, cached + bin.cached_tokens]
        });
        assert_eq!(sums, [did.requests, did.prompt_tokens, did.cached_tokens]);
    }
    let bins = replicas.flows.iter().flat_map(|flow| &flow.bins);
    let spent: u128 = bins.map(|bin| bin.waiting + bin.running).sum();
    let e2e = (0..records.len()).map(|i| u128::from((records.finish[i] - records.arrival[i]).0));
    assert_eq!(spent, e2e.sum::<u128>());
}

#[test]
fn flows_account_for_every_request() {
    for arrivals in [Arrivals::Open, Arrivals::Closed { clients: 9 }] {
        let mut setup = Setup::new(requests(300, 40.0, 60, 5));
        setup.arrivals = arrivals;
        setup.config.prefix_caching = true;
        check(&setup.fleet(&RouterSpec::LeastRequests(Default::default()), &[0, 2, 3], 1).run);
        for hand_off in [HandOff::PrefillFirst, HandOff::DecodeFirst] {
            check(&setup.split(&[2, 2], &Shared { hand_off, ..Shared::two() }));
        }
    }
}

#[test]
fn flows_of_a_scaled_fleet_account_for_every_request() {
    let mut setup = Setup::new(requests(400, 40.0, 60, 5));
    setup.config.num_gpu_blocks = 120;
    let scaling = Scaling {
        rule: ScalingRule::LlmD(LlmDSaturation { down_window_s: 0.0, ..LlmDSaturation::default() }),
        min_replicas: 1,
        max_replicas: 6,
        boot_s: 1.0,
        interval_s: Some(0.5),
        signals: Some(Signals { interval_s: 0.1, delay_s: 0.01 }),
    };
    let run = setup.scaled(&RouterSpec::LeastRequests(Default::default()), (&scaling, 2), |replica, _| replica).run;
    assert!(!run.replicas.as_ref().unwrap().scaled.as_ref().unwrap().decisions.is_empty());
    check(&run);
}

/// The step records of a fleet's run are listed replica by replica: all steps of replica 0 come first. The steps of one
/// replica are in order of time.
#[test]
fn steps_of_replicas_follow_each_other() {
    let mut setup = Setup::new(requests(60, 40.0, 30, 2));
    setup.keep_steps = true;
    let run = setup.fleet(&RouterSpec::RoundRobin(Default::default()), &[1, 2], 1).run;
    let first = run.replicas.as_ref().unwrap().each[0].steps as usize;
    assert_eq!(run.steps.len() as u64, run.totals.steps);
    let (a, b): (&[StepRecord], &[StepRecord]) = run.steps.split_at(first);
    for own in [a, b] {
        assert!(own.is_sorted_by_key(|step| step.step) && own[0].step == 0);
    }
}
