//! Tests of the host times of the setting `engine.host`, computed by hand to the picosecond. There is one request: 10
//! prompt tokens, 8 output tokens, and 3 draft tokens in each step that are always accepted. The prompt's step emits
//! one token, and two steps of 4 tokens emit the other 7 tokens.

use super::fixture::{Fixture, Steady};
use crate::host::{SpeculatingSeconds, WithoutGraph};
use crate::*;

/// Host times, in seconds, with which these tests set `engine.host`: for each request (`REQUEST`), for each token, in
/// addition if draft tokens are verified (`MORE`), and for kernel launches of a verifying step without a CUDA graph
/// (`LAUNCH`).
const REQUEST: f64 = 1e-5;
const TOKEN: f64 = 2e-6;
const MORE: SpeculatingSeconds = SpeculatingSeconds { step_s: 1e-4, request_s: 3e-5, token_s: 5e-6 };
const LAUNCH: f64 = 4e-3;

fn alone(order: (Option<DraftAt>, Option<bool>)) -> Fixture {
    let mut f = Fixture::new([Request::new(Time::ZERO, 10, 8)].into_iter().collect());
    (f.config.draft_at, f.config.async_scheduling) = order;
    f.rate = 1.0;
    f
}

fn law(above: u32) -> HostLaw {
    let without_graph = WithoutGraph { above, step_s: 1e-3, speculating_s: LAUNCH };
    HostLaw { request_s: REQUEST, token_s: TOKEN, speculating: MORE, without_graph }
}

/// How much later the only request ends with the host times `law` than without them: (with drafting, without drafting).
fn later(mut f: Fixture, law: HostLaw) -> (Time, Time) {
    let both = |f: &Fixture| {
        let drafting = f.with(|s| s.run(Speculation::Policy(Box::new(Steady(3)))));
        (drafting.records.finish[0], f.plain().records.finish[0])
    };
    let before = both(&f);
    f.config.host = law;
    let after = both(&f);
    (after.0 - before.0, after.1 - before.1)
}

fn prompt() -> Time {
    Time::from_s(REQUEST + 10.0 * TOKEN)
}

fn verifying() -> Time {
    Time::from_s(REQUEST + 4.0 * TOKEN + MORE.step_s + MORE.request_s + 3.0 * MORE.token_s)
}

fn plain() -> Time {
    Time::from_s(REQUEST + TOKEN)
}

#[test]
fn nothing_overlaps_where_steps_follow_each_other() {
    let f = || alone((Some(DraftAt::StepStart), Some(false)));
    let (work, steps) = (prompt() + verifying() * 2, prompt() + plain() * 7);
    assert_eq!(later(f(), law(1)), (work, steps));
    // With `law(0)` the largest batch size with a captured CUDA graph is 0. Every step with a decode request exceeds
    // it, but the prompt's step has no decode request and never exceeds it.
    assert_eq!(later(f(), law(0)), (work + Time::from_s(LAUNCH) * 2, steps + Time::from_s(1e-3) * 7));
}

/// With async scheduling, the host's work is hidden behind the device in all steps but the last. Kernel launches are
/// not hidden: the device waits for them in every step.
#[test]
fn a_step_in_flight_hides_the_work_and_not_the_launches() {
    let f = || alone((None, None));
    assert_eq!(later(f(), law(1)), (verifying(), plain()));
    assert_eq!(later(f(), law(0)), (verifying() + Time::from_s(LAUNCH) * 2, plain() + Time::from_s(1e-3) * 7));
}

/// The times of the setting `engine.host` are not device time: they count as the host's part of a request's latency.
#[test]
fn the_whole_law_is_the_hosts_time() {
    let mut f = alone((Some(DraftAt::StepStart), Some(false)));
    f.config.draft_prefill = false;
    f.config.host = law(0);
    let run = f.with(|s| Simulation { keep_lives: true, ..s }.run(Speculation::Policy(Box::new(Steady(3)))));
    let whole = prompt() + (verifying() + Time::from_s(LAUNCH)) * 2;
    assert_eq!(run.totals.lives.unwrap().host(), i128::from(whole.0));
}
