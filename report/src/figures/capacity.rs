//! Figures of a capacity search: the highest request rate that a server carries with each policy (enough requests keep
//! their SLO bounds and the queue does not grow), and the share of requests that keep their bounds at each rate.

use super::axis::Axis;
use super::canvas::{Anchor, Ink};
use super::page::Page;
use super::sheet::{Named, Sheet};
use super::style::{INK, MARKER, RULE, TEXT, text_width};
use super::{Figure, Kind};
use crate::{Dash, Look};
use foretoken_sim::metrics::Interval;

/// The capacity (the highest request rate within the SLO bounds) of one policy at one combination of swept values.
#[derive(Clone, Debug, PartialEq)]
pub struct Carried {
    pub policy: String,
    /// The swept values of the search for the highest request rate, as text; empty if nothing is swept.
    pub at: String,
    /// The swept value; `None` unless exactly one setting is swept and its value is a number.
    pub value: Option<f64>,
    /// The policy's colour, dash and marker.
    pub look: Look,
    /// The capacity (the highest request rate within the SLO bounds), requests per second: mean and interval over
    /// seeds. `None` if there is no capacity. Then `words` says why.
    pub req_s: Option<Interval>,
    /// The capacity as text, or the reason why there is none.
    pub words: String,
    /// The rates that were tried with the first seed, ascending, without rates whose runs were stopped early.
    pub tried: Vec<TriedRate>,
}

/// A request rate that the capacity search tried, with the results of the run at this rate. The search keeps no results
/// of runs that it stopped early.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TriedRate {
    /// The tried rate, requests a second.
    pub rate: f64,
    /// Share (0 to 1) of the counted requests that kept their SLO bounds. Requests at the start of a run, which fill
    /// the server, and at its end, which keep it full, are not counted.
    pub share: f64,
    /// Did the server keep up with the arrivals at this rate?
    pub steady: bool,
}

/// Texts and numbers of the capacity figures that do not belong to one policy.
#[derive(Clone, Copy, Debug)]
pub struct CapacityWords<'a> {
    /// Share of requests (0 to 1) that must keep their SLO bounds for a server to carry a rate.
    pub share: f64,
    /// Where the numbers come from, and the SLO bounds of the search.
    pub source: &'a str,
    /// A text on the seeds over which the intervals are computed.
    pub seeds: &'a str,
    /// A text on the seed whose runs `attainment-over-rate.svg` shows.
    pub first_seed: &'a str,
    /// The name of the swept setting, with its unit.
    pub swept: &'a str,
}

/// Draws one of the figures; `None` if there is nothing to draw.
type Draw = fn(&[Carried], CapacityWords<'_>, Sheet) -> Option<String>;

const ROW: f64 = 24.0;
/// Two factors for the axis of request rates. The axis starts at the first factor times the least capacity (highest
/// rate of a policy) in the panel. It ends at the second factor times the greatest capacity.
const SHOWN: [f64; 2] = [0.5, 1.6];

/// Draws `capacity.svg`, `attainment-over-rate.svg` and, if one setting is swept over numbers, `capacity-over.svg`.
/// Draws nothing if no policy has a capacity, the highest request rate within the SLO bounds.
pub fn capacity_figures(all: &[Carried], words: CapacityWords<'_>) -> Vec<Figure> {
    let figures: [(&str, Draw); 3] =
        [("capacity.svg", by_policy), ("capacity-over.svg", over_swept), ("attainment-over-rate.svg", over_rate)];
    let both = |(file, draw): (&str, Draw)| Figure::on_both(Kind::Capacity, file, |sheet| draw(all, words, sheet));
    figures.into_iter().filter_map(both).collect()
}

/// The texts of the swept values, one per panel, in the order of `all`.
fn panels(all: &[Carried]) -> Vec<&str> {
    let mut seen: Vec<&str> = Vec::new();
    for c in all {
        if !seen.contains(&c.at.as_str()) {
            seen.push(&c.at);
        }
    }
    seen
}

/// The policies with their colours, dashes and markers. The policy with the highest sum of capacities over swept values
/// is first.
fn policies(all: &[Carried]) -> Vec<(&str, Look)> {
    let mut seen: Vec<(&str, Look, f64)> = Vec::new();
    for c in all {
        let rate = c.req_s.map_or(0.0, |i| i.mean);
        match seen.iter_mut().find(|s| s.0 == c.policy) {
            Some((_, _, sum)) => *sum += rate,
            None => seen.push((&c.policy, c.look, rate)),
        }
    }
    seen.sort_by(|a, b| b.2.total_cmp(&a.2));
    seen.into_iter().map(|(policy, look, _)| (policy, look)).collect()
}

/// A policy as the capacity figures draw it: its label, and its own colour, dash and marker.
fn ink(label: &str, look: Look) -> Ink<'_> {
    Ink { label, look, own: look.colour }
}

/// The upper end of a capacity's interval over seeds, requests per second.
fn high(i: &Interval) -> f64 {
    i.high.unwrap_or(i.mean)
}

fn by_policy(all: &[Carried], words: CapacityWords<'_>, sheet: Sheet) -> Option<String> {
    let most = all.iter().filter_map(|c| c.req_s.as_ref().map(high)).reduce(f64::max)?;
    let (rows, panels) = (policies(all), panels(all));
    let labels: Vec<&str> = rows.iter().map(|r| r.0).collect();
    // A row without a rate has its reason where its dot would be.
    let rates = all.iter().filter(|c| c.req_s.is_some());
    let widest = rates.map(|c| text_width(&c.words, TEXT)).fold(0.0, f64::max);
    let wide = panels.len() == 1 && sheet == Sheet::Screen;
    let page = Page {
        title: "The highest rate of each policy".to_owned(),
        source: format!("{}; {}", words.source, words.seeds),
        x_name: "requests a second within the bounds".to_owned(),
        y_name: String::new(),
        x: Axis::linear(0.0, most, if wide { 8 } else { 3 }),
        y: Axis::rows(&labels),
        legend: Vec::new(),
        panels: panels.iter().map(|p| ((*p).to_owned(), None)).collect(),
        own_x: Vec::new(),
        panel_height: ROW * labels.len() as f64 + 8.0,
        right: widest + 16.0,
        sheet,
    };
    Some(page.svg(|c, panel, at| {
        for (row, (policy, look)) in rows.iter().enumerate() {
            let y = row as f64;
            let Some(of) = all.iter().find(|c| c.policy == *policy && c.at == panels[at]) else { continue };
            c.policy(&ink(policy, *look), || {
                let right = if of.req_s.is_some() { panel.to.0 } else { panel.from.0 };
                c.text(&of.words, (right + 8.0, panel.at(0.0, y).1), Anchor::Start, TEXT, INK);
                let Some(i) = of.req_s else { return };
                if let Some((low, high)) = i.ends() {
                    let ends = [low, high].map(|x| panel.at(page.x.clamp(x), y));
                    c.line(&ends, look.colour, 2.0, Dash::Solid);
                }
                c.marker(panel.at(i.mean, y), *look);
            });
        }
    }))
}

/// Draws the capacity (the highest request rate within the SLO bounds) over a swept number, one line per policy; `None`
/// if no setting is swept over at least two numbers.
fn over_swept(all: &[Carried], words: CapacityWords<'_>, sheet: Sheet) -> Option<String> {
    let mut values: Vec<f64> = all.iter().map(|c| c.value).collect::<Option<_>>()?;
    values.sort_by(f64::total_cmp);
    values.dedup();
    let most = all.iter().filter_map(|c| c.req_s.as_ref().map(high)).reduce(f64::max)?;
    if values.len() < 2 {
        return None;
    }
    let ticks: Vec<(f64, String)> = values.iter().map(|v| (*v, v.to_string())).collect();
    let page = Page {
        title: format!("Capacity by {}", words.swept),
        source: format!("{}; {}", words.source, words.seeds),
        x_name: words.swept.to_owned(),
        y_name: "requests a second within the bounds".to_owned(),
        x: Axis::swept(&ticks),
        y: Axis::linear(0.0, most, 6),
        legend: policies(all).into_iter().map(|(label, look)| Named::policy(label, look)).collect(),
        panels: vec![(String::new(), None)],
        own_x: Vec::new(),
        panel_height: 320.0,
        right: 0.0,
        sheet,
    };
    Some(page.svg(|c, panel, _| {
        for (policy, look) in policies(all) {
            let of = all.iter().filter(|c| c.policy == policy);
            let mut points: Vec<(f64, Interval)> = of.filter_map(|c| Some((c.value?, c.req_s?))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let path: Vec<_> = points.iter().map(|(x, i)| panel.at(*x, i.mean)).collect();
            c.policy(&ink(policy, look), || {
                c.line(&path, look.colour, 1.6, look.dash);
                for (x, i) in &points {
                    let (low, high) = i.ends().unwrap_or((i.mean, i.mean));
                    let ends = [low, high].map(|y| panel.at(*x, page.y.clamp(y)));
                    c.line(&ends, look.colour, 1.0, Dash::Solid);
                }
                c.markers(&path, look, MARKER);
            });
        }
    }))
}

/// The least and the greatest rate on the axis of the panel with the swept values `at`; `None` if no policy has a
/// capacity at these values.
fn rates_of(all: &[Carried], at: &str) -> Option<[f64; 2]> {
    let rates = || all.iter().filter(|c| c.at == at).filter_map(|c| Some(c.req_s?.mean));
    Some([SHOWN[0] * rates().reduce(f64::min)?, SHOWN[1] * rates().reduce(f64::max)?])
}

fn over_rate(all: &[Carried], words: CapacityWords<'_>, sheet: Sheet) -> Option<String> {
    let shown: Vec<(&str, [f64; 2])> =
        panels(all).into_iter().filter_map(|at| Some((at, rates_of(all, at)?))).collect();
    let (_, first) = shown.first()?;
    let ticks = if shown.len() == 1 && sheet == Sheet::Screen { 8 } else { 4 };
    let page = Page {
        title: "Requests within their bounds as the rate grows".to_owned(),
        source: format!("{}; {}; grey: the server does not keep up", words.source, words.first_seed),
        x_name: "requests a second".to_owned(),
        y_name: "requests within their bounds (%)".to_owned(),
        x: Axis::exact(first[0], first[1], ticks),
        y: Axis::linear(0.0, 100.0, 5),
        legend: policies(all).into_iter().map(|(label, look)| Named::policy(label, look)).collect(),
        panels: shown.iter().map(|(at, _)| ((*at).to_owned(), None)).collect(),
        own_x: shown.iter().map(|(_, [low, high])| Axis::exact(*low, *high, ticks)).collect(),
        panel_height: 280.0,
        right: 0.0,
        sheet,
    };
    Some(page.svg(|c, panel, at| {
        let ends = [panel.x.start(), panel.x.end()];
        c.line(&ends.map(|x| panel.at(x, 100.0 * words.share)), RULE, 1.2, Dash::Dashed);
        for of in all.iter().filter(|c| c.at == shown[at].0) {
            let inside: Vec<&TriedRate> = of.tried.iter().filter(|t| (ends[0]..=ends[1]).contains(&t.rate)).collect();
            let path: Vec<_> = inside.iter().map(|t| panel.at(t.rate, 100.0 * t.share)).collect();
            c.policy(&ink(&of.policy, of.look), || {
                c.line(&path, of.look.colour, 1.6, of.look.dash);
                for (tried, point) in inside.iter().zip(path) {
                    let colour = if tried.steady { of.look.colour } else { RULE };
                    c.marker(point, Look { colour, ..of.look });
                }
            });
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::texts;
    use super::*;
    use crate::Marker;

    const WORDS: CapacityWords<'_> = CapacityWords {
        share: 0.99,
        source: "simulated; 99 % of requests keep TTFT within 500 ms",
        seeds: "mean and 95 % interval over 2 seeds",
        first_seed: "seed 1 of 2 alone, whole runs",
        swept: "TPOT bound",
    };

    fn carried(policy: &str, at: &str, req_s: Option<f64>) -> Carried {
        let rate = req_s.unwrap_or(1.0);
        let tried = |by: f64, share: f64| TriedRate { rate: by * rate, share, steady: by < 1.2 };
        Carried {
            policy: policy.into(),
            at: at.into(),
            value: at.rsplit(' ').next().and_then(|v| v.parse().ok()),
            look: Look { colour: (1, 2, 3), dash: Dash::Solid, marker: Marker::Circle },
            req_s: req_s.and_then(|r| Interval::of(&[r, r * 1.1])),
            words: req_s.map_or("no rate on 1 of 2 seeds".into(), |r| format!("{r:.1} ± 2.1")),
            tried: vec![tried(0.01, 1.0), tried(0.7, 1.0), tried(1.0, 0.995), tried(1.1, 0.8), tried(1.5, 0.2)],
        }
    }

    #[test]
    fn policies_are_rows_and_lines_and_no_rate_is_said() {
        let all =
            [carried("autoregressive", "", Some(3.0)), carried("fixed-3", "", None), carried("best", "", Some(4.0))];
        let figures = capacity_figures(&all, WORDS);
        let names: Vec<&str> = figures.iter().map(|f| f.file.as_str()).collect();
        assert_eq!(names, ["capacity.svg", "attainment-over-rate.svg"]);
        for text in ["autoregressive", "fixed-3", "no rate on 1 of 2 seeds", "over 2 seeds", "3.0 ± 2.1"] {
            assert!(figures[0].svg.contains(text), "{text}");
        }
        assert!(figures[1].svg.contains("seed 1 of 2 alone, whole runs"));
        let position = |text: &str| figures[0].svg.find(text).unwrap();
        assert!(position(">best<") < position(">autoregressive<"), "what carries most is first");
        assert!(capacity_figures(&[], WORDS).is_empty());
    }

    /// No label is cut at the figure's edge, and no caption is shortened, in grids of one to six panels.
    #[test]
    fn nothing_is_cut_in_any_grid() {
        for n in [1, 2, 4, 6] {
            let at = |i: usize| if n == 1 { String::new() } else { format!("TPOT bound × {i}") };
            let all: Vec<Carried> = (0..n)
                .flat_map(|i| {
                    ["autoregressive", "fixed-3"]
                        .map(|p| carried(p, &at(i), (i != 1 || p != "fixed-3").then_some(11.03)))
                })
                .collect();
            for figure in capacity_figures(&all, WORDS) {
                let narrow = figure.narrow.unwrap();
                for (svg, sheet) in [(&figure.svg, Sheet::Screen), (&narrow, Sheet::Phone)] {
                    for placed in texts(svg) {
                        let (text, right) = (placed.text, placed.to.0);
                        assert!(!text.ends_with('…'), "{n} panels, {}: {text}", figure.file);
                        assert!(right <= sheet.width(), "{n} panels, {}: {text} ends at {right}", figure.file);
                    }
                }
            }
        }
    }

    #[test]
    fn rates_are_shown_from_half_of_what_is_carried() {
        let all = [carried("autoregressive", "", Some(20.0))];
        let figure = capacity_figures(&all, WORDS).pop().unwrap();
        let ticks: Vec<String> = texts(&figure.svg).into_iter().map(|t| t.text).collect();
        assert!(ticks.contains(&"15".to_owned()) && !ticks.contains(&"5".to_owned()), "{ticks:?}");
        assert_eq!(rates_of(&all, ""), Some([10.5, 33.6]));
    }

    #[test]
    fn a_swept_number_is_an_axis() {
        let all: Vec<Carried> = ["0.8", "1.0", "2.0"]
            .iter()
            .flat_map(|v| {
                [
                    carried("autoregressive", &format!("x = {v}"), Some(3.0)),
                    carried("fixed-3", &format!("x = {v}"), None),
                ]
            })
            .collect();
        let figures = capacity_figures(&all, WORDS);
        assert!(figures.iter().any(|f| f.file == "capacity-over.svg" && f.svg.contains("Capacity by TPOT bound")));
    }
}
