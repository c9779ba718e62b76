//! Draws throughput against time per token, one path per policy through the swept loads. The region in which the TPOT
//! bound is met is shaded. The best point is the highest point in this region.

use super::axis::Axis;
use super::canvas::{Anchor, Canvas, Ink};
use super::page::{Page, Panel, columns};
use super::style::{GREY, KEPT, MARKER, RULE, TEXT};
use super::view::{Scale, View, distinct, joined, words};
use crate::number::fixed;
use crate::{Cell, Dash, Swept};
use foretoken_sim::metrics::Interval;

/// The last keys of the paths of settings that set the load, such as `rate` in `workload.rate`.
const LOADS: [&str; 5] = ["rate-scale", "rate", "closed-loop", "busy_rate", "quiet_rate"];

/// A policy's path: points of (load as text, p99 TPOT in ms, throughput), sorted by load. The throughput is output
/// tokens per second, or per second and GPU.
struct Course<'v> {
    ink: Ink<'v>,
    points: Vec<(String, f64, f64)>,
}

/// Draws one figure for each load swept over at least two numbers. Returns (the setting's path, SVG) for each figure.
pub fn draw(view: &View) -> Vec<(String, String)> {
    let swept = view.combinations.first().map_or(&[][..], |c| *c);
    let is_load = |s: &&Swept| LOADS.contains(&s.path.rsplit('.').next().unwrap_or_default());
    let loads = swept.iter().enumerate().filter(|(_, s)| is_load(s));
    loads.filter_map(|(at, s)| Some((s.path.clone(), draw_load(view, at)?))).collect()
}

fn draw_load(view: &View, at: usize) -> Option<String> {
    let numbers: Option<Vec<f64>> = view.combinations.iter().map(|c| c[at].number).collect();
    let mut loads = distinct(numbers?, |a, b| a == b);
    loads.sort_by(f64::total_cmp);
    let cells = view.all(|_| true);
    let by_gpu = cells.iter().all(|c| c.entry.gpus.is_some());
    let others = distinct(view.combinations.iter().map(|c| others(c, at)), |a, b| a == b);
    let course = |ink: Ink<'_>, other: &[&Swept]| {
        let point = |load: f64| {
            let here = |s: &[Swept]| s[at].number == Some(load) && self::others(s, at) == other;
            let tpot = view.mean(ink.label, here, |c| Some(1e3 * c.summary.tpot?.p99), Scale::Amount)?;
            let throughput = view.mean(ink.label, here, |c| throughput(c, by_gpu), Scale::Amount)?;
            let label = view.combinations.iter().find(|c| here(c))?[at].shown();
            Some((label, tpot.mean, throughput.mean))
        };
        loads.iter().filter_map(|&load| point(load)).collect::<Vec<_>>()
    };
    let panels: Vec<Vec<Course>> = others
        .iter()
        .map(|other| view.inks().into_iter().map(|ink| Course { ink, points: course(ink, other) }).collect())
        .collect();
    let points = || panels.iter().flatten().flat_map(|course| &course.points);
    let bounds: Vec<Option<f64>> = others.iter().map(|other| bound(view, at, other)).collect();
    let most = points().map(|p| p.1).reduce(f64::max)?;
    if loads.len() < 2 {
        return None;
    }
    // In overload the time per output token depends on the length of the run, so the horizontal axis (time per output
    // token) ends at a multiple of the TPOT bound.
    let shown = bounds.iter().flatten().copied().reduce(f64::max).map_or(most, |bound| most.min(FAR * bound));
    let highest = points().filter(|p| p.1 <= shown).map(|p| p.2).reduce(f64::max)?;
    let swept = &view.combinations[0][at];
    let per = if by_gpu { "output tokens/s a GPU" } else { "output tokens/s" };
    let page = Page {
        title: view.title(&format!("Throughput against time per token, along the {}", swept.name)),
        source: source(view, swept, bounds.iter().any(Option::is_some)),
        x_name: "99th percentile of the time per output token (ms)".to_owned(),
        y_name: format!("throughput ({per})"),
        x: Axis::exact(0.0, shown * 1.03, [8, 5, 4][columns(others.len()) - 1]),
        y: Axis::linear(0.0, highest, 6),
        legend: view.legend(|policy| panels.iter().flatten().any(|c| c.ink.label == policy && !c.points.is_empty())),
        panels: others.iter().zip(&bounds).map(|(other, bound)| (title(other, *bound), None)).collect(),
        own_x: Vec::new(),
        panel_height: [380.0, 270.0, 200.0][columns(others.len()) - 1],
        right: 0.0,
        sheet: view.sheet,
    };
    Some(page.svg(|c, panel, i| {
        if let Some(bound) = bounds[i] {
            c.area(panel.at(0.0, page.y.end()), panel.at(bound, 0.0), KEPT);
            c.line(&[0.0, page.y.end()].map(|y| panel.at(bound, y)), RULE, 1.5, Dash::Dashed);
            c.frame(panel.from, panel.to, RULE);
        }
        for course in &panels[i] {
            c.policy(&course.ink, || draw_course(c, panel, course, page.y.end()));
        }
        label_loads(c, panel, &panels[i]);
    }))
}

/// In figures of throughput against time per output token, the axis of time per output token ends at this multiple of
/// the TPOT bound.
const FAR: f64 = 3.0;

fn others(sweep: &[Swept], at: usize) -> Vec<&Swept> {
    sweep.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, s)| s).collect()
}

/// Output tokens of finished requests per second. If `by_gpu`, divided by the number of GPUs; `None` if this number is
/// not known.
fn throughput(cell: &Cell, by_gpu: bool) -> Option<f64> {
    let gpus = if by_gpu { f64::from(cell.entry.gpus?) } else { 1.0 };
    Some(cell.summary.token_goodput_tok_s / gpus)
}

/// The TPOT bound in ms; `None` if it is not the same at every load.
fn bound(view: &View, at: usize, other: &[&Swept]) -> Option<f64> {
    let of = |combination: &&[Swept]| {
        let cells = view.all(|s| s == *combination);
        let values: Vec<f64> = cells.iter().filter_map(|c| c.summary.slo.tpot_s).collect();
        Interval::of(&values).map(|i| 1e3 * i.mean)
    };
    let bounds = view.combinations.iter().filter(|c| others(c, at) == other).map(of);
    let bounds: Vec<f64> = bounds.collect::<Option<_>>()?;
    let first = *bounds.first()?;
    bounds.iter().all(|b| (b / first - 1.0).abs() < 1e-9).then_some(first)
}

fn title(other: &[&Swept], bound: Option<f64>) -> String {
    let bound = bound.map_or_else(String::new, |b| format!("TPOT ≤ {} ms", fixed(b, 2)));
    joined([words(other.iter().copied()), bound])
}

fn source(view: &View, swept: &Swept, bounded: bool) -> String {
    let numbers = format!("numbers at the points: {}", swept.axis());
    let shaded = if bounded { " · shaded: the TPOT bound is kept" } else { "" };
    view.source(&[&numbers]) + shaded
}

fn draw_course(c: &Canvas, panel: &Panel, course: &Course, top: f64) {
    // A policy's path through the loads is drawn up to the point where it leaves the frame.
    let last = course.points.iter().position(|p| panel.x.clamp(p.1) != p.1).unwrap_or(course.points.len());
    let at = |p: &(String, f64, f64)| panel.at(panel.x.clamp(p.1), p.2);
    let look = course.ink.look;
    let path: Vec<_> = course.points.iter().take(last).map(at).collect();
    c.line(&path, look.colour, 2.0, look.dash);
    if let (Some(beyond), Some(from)) = (course.points.get(last), last.checked_sub(1).map(|i| &course.points[i])) {
        // The point at which the path to the next load crosses the edge of the frame.
        let edge = panel.x.end();
        let share = (edge - from.1) / (beyond.1 - from.1);
        let share = if beyond.2 > top { share.min((top - from.2) / (beyond.2 - from.2)) } else { share };
        let tip = panel.at(from.1 + share * (beyond.1 - from.1), from.2 + share * (beyond.2 - from.2));
        c.line(&[at(from), tip], look.colour, 2.0, look.dash);
        c.arrowhead(tip, (1.0, 0.0), look.colour);
    }
    c.markers(&path, look, MARKER);
}

/// Writes the loads beside the points of one path, so that labels do not overlap. Takes the path with the most points
/// inside the frame. Of several such paths it takes the path with the highest throughput.
fn label_loads(c: &Canvas, panel: &Panel, courses: &[Course]) {
    let top = |course: &&Course| course.points.iter().map(|p| p.2).fold(0.0, f64::max);
    let inside = |course: &Course| course.points.iter().filter(|p| panel.x.clamp(p.1) == p.1).count();
    let best = courses.iter().rev().max_by(|a, b| inside(a).cmp(&inside(b)).then(top(a).total_cmp(&top(b))));
    let shown = best.iter().flat_map(|course| &course.points).filter(|p| panel.x.clamp(p.1) == p.1);
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for (label, x, y) in shown {
        let (x, y) = panel.at(*x, *y);
        if taken.iter().all(|t| (t.0 - x).abs() > 30.0 || (t.1 - y).abs() > 14.0) {
            c.text(label, (x - 9.0, y - 9.0), Anchor::End, TEXT - 1.0, GREY);
            taken.push((x, y));
        }
    }
}
