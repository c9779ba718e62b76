//! The orders of the phases of a step, computed by hand to the picosecond. Most tests have one request: 10 prompt
//! tokens, 8 output tokens, and 3 draft tokens in each step that are always accepted.

use super::fixture::{Fixture, Steady, YARDSTICK};
use crate::acceptance::{AcceptanceSpec, LookupBesideModel, PromptLookup, Rates};
use crate::*;

fn alone(order: (Option<DraftAt>, Option<bool>, Option<Runner>)) -> Fixture {
    let mut f = Fixture::new([Request::new(Time::ZERO, 10, 8)].into_iter().collect());
    (f.config.draft_at, f.config.async_scheduling, f.config.runner) = order;
    f.rate = 1.0;
    f
}

fn fixed(f: &Fixture) -> Run {
    f.with(|s| s.run(Speculation::Policy(Box::new(Steady(3)))))
}

fn target(context: u64, batched: u64) -> Time {
    Linear::new(YARDSTICK).pass(PassShape { requests: 1, context, batched, pairs: 0 })
}

/// Time of three draft passes. The first has `batched` tokens and reads `context` tokens of KV. The second and third
/// have one token each, and read `from` + 1 and `from` + 2 tokens of KV.
fn drafts(f: &Fixture, context: u64, batched: u64, from: u64) -> Time {
    let draft = Linear::new(f.draft);
    let pass = |context, batched| draft.pass(PassShape { requests: 1, context, batched, pairs: 0 });
    pass(context, batched) + pass(from + 1, 1) + pass(from + 2, 1)
}

/// Runner V2: clients get the prompt's first token as soon as it is sampled. The next target pass waits for the draft
/// tokens.
#[test]
fn drafts_delay_the_next_step_and_not_the_token() {
    let f = alone((None, Some(false), None));
    let run = fixed(&f);
    // The first draft pass after the prompt processes the 10 prompt tokens and one extra token of the draft model. The
    // first draft pass after a verifying step processes the step's 4 scheduled tokens and one extra token.
    let (first, second) = (drafts(&f, 0, 11, 10), drafts(&f, 10, 5, 14));
    let sampled = target(0, 10);
    let verified = sampled + first + target(10, 4);
    assert_eq!(run.records.first_token[0], sampled);
    assert_eq!(run.records.finish[0], verified + second + target(14, 4));
    let rows: Vec<_> = run.steps.iter().map(|s| (s.start, s.end, s.drafted, s.accepted, s.emitted)).collect();
    let end = run.records.finish[0];
    assert_eq!(rows, [(Time::ZERO, sampled, 0, 0, 1), (sampled, verified, 3, 3, 4), (verified, end, 3, 3, 3)]);
    assert_eq!((run.steps[0].draft_time, run.steps[1].draft_time), (first, second));
}

/// Runner V1: clients get tokens only after the next draft tokens are made.
#[test]
fn runner_v1_delivers_after_drafting() {
    let f = alone((None, Some(false), Some(Runner::V1)));
    let run = fixed(&f);
    let (first, second, third) = (drafts(&f, 0, 11, 10), drafts(&f, 10, 5, 14), drafts(&f, 14, 5, 18));
    assert_eq!(run.records.first_token[0], target(0, 10) + first);
    let end = target(0, 10) + first + target(10, 4) + second + target(14, 4) + third;
    assert_eq!(run.records.finish[0], end);
}

/// Async scheduling: the device runs the next step at once, and the host's time is hidden. One needless step runs at
/// the end, because the host schedules it before it knows the output of the previous step.
#[test]
fn a_step_in_flight_hides_the_host_and_is_one_too_many() {
    let mut f = alone((None, None, None));
    let sync = fixed(&alone((None, Some(false), None)));
    let run = fixed(&f);
    assert_eq!(run.records.finish, sync.records.finish);
    let emitted: Vec<_> = run.steps.iter().map(|s| s.emitted).collect();
    assert_eq!(emitted, [1, 4, 3, 0]);
    // The run has one step more than the request needs. The draft tokens of this last step count neither as drafted nor
    // as accepted.
    assert_eq!((run.records.drafted[0], run.records.accepted[0]), (6, 6));

    f.config.step_overhead_s = 1e-3;
    let host = Time::from_s(1e-3);
    assert_eq!(fixed(&f).records.finish[0], sync.records.finish[0] + host);
    f.config.async_scheduling = Some(false);
    // Without async scheduling the host's time after a step delays the next step, except for the part in which the
    // device drafts. Drafting takes longer than the 1 ms of host time, so only the host's time after the last step
    // counts.
    assert_eq!(fixed(&f).records.finish[0], sync.records.finish[0] + host);
    f.config.step_overhead_s = 10e-3;
    let drafting = sync.steps[0].draft_time + sync.steps[1].draft_time;
    assert_eq!(fixed(&f).records.finish[0], sync.records.finish[0] + Time::from_s(30e-3) - drafting);
}

/// Without a drafter, async scheduling only hides the host's time of all steps but the last. Drafting at the start or
/// at the end of a step makes no difference then.
#[test]
fn plain_decoding_has_two_orders() {
    let mut f = alone((None, None, None));
    f.config.step_overhead_s = 1e-3;
    let passes = target(0, 10) + (10..17).map(|context| target(context, 1)).sum::<Time>();
    assert_eq!(f.plain().records.finish[0], passes + Time::from_s(1e-3));
    f.config.async_scheduling = Some(false);
    let sync = f.plain();
    assert_eq!(sync.records.finish[0], passes + Time::from_s(8e-3));
    f.config.draft_at = Some(DraftAt::StepStart);
    assert_eq!(f.plain().steps, sync.steps);
}

/// vLLM's loop sleeps 1 ms if it ran no step. Only one request may run. While the step in flight certainly ends request
/// 0, nothing can be scheduled, and the loop sleeps. So request 1 starts a millisecond late.
#[test]
fn an_empty_step_costs_a_millisecond() {
    let requests = [Request::new(Time::ZERO, 10, 2), Request::new(Time::ZERO, 10, 2)];
    let mut f = Fixture::new(requests.into_iter().collect());
    f.config.max_num_seqs = 1;
    f.config.draft_at = None;
    let both = target(0, 10) + target(10, 1);
    let run = f.plain();
    assert_eq!(run.records.finish[0], both);
    assert_eq!(run.records.first_scheduled[1], both + Time::from_s(1e-3));
    f.config.async_scheduling = Some(false);
    assert_eq!(f.plain().records.first_scheduled[1], both);
}

/// A request with one output token has its first token when it ends, so that its TTFT can be judged at its end.
#[test]
fn a_request_of_one_token_meets_its_bound() {
    let mut f = alone((None, None, None));
    f.workload = [Request::new(Time::ZERO, 10, 1)].into_iter().collect();
    let slo = metrics::Slo { ttft_s: Some(1.0), ..metrics::Slo::default() };
    let (run, patience) = f.with(|s| s.find_out(Speculation::Off, Patience::new(0..1, slo, &[], 0)));
    assert_eq!(run.records.first_token[0], run.records.finish[0]);
    assert_eq!(patience.seen(), (1, 0));
}

/// If the draft model has its own device, drafting and verifying last together as long as the longer of the target pass
/// and the draft passes.
#[test]
fn a_draft_on_a_device_of_its_own_is_hidden_behind_the_target() {
    for (draft_at, slower) in [(None, 1.0), (None, 300.0), (Some(DraftAt::StepStart), 1.0)] {
        let mut f = alone((draft_at, Some(false), None));
        f.draft.delta_s *= slower;
        let shared = fixed(&f);
        f.config.draft_device = DraftDevice::Own;
        let own = fixed(&f);
        let (mut last, mut hidden) = (Time::ZERO, Time::ZERO);
        // If draft tokens are made at the start of a step, draft passes run at the same time as the target pass of the
        // previous step. If draft tokens are made at the end of a step, the draft passes after the last target pass
        // delay nothing, so the last step is left out.
        let steps = own.steps.len() - usize::from(draft_at.is_none());
        for (one, two) in own.steps.iter().zip(&shared.steps).take(steps) {
            let covered = two.draft_time.min(if draft_at.is_some() { last } else { two.verify_time });
            assert_eq!((one.verify_time, one.draft_time), (two.verify_time, two.draft_time - covered));
            (last, hidden) = (two.verify_time, hidden + covered);
        }
        assert!(hidden > Time::ZERO);
        assert_eq!(own.records.finish[0], shared.records.finish[0] - hidden);
        assert_eq!(own.records.accepted, shared.records.accepted);
    }
}

/// A policy with a fixed draft length, which it gives to the engine in the form of vLLM's table of draft lengths by
/// batch size.
struct Tabled;

impl SpecPolicy for Tabled {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(3).as_in_vllm(&[(1, 512, 3)])
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(3);
    }
}

#[test]
fn a_table_on_runner_v1_pays_for_piecewise_graphs() {
    let finish = |runner, piecewise_graph_s: f64, tabled: bool| {
        let mut f = alone((None, Some(false), Some(runner)));
        f.config.piecewise_graph_s = piecewise_graph_s;
        let policy: Box<dyn SpecPolicy> = if tabled { Box::new(Tabled) } else { Box::new(Steady(3)) };
        let run = f.with(|s| s.run(Speculation::Policy(policy)));
        (run.records.finish[0], run.steps.len() as u64)
    };
    let (without, steps) = finish(Runner::V1, 0.0, true);
    assert_eq!(finish(Runner::V1, 1e-3, true).0, without + Time(Time::from_s(1e-3).0 * steps));
    assert_eq!(finish(Runner::V1, 1e-3, false), finish(Runner::V1, 0.0, false));
    assert_eq!(finish(Runner::V2, 1e-3, true), finish(Runner::V2, 0.0, true));
}

/// If the lookup finds a match, the step's draft tokens are copied and take no time. In any other step at most as many
/// draft tokens are made as the draft model has passes (2).
#[test]
fn a_lookup_beside_a_model_spares_its_passes() {
    let lookup = PromptLookup { match_rate: 0.5, precision: 0.9, mean_run: 12.0 };
    let both = LookupBesideModel { lookup, rates: vec![0.8, 0.7], model_len: 2 };
    let spec = AcceptanceSpec { source: Rates::LookupBesideModel(both), ..AcceptanceSpec::default() };
    let mut f = alone((Some(DraftAt::StepStart), Some(false), None));
    f.workload = [Request::new(Time::ZERO, 10, 600)].into_iter().collect();
    f.lookup = Some(spec.build(3, &Workload::default()).expect("good settings").into());
    let run = f.with(|s| s.run(Speculation::Policy(Box::new(Steady(8)))));
    let (copied, drawn): (Vec<&StepRecord>, Vec<&StepRecord>) =
        run.steps.iter().skip(1).partition(|s| s.draft_time == Time::ZERO);
    assert!(copied.len() > 20 && drawn.len() > 20, "{} {}", copied.len(), drawn.len());
    assert!(drawn.iter().all(|s| s.drafted <= 2) && copied.iter().filter(|s| s.drafted > 2).count() > 20);
}

/// If the drafter guesses wrongly which draft tokens of a step are accepted, no draft token of the next step is
/// accepted. The setting `outcomes_guessed` is the share of correct guesses.
#[test]
fn a_wrong_guess_of_the_outcome_loses_the_drafts() {
    let accepted = |outcomes_guessed: f64| {
        let mut f = Fixture::new([Request::new(Time::ZERO, 10, 4000)].into_iter().collect());
        (f.rate, f.config.draft_device, f.config.outcomes_guessed) = (1.0, DraftDevice::Own, outcomes_guessed);
        let run = fixed(&f);
        let rounds: Vec<u32> = run.steps.iter().filter(|s| s.drafted == 3).map(|s| s.accepted).collect();
        assert!(rounds.iter().all(|&a| a == 0 || a == 3));
        rounds.iter().filter(|&&a| a == 3).count() as f64 / rounds.len() as f64
    };
    assert_eq!(accepted(1.0), 1.0);
    // There are some 1,300 steps with draft tokens. Five standard errors of a share of 0.7 are 0.064.
    assert!((accepted(0.7) - 0.7).abs() < 0.064, "{}", accepted(0.7));
}
