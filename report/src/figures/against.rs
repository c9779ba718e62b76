//! Draws one number of each run, such as the speedup, over a swept setting: one line per policy, one panel per
//! combination of the other swept settings.

use super::axis::Axis;
use super::canvas::{Anchor, Canvas, Ink, Point};
use super::page::{Page, Panel, columns};
use super::sheet::MOST_NAMES;
use super::style::{INK, MARKER, RULE, TEXT, text_width};
use super::view::{Mean, Scale, View, distinct, joined, words};
use crate::number::fixed;
use crate::{Cell, Dash, Swept};
use foretoken_sim::metrics::Range;

/// A number by which figures compare policies, such as the speedup, and how figures write it. It is read from a cell.
pub struct Quantity {
    /// The name, in a figure's title, of the number by which policies are compared.
    pub title: &'static str,
    /// The name and unit, on an axis, of the number by which policies are compared.
    pub axis: &'static str,
    /// Reads the number from a run, in the unit of the axis; `None` if the run does not have the number.
    pub of: fn(&Cell) -> Option<f64>,
    /// Whether the compared number is an amount, a ratio or a change, which decides how its interval over seeds is
    /// computed.
    pub scale: Scale,
    pub decimals: usize,
    /// Is a smaller number better? Figures sort policies from the best to the worst.
    pub less_is_better: bool,
    /// A value of the number, such as a speedup of 1, that the figure marks with a line; `None` for no line.
    pub reference: Option<f64>,
    /// Returns a note on the runs of a panel. The panel's title shows the note after the swept values. An empty text
    /// stands for no note.
    pub title_note: fn(&[&Cell]) -> String,
    /// A sign beside the numbers of some runs, with its explanation; `None` for no sign.
    pub mark: Option<Mark>,
}

/// A sign beside numbers that need an explanation, such as a speedup over an overloaded run.
pub struct Mark {
    /// Returns true for a run whose number gets the sign.
    pub on: fn(&Cell) -> bool,
    /// The sign that is written beside the numbers, such as `!`.
    pub sign: &'static str,
    /// The sign's explanation, for the source line (the line below a figure that says where its numbers come from).
    pub says: &'static str,
}

impl Quantity {
    /// The sign to write after a mean over `cells` (one run per seed). Empty if no run needs the sign.
    pub fn sign(&self, cells: &[&Cell]) -> &'static str {
        self.mark.as_ref().filter(|m| cells.iter().any(|c| (m.on)(c))).map_or("", |m| m.sign)
    }

    /// The figure's source line, which says where the numbers come from. It explains the sign if a run of the figure is
    /// marked.
    pub fn source(&self, view: &View) -> String {
        let marked = |m: &&Mark| view.all(|_| true).into_iter().any(|c| (m.on)(c));
        let says = self.mark.as_ref().filter(marked).map(|m| format!(" · {}: {}", m.sign, m.says));
        view.source_of_means() + &says.unwrap_or_default()
    }

    /// A value of the quantity as text with `decimals` decimals; from 100 on without decimals.
    pub fn say(&self, value: f64) -> String {
        fixed(value, if value.abs() < 100.0 { self.decimals } else { 0 })
    }

    /// An axis for the means, their intervals over seeds and `reference` (the value that the figure marks with a line).
    /// `None` if there are no means.
    ///
    /// If the number is a share in percent, the axis covers 0 to 100. If the means and `reference` span less than 40 of
    /// these, the axis covers only values near the means.
    ///
    /// For other numbers the axis covers the means and their intervals. Let d be the greatest mean minus the
    /// least mean. The axis extends beyond these two means by at most d / 2, or by 2 % of the greatest mean if that is
    /// more. Longer intervals are cut at the axis' end, because a wide interval over two seeds would squeeze all means
    /// into one spot.
    pub fn range(&self, of: &[Mean], ticks: usize) -> Option<Axis> {
        let means = || of.iter().map(|i| i.mean).chain(self.reference);
        let (low, high) = (means().fold(f64::INFINITY, f64::min), means().fold(f64::NEG_INFINITY, f64::max));
        if of.is_empty() {
            return None;
        }
        if self.scale == Scale::Percent {
            let (least, most) = Range::Percent.ends();
            // The axis covers all possible values, unless the means span less than 40 % of these values.
            let near = (high - low).max((most - least) * 0.02) * 0.5;
            return Some(match high - low < (most - least) * 0.4 {
                true => Axis::linear((low - near).max(least), (high + near).min(most), ticks),
                false => Axis::linear(least, most, ticks),
            });
        }
        let (low, high) = self.frame(of, low, high);
        let slack = ((high - low) * 0.5).max(high.abs() * 0.02);
        let ends = || of.iter().filter_map(|i| i.ends);
        let lowest = ends().map(|e| e.0).fold(low, f64::min).max(low - slack);
        let highest = ends().map(|e| e.1).fold(high, f64::max).min(high + slack);
        // A small margin keeps the outermost markers off the frame.
        let air = (highest - lowest) * 0.03;
        // The axis gets no margin below 0, so that it starts at 0.
        let below = if lowest == 0.0 { 0.0 } else { air };
        Some(Axis::linear(lowest - below, highest + air, ticks))
    }
}

impl Quantity {
    /// The least and the greatest mean inside a figure's frame. `values` are all means; `low` and `high` are the least
    /// and the greatest of them. If the number is a relative change, a mean far above most others lies outside the
    /// frame. The figure shows an arrowhead for such a mean at the frame's edge, so that the scale of the other means
    /// stays readable.
    fn frame(&self, values: &[Mean], low: f64, high: f64) -> (f64, f64) {
        if self.scale != Scale::Change {
            return (low, high);
        }
        let mut means: Vec<f64> = values.iter().map(|i| i.mean).collect();
        means.sort_by(f64::total_cmp);
        let most = FAR * means[means.len() * 3 / 4].max(means[means.len() / 2]);
        (low, if most > low && high > most { most } else { high })
    }
}

/// A relative change, such as a policy's distance to the fastest policy in %, lies outside the figure's frame if it is
/// more than this multiple of the third quartile of all changes.
const FAR: f64 = 2.5;

/// Draws one figure for each setting swept over at least two numbers. Draws none if no run has the quantity. Returns
/// (the setting's path, SVG) for each figure.
pub fn draw(view: &View, quantity: &Quantity) -> Vec<(String, String)> {
    let paths = view.combinations.first().map_or(0, |c| c.len());
    (0..paths).filter_map(|at| Some((view.combinations[0][at].path.clone(), draw_path(view, quantity, at)?))).collect()
}

/// A policy's line: points of (swept value, number, sign). The sign refers to an explanation below the figure. It is
/// empty if all policies have the same sign at the swept value, because then the axis tick shows the sign.
type Line<'v> = (Ink<'v>, Vec<(f64, Mean, &'static str)>);

fn draw_path(view: &View, quantity: &Quantity, at: usize) -> Option<String> {
    let values = numbers(view, at)?;
    let others = distinct(view.combinations.iter().map(|c| without(c, at)), |a, b| a == b);
    let panels: Vec<Vec<Line>> = others.iter().map(|other| lines(view, quantity, at, &values, other)).collect();
    let ticks = values.iter().map(|(x, label)| (*x, format!("{label}{}", tick_sign(view, quantity, at, *x))));
    let ticks: Vec<(f64, String)> = ticks.collect();
    let shown: Vec<Mean> = panels.iter().flatten().flat_map(|line| line.1.iter().map(|p| p.1)).collect();
    let crowded = view.policies.len() > MOST_NAMES;
    let widest =
        panels.iter().flatten().filter(|l| !view.quiet.contains(&l.0.label)).map(|l| text_width(l.0.label, TEXT));
    let page = Page {
        title: view.title(&format!("{} against {}", quantity.title, view.combinations[0][at].name)),
        source: quantity.source(view),
        x_name: view.combinations[0][at].axis(),
        y_name: quantity.axis.to_owned(),
        x: Axis::swept(&ticks),
        right: if crowded { widest.fold(0.0, f64::max) + 16.0 } else { 0.0 },
        sheet: view.sheet,
        y: quantity.range(&shown, [9, 6, 5][columns(others.len()) - 1])?,
        legend: if crowded { Vec::new() } else { view.legend(|_| true) },
        panels: others.iter().map(|o| (title(view, quantity, at, o), None)).collect(),
        own_x: Vec::new(),
        panel_height: [360.0, 260.0, 190.0][columns(others.len()) - 1],
    };
    Some(page.svg(|c, panel, i| {
        if let Some(one) = quantity.reference {
            c.line(&[panel.at(page.x.start(), one), panel.at(page.x.end(), one)], RULE, 1.5, Dash::Solid);
        }
        let n = panels[i].len();
        for (turn, line) in panels[i].iter().enumerate() {
            c.policy(&line.0, || draw_line(c, panel, &page, line, aside(turn, n)));
        }
        if crowded {
            let named: Vec<_> = panels[i].iter().filter(|l| !view.quiet.contains(&l.0.label)).collect();
            names_at_the_end(c, panel, &page, &named);
        }
    }))
}

/// A panel's title: the values of the swept settings that are not on the horizontal axis, and the note on the panel's
/// runs.
fn title(view: &View, quantity: &Quantity, at: usize, other: &[&Swept]) -> String {
    let cells = view.all(|s| without(s, at) == other);
    joined([words(other.iter().copied()), (quantity.title_note)(&cells)])
}

/// The sign (such as `!`, explained below the figure) next to the tick at swept value `x`, with a space before it.
/// Empty unless the numbers of all policies have a sign at `x`.
fn tick_sign(view: &View, quantity: &Quantity, at: usize, x: f64) -> String {
    let sign = |policy: &str| quantity.sign(&view.cells(policy, |s| s[at].number == Some(x)));
    match view.policies.iter().map(|p| sign(p.0)).min() {
        None | Some("") => String::new(),
        Some(sign) => format!(" {sign}"),
    }
}

/// The values of the swept setting with index `at`, each with its label, ascending. `None` if a value is not a number
/// or all values are equal.
fn numbers(view: &View, at: usize) -> Option<Vec<(f64, String)>> {
    let all: Option<Vec<_>> = view.combinations.iter().map(|c| Some((c[at].number?, c[at].shown()))).collect();
    let mut values = distinct(all?, |a, b| a.0 == b.0);
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    (values.len() > 1).then_some(values)
}

fn without(sweep: &[Swept], at: usize) -> Vec<&Swept> {
    sweep.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, s)| s).collect()
}

fn lines<'v>(
    view: &View<'v>,
    quantity: &Quantity,
    at: usize,
    values: &[(f64, String)],
    other: &[&Swept],
) -> Vec<Line<'v>> {
    let line = |policy: &str| {
        let point = |v: f64| {
            let here = |s: &[Swept]| s[at].number == Some(v) && without(s, at) == other;
            let sign =
                if tick_sign(view, quantity, at, v).is_empty() { quantity.sign(&view.cells(policy, here)) } else { "" };
            Some((v, view.mean(policy, here, quantity.of, quantity.scale)?, sign))
        };
        values.iter().filter_map(|v| point(v.0)).collect()
    };
    view.inks().into_iter().map(|ink| (ink, line(ink.label))).collect()
}

/// Horizontal offset in px of the points of one line, so that whiskers of several lines at the same value do not
/// overlap. `turn` is the line's index, `n` the number of lines.
fn aside(turn: usize, n: usize) -> f64 {
    (turn as f64 - (n as f64 - 1.0) / 2.0) * (24.0 / n.max(1) as f64).min(4.0)
}

/// Writes the policies' names beside the last points of their lines. The names have the same vertical order as the
/// points and do not overlap.
fn names_at_the_end<'v>(c: &Canvas, panel: &Panel, page: &Page, lines: &[&Line<'v>]) {
    let end = |(ink, points): &Line<'v>| Some((panel.at(0.0, page.y.clamp(points.last()?.1.mean)).1, *ink));
    let mut ends: Vec<_> = lines.iter().filter_map(|line| end(line)).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free_from = f64::NEG_INFINITY;
    let lowest = panel.to.1 - LINE_HEIGHT * ends.len() as f64;
    for (i, (y, ink)) in ends.into_iter().enumerate() {
        let y = y.min(lowest + LINE_HEIGHT * (i as f64 + 1.0)).max(free_from);
        c.policy(&ink, || c.text(ink.label, (panel.to.0 + 8.0, y), Anchor::Start, TEXT, ink.look.colour));
        free_from = y + LINE_HEIGHT;
    }
}

/// Height of a policy's name beside its line, px.
const LINE_HEIGHT: f64 = 15.0;

fn draw_line(c: &Canvas, panel: &Panel, page: &Page, (ink, points): &Line, aside: f64) {
    let look = ink.look;
    let at = |x: f64, y: f64| {
        let (across, up) = panel.at(x, page.y.clamp(y));
        (across + aside, up)
    };
    let path: Vec<Point> = points.iter().map(|(x, i, _)| at(*x, i.mean)).collect();
    c.line(&path, look.colour, 2.0, look.dash);
    for (x, i, _) in points {
        let Some((low, high)) = i.ends else { continue };
        c.line(&[low, high].map(|y| at(*x, y)), look.colour, 1.2, Dash::Solid);
        [(low, 1.0), (high, -1.0)].into_iter().filter(|(y, _)| page.y.clamp(*y) != *y).for_each(|(y, down)| {
            c.arrowhead(at(*x, y), (0.0, down), look.colour);
        });
    }
    c.markers(&path, look, MARKER);
    for (at, (.., sign)) in path.iter().zip(points) {
        c.text(sign, (at.0 + 8.0, at.1 - 8.0), Anchor::Start, TEXT, INK);
    }
}
