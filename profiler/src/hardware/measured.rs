//! The latency model `measured`: a table of measured pass times, interpolated between the measured sizes. The time of a
//! pass is the sum of four costs: of its batched tokens, of its query-key pairs, of the context that it reads, and of
//! its requests. Each cost is piecewise linear in its size and never falls.
//!
//! On a CPU, the time grows from the first token on, attention grows with the pairs, and context costs more as soon as
//! the KV of the batch no longer fits into a cache. On a GPU, the time is flat between two captured CUDA-graph sizes
//! and jumps after each size. Straight lines between measured sizes can follow both kinds of machine; a staircase
//! cannot.

use crate::hardware::bad::{BadLatency, bad};
use foretoken_sim::Time;
use foretoken_sim::{LatencyModel, PassShape};
use serde::{Deserialize, Serialize};

/// Measured pass times. Between two measured sizes the time lies on the straight line between their times. Below the
/// first size the line through the first two points continues. Above the last size the line through the last two points
/// continues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredSpec {
    /// Points `[batched tokens, seconds]`: the time of a pass without context. Sizes must rise, times must not fall. At
    /// least one point is needed.
    pub batched: Vec<(u64, f64)>,
    /// Points `[query-key pairs, seconds]`: the time of attention, which is added to the time of `batched`. A pair is a
    /// new token with a token to which it attends. Pairs must rise, times must not fall. Empty: attention adds nothing.
    #[serde(default)]
    pub pairs: Vec<(u64, f64)>,
    /// Points `[tokens of context read, seconds]`: the time to read their KV, which is added to the time of `batched`.
    /// Tokens must rise, times must not fall. Empty: reading adds nothing.
    #[serde(default)]
    pub context: Vec<(u64, f64)>,
    /// Points `[requests of the pass, seconds]`: the time that a batch of this size adds to the time of `batched`, such
    /// as a step above a number of requests. Requests must rise, times must not fall. Empty: they add nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<(u64, f64)>,
}

impl MeasuredSpec {
    /// Checks the values that serde cannot check.
    pub fn check(&self) -> Result<(), BadLatency> {
        if self.batched.is_empty() {
            return Err(bad("batched", "needs at least one [tokens, seconds]"));
        }
        let curves = [
            ("batched", &self.batched),
            ("pairs", &self.pairs),
            ("context", &self.context),
            ("requests", &self.requests),
        ];
        for (key, points) in curves {
            if let Some((_, x)) = points.iter().find(|(_, x)| !(*x >= 0.0 && x.is_finite())) {
                return Err(bad(key, format!("{x} is not a time ≥ 0 s")));
            }
            if let Some(p) = points.windows(2).find(|p| p[1].0 <= p[0].0) {
                return Err(bad(key, format!("sizes must rise, but {} follows {}", p[1].0, p[0].0)));
            }
            if let Some(p) = points.windows(2).find(|p| p[1].1 < p[0].1) {
                return Err(bad(key, format!("times must not fall, but {} s follows {} s", p[1].1, p[0].1)));
            }
        }
        Ok(())
    }

    pub fn build(&self) -> Result<Measured, BadLatency> {
        self.check()?;
        let curve = |points: &[(u64, f64)]| Curve(points.iter().map(|&(x, s)| (x, Time::from_s(s))).collect());
        let (batched, pairs) = (curve(&self.batched), curve(&self.pairs));
        Ok(Measured { batched, pairs, context: curve(&self.context), requests: curve(&self.requests) })
    }
}

/// The latency model of a table of measured pass times, ready to compute the time of a pass.
#[derive(Clone, Debug)]
pub struct Measured {
    batched: Curve,
    pairs: Curve,
    context: Curve,
    requests: Curve,
}

impl LatencyModel for Measured {
    fn pass(&self, shape: PassShape) -> Time {
        let of_tokens = self.batched.at(shape.batched) + self.pairs.at(shape.pairs);
        of_tokens + self.context.at(shape.context) + self.requests.at(shape.requests)
    }

    fn least(&self) -> Time {
        // No curve falls.
        self.pass(PassShape { requests: 0, batched: 1, context: 0, pairs: 0 })
    }
}

/// The points (size, time) of a piecewise linear function that never falls.
#[derive(Clone, Debug)]
struct Curve(Vec<(u64, Time)>);

impl Curve {
    /// The time at size `x`, at least 0: on the line through the two points next to `x`. With one point, the time of
    /// this point. Without points, 0. Integer arithmetic rounds the distance from the left point down to whole
    /// picoseconds, so that every machine gives the same result.
    fn at(&self, x: u64) -> Time {
        let [(x0, t0), (x1, t1)] = match self.0.as_slice() {
            [] => return Time::ZERO,
            [(_, t)] => return *t,
            points => {
                let right = points.partition_point(|p| p.0 < x).clamp(1, points.len() - 1);
                [points[right - 1], points[right]]
            }
        };
        let rise = |run: u64| {
            let ps = u128::from(t1.0 - t0.0) * u128::from(run) / u128::from(x1 - x0);
            Time(u64::try_from(ps).unwrap_or(u64::MAX))
        };
        if x >= x0 { t0 + rise(x - x0) } else { t0.saturating_sub(rise(x0 - x)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> MeasuredSpec {
        MeasuredSpec {
            batched: vec![(2, 2e-3), (4, 3e-3), (8, 3e-3), (9, 5e-3)],
            pairs: vec![(0, 0.0), (1000, 1e-3), (2000, 4e-3)],
            context: vec![(0, 0.0), (100, 1e-4), (200, 4e-4)],
            requests: vec![],
        }
    }

    #[test]
    fn times_lie_on_lines_between_and_beyond_the_points() {
        let m = spec().build().unwrap();
        let us = |batched, context, pairs| m.pass(PassShape { requests: 1, batched, context, pairs }).0 / 1_000_000;
        assert_eq!((us(2, 0, 0), us(3, 0, 0), us(4, 0, 0), us(6, 0, 0)), (2000, 2500, 3000, 3000));
        // The line through the first two points continues below the first point, and the line through the last two
        // continues above the last point.
        assert_eq!((us(1, 0, 0), us(10, 0, 0), us(12, 0, 0)), (1500, 7000, 11_000));
        assert_eq!((us(2, 10, 0), us(2, 150, 0), us(2, 300, 0)), (2010, 2250, 2700));
        assert_eq!((us(2, 0, 500), us(2, 0, 1500), us(2, 0, 3000)), (2500, 4500, 9000));
    }

    /// A pass of more than 8 requests takes 2 ms longer, however many there are.
    #[test]
    fn a_batch_of_some_size_adds_its_time() {
        let m = MeasuredSpec { requests: vec![(0, 0.0), (8, 0.0), (9, 2e-3), (99, 2e-3)], ..spec() }.build().unwrap();
        let us = |requests| m.pass(PassShape { requests, batched: 2, context: 0, pairs: 0 }).0 / 1_000_000;
        assert_eq!([0, 1, 8, 9, 12, 500].map(us), [2000, 2000, 2000, 4000, 4000, 4000]);
    }

    #[test]
    fn one_point_is_a_constant_and_no_points_are_free() {
        let m = MeasuredSpec { batched: vec![(1, 1e-3)], pairs: vec![], context: vec![], requests: vec![] }
            .build()
            .unwrap();
        assert_eq!(m.pass(PassShape { requests: 1, batched: 99, context: 5, pairs: 7 }), Time::from_s(1e-3));
    }

    #[test]
    fn a_huge_pass_saturates() {
        let m = spec().build().unwrap();
        assert_eq!(m.pass(PassShape { requests: 1, batched: u64::MAX, context: 0, pairs: u64::MAX }), Time::MAX);
    }

    #[test]
    fn what_is_no_table_is_refused_at_its_key() {
        let of = |change: fn(&mut MeasuredSpec)| {
            let mut s = spec();
            change(&mut s);
            s.check().unwrap_err().key
        };
        assert_eq!(of(|s| s.batched.clear()), "batched");
        assert_eq!(of(|s| s.batched[1].0 = 2), "batched");
        assert_eq!(of(|s| s.pairs[2].1 = 0.5e-3), "pairs");
        assert_eq!(of(|s| s.pairs[2].1 = f64::NAN), "pairs");
        assert_eq!(of(|s| s.context[1].0 = 300), "context");
        assert_eq!(of(|s| s.requests = vec![(1, 1e-3), (2, 0.0)]), "requests");
    }
}
