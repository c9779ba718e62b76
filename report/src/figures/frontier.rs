//! Draws the price of a fleet per hour against a latency: one line per policy, one point for each number of replicas.

use super::axis::Axis;
use super::page::Page;
use super::sheet::{Named, Sheet};
use super::style::RULE;
use super::{Figure, Kind};
use crate::{Dash, Look};

/// The points of one policy in the figure of price against latency, one for each number of replicas.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontierLine {
    pub policy: String,
    /// The swept values of the search for the fewest replicas, as text; empty if nothing is swept.
    pub at: String,
    /// The policy's colour, dash and marker.
    pub look: Look,
    /// One point for each number of replicas whose run was not stopped early.
    pub points: Vec<FrontierPoint>,
}

/// The price and the latency of a fleet with one number of replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrontierPoint {
    /// Price of the fleet for an hour, in the currency of `fleet.price_gpu_hour`.
    pub cost_hour: f64,
    /// P99 over requests of the latency that the figure shows, seconds.
    pub p99_s: f64,
    /// Did the fleet carry the load? A fleet carries the load if enough requests keep their SLO bounds and the fleet
    /// keeps up with the arrivals.
    pub carried: bool,
}

/// Texts and numbers of the figure of price against latency that do not belong to one policy.
#[derive(Clone, Copy, Debug)]
pub struct FrontierWords<'a> {
    /// Name of the latency that is drawn, such as TTFT.
    pub latency: &'a str,
    /// The SLO bound on this latency, seconds; `None` if the latency has no bound.
    pub bound_s: Option<f64>,
    /// Where the numbers come from, and the SLO bounds of the search.
    pub source: &'a str,
}

/// If the latency has a bound, the figure shows latencies up to this multiple of the bound, and draws higher latencies
/// at the upper edge. A higher latency says little: the fleet's queue grows, so the latency depends on the run's
/// length.
const SHOWN: f64 = 3.0;

/// Draws `frontier.svg`, the price of a fleet per hour against a latency; `None` if every run was stopped early.
pub fn frontier_figure(lines: &[FrontierLine], words: &FrontierWords<'_>) -> Option<Figure> {
    Figure::on_both(Kind::Capacity, "frontier.svg", |sheet| draw(lines, words, sheet))
}

fn draw(lines: &[FrontierLine], words: &FrontierWords<'_>, sheet: Sheet) -> Option<String> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let slowest = all().map(|p| p.p99_s).reduce(f64::max)?;
    let highest = words.bound_s.map_or(slowest, |bound| slowest.min(SHOWN * bound).max(1.1 * bound));
    let dearest = all().map(|p| p.cost_hour).reduce(f64::max)?;
    let mut panels: Vec<&str> = lines.iter().map(|line| line.at.as_str()).collect();
    panels.dedup();
    let mut legend: Vec<Named> = Vec::new();
    for line in lines {
        if legend.iter().all(|named| named.label != line.policy) {
            legend.push(Named::policy(&line.policy, line.look));
        }
    }
    let page = Page {
        title: format!("What a fleet costs, and its {}", words.latency),
        source: format!("{}; grey: the load is not carried", words.source),
        x_name: "price of an hour".to_owned(),
        y_name: format!("p99 {} (ms)", words.latency),
        x: Axis::linear(0.0, dearest, if panels.len() == 1 && sheet == Sheet::Screen { 8 } else { 4 }),
        y: Axis::linear(0.0, 1e3 * highest, 6),
        legend,
        panels: panels.iter().map(|at| ((*at).to_owned(), None)).collect(),
        own_x: Vec::new(),
        panel_height: 280.0,
        right: 0.0,
        sheet,
    };
    Some(page.svg(|c, panel, at| {
        if let Some(bound) = words.bound_s {
            let ends = [panel.x.start(), panel.x.end()];
            c.line(&ends.map(|x| panel.at(x, 1e3 * bound)), RULE, 1.2, Dash::Dashed);
        }
        for line in lines.iter().filter(|line| line.at == panels[at]) {
            let point = |p: &FrontierPoint| panel.at(p.cost_hour, page.y.clamp(1e3 * p.p99_s));
            let path: Vec<_> = line.points.iter().map(point).collect();
            c.line(&path, line.look.colour, 1.6, line.look.dash);
            for (p, at) in line.points.iter().zip(path) {
                let colour = if p.carried { line.look.colour } else { RULE };
                c.marker(at, Look { colour, ..line.look });
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Marker;

    #[test]
    fn every_fleet_is_a_point_and_the_bound_a_line() {
        let look = Look { colour: (1, 2, 3), dash: Dash::Solid, marker: Marker::Circle };
        let point = |cost_hour, p99_s, carried| FrontierPoint { cost_hour, p99_s, carried };
        let line = |policy: &str, points: &[FrontierPoint]| FrontierLine {
            policy: policy.into(),
            at: String::new(),
            look,
            points: points.to_vec(),
        };
        let lines = [
            line("autoregressive", &[point(5.0, 9.0, false), point(7.5, 0.4, true)]),
            line("fixed-3", &[point(5.0, 0.45, true)]),
        ];
        let words = FrontierWords { latency: "TTFT", bound_s: Some(0.5), source: "simulated" };
        let figure = frontier_figure(&lines, &words).unwrap();
        for text in ["p99 TTFT (ms)", "autoregressive", "fixed-3", "price of an hour", "1500"] {
            assert!(figure.svg.contains(text), "{text}");
        }
        assert!(frontier_figure(&[], &words).is_none());
    }
}
