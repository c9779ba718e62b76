//! A measured table: the number of distinct experts that a pass reads, by the pass's number of tokens. Real tokens
//! choose experts neither independently nor with equal probabilities, so a formula for independent choices is wrong.

use crate::hardware::bad::{BadLatency, bad};
use crate::hardware::models::ModelShape;

const KEY: &str = "experts_read";

/// Checks the table `points` of `[tokens, experts]`. An empty table is valid. Otherwise the model must have a mixture
/// of experts, the first point must be at 1 token, the tokens must rise, and the experts must not fall. The number of
/// experts must be from 1 to the number of experts in a layer (the smallest of all layers).
pub(super) fn check(points: &[(u32, f64)], shape: &ModelShape) -> Result<(), BadLatency> {
    let Some(&(first, _)) = points.first() else { return Ok(()) };
    let totals = shape.work().blocks.iter().map(|b| b.total).filter(|total| *total > 1.0).collect::<Vec<_>>();
    let Some(most) = totals.into_iter().reduce(f64::min) else {
        return Err(bad(KEY, format!("{} has no mixture of experts", shape.name)));
    };
    if first != 1 {
        return Err(bad(KEY, format!("the first point is at {first} tokens, but a pass may have 1 token")));
    }
    for pair in points.windows(2) {
        let [(before, fewer), (tokens, experts)] = [pair[0], pair[1]];
        if tokens <= before {
            return Err(bad(KEY, format!("{tokens} tokens stand behind {before}: give the points by rising tokens")));
        }
        if experts < fewer {
            let why = format!("{tokens} tokens read {experts} experts, but {before} tokens read {fewer}");
            return Err(bad(KEY, why));
        }
    }
    match points.iter().find(|(_, experts)| !(1.0..=most).contains(experts)) {
        Some((tokens, experts)) => {
            Err(bad(KEY, format!("{experts} experts at {tokens} tokens are not from 1 to the layer's {most}")))
        }
        None => Ok(()),
    }
}

/// A table of counts: how many distinct experts of a layer a pass reads, by the pass's number of tokens.
#[derive(Clone, Debug)]
pub(super) struct ExpertsRead {
    points: Vec<(f64, f64)>,
}

impl ExpertsRead {
    pub(super) fn new(points: &[(u32, f64)]) -> ExpertsRead {
        ExpertsRead { points: points.iter().map(|&(tokens, experts)| (tokens.into(), experts)).collect() }
    }

    /// Number of distinct experts of a layer that a pass of `tokens` tokens reads; `None` if the table is empty.
    /// Between two points the number is on the straight line; before the first and after the last point it is constant.
    pub(super) fn at(&self, tokens: f64) -> Option<f64> {
        let last = self.points.last()?;
        let next = self.points.partition_point(|point| point.0 < tokens);
        Some(match (next.checked_sub(1).map(|i| self.points[i]), self.points.get(next)) {
            (_, None) => last.1,
            (None, Some(first)) => first.1,
            (Some(low), Some(high)) => low.1 + (high.1 - low.1) * (tokens - low.0) / (high.0 - low.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::RooflineSpec;
    use super::*;
    use foretoken_sim::PassShape;

    fn spec(points: &[(u32, f64)]) -> RooflineSpec {
        RooflineSpec { experts_read: points.to_vec(), ..RooflineSpec::new("h100", "qwen3-30b-a3b") }
    }

    #[test]
    fn experts_lie_on_lines_between_the_points_and_level_beyond_them() {
        let table = ExpertsRead::new(&[(1, 8.0), (3, 20.0), (64, 100.0)]);
        assert_eq!([1.0, 2.0, 3.0, 64.0, 500.0].map(|n| table.at(n).unwrap()), [8.0, 14.0, 20.0, 100.0, 100.0]);
        assert_eq!(ExpertsRead::new(&[]).at(3.0), None);
    }

    /// The roofline's formula gives the expected number of distinct experts if tokens choose independently. A table
    /// filled with the results of this formula gives the same times as the formula. A table with fewer experts gives a
    /// shorter time.
    #[test]
    fn a_table_of_the_formula_is_the_formula() {
        let points: Vec<(u32, f64)> =
            (1..=300).map(|n| (n, 128.0 * (1.0 - (1.0 - 8.0 / 128.0_f64).powi(n as i32)))).collect();
        let (counted, computed) = (spec(&points).build().unwrap(), spec(&[]).build().unwrap());
        for n in [1, 2, 7, 40, 300] {
            let shape = PassShape { requests: 1, batched: n, context: 0, pairs: n };
            let ratio = counted.pass_s(shape) / computed.pass_s(shape);
            assert!((ratio - 1.0).abs() < 1e-12, "{n} tokens: {ratio}");
        }
        // Without floors, most of such a pass is the reading of experts.
        let eight = PassShape { requests: 8, batched: 8, context: 0, pairs: 8 };
        let plain = |points| RooflineSpec { floors: false, ..spec(points) }.build().unwrap().pass_s(eight);
        assert!(plain(&[(1, 8.0), (8, 16.0)]) < 0.6 * plain(&[]));
    }

    #[test]
    fn wrong_tables_are_named() {
        let why = |spec: RooflineSpec| spec.check().map_err(|e| (e.key, e.why)).unwrap_err();
        for (points, part) in [
            (&[(2, 8.0)][..], "the first point is at 2"),
            (&[(1, 8.0), (1, 9.0)], "by rising tokens"),
            (&[(1, 8.0), (4, 7.0)], "4 tokens read 7 experts"),
            (&[(1, 8.0), (4, 129.0)], "not from 1 to the layer's 128"),
        ] {
            let (key, said) = why(spec(points));
            assert!(key == KEY && said.contains(part), "{key}: {said}");
        }
        let dense = RooflineSpec { experts_read: vec![(1, 1.0)], ..RooflineSpec::new("h100", "llama-3.1-8b") };
        assert!(why(dense).1.contains("has no mixture of experts"));
        let both = RooflineSpec { expert_reuse: 0.2, ..spec(&[(1, 8.0)]) };
        assert_eq!(why(both).0, "expert_reuse");
    }
}
