//! Draws curves of means over another number of the same run: draft length by batch size, acceptance by draft position,
//! and share of right draft tokens by the draft model's confidence. One line per policy, one panel per combination of
//! swept values.

use super::axis::Axis;
use super::canvas::Ink;
use super::page::{Page, columns};
use super::style::{MARKER, RULE};
use super::view::{View, words};
use crate::{Cell, Dash};
use foretoken_sim::metrics::{Interval, Range};
use std::collections::BTreeMap;

/// A run's counts at one point of a curve: sums over items, which are request-steps or draft tokens. The point lies at
/// the mean over items, (`x` / `of`, `y` / `of`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counts {
    /// Number of the curve's point: a bucket of batch sizes, a draft position or a bin of confidence. Points with the
    /// same number in several seeds are drawn as one.
    pub key: u32,
    /// Sum over the point's items (request-steps or draft tokens) of the horizontal coordinate.
    pub x: f64,
    /// Sum over the point's items (request-steps or draft tokens) of the vertical coordinate.
    pub y: f64,
    /// Number of items (request-steps or draft tokens) over which the point of the curve is a mean.
    pub of: f64,
}

/// A kind of curve, such as draft length by batch size: its names, how its points are computed from a run, and its
/// axes.
pub struct Curves {
    pub title: &'static str,
    /// Name and unit of the curve's horizontal axis.
    pub x_name: &'static str,
    /// Name and unit of the curve's vertical axis.
    pub y_name: &'static str,
    /// Returns the sums of a run from which the points of the curve are computed, one entry per point.
    pub counts: fn(&Cell) -> Vec<Counts>,
    /// The values that a point's mean can have: its interval over seeds ends there.
    pub range: Range,
    /// Makes the horizontal and the vertical axis. The arguments are (the least x, the greatest x) and the greatest y.
    pub axes: fn((f64, f64), f64) -> (Axis, Axis),
    /// Is the diagonal drawn? If the draft model's confidences are perfectly calibrated, all points lie on the
    /// diagonal.
    pub diagonal: bool,
}

/// Points of the mean draft length by decode batch size. Leaves out batch sizes with fewer than [`FEWEST`] steps. Empty
/// for a policy that drafted nothing.
pub fn lengths(cell: &Cell) -> Vec<Counts> {
    let mut by_size: BTreeMap<u32, (u64, u64, u64)> = BTreeMap::new();
    for row in &cell.lengths {
        let sums = by_size.entry(row.batch_size).or_default();
        sums.0 += row.sums.steps;
        sums.1 += row.sums.request_steps;
        sums.2 += row.sums.drafted;
    }
    if cell.summary.drafted == 0 {
        return Vec::new();
    }
    let filled = by_size.into_iter().filter(|(_, sums)| sums.0 as f64 >= FEWEST);
    let counts = |(key, (steps, request_steps, drafted)): (u32, (u64, u64, u64))| {
        let of = request_steps as f64;
        // A bucket of batch sizes is drawn at its mean batch size: its request-steps divided by its steps.
        Counts { key, x: of / steps as f64 * of, y: drafted as f64, of }
    };
    filled.map(counts).collect()
}

/// Least number of samples (steps or draft tokens) that a point needs in one seed. Points with fewer samples are not
/// drawn, because their means are noise.
pub const FEWEST: f64 = 30.0;

/// Points of the share of accepted draft tokens, %, by the token's position in the draft of its step. Counts only draft
/// tokens whose predecessors in the same step were all accepted. Leaves out positions with fewer than [`FEWEST`] such
/// tokens.
pub fn by_depth(cell: &Cell) -> Vec<Counts> {
    let counts = |(key, p): (u32, &foretoken_sim::metrics::PositionCounts)| {
        let of = p.reached as f64;
        Counts { key, x: f64::from(key) * of, y: p.accepted as f64 * 100.0, of }
    };
    (1..).zip(&cell.summary.positions).filter(|(_, p)| p.reached as f64 >= FEWEST).map(counts).collect()
}

/// Points of the share of right draft tokens, %, by the draft model's confidence. Leaves out bins of confidence with
/// fewer than [`FEWEST`] draft tokens.
pub fn calibration(cell: &Cell) -> Vec<Counts> {
    let filled = (0..).zip(&cell.calibration).filter(|(_, b)| b.drafts as f64 >= FEWEST);
    filled
        .map(|(key, b)| Counts { key, x: b.confidence * 100.0, y: b.right as f64 * 100.0, of: b.drafts as f64 })
        .collect()
}

/// A policy's line: (x, mean y with its interval over seeds), sorted by x.
type Line<'v> = (Ink<'v>, Vec<(f64, Interval)>);

/// Draws one kind of curve, such as draft length by batch size, one line per policy; `None` if no policy's curve has a
/// point.
pub fn draw(view: &View, curves: &Curves) -> Option<String> {
    let panels: Vec<Vec<Line>> = view
        .combinations
        .iter()
        .map(|&c| {
            let line = |policy: &str| line(&view.cells(policy, |s| s == c), curves.counts, curves.range);
            view.inks().into_iter().map(|ink| (ink, line(ink.label))).collect()
        })
        .collect();
    let points = || panels.iter().flatten().flat_map(|line| &line.1);
    let least = points().map(|p| p.0).reduce(f64::min)?;
    let most = points().map(|p| p.0).reduce(f64::max)?;
    let top = points().map(|p| p.1.mean).reduce(f64::max)?;
    let (x, y) = (curves.axes)((least, most), top);
    let shown = |policy: &str| panels.iter().flatten().any(|l| l.0.label == policy && !l.1.is_empty());
    let page = Page {
        title: view.title(curves.title),
        source: view.source_of_means(),
        x_name: curves.x_name.to_owned(),
        y_name: curves.y_name.to_owned(),
        x,
        y,
        legend: view.legend(shown),
        panels: view.combinations.iter().map(|&c| (words(c), None)).collect(),
        own_x: Vec::new(),
        panel_height: [360.0, 260.0, 190.0][columns(view.combinations.len()) - 1],
        right: 0.0,
        sheet: view.sheet,
    };
    Some(page.svg(|c, panel, i| {
        if curves.diagonal {
            c.line(&[panel.at(0.0, 0.0), panel.at(100.0, 100.0)], RULE, 1.5, Dash::Solid);
        }
        for (ink, line) in &panels[i] {
            let look = ink.look;
            let path: Vec<_> = line.iter().map(|(x, i)| panel.at(*x, page.y.clamp(i.mean))).collect();
            c.policy(ink, || {
                c.line(&path, look.colour, 1.8, look.dash);
                for (x, i) in line {
                    let Some((low, high)) = i.ends() else { continue };
                    let ends = [low, high].map(|y| panel.at(*x, page.y.clamp(y)));
                    c.line(&ends, look.colour, 1.0, Dash::Solid);
                }
                c.markers(&path, look, MARKER);
            });
        }
    }))
}

/// A policy's line from its `cells`, one per seed: points of (horizontal position, mean and interval over seeds).
/// Leaves out points that are missing in some seed, because all means of a line are over the same seeds.
fn line(cells: &[&Cell], counts: fn(&Cell) -> Vec<Counts>, range: Range) -> Vec<(f64, Interval)> {
    let mut points: BTreeMap<u32, (f64, f64, Vec<f64>)> = BTreeMap::new();
    for at in cells.iter().flat_map(|cell| counts(cell)) {
        let point = points.entry(at.key).or_default();
        point.0 += at.x;
        point.1 += at.of;
        point.2.push(at.y / at.of);
    }
    let whole = points.into_values().filter(|point| point.2.len() == cells.len());
    whole.filter_map(|(x, of, values)| Some((x / of, Interval::within(range, &values)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::report;

    #[test]
    fn seeds_are_averaged_and_whiskers_are_over_them() {
        let report = report(3, &[], &[], 2, 60);
        let cell_of =
            |seed: u64| report.cells.iter().find(|c| c.key().policy == "fixed-3" && c.key().seed == seed).unwrap();
        let points = line(&[cell_of(1), cell_of(2)], by_depth, Range::Percent);
        // The made-up runs have a hundred request-steps for each number v of verified draft tokens, 1 to 3. Of v
        // tokens, v / 2 are accepted, rounded down. So no draft token at the third position is reached.
        assert_eq!(points.len(), 2);
        assert_eq!((points[0].0, points[0].1.mean, points[0].1.n), (1.0, 200.0 / 3.0, 2));
        assert_eq!(points[0].1.half_width, Some(0.0));
    }

    #[test]
    fn few_steps_and_no_drafts_give_no_point() {
        let report = report(3, &[], &[], 1, 60);
        assert!(lengths(&report.cells[0]).is_empty(), "autoregressive chooses nothing");
        let sizes = lengths(&report.cells[2]);
        assert!(!sizes.is_empty());
        for at in sizes {
            let steps: u64 =
                report.cells[2].lengths.iter().filter(|r| r.batch_size == at.key).map(|r| r.sums.steps).sum();
            assert!(steps as f64 >= FEWEST && at.x / at.of >= f64::from(at.key));
        }
    }
}
