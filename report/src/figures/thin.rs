//! Leaves out points of a scatter plot that other points cover, so that a page has few bytes.

use super::canvas::Point;
use std::collections::BTreeSet;

/// A figure is divided into squares with sides of this many px. Each square keeps one point.
const SIDE: f64 = 1.5;

/// Keeps the first point in each square of the figure.
pub fn apart(points: impl IntoIterator<Item = Point>) -> Vec<Point> {
    let mut taken = BTreeSet::new();
    let square = |p: &Point| ((p.0 / SIDE).floor() as i64, (p.1 / SIDE).floor() as i64);
    points.into_iter().filter(|p| taken.insert(square(p))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_that_another_covers_goes() {
        let points = [(1.0, 1.0), (1.1, 1.2), (9.0, 1.0), (1.0, 1.0)];
        assert_eq!(apart(points), [(1.0, 1.0), (9.0, 1.0)]);
    }
}
