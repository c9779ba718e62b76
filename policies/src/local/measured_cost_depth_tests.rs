//! Tests of the policy `measured-cost-depth` against results computed by hand: average times of draft lengths, the line
//! through these times, the warm-up, and when the policy changes or tries a length.

use super::*;
use crate::testing::{close, outcome};
use foretoken_sim::{Drafts, Time};

/// Runs `count` steps with the draft lengths that the policy chooses; a step takes `ms(length)` milliseconds. Returns
/// the lengths.
fn rounds(depths: &mut DepthController, count: usize, ms: impl Fn(usize) -> f64) -> Vec<usize> {
    let mut round = |_| {
        let depth = depths.length();
        depths.round(depth, ms(depth));
        depth
    };
    (0..count).map(&mut round).collect()
}

#[test]
fn the_warm_up_tries_every_length_from_the_longest_down() {
    let mut depths = DepthController::new(4);
    // Expected tokens of lengths 1 to 4 are the sums 1 + .6 + .36 + .216 + .1296 up to the length. A step takes 10 ms
    // and 4 ms per draft token. The scores are 1.6/14, 1.96/18, 2.176/22 and 2.3056/26.
    assert_eq!(rounds(&mut depths, 4, |d| 10.0 + 4.0 * d as f64), [4, 3, 2, 1]);
    assert!(close(depths.score(3), 2.176 / 22.0));
    assert_eq!(depths.length(), 1, "0.114 is the best");
}

#[test]
fn lengths_not_measured_lie_on_a_line() {
    let mut depths = DepthController::new(4);
    assert_eq!([depths.ms(1), depths.ms(4)], [37.0, 58.0]);
    depths.measured[2].ms = Some(50.0);
    assert_eq!([1, 2, 3, 4].map(|d| depths.ms(d)), [36.0, 43.0, 50.0, 57.0]);
    depths.measured[0].ms = Some(30.0);
    assert_eq!([1, 2, 3, 4].map(|d| depths.ms(d)), [30.0, 40.0, 50.0, 60.0]);
    // A line through the times of two measured lengths has no use if the shorter length is slower: the assumed slope is
    // used.
    depths.measured[0].ms = Some(70.0);
    assert_eq!([depths.ms(2), depths.ms(4)], [43.0, 57.0]);
}

#[test]
fn times_are_averaged_over_the_wall_clock() {
    let mut depths = DepthController::new(1);
    depths.round(1, 100.0);
    depths.round(1, 150.0);
    let expected = 100.0 + 50.0 * (1.0 - (-150.0f64 / 400.0).exp());
    assert!(close(depths.ms(1), expected));
    // This step took more than twice the average time of its draft length, so it has a quarter of the usual weight in
    // the average.
    depths.round(1, 400.0);
    assert!(close(depths.ms(1), expected + (400.0 - expected) * 0.25 * (1.0 - (-1.0f64).exp())));
    assert_eq!(depths.clock_ms, 650.0);
}

#[test]
fn rates_move_up_to_the_first_miss() {
    let mut depths = DepthController::new(4);
    let drafts = Drafts::default();
    let seen = foretoken_sim::StepOutcome {
        draft_time: Time::from_s(0.01),
        verify_time: Time::from_s(0.02),
        ..outcome(&drafts, &[4, 2], &[1, 2])
    };
    depths.observe(&seen);
    // The first draft token is accepted for both requests. The second is rejected, then accepted. Positions 3 and 4 are
    // not reached.
    let hit = |rate: f64| rate + 0.08 * (1.0 - rate);
    let expected = [hit(hit(0.6)), hit(0.6 * 0.92), 0.6, 0.6];
    assert!(depths.rate.iter().zip(expected).all(|(&a, b)| close(a, b)), "{:?} for {expected:?}", depths.rate);
    assert!(close(depths.ms(4), 30.0) && depths.warmup == 3);
}

#[test]
fn three_per_cent_are_needed_to_switch() {
    let mut depths = DepthController::new(2);
    // The scores (expected tokens per time t) are 1.6 / t and 1.96 / t for lengths 1 and 2: length 2 leads while it
    // takes less than 1.225 times the time of length 1.
    rounds(&mut depths, 2, |d| [16.0, 19.6][d - 1]);
    assert_eq!(depths.current, 2, "the longest is held on a tie");
    depths.measured[0].ms = Some(16.0 / 1.029);
    depths.decide();
    assert_eq!(depths.current, 2);
    depths.measured[0].ms = Some(16.0 / 1.031);
    depths.decide();
    assert_eq!(depths.current, 1);
}

#[test]
fn close_rivals_are_probed_every_second_and_the_stalest_every_five() {
    let mut depths = DepthController::new(3);
    // The scores (expected tokens per ms) of lengths 1 to 3 are 0.1, 0.098, 0.05: length 2 is within 15 % of length 1,
    // length 3 is not.
    let ms = |d: usize| [16.0, 20.0, 43.52][d - 1];
    assert_eq!(rounds(&mut depths, 3, ms), [3, 2, 1]);
    assert_eq!(depths.current, 1);
    // The clock is above 1000 ms for the first time after 63 steps of 16 ms. Then four steps try length 2, the rival,
    // and the policy returns to length 1.
    let made = rounds(&mut depths, 63 + 4 + 1, ms);
    assert!(made[..63].iter().all(|&d| d == 1) && made[63..67] == [2; 4] && made[67] == 1, "{made:?}");
    // Length 3 was measured longest ago. It is tried in a probe (a few steps with another length) when 5 s have passed
    // since the warm-up.
    let mut first = None;
    for _ in 0..400 {
        let depth = depths.length();
        if depth == 3 && first.is_none() {
            first = Some(depths.clock_ms);
        }
        depths.round(depth, ms(depth));
    }
    let since = first.expect("a probe of the stalest") - (43.52 + 20.0 + 16.0);
    assert!((5000.0..5100.0).contains(&since), "{since}");
}

#[test]
fn a_slow_round_makes_probes_rare() {
    let mut depths = DepthController::new(2);
    // Probes (four steps with the best other length) may take 15 % of the time. One probe has 4 steps of 80 ms: one
    // comes every 4 · 80 / 0.15 = 2133 ms, after 27 steps.
    let ms = |d: usize| [80.0, 99.0][d - 1];
    rounds(&mut depths, 2, ms);
    depths.current = 1;
    let made = rounds(&mut depths, 28, ms);
    assert!(made[..27].iter().all(|&d| d == 1) && made[27] == 2, "{made:?}");
}

#[test]
fn a_length_that_the_engine_cuts_is_not_waited_for() {
    let mut depths = DepthController::new(3);
    (0..3).for_each(|_| depths.round(1, 20.0));
    assert_eq!((depths.warmup, depths.measured[2].ms), (0, None));
    depths.probe = Some((3, 4));
    (0..4).for_each(|_| depths.round(2, 25.0));
    assert_eq!(depths.probe, None);
}

#[test]
fn one_length_and_none_are_no_trouble() {
    let mut one = DepthController::new(1);
    assert_eq!(rounds(&mut one, 500, |_| 50.0), [1; 500]);
    let mut none = DepthController::new(0);
    assert_eq!((none.limits().depth, none.explain().estimate, none.explain().candidates.len()), (0, None, 0));
    assert_eq!(MeasuredCostDepth { max_depth: 0 }.check().map_err(|e| e.key), Err("max_depth"));
}
