//! Measured points, and the straight lines between them.

use serde::{Deserialize, Serialize};

/// Seconds by a size, in ascending order of sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// The points in the order of their sizes. Of several times of a size the shortest counts: others were disturbed.
    pub(super) fn new(mut points: Vec<(f64, f64)>) -> Curve {
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        points.dedup_by_key(|point| point.0);
        Curve(points)
    }

    /// The curve, and how many of its times were lowered by more than a tenth: a smaller size takes no longer than a
    /// larger one. This removes single bad measurements.
    pub(super) fn cleaned(mut self) -> (Curve, usize) {
        let (mut least, mut lowered) = (f64::INFINITY, 0);
        for (_, seconds) in self.0.iter_mut().rev() {
            lowered += usize::from(*seconds > 1.1 * least);
            least = least.min(*seconds);
            *seconds = least;
        }
        (self, lowered)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn sizes(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().map(|point| point.0)
    }

    /// The time at size `x`: on the line between the two points next to it. Below the first point it is constant. Above
    /// the last point it grows in proportion to `x`.
    pub(super) fn at(&self, x: f64) -> f64 {
        let Some(&(last, end)) = self.0.last() else { return 0.0 };
        let right = self.0.partition_point(|point| point.0 < x);
        match (right.checked_sub(1), self.0.get(right)) {
            (None, _) => self.0[0].1,
            (_, None) => end * x / last,
            (Some(left), Some(&(x1, s1))) => {
                let (x0, s0) = self.0[left];
                s0 + (s1 - s0) * (x - x0) / (x1 - x0)
            }
        }
    }

    /// The shortest time at any size; 0 without points.
    pub(super) fn least(&self) -> f64 {
        self.0.iter().map(|point| point.1).reduce(f64::min).unwrap_or(0.0)
    }

    /// The curve of the times that `of` gives at these sizes.
    pub(super) fn sampled(sizes: impl IntoIterator<Item = f64>, of: impl Fn(f64) -> f64) -> Curve {
        Curve::new(sizes.into_iter().map(|x| (x, of(x))).collect())
    }

    /// The curve with times that never fall.
    pub(super) fn rising(mut self) -> Curve {
        let mut highest = 0.0f64;
        for (_, seconds) in &mut self.0 {
            highest = highest.max(*seconds);
            *seconds = highest;
        }
        self
    }
}

/// Seconds by a number of requests and the context of each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Grid(Vec<(f64, Curve)>);

impl Grid {
    pub(super) fn new(points: Vec<(f64, f64, f64)>) -> Grid {
        let mut rows: Vec<(f64, Vec<(f64, f64)>)> = Vec::new();
        for (requests, context, seconds) in points {
            match rows.iter_mut().find(|row| row.0 == requests) {
                Some(row) => row.1.push((context, seconds)),
                None => rows.push((requests, vec![(context, seconds)])),
            }
        }
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        Grid(rows.into_iter().map(|(requests, points)| (requests, Curve::new(points))).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().map(|row| row.0)
    }

    /// The contexts of the row that has the most of them.
    pub(super) fn contexts(&self) -> Vec<f64> {
        self.0.iter().map(|row| row.1.sizes().collect::<Vec<_>>()).max_by_key(Vec::len).unwrap_or_default()
    }

    /// The time of `requests` requests with `context` tokens each: first on the lines along the context of the two rows
    /// next to `requests`, then on the line between these. Few points are measured where both are large; there, a row's
    /// time grows in proportion to the context.
    pub(super) fn at(&self, requests: f64, context: f64) -> f64 {
        let Some((last, end)) = self.0.last() else { return 0.0 };
        let right = self.0.partition_point(|row| row.0 < requests);
        match (right.checked_sub(1), self.0.get(right)) {
            (None, _) => self.0[0].1.at(context),
            (_, None) => end.at(context) * requests / last,
            (Some(left), Some((x1, above))) => {
                let (x0, below) = &self.0[left];
                let (s0, s1) = (below.at(context), above.at(context));
                s0 + (s1 - s0) * (requests - x0) / (x1 - x0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_on_lines_between_points_and_in_proportion_beyond_them() {
        let curve = Curve::new(vec![(8.0, 3.0), (2.0, 1.0), (4.0, 2.0), (8.0, 5.0)]);
        assert_eq!([1.0, 2.0, 3.0, 6.0, 8.0, 16.0].map(|x| curve.at(x)), [1.0, 1.0, 1.5, 2.5, 3.0, 6.0]);
        assert_eq!(Curve::default().at(3.0), 0.0);
    }

    #[test]
    fn a_bad_measurement_is_lowered_to_that_of_a_larger_size() {
        let (curve, lowered) = Curve::new(vec![(1.0, 1.0), (2.0, 9.0), (4.0, 2.0), (8.0, 4.0)]).cleaned();
        assert_eq!((curve.at(2.0), curve.at(8.0), lowered), (2.0, 4.0, 1));
    }

    #[test]
    fn a_grid_is_linear_in_both_sizes() {
        let of = |b: f64, c: f64| 1.0 + b * c;
        let points = [1.0, 2.0, 4.0].iter().flat_map(|&b| [1.0, 8.0].map(|c| (b, c, of(b, c)))).collect();
        let grid = Grid::new(points);
        for (b, c) in [(1.0, 1.0), (3.0, 4.0), (1.5, 8.0)] {
            assert!((grid.at(b, c) - of(b, c)).abs() < 1e-12, "{b} {c}");
        }
        assert_eq!(grid.at(8.0, 8.0), 2.0 * of(4.0, 8.0));
    }
}
