//! Draws one number of the results for every policy: a dot for the mean and a whisker for the interval. One row per
//! policy, one panel per combination of swept values.

use super::against::Quantity;
use super::axis::Axis;
use super::canvas::{Anchor, Canvas};
use super::page::{Page, Panel};
use super::style::{GREY, INK, RULE, TEXT};
use super::view::{Mean, View, joined, words};
use crate::{Dash, Swept};

const ROW: f64 = 24.0;

/// Draws the figure; `None` if no cell has the number.
pub fn draw(view: &View, quantity: &Quantity) -> Option<String> {
    let rows: Vec<Vec<Option<Mean>>> = view
        .combinations
        .iter()
        .map(|&c| view.policies.iter().map(|p| view.mean(p.0, |s| s == c, quantity.of, quantity.scale)).collect())
        .collect();
    let shown: Vec<Mean> = rows.iter().flatten().flatten().copied().collect();
    let alone = view.combinations.len() == 1;
    let labels: Vec<&str> = view.policies.iter().map(|p| p.0).collect();
    let page = Page {
        title: view.title(quantity.title),
        source: quantity.source(view),
        x_name: quantity.axis.to_owned(),
        y_name: String::new(),
        x: quantity.range(&shown, if alone { 8 } else { 4 })?,
        y: Axis::rows(&labels),
        legend: Vec::new(),
        panels: view.combinations.iter().map(|&c| (title(view, quantity, c), None)).collect(),
        own_x: Vec::new(),
        panel_height: ROW * labels.len() as f64 + 8.0,
        right: if alone { 150.0 } else { 44.0 },
    };
    Some(page.svg(|c, panel, i| {
        if let Some(at) = quantity.reference {
            c.line(&[panel.at(at, page.y.start()), panel.at(at, page.y.end())], RULE, 1.5, Dash::Solid);
        }
        for (row, mean) in rows[i].iter().enumerate() {
            let sign = quantity.sign(&view.cells(view.policies[row].0, |s| s == view.combinations[i]));
            draw_row(c, panel, &page, view, quantity, (row, *mean, sign), alone);
        }
    }))
}

/// A panel's title: its swept values, then the note on its cells.
fn title(view: &View, quantity: &Quantity, combination: &[Swept]) -> String {
    joined([words(combination), (quantity.title_note)(&view.all(|s| s == combination))])
}

fn draw_row(
    c: &Canvas,
    panel: &Panel,
    page: &Page,
    view: &View,
    quantity: &Quantity,
    (row, mean, sign): (usize, Option<Mean>, &str),
    with_interval: bool,
) {
    let y = row as f64;
    let text_at = (panel.to.0 + 8.0, panel.at(page.x.clamp(0.0), y).1);
    let Some(i) = mean else {
        return c.text("none", text_at, Anchor::Start, TEXT, GREY);
    };
    let look = view.policies[row].1;
    if let Some((low, high)) = i.ends {
        let ends = [low, high].map(|x| panel.at(page.x.clamp(x), y));
        c.line(&ends, look.colour, 2.0, Dash::Solid);
    }
    c.marker(panel.at(page.x.clamp(i.mean), y), look);
    let text = match i.ends {
        Some((low, high)) if with_interval && high > low => {
            let [low, high] = [low, high].map(|x| quantity.say(quantity.bounded(x)));
            format!("{} [{low}, {high}]", quantity.say(i.mean))
        }
        _ => quantity.say(i.mean),
    };
    let text = if sign.is_empty() { text } else { format!("{text} {sign}") };
    c.text(&text, text_at, Anchor::Start, TEXT, INK);
}
