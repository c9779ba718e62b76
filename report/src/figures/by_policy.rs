//! Draws one number of each run, such as the speedup, for every policy: a dot for the mean over seeds and a whisker for
//! its interval. One row per policy, the best policy on top; one panel per combination of swept values.

use super::against::Quantity;
use super::axis::Axis;
use super::canvas::{Anchor, Canvas, Point};
use super::page::{Page, Panel};
use super::sheet::Sheet;
use super::style::{GREY, INK, QUIET, RULE, TEXT};
use super::view::{Mean, View, joined, words};
use crate::{Dash, Look, Swept};

const ROW: f64 = 24.0;
/// A figure over at most this number of seeds shows each seed's value as a dot below the mean.
const FEW_SEEDS: usize = 10;

/// A policy's row in one panel of a figure that shows one number, such as the speedup, for every policy.
struct Row<'s> {
    mean: Option<Mean>,
    /// The number's value with each seed; empty for one seed or more than [`FEW_SEEDS`] seeds.
    seeds: Vec<f64>,
    sign: &'s str,
}

/// Draws the figure of `quantity`, such as the speedup, with one row per policy; `None` if no run has this number.
pub fn draw(view: &View, quantity: &Quantity) -> Option<String> {
    let policies = sorted(view, quantity);
    let rows: Vec<Vec<Row>> =
        view.combinations.iter().map(|&c| policies.iter().map(|p| row(view, quantity, p.0, c)).collect()).collect();
    let shown: Vec<Mean> = rows.iter().flatten().filter_map(|row| row.mean).collect();
    let alone = view.combinations.len() == 1 && view.sheet == Sheet::Screen;
    let labels: Vec<&str> = policies.iter().map(|p| p.0).collect();
    let mut y = Axis::rows(&labels);
    if !view.quiet.is_empty() {
        let strong = labels.iter().filter(|label| !view.quiet.contains(label));
        y.strong = strong.map(|label| (*label).to_owned()).collect();
    }
    let source = quantity.source(view);
    let dots = rows.iter().flatten().any(|row| !row.seeds.is_empty());
    let page = Page {
        title: view.title(quantity.title),
        source: if dots { source + " · small dots: seeds" } else { source },
        x_name: quantity.axis.to_owned(),
        y_name: String::new(),
        x: quantity.range(&shown, if alone { 8 } else { 4 })?,
        y,
        legend: Vec::new(),
        panels: view.combinations.iter().map(|&c| (title(view, quantity, c), None)).collect(),
        own_x: Vec::new(),
        panel_height: ROW * labels.len() as f64 + 8.0,
        right: if alone { 150.0 } else { 44.0 },
        sheet: view.sheet,
    };
    Some(page.svg(|c, panel, i| {
        if let Some(at) = quantity.reference {
            c.line(&[panel.at(at, page.y.start()), panel.at(at, page.y.end())], RULE, 1.5, Dash::Solid);
        }
        for (y, (row, (label, look))) in rows[i].iter().zip(&policies).enumerate() {
            let ink = view.ink(label, *look);
            c.policy(&ink, || draw_row(c, panel, &page, quantity, (y as f64, row, ink.look), alone));
        }
    }))
}

/// The policies from the best to the worst, by their means over all panels. Policies without a number come last.
fn sorted<'a>(view: &View<'a>, quantity: &Quantity) -> Vec<(&'a str, Look)> {
    let mean = |policy: &str| {
        let of = |c: &&[Swept]| view.mean(policy, |s| s == *c, quantity.of, quantity.scale).map(|m| m.mean);
        let means: Vec<f64> = view.combinations.iter().filter_map(of).collect();
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        if mean.is_nan() {
            f64::INFINITY
        } else if quantity.less_is_better {
            mean
        } else {
            -mean
        }
    };
    let mut policies = view.policies.clone();
    policies.sort_by(|a, b| mean(a.0).total_cmp(&mean(b.0)));
    policies
}

fn row<'s>(view: &View, quantity: &Quantity, policy: &str, combination: &[Swept]) -> Row<'s> {
    let here = |s: &[Swept]| s == combination;
    let cells = view.cells(policy, here);
    let seeds: Vec<f64> = cells.iter().filter_map(|c| (quantity.of)(c)).filter(|x| x.is_finite()).collect();
    let seeds = if (2..=FEW_SEEDS).contains(&seeds.len()) { seeds } else { Vec::new() };
    Row { mean: view.mean(policy, here, quantity.of, quantity.scale), seeds, sign: quantity.sign(&cells) }
}

/// A panel's title: the swept values of the panel's runs, and the note on these runs.
fn title(view: &View, quantity: &Quantity, combination: &[Swept]) -> String {
    joined([words(combination), (quantity.title_note)(&view.all(|s| s == combination))])
}

fn draw_row(
    c: &Canvas,
    panel: &Panel,
    page: &Page,
    quantity: &Quantity,
    (y, row, look): (f64, &Row, Look),
    with_interval: bool,
) {
    let at = |x: f64| panel.at(page.x.clamp(x), y);
    let text_at = (panel.to.0 + 8.0, at(0.0).1);
    let Some(i) = row.mean else {
        return c.text("none", text_at, Anchor::Start, TEXT, GREY);
    };
    let beyond = |x: f64| page.x.clamp(x) != x;
    // The dots of seeds lie below the whisker, because the whisker would cover them.
    let below = |(x, y): Point| (x, y + 6.0);
    let seeds: Vec<_> = row.seeds.iter().filter(|x| !beyond(**x)).map(|x| below(at(*x))).collect();
    c.specks(&seeds, look.colour);
    if let Some((low, high)) = i.ends {
        c.line(&[low, high].map(at), look.colour, 2.0, Dash::Solid);
    }
    let (low, high) = i.ends.unwrap_or((i.mean, i.mean));
    for (x, right) in [(low, -1.0), (high, 1.0)].into_iter().filter(|(x, _)| beyond(*x)) {
        c.arrowhead(at(x), (right, 0.0), look.colour);
    }
    if !beyond(i.mean) {
        c.marker(at(i.mean), look);
    }
    let text = match i.ends {
        Some((low, high)) if with_interval && high > low => {
            let [low, high] = [low, high].map(|x| quantity.say(x));
            format!("{} [{low}, {high}]", quantity.say(i.mean))
        }
        _ => quantity.say(i.mean),
    };
    let text = if row.sign.is_empty() { text } else { format!("{text} {}", row.sign) };
    c.text(&text, text_at, Anchor::Start, TEXT, if look.colour == QUIET { GREY } else { INK });
}
