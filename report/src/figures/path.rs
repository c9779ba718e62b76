//! The path data of SVG lines: relative coordinates in tenths of a px, and no points that the eye cannot see.

use super::style::Point;
use plotters_backend::BackendCoord;
use std::fmt::Write;

/// A point of a line is left out if the line without the point passes within this distance of the point, px.
const UNSEEN: f64 = 0.15;

/// Writes path data. Coordinates are whole tenths of a px, so that rounding errors do not add up.
#[derive(Default)]
pub struct Pen {
    at: BackendCoord,
}

/// Converts a point from px to whole tenths of a px.
pub fn tenths((x, y): Point) -> BackendCoord {
    ((x * 10.0).round() as i32, (y * 10.0).round() as i32)
}

/// A number as text, given in tenths: 125 becomes `12.5`, 30 becomes `3` and -5 becomes `-.5`.
pub fn tenth(value: i32) -> String {
    let (sign, all) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    match (all / 10, all % 10) {
        (whole, 0) => format!("{sign}{whole}"),
        (0, part) => format!("{sign}.{part}"),
        (whole, part) => format!("{sign}{whole}.{part}"),
    }
}

fn pair(out: &mut String, (x, y): BackendCoord) {
    let y = tenth(y);
    let gap = if y.starts_with('-') { "" } else { " " };
    write!(out, "{}{gap}{y}", tenth(x)).expect("into a string");
}

impl Pen {
    /// Starts a new part of the path at `point`, without a line to it.
    fn to(&mut self, out: &mut String, point: BackendCoord) {
        self.at = point;
        out.push('M');
        pair(out, self.at);
    }

    /// Draws a straight line to the point `to`; nothing if the pen is at this point already.
    fn line(&mut self, out: &mut String, to: BackendCoord) {
        let by = (to.0 - self.at.0, to.1 - self.at.1);
        self.at = to;
        match by {
            (0, 0) => {}
            (x, 0) => write!(out, "h{}", tenth(x)).expect("into a string"),
            (0, y) => write!(out, "v{}", tenth(y)).expect("into a string"),
            by => {
                out.push('l');
                pair(out, by);
            }
        }
    }

    pub fn through(&mut self, out: &mut String, points: impl IntoIterator<Item = BackendCoord>) {
        let mut points = points.into_iter();
        let Some(first) = points.next() else { return };
        self.to(out, first);
        points.for_each(|point| self.line(out, point));
    }

    pub fn shape(&mut self, out: &mut String, points: impl IntoIterator<Item = BackendCoord>) {
        self.through(out, points);
        out.push('z');
    }

    /// Draws a stroke of length zero; round caps make a disc of it.
    pub fn dot(&mut self, out: &mut String, point: BackendCoord) {
        self.to(out, point);
        out.push_str("h0");
    }
}

/// True if all points are equal after rounding to a tenth of a px, or if there are no points.
pub fn is_one_spot(points: &[Point]) -> bool {
    points.iter().all(|p| tenths(*p) == tenths(points[0]))
}

/// The points of a line without the points that the eye cannot see (Douglas and Peucker, 1973).
pub fn simplified(points: &[Point]) -> Vec<Point> {
    if points.len() < 3 {
        return points.to_vec();
    }
    let mut kept = vec![false; points.len()];
    (kept[0], kept[points.len() - 1]) = (true, true);
    let mut parts = vec![(0, points.len() - 1)];
    while let Some((from, to)) = parts.pop() {
        let far = (from + 1..to).map(|i| (i, distance(points[i], points[from], points[to])));
        let Some((at, _)) = far.filter(|(_, d)| *d > UNSEEN).max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        kept[at] = true;
        parts.extend([(from, at), (at, to)]);
    }
    points.iter().zip(kept).filter(|(_, kept)| *kept).map(|(p, _)| *p).collect()
}

/// Distance of `p` from the line segment between `a` and `b`.
fn distance(p: Point, a: Point, b: Point) -> f64 {
    let (along, to) = ((b.0 - a.0, b.1 - a.1), (p.0 - a.0, p.1 - a.1));
    let length = along.0 * along.0 + along.1 * along.1;
    let share = if length > 0.0 { ((to.0 * along.0 + to.1 * along.1) / length).clamp(0.0, 1.0) } else { 0.0 };
    (to.0 - share * along.0).hypot(to.1 - share * along.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short_and_exact() {
        let mut out = String::new();
        let mut pen = Pen::default();
        pen.through(&mut out, [(10.0, 20.04), (10.0, 25.0), (12.26, 24.5), (12.0, 24.5)].map(tenths));
        pen.dot(&mut out, tenths((0.0, -0.3)));
        assert_eq!(out, "M10 20v5l2.3-.5h-.3M0-.3h0");
        assert!(is_one_spot(&[(1.0, 1.0), (1.01, 1.0)]) && !is_one_spot(&[(1.0, 1.0), (1.1, 1.0)]));
    }

    #[test]
    fn points_on_a_straight_line_go_and_corners_stay() {
        let line: Vec<Point> = (0..100).map(|i| (f64::from(i), if i < 50 { 0.0 } else { f64::from(i - 49) })).collect();
        assert_eq!(simplified(&line), [(0.0, 0.0), (49.0, 0.0), (99.0, 50.0)]);
        assert_eq!(simplified(&[(0.0, 0.0), (1.0, 5.0), (0.0, 0.0)]).len(), 3, "a line that comes back");
    }
}
