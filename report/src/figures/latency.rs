//! Draws the cumulative distribution of a latency: one line per policy, one panel per combination of swept values, all
//! seeds pooled.

use super::axis::Axis;
use super::canvas::{Canvas, Ink};
use super::page::{Page, Panel, columns};
use super::sheet::Sheet;
use super::style::{MARKER, RULE};
use super::view::{View, count, joined, words};
use crate::number::fixed;
use crate::{Cdf, Cell, Dash, Swept};
use foretoken_sim::metrics::{Interval, Slo};

/// A kind of latency, such as TTFT: its names, how to read its distribution from a run, and its SLO bound.
pub struct Latency {
    /// The latency's name in a figure's title, such as the time to first token.
    pub title: &'static str,
    pub axis: &'static str,
    /// The unit of the axis: (number of units in one second, the unit's name).
    pub unit: (f64, &'static str),
    /// Text for the source line (the line below the figure that says where its numbers come from): which requests have
    /// this latency.
    pub whose: &'static str,
    /// Returns the latency's distribution in a run.
    pub of: fn(&Cell) -> &Cdf,
    /// Returns the SLO bound on the latency in seconds; `None` without a bound.
    pub bound: fn(&Slo) -> Option<f64>,
}

/// The most points of a line of a latency's distribution, except its last point.
const POINTS: usize = 256;

/// A policy's line: points of (latency in the figure's unit, share of requests at or below this latency).
type Line<'v> = (Ink<'v>, Vec<(f64, f64)>);

/// Draws the cumulative distribution of a latency, one line per policy; `None` if no request finished.
pub fn draw(view: &View, latency: &Latency) -> Option<String> {
    let panels: Vec<Vec<Line>> = view
        .combinations
        .iter()
        .map(|&c| {
            let line = |policy: &str| {
                let parts: Vec<&Cdf> = view.cells(policy, |s| s == c).into_iter().map(latency.of).collect();
                let points = thin(Cdf::mixture(&parts));
                points.into_iter().map(|(s, share)| (s * latency.unit.0, share)).collect()
            };
            view.inks().into_iter().map(|ink| (ink, line(ink.label))).collect()
        })
        .collect();
    let bounds: Vec<Option<Bound>> = view.combinations.iter().map(|&c| Bound::of(view, latency, c)).collect();
    // Each panel has its own axis. Latencies can differ a thousandfold between loads. On a shared axis the lines of a
    // light load would overlap.
    let bounds_at = |bound: &Option<Bound>| bound.as_ref().map(|b| b.at_s * latency.unit.0);
    // All axes are linear, unless the latencies of one panel differ so much that the lines of fast policies would
    // overlap.
    let log = panels.iter().any(|lines| differ_much(lines));
    let own: Vec<Option<Axis>> =
        panels.iter().zip(&bounds).map(|(lines, bound)| axis(lines, bounds_at(bound), log)).collect();
    let any = own.iter().flatten().next()?.clone();
    let alone = panels.len() == 1;
    let seeds = count(view.seeds.len(), "seed") + if view.seeds.len() == 1 { "" } else { " pooled" };
    let title = |(c, bound): (&&[Swept], &Option<Bound>)| {
        (joined([words(*c), bound.as_ref().map_or_else(String::new, Bound::says)]), None)
    };
    let page = Page {
        title: view.title(latency.title),
        source: view.source(&[&seeds, latency.whose, "no interval"]) + &legend(&bounds),
        x_name: format!(
            "{} ({}{}{})",
            latency.axis,
            latency.unit.1,
            if any.is_log() { ", logarithmic" } else { "" },
            if alone || view.sheet != Sheet::Screen { "" } else { ", each panel on its own scale" }
        ),
        y_name: "requests at or below (%)".to_owned(),
        own_x: own.into_iter().map(|own| own.unwrap_or_else(|| any.clone())).collect(),
        x: any,
        y: Axis::linear(0.0, 100.0, 5),
        legend: view.legend(|_| true),
        panels: view.combinations.iter().zip(&bounds).map(title).collect(),
        panel_height: [380.0, 260.0, 190.0][columns(view.combinations.len()) - 1],
        right: 0.0,
        sheet: view.sheet,
    };
    Some(page.svg(|c, panel, i| {
        if let Some(bound) = &bounds[i] {
            bound.draw(c, panel, latency.unit.0);
        }
        let n = panels[i].len() as f64;
        for (p, (ink, line)) in panels[i].iter().enumerate() {
            let look = ink.look;
            let path: Vec<_> = line.iter().map(|&(x, y)| panel.at(panel.x.clamp(x), y * 100.0)).collect();
            // Three markers per line, at different heights for each policy, so that they do not overlap.
            let heights = (0..3).map(|turn| (f64::from(turn) + (p as f64 + 0.5) / n) / 3.0);
            let marked = heights.filter_map(|height| Some(path[line.iter().position(|&(_, y)| y >= height)?]));
            let marked: Vec<_> = marked.collect();
            c.policy(ink, || {
                c.line(&path, look.colour, 1.8, look.dash);
                c.markers(&marked, look, MARKER);
            });
        }
    }))
}

/// The SLO bound that a panel shows.
struct Bound {
    /// The SLO bound on the panel's latency in seconds, mean over seeds.
    at_s: f64,
    /// The autoregressive policy from whose P90 the SLO bound was taken. 90 % of this policy's requests are at or below
    /// the bound by definition. `None` if the bound was not taken from a policy's P90.
    defined_by: Option<String>,
}

impl Bound {
    fn of(view: &View, latency: &Latency, combination: &[Swept]) -> Option<Bound> {
        let cells = view.all(|s| s == combination);
        let values: Vec<f64> = cells.iter().filter_map(|c| (latency.bound)(&c.summary.slo)).collect();
        let defined_by = cells.iter().find(|c| c.attains_by_definition()).map(|c| c.key().policy.clone());
        Some(Bound { at_s: Interval::of(&values)?.mean, defined_by })
    }

    /// The SLO bound in ms as text for the panel's title. A star follows if the bound was taken from the P90 of an
    /// autoregressive policy (`defined_by`).
    fn says(&self) -> String {
        let star = if self.defined_by.is_some() { " *" } else { "" };
        format!("SLO ≤ {} ms{star}", fixed(self.at_s * 1e3, 2))
    }

    fn draw(&self, c: &Canvas, panel: &Panel, unit: f64) {
        c.line(&[0.0, 100.0].map(|y| panel.at(self.at_s * unit, y)), RULE, 1.5, Dash::Dashed);
    }
}

/// Text for the source line (the line below the figure) that explains the dashed line of an SLO bound. It also explains
/// the star in panel titles, which marks a bound that was taken from a policy's P90. Empty if no panel has a bound.
fn legend(bounds: &[Option<Bound>]) -> String {
    let line = bounds.iter().flatten().next().map(|_| " · dashed: the SLO".to_owned());
    let star = bounds.iter().flatten().find_map(|b| b.defined_by.as_ref());
    let star = star.map(|policy| format!(" · *: 90 % of {policy} by definition"));
    line.into_iter().chain(star).collect()
}

/// An axis over all latencies of a panel and their SLO bound, in the figure's unit; `None` without latencies.
fn axis(lines: &[Line], bound: Option<f64>, log: bool) -> Option<Axis> {
    let latencies = || lines.iter().flat_map(|line| line.1.iter().map(|p| p.0)).filter(|&v| v > 0.0);
    latencies().next()?;
    let values = || latencies().chain(bound);
    let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    Some(if log { Axis::log(low, high) } else { Axis::exact(0.0, high, 5) })
}

/// Is the 99th percentile of the slowest line more than [`MUCH`] (12) times the first percentile of the fastest line?
fn differ_much(lines: &[Line]) -> bool {
    let at = |share: f64| {
        let value = move |line: &Line| line.1.iter().find(|p| p.1 >= share).map(|p| p.0).filter(|&v| v > 0.0);
        lines.iter().filter_map(value).collect::<Vec<f64>>()
    };
    let (fast, slow) = (at(0.01).into_iter().reduce(f64::min), at(0.99).into_iter().reduce(f64::max));
    fast.zip(slow).is_some_and(|(fast, slow)| slow > MUCH * fast)
}

const MUCH: f64 = 12.0;

/// Keeps every n-th point of a line, about [`POINTS`] points, and always the first and the last point.
fn thin(line: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let (every, last) = (line.len().div_ceil(POINTS).max(1), line.len().saturating_sub(1));
    line.into_iter().enumerate().filter(|(i, _)| i % every == 0 || *i == last).map(|(_, p)| p).collect()
}
