//! Transformations of a workload, applied in the order in which they are written.
//!
//! No transformation adds a request. Window, thin and max-requests leave requests out. Window, rate-scale and spread
//! move arrivals, but never change their order. A rate scale of f before a window gives the same result as after the
//! window, if the window's bounds are divided by f. Only the rounding to whole picoseconds may differ.

use crate::checks::{not_negative, positive};
use crate::error::TraceError;
use foretoken_sim::{Luck, RequestId, Stream, Time, Workload};
use serde::{Deserialize, Serialize};

/// A change to the arrivals of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Transform {
    /// Keeps the arrivals from `start_s` up to, but not at, `end_s`. `start_s` becomes time 0.
    Window {
        /// Start of the window of kept arrivals, seconds. Arrivals at this time are kept.
        start_s: f64,
        /// End of the window of kept arrivals, seconds. Arrivals at this time are dropped.
        end_s: f64,
    },
    /// Multiplies the rate of requests by this factor: every arrival time is divided by the factor, and rounded to a
    /// whole picosecond.
    RateScale(f64),
    /// Keeps each request with probability `keep`, independently.
    Thin {
        /// Probability of keeping a request, in (0, 1].
        keep: f64,
    },
    /// Spreads requests with equal arrival times evenly over the next `tick_s` seconds, or up to the next arrival if
    /// that is sooner.
    Spread {
        /// Time over which requests with equal arrival times are spread, seconds.
        tick_s: f64,
    },
    /// Keeps the first requests of the workload, up to this number, and drops the others.
    MaxRequests(u32),
}

impl Transform {
    /// True if the transformation needs real arrival times; a trace without times has placeholders.
    pub(crate) fn needs_times(&self) -> bool {
        matches!(self, Transform::Window { .. } | Transform::RateScale(_) | Transform::Spread { .. })
    }

    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        match *self {
            Transform::Window { start_s, end_s } => {
                not_negative(&format!("{key}.window.start_s"), start_s)?;
                positive(&format!("{key}.window.end_s"), end_s)?;
                if start_s >= end_s {
                    let what = format!("the window [{start_s:?}, {end_s:?}) is empty");
                    return Err(TraceError::spec(format!("{key}.window"), what, "end_s must be after start_s"));
                }
                Ok(())
            }
            Transform::RateScale(f) => positive(&format!("{key}.rate-scale"), f),
            Transform::Thin { keep } if keep > 0.0 && keep <= 1.0 => Ok(()),
            Transform::Thin { keep } => {
                Err(TraceError::spec(format!("{key}.thin.keep"), format!("{keep:?} is not a share in (0, 1]"), ""))
            }
            Transform::Spread { tick_s } => positive(&format!("{key}.spread.tick_s"), tick_s),
            Transform::MaxRequests(0) => Err(TraceError::spec(format!("{key}.max-requests"), "0 keeps nothing", "")),
            Transform::MaxRequests(_) => Ok(()),
        }
    }

    /// Applies the transformation. `index` is its position in the list; it keys the random draws, so that two thinnings
    /// draw independently.
    ///
    /// # Errors
    /// A rate scale moves arrivals beyond the clock's 213 days.
    pub(crate) fn apply(&self, mut w: Workload, seed: u64, index: usize) -> Result<Workload, TraceError> {
        match *self {
            Transform::Window { start_s, end_s } => {
                let (start, end) = (Time::from_s(start_s), Time::from_s(end_s));
                let first = w.arrival.partition_point(|&t| t < start);
                let last = w.arrival.partition_point(|&t| t < end);
                Ok(pick(&w, (first..last).map(|i| (w.arrival[i] - start, i))))
            }
            Transform::RateScale(factor) => {
                for t in &mut w.arrival {
                    *t = divide(*t, factor).ok_or_else(|| {
                        let what = format!("{factor:?} moves an arrival at {t} beyond the clock's 213 days");
                        TraceError::spec(format!("transform[{index}].rate-scale"), what, "cut a window first")
                    })?;
                }
                Ok(w)
            }
            Transform::Thin { keep } => {
                let luck = Luck::new(seed, Stream::Thinning, index as u64);
                let kept = (0..w.len()).filter(|&i| luck.unit(i as u64) < keep);
                Ok(pick(&w, kept.map(|i| (w.arrival[i], i))))
            }
            Transform::Spread { tick_s } => {
                spread(&mut w.arrival, Time::from_s(tick_s));
                Ok(w)
            }
            Transform::MaxRequests(most) => {
                let n = w.len().min(most as usize);
                Ok(pick(&w, (0..n).map(|i| (w.arrival[i], i))))
            }
        }
    }
}

/// A workload of some requests of `w`. Each entry of `picks` is an arrival time and the index of the request that gets
/// it. These times must not decrease. If turns of a session are left out, the turn before them is followed by the next
/// one that is left, after all of their gaps.
pub(crate) fn pick(w: &Workload, picks: impl Iterator<Item = (Time, usize)>) -> Workload {
    let mut out = Workload {
        categories: w.categories.clone(),
        recordings: w.recordings.clone(),
        hazards: w.hazards.clone(),
        prefix_block: w.prefix_block,
        ..Workload::default()
    };
    // The new id of each request of `w`; `RequestId::MAX` if it is left out. Empty without sessions.
    let mut ids = vec![RequestId::MAX; w.next_turn.len()];
    for (at, i) in picks {
        if let Some(id) = ids.get_mut(i) {
            *id = out.len() as RequestId;
        }
        let mut request = w.get(i as RequestId);
        request.arrival = at;
        out.push(request);
    }
    if !ids.is_empty() {
        out.next_turn = vec![RequestId::MAX; out.len()];
        out.gap = vec![Time::ZERO; out.len()];
    }
    for (old, &id) in ids.iter().enumerate().filter(|(_, id)| **id != RequestId::MAX) {
        let (mut at, mut gap) = (old as RequestId, Time::ZERO);
        while let Some((next, wait)) = w.following(at) {
            (at, gap) = (next, gap + wait);
            let own = ids[next as usize];
            if own != RequestId::MAX {
                (out.next_turn[id as usize], out.gap[id as usize]) = (own, gap);
                break;
            }
        }
    }
    out
}

/// Spreads each group of requests with equal arrival times evenly over the next `tick`, or up to the next group if that
/// comes sooner.
pub(crate) fn spread(arrivals: &mut [Time], tick: Time) {
    let mut rest = arrivals;
    while let Some(&start) = rest.first() {
        let size = rest.iter().take_while(|&&t| t == start).count();
        let (group, later) = rest.split_at_mut(size);
        let span = later.first().map_or(tick, |&next| tick.min(next - start));
        for (i, t) in group.iter_mut().enumerate() {
            *t = start + Time((u128::from(span.0) * i as u128 / size as u128) as u64);
        }
        rest = later;
    }
}

/// `at / factor`, rounded once to the nearest picosecond. `None` if the result is beyond the clock.
///
/// A finite `f64` is m·2^e with a whole m < 2^53, so the result can be computed as a quotient of whole numbers.
fn divide(at: Time, factor: f64) -> Option<Time> {
    let bits = factor.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, power) = if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
    let (mut top, mut bottom) = (u128::from(at.0), u128::from(mantissa));
    let twos = bottom.trailing_zeros() as i32;
    bottom >>= twos;
    match power + twos {
        up if up >= 64 => return Some(Time::ZERO),
        up if up >= 0 => bottom = bottom.checked_mul(1 << up)?,
        // If the shift overflows, the quotient is over 2^128 / 2^53 picoseconds, which is far beyond the clock's 213
        // days.
        down if at != Time::ZERO && -down >= top.leading_zeros() as i32 => return None,
        down if at != Time::ZERO => top <<= -down,
        _ => return Some(Time::ZERO),
    }
    u64::try_from((top + bottom / 2) / bottom).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Request;
    use proptest::prelude::*;

    fn workload(arrivals: &[u64]) -> Workload {
        arrivals.iter().enumerate().map(|(i, &t)| Request::new(Time(t), i as u32 + 1, 1)).collect()
    }

    fn run(t: &Transform, w: &Workload) -> Workload {
        t.apply(w.clone(), 1, 0).expect("in range")
    }

    fn sorted_arrivals() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec(0u64..2_000_000_000_000_000, 0..200).prop_map(|mut v| {
            v.sort_unstable();
            v
        })
    }

    #[test]
    fn division_is_exact_where_it_can_be() {
        assert_eq!(divide(Time(7), 2.0), Some(Time(4)));
        assert_eq!(divide(Time(u64::MAX - 1), 2.0), Some(Time(u64::MAX / 2)));
        assert_eq!(divide(Time(1_500), 1.5), Some(Time(1_000)));
        assert_eq!(divide(Time(3), 0.25), Some(Time(12)));
        assert_eq!(divide(Time(1 << 62), 0.125), None);
        assert_eq!(divide(Time(1 << 62), 1e-300), None);
        assert_eq!(divide(Time(1 << 62), 1e300), Some(Time::ZERO));
        assert_eq!(divide(Time::ZERO, 1e-300), Some(Time::ZERO));
    }

    #[test]
    fn spreading_fills_ticks_without_reaching_the_next() {
        let mut a = [0, 0, 0, 10, 12, 12].map(Time);
        spread(&mut a, Time(9));
        assert_eq!(a, [0, 3, 6, 10, 12, 16].map(Time));
        let mut tight = [0, 0, 4].map(Time);
        spread(&mut tight, Time(100));
        assert_eq!(tight, [0, 2, 4].map(Time));
    }

    #[test]
    fn two_thinnings_are_independent() {
        let w = workload(&(0..40_000).collect::<Vec<_>>());
        let half = Transform::Thin { keep: 0.5 };
        let once = half.apply(w.clone(), 3, 0).expect("kept");
        let twice = half.apply(once.clone(), 3, 1).expect("kept");
        // The tolerance for the share of kept requests, one half, is five standard errors of a binomial share.
        assert!((once.len() as f64 / 4e4 - 0.5).abs() < 5.0 * (0.25f64 / 4e4).sqrt());
        assert!((twice.len() as f64 / once.len() as f64 - 0.5).abs() < 5.0 * (0.25f64 / 2e4).sqrt());
    }

    proptest! {
        #[test]
        fn order_and_identity_are_kept(a in sorted_arrivals(), keep in 0.01f64..1.0, f in 0.1f64..10.0, n in 1u32..300) {
            let w = workload(&a);
            for t in [
                Transform::Thin { keep },
                Transform::RateScale(f),
                Transform::Spread { tick_s: f },
                Transform::MaxRequests(n),
                Transform::Window { start_s: 200.0, end_s: 1500.0 },
            ] {
                let out = run(&t, &w);
                prop_assert!(out.arrival.is_sorted());
                prop_assert!(out.prompt_len.is_sorted(), "requests stay in order");
                prop_assert!(out.len() <= w.len());
                match t {
                    Transform::RateScale(_) | Transform::Spread { .. } => prop_assert_eq!(out.len(), w.len()),
                    Transform::MaxRequests(n) => prop_assert_eq!(out.len(), w.len().min(n as usize)),
                    Transform::Window { .. } => {
                        let inside = a.iter().filter(|&&t| (200_000_000_000_000..1_500_000_000_000_000).contains(&t));
                        prop_assert_eq!(out.len(), inside.count());
                    }
                    Transform::Thin { .. } => {}
                }
            }
        }

        #[test]
        fn windows_and_scales_commute(a in sorted_arrivals(), power in -3i32..4) {
            // Arrivals are multiples of 8 ps, so a rate scale of up to 8 divides them without rounding, and an arrival
            // at the edge of a window stays there.
            let w = workload(&a.iter().map(|t| t & !7).collect::<Vec<_>>());
            let f = 2f64.powi(power);
            let (scale, window) = (Transform::RateScale(f), Transform::Window { start_s: 256.0, end_s: 1024.0 });
            let scaled_window = Transform::Window { start_s: 256.0 / f, end_s: 1024.0 / f };
            let (one, two) = (run(&scale, &run(&window, &w)), run(&scaled_window, &run(&scale, &w)));
            prop_assert_eq!(one.arrival, two.arrival);
            prop_assert_eq!(one.prompt_len, two.prompt_len);
        }

        #[test]
        fn division_rounds_to_nearest(t in 0u64..1 << 50, f in 0.01f64..100.0) {
            let exact = t as f64 / f;
            let got = divide(Time(t), f).expect("in range").0 as f64;
            prop_assert!((got - exact).abs() <= 0.5 + exact * 4e-16, "{} {}", got, exact);
        }
    }
}
