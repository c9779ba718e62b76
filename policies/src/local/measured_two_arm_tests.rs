//! Tests of the policy `measured-two-arm` on examples computed by hand: the warm-up, adopting the other draft length,
//! ending its trial early, and waiting for the next trial.

use super::*;
use crate::testing::outcome;
use foretoken_sim::{Drafts, Time};

fn arms(params: MeasuredTwoArm) -> Arms {
    params.check().unwrap();
    Arms::new(params, 8)
}

/// Runs steps of one request that emit `rate(length)` tokens per second, until the draft length changes. Returns the
/// number of steps.
fn rounds(arms: &mut Arms, rate: impl Fn(u32) -> f64) -> u32 {
    let start = arms.length();
    for n in 1..10_000 {
        arms.round(2, 2.0 / rate(arms.length()));
        if arms.length() != start {
            return n;
        }
    }
    panic!("{start} for ever")
}

#[test]
fn a_better_arm_is_adopted_after_one_window() {
    let mut arms = arms(MeasuredTwoArm::default());
    let rate = |length| if length == 4 { 103.0 } else { 100.0 };
    // 8 steps of warm-up and one window of 32 steps with the held draft length come before the first challenge, a
    // window of the other length.
    assert_eq!((arms.length(), rounds(&mut arms, rate), arms.length()), (2, 8 + 32, 4));
    // The other length wins its trial and is held. The next trial comes four windows of 32 steps later and is lost
    // after 32 steps.
    assert_eq!(rounds(&mut arms, rate), 32 + 4 * 32);
    assert_eq!((arms.held, arms.losses, rounds(&mut arms, rate)), (1, 0, 32));
    // Each lost trial in a row makes the wait for the next one longer: 16, 64, 64 windows of steps.
    for wait in [16, 64, 64] {
        assert_eq!((arms.wait, rounds(&mut arms, rate)), (wait, wait * 32));
        assert_eq!(rounds(&mut arms, rate), 32);
    }
}

#[test]
fn two_per_cent_are_not_enough() {
    let mut arms = arms(MeasuredTwoArm { warmup_rounds: 0, ..MeasuredTwoArm::default() });
    // The windows of both draft lengths have steps of 1 s, with 100 and with 102 tokens. The difference is exactly the
    // margin of 2 %, so the other length loses.
    let window = |arms: &mut Arms, tokens: u64| (0..32).for_each(|_| arms.round(tokens, 1.0));
    window(&mut arms, 100);
    assert!(arms.challenge);
    window(&mut arms, 102);
    assert_eq!((arms.held, arms.losses, arms.wait), (0, 1, 16));
    // 103 tokens per second are above the margin, so the other draft length is adopted. This resets the count of lost
    // trials.
    (0..16).for_each(|_| window(&mut arms, 100));
    window(&mut arms, 103);
    assert_eq!((arms.held, arms.losses, arms.wait, arms.held_rate), (1, 0, 4, 103.0));
}

#[test]
fn a_hopeless_challenge_is_broken_off_after_four_rounds() {
    let mut arms = arms(MeasuredTwoArm { warmup_rounds: 0, ..MeasuredTwoArm::default() });
    (0..32).for_each(|_| arms.round(100, 1.0));
    // After a slow first step, four steps of the tried length have 10 + 3 · 85 tokens against 400 of the held length.
    // This is 66 %, so the tried length has not lost more than 35 % against the held length, and its trial goes on.
    arms.round(10, 1.0);
    (0..3).for_each(|_| arms.round(85, 1.0));
    assert!(arms.challenge);
    // Five steps of the tried length have 265 + 40 tokens against 500 of the held length. This is 61 %, so the tried
    // length has lost more than 35 % against the held length, and its trial ends.
    arms.round(40, 1.0);
    assert_eq!((arms.challenge, arms.losses, arms.wait), (false, 1, 16));
}

#[test]
fn only_whole_rounds_of_the_present_length_count() {
    let mut arms = arms(MeasuredTwoArm { warmup_rounds: 0, ..MeasuredTwoArm::default() });
    let drafts = Drafts::default();
    for drafted in [&[2, 1][..], &[4, 4], &[0, 0], &[]] {
        arms.observe(&outcome(&drafts, drafted, &vec![0; drafted.len()]));
        assert_eq!(arms.window.rounds, 0, "{drafted:?}");
    }
    let seen = foretoken_sim::StepOutcome {
        draft_time: Time::from_s(0.25),
        verify_time: Time::from_s(0.5),
        ..outcome(&drafts, &[2, 2], &[2, 1])
    };
    arms.observe(&seen);
    assert_eq!((arms.window.rounds, arms.window.tokens, arms.window.seconds), (1, 5, 0.75));
}

#[test]
fn bad_settings_are_named() {
    let usual = MeasuredTwoArm::default();
    for (params, key) in [
        (MeasuredTwoArm { configured: 0, ..usual }, "configured"),
        (MeasuredTwoArm { requested: 33, ..usual }, "requested"),
        (MeasuredTwoArm { requested: 2, ..usual }, "requested"),
        (MeasuredTwoArm { window_rounds: 0, ..usual }, "window_rounds"),
        (MeasuredTwoArm { margin: f64::NAN, ..usual }, "margin"),
        (MeasuredTwoArm { abort_behind: 2.0, ..usual }, "abort_behind"),
    ] {
        assert_eq!(params.check().map_err(|e| e.key), Err(key));
    }
    assert_eq!(MeasuredTwoArm { configured: 6, ..usual }.asks_for(), Some(("configured", 6)));
}
