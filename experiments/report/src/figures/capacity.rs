//! How much load policies carry, and how their bounds are kept as it grows.

use super::axis::Axis;
use super::canvas::Anchor;
use super::page::Page;
use super::style::{INK, RULE, TEXT};
use super::{Figure, Kind};
use crate::number::fixed;
use crate::{Dash, Look};
use foretoken_sim::metrics::Interval;

/// A policy at its swept values.
#[derive(Clone, Debug, PartialEq)]
pub struct Carried {
    /// The policy's label.
    pub policy: String,
    /// The swept values in words; empty for none.
    pub at: String,
    /// Its look.
    pub look: Look,
    /// Requests a second; `None` where there is no such rate.
    pub req_s: Option<Interval>,
    /// Rates that were tried on the first seed, ascending, with the share of ended requests that kept their bounds, and whether the run was ended early:
    /// then the share is of those that had ended.
    pub tried: Vec<(f64, f64, bool)>,
}

const ROW: f64 = 24.0;

/// `capacity.svg` and `attainment-over-rate.svg`; none without rates. `share` must keep its bounds.
pub fn capacity_figures(all: &[Carried], share: f64, source: &str) -> Vec<Figure> {
    [by_policy(all, source), over_rate(all, share, source)].into_iter().flatten().collect()
}

/// The panels: swept values in words, each once, in order.
fn panels(all: &[Carried]) -> Vec<&str> {
    let mut seen: Vec<&str> = Vec::new();
    for c in all {
        if !seen.contains(&c.at.as_str()) {
            seen.push(&c.at);
        }
    }
    seen
}

fn policies(all: &[Carried]) -> Vec<(&str, Look)> {
    let mut seen: Vec<(&str, Look)> = Vec::new();
    for c in all {
        if !seen.iter().any(|s| s.0 == c.policy) {
            seen.push((&c.policy, c.look));
        }
    }
    seen
}

fn by_policy(all: &[Carried], source: &str) -> Option<Figure> {
    let high = |i: &Interval| i.mean + i.half_width.unwrap_or(0.0);
    let most = all.iter().filter_map(|c| c.req_s.as_ref().map(high)).reduce(f64::max)?;
    let (rows, panels) = (policies(all), panels(all));
    let labels: Vec<&str> = rows.iter().map(|r| r.0).collect();
    let page = Page {
        title: "Capacity".to_owned(),
        source: source.to_owned(),
        x_name: "requests a second within the bounds".to_owned(),
        y_name: String::new(),
        x: Axis::linear(0.0, most, if panels.len() == 1 { 8 } else { 4 }),
        y: Axis::rows(&labels),
        legend: Vec::new(),
        panels: panels.iter().map(|p| ((*p).to_owned(), None)).collect(),
        own_x: Vec::new(),
        panel_height: ROW * labels.len() as f64 + 8.0,
        right: if panels.len() == 1 { 130.0 } else { 60.0 },
    };
    let svg = page.svg(|c, panel, at| {
        for (row, (policy, look)) in rows.iter().enumerate() {
            let y = row as f64;
            let of = all.iter().find(|c| c.policy == *policy && c.at == panels[at]);
            let interval = of.and_then(|c| c.req_s);
            let text_at = (panel.to.0 + 8.0, panel.at(0.0, y).1);
            let Some(i) = interval else {
                c.text("none", text_at, Anchor::Start, TEXT, INK);
                continue;
            };
            if let Some(half) = i.half_width {
                let ends = [i.mean - half, i.mean + half].map(|x| panel.at(page.x.clamp(x), y));
                c.line(&ends, look.colour, 2.0, Dash::Solid);
            }
            c.marker(panel.at(i.mean, y), *look);
            let half = i.half_width.map_or(String::new(), |h| format!(" ± {}", fixed(h, 2)));
            c.text(&format!("{}{half}", fixed(i.mean, 2)), text_at, Anchor::Start, TEXT, INK);
        }
    });
    Some(Figure { kind: Kind::Capacity, file: "capacity.svg".to_owned(), svg })
}

fn over_rate(all: &[Carried], share: f64, source: &str) -> Option<Figure> {
    let tried = || all.iter().flat_map(|c| &c.tried);
    let (low, high) = (tried().map(|t| t.0).reduce(f64::min)?, tried().map(|t| t.0).reduce(f64::max)?);
    let panels = panels(all);
    let page = Page {
        title: "Requests within their bounds as the rate grows".to_owned(),
        source: format!("{source}; first seed; of a run that was ended early, of the requests that had ended"),
        x_name: "requests a second (logarithmic)".to_owned(),
        y_name: "requests within their bounds (%)".to_owned(),
        x: Axis::log(low, high),
        y: Axis::linear(0.0, 100.0, 5),
        legend: policies(all).into_iter().map(|(label, look)| (label.to_owned(), look)).collect(),
        panels: panels.iter().map(|p| ((*p).to_owned(), None)).collect(),
        own_x: Vec::new(),
        panel_height: 280.0,
        right: 0.0,
    };
    let svg = page.svg(|c, panel, at| {
        let ends = [page.x.start(), page.x.end()];
        c.line(&ends.map(|x| panel.at(x, 100.0 * share)), RULE, 1.2, Dash::Dashed);
        for of in all.iter().filter(|c| c.at == panels[at]) {
            let path: Vec<_> = of.tried.iter().map(|&(rate, kept, _)| panel.at(rate, 100.0 * kept)).collect();
            c.line(&path, of.look.colour, 1.6, of.look.dash);
            path.iter().for_each(|&point| c.marker(point, of.look));
        }
    });
    Some(Figure { kind: Kind::Capacity, file: "attainment-over-rate.svg".to_owned(), svg })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Marker;

    #[test]
    fn policies_are_rows_and_lines_and_none_is_said() {
        let look = Look { colour: (1, 2, 3), dash: Dash::Solid, marker: Marker::Circle };
        let carried = |policy: &str, req_s: Option<f64>| Carried {
            policy: policy.into(),
            at: String::new(),
            look,
            req_s: req_s.and_then(|r| Interval::of(&[r, r * 1.1])),
            tried: vec![(1.0, 1.0, false), (4.0, 0.6, true)],
        };
        let all = [carried("autoregressive", Some(3.0)), carried("fixed-3", None)];
        let figures = capacity_figures(&all, 0.99, "simulated; 2 seeds");
        assert_eq!(
            figures.iter().map(|f| f.file.as_str()).collect::<Vec<_>>(),
            ["capacity.svg", "attainment-over-rate.svg"]
        );
        for text in ["autoregressive", "fixed-3", "none", "simulated; 2 seeds", "3.15"] {
            assert!(figures[0].svg.contains(text), "{text}");
        }
        assert!(capacity_figures(&[], 0.99, "").is_empty());
    }
}
