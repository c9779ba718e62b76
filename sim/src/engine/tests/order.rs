//! The orders of a step, computed by hand to the picosecond. One request: 10 tokens in, 8 out, 3 drafts that always
//! hold.

use super::world::{Fixture, Steady, YARDSTICK};
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

/// Time of three draft passes: the first over `batched` tokens at `context`, the others over one token each, from
/// `from` tokens on.
fn drafts(f: &Fixture, context: u64, batched: u64, from: u64) -> Time {
    let draft = Linear::new(f.draft);
    let pass = |context, batched| draft.pass(PassShape { requests: 1, context, batched, pairs: 0 });
    pass(context, batched) + pass(from + 1, 1) + pass(from + 2, 1)
}

/// Runner V2: the first token leaves when it is sampled, and the next target pass waits for the drafts.
#[test]
fn drafts_delay_the_next_step_and_not_the_token() {
    let f = alone((None, Some(false), None));
    let run = fixed(&f);
    // The first pass runs over the prompt and a slot of the draft model; later over 4 scheduled tokens and a slot.
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

/// Runner V1: tokens leave when the next drafts are made.
#[test]
fn runner_v1_delivers_after_drafting() {
    let f = alone((None, Some(false), Some(Runner::V1)));
    let run = fixed(&f);
    let (first, second, third) = (drafts(&f, 0, 11, 10), drafts(&f, 10, 5, 14), drafts(&f, 14, 5, 18));
    assert_eq!(run.records.first_token[0], target(0, 10) + first);
    let end = target(0, 10) + first + target(10, 4) + second + target(14, 4) + third;
    assert_eq!(run.records.finish[0], end);
}

/// Async scheduling: the device continues at once and the host's time is hidden. One needless step is run, because the
/// host does not know the output when it schedules.
#[test]
fn a_step_in_flight_hides_the_host_and_is_one_too_many() {
    let mut f = alone((None, None, None));
    let sync = fixed(&alone((None, Some(false), None)));
    let run = fixed(&f);
    assert_eq!(run.records.finish, sync.records.finish);
    let emitted: Vec<_> = run.steps.iter().map(|s| s.emitted).collect();
    assert_eq!(emitted, [1, 4, 3, 0]);
    // Only drafts that the request used count as drafted and verified.
    assert_eq!((run.records.drafted[0], run.records.accepted[0]), (6, 6));

    f.config.step_overhead_s = 1e-3;
    let host = Time::from_s(1e-3);
    assert_eq!(fixed(&f).records.finish[0], sync.records.finish[0] + host);
    f.config.async_scheduling = Some(false);
    // Of three steps two wait for the host, except while the device drafts.
    assert_eq!(fixed(&f).records.finish[0], sync.records.finish[0] + host);
    f.config.step_overhead_s = 10e-3;
    let drafting = sync.steps[0].draft_time + sync.steps[1].draft_time;
    assert_eq!(fixed(&f).records.finish[0], sync.records.finish[0] + Time::from_s(30e-3) - drafting);
}

/// Without a drafter there is no order of drafting; only the host's time differs.
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

/// vLLM's loop sleeps if it ran nothing. Behind a step in flight that certainly ends the only request nothing can be
/// scheduled, so the waiting request starts a millisecond late.
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

/// A request of one token has its first token when it ends, so that its TTFT can be judged then.
#[test]
fn a_request_of_one_token_meets_its_bound() {
    let mut f = alone((None, None, None));
    f.workload = [Request::new(Time::ZERO, 10, 1)].into_iter().collect();
    let slo = metrics::Slo { ttft_s: Some(1.0), ..metrics::Slo::default() };
    let (run, patience) = f.with(|s| s.find_out(Speculation::Off, Patience::new(0..1, slo, &[], 0)));
    assert_eq!(run.records.first_token[0], run.records.finish[0]);
    assert_eq!(patience.seen(), (1, 0));
}
