//! Draws the cumulative distribution of a latency: one line per policy, one panel per combination of swept values, all
//! seeds pooled.

use super::axis::Axis;
use super::canvas::Canvas;
use super::page::{Page, Panel, columns};
use super::style::RULE;
use super::view::{View, count, joined, words};
use crate::number::fixed;
use crate::{Cdf, Cell, Dash, Look, Swept};
use foretoken_sim::metrics::{Interval, Slo};

/// A kind of latency, such as TTFT: its names, how to read its distribution from a cell, and its SLO bound.
pub struct Latency {
    /// The latency's name in a figure's title.
    pub title: &'static str,
    /// The latency's name on an axis.
    pub axis: &'static str,
    /// A text on which requests have this latency, for the source line.
    pub whose: &'static str,
    /// Returns the latency's distribution in a cell.
    pub of: fn(&Cell) -> &Cdf,
    /// Returns the bound on the latency in seconds; `None` without a bound.
    pub bound: fn(&Slo) -> Option<f64>,
}

/// The most points of a line, except its last point.
const POINTS: usize = 256;

/// A policy's line: its look, and points of (latency in seconds, share of requests at or below it).
type Line = (Look, Vec<(f64, f64)>);

/// Draws the figure; `None` if no request finished.
pub fn draw(view: &View, latency: &Latency) -> Option<String> {
    let panels: Vec<Vec<Line>> = view
        .combinations
        .iter()
        .map(|&c| {
            let line = |policy: &str| {
                let parts: Vec<&Cdf> = view.cells(policy, |s| s == c).into_iter().map(latency.of).collect();
                thin(Cdf::mixture(&parts))
            };
            view.policies.iter().map(|&(label, look)| (look, line(label))).collect()
        })
        .collect();
    let bounds: Vec<Option<Bound>> = view.combinations.iter().map(|&c| Bound::of(view, latency, c)).collect();
    // Each panel has an axis of its own. Latencies differ a thousandfold between loads; on a shared axis, all lines of
    // a light load would lie on top of each other.
    let own: Vec<Option<Axis>> = panels.iter().zip(&bounds).map(|(lines, bound)| axis(lines, bound.as_ref())).collect();
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
            "{} (s, logarithmic{})",
            latency.axis,
            if alone { "" } else { ", each panel on its own scale" }
        ),
        y_name: "requests at or below (%)".to_owned(),
        own_x: own.into_iter().map(|own| own.unwrap_or_else(|| any.clone())).collect(),
        x: any,
        y: Axis::linear(0.0, 100.0, 5),
        legend: view.legend(),
        panels: view.combinations.iter().zip(&bounds).map(title).collect(),
        panel_height: [380.0, 260.0, 190.0][columns(view.combinations.len()) - 1],
        right: 0.0,
    };
    Some(page.svg(|c, panel, i| {
        if let Some(bound) = &bounds[i] {
            bound.draw(c, panel);
        }
        let n = panels[i].len() as f64;
        for (p, (look, line)) in panels[i].iter().enumerate() {
            let path: Vec<_> = line.iter().map(|&(x, y)| panel.at(panel.x.clamp(x), y * 100.0)).collect();
            c.line(&path, look.colour, 1.8, look.dash);
            // Each line has three markers. Their heights differ between policies, so that they do not overlap.
            for turn in 0..3 {
                let height = (f64::from(turn) + (p as f64 + 0.5) / n) / 3.0;
                if let Some(at) = line.iter().position(|&(_, y)| y >= height) {
                    c.marker(path[at], *look);
                }
            }
        }
    }))
}

/// The SLO bound that a panel shows.
struct Bound {
    /// The bound in seconds, mean over seeds.
    at_s: f64,
    /// The autoregressive policy from whose P90 the bound was taken, so that 90 % of its requests are at or below the
    /// bound by definition. `None` if there is no such policy.
    defined_by: Option<String>,
}

impl Bound {
    fn of(view: &View, latency: &Latency, combination: &[Swept]) -> Option<Bound> {
        let cells = view.all(|s| s == combination);
        let values: Vec<f64> = cells.iter().filter_map(|c| (latency.bound)(&c.summary.slo)).collect();
        let defined_by = cells.iter().find(|c| c.attains_by_definition()).map(|c| c.key().policy.clone());
        Some(Bound { at_s: Interval::of(&values)?.mean, defined_by })
    }

    /// The bound in ms as text for the panel's title, with a star if `defined_by` names a policy.
    fn says(&self) -> String {
        let star = if self.defined_by.is_some() { " *" } else { "" };
        format!("SLO ≤ {} ms{star}", fixed(self.at_s * 1e3, 2))
    }

    fn draw(&self, c: &Canvas, panel: &Panel) {
        c.line(&[panel.at(self.at_s, 0.0), panel.at(self.at_s, 100.0)], RULE, 1.5, Dash::Dashed);
    }
}

/// Text for the source line that explains the dashed line and the star; empty if no panel has a bound.
fn legend(bounds: &[Option<Bound>]) -> String {
    let line = bounds.iter().flatten().next().map(|_| " · dashed: the SLO".to_owned());
    let star = bounds.iter().flatten().find_map(|b| b.defined_by.as_ref());
    let star = star.map(|policy| format!(" · *: 90 % of {policy} by definition"));
    line.into_iter().chain(star).collect()
}

/// A logarithmic axis over all latencies of a panel and the bound; `None` if there are no latencies above 0.
fn axis(lines: &[Line], bound: Option<&Bound>) -> Option<Axis> {
    let latencies = || lines.iter().flat_map(|line| line.1.iter().map(|p| p.0)).filter(|&v| v > 0.0);
    latencies().next()?;
    let values = || latencies().chain(bound.map(|b| b.at_s));
    Some(Axis::log(values().reduce(f64::min)?, values().reduce(f64::max)?))
}

/// Keeps every n-th point of a line, about [`POINTS`] points in all. Always keeps the first and the last point.
fn thin(line: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let (every, last) = (line.len().div_ceil(POINTS).max(1), line.len().saturating_sub(1));
    line.into_iter().enumerate().filter(|(i, _)| i % every == 0 || *i == last).map(|(_, p)| p).collect()
}
