//! Draws how wrong predictions of observed runs are, together with the spread of repeated runs.

use super::axis::Axis;
use super::page::{Page, columns};
use super::sheet::{Named, Sheet};
use super::style::RULE;
use super::{Figure, Kind};
use crate::{Dash, Look, Marker};

/// The errors of three predictions of one number, such as throughput, in one cell (a draft length at a load). An error
/// is predicted / observed − 1.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedCell {
    /// The cell (a draft length at a load), such as `K = 3, closed 8`: three draft tokens per request and step, eight
    /// clients.
    pub label: String,
    /// Relative spread of the predicted number between the cell's repeated runs, as a share. A cell is a draft length
    /// at a load; the spread is infinite if the cell has one run.
    pub spread: f64,
    /// Error of the simulation's prediction, predicted / observed − 1.
    pub simulated: f64,
    /// Error of interpolating between the observed runs of two other draft lengths; `None` if there are no two such
    /// lengths.
    pub interpolated: Option<f64>,
    /// Error of the prediction by a closed formula; `None` if the formula gives no number.
    pub formula: Option<f64>,
}

/// One panel: the errors of one predicted number, such as throughput, in every cell (a draft length at a load).
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedNumber {
    /// The number's name, which is the panel's title.
    pub title: String,
    /// The largest acceptable error of the number's predictions, as a share; drawn as two dashed lines.
    pub bound: f64,
    /// The cells (draft lengths at loads) with their errors; the same cells in every panel.
    pub cells: Vec<PredictedCell>,
}

/// The names of the three predictions (simulation, interpolation, formula), with their colours (Okabe and Ito's),
/// dashes and markers.
const LOOKS: [(&str, Look); 3] = [
    ("formula", Look { colour: (0xc4, 0x71, 0x9f), dash: Dash::Dotted, marker: Marker::Diamond }),
    ("interpolated", Look { colour: (0xc4, 0x85, 0x00), dash: Dash::Dashed, marker: Marker::Triangle }),
    ("simulated", Look { colour: (0x00, 0x72, 0xb2), dash: Dash::Solid, marker: Marker::Circle }),
];
/// An error of a prediction larger than this, in %, is drawn as an arrowhead at the panel's edge.
pub const PREDICTED_EDGE: f64 = 60.0;
const ROW: f64 = 17.0;

/// Draws `predicted.svg`, the errors of predictions of observed runs; `None` without predicted numbers, or if `numbers`
/// has no cells (draft lengths at loads).
pub fn predicted_figure(numbers: &[PredictedNumber], source: &str) -> Option<Figure> {
    let cells = &numbers.first()?.cells;
    let labels: Vec<&str> = cells.iter().map(|c| c.label.as_str()).collect();
    let all = numbers.iter().flat_map(|n| &n.cells);
    let errors = all.flat_map(|c| [Some(c.simulated), c.interpolated, c.formula]).flatten();
    let most = (100.0 * errors.map(f64::abs).reduce(f64::max)?).clamp(12.0, PREDICTED_EDGE);
    let page = Page {
        title: "Errors of predictions".to_owned(),
        source: source.to_owned(),
        x_name: "predicted / observed − 1 (%)".to_owned(),
        y_name: String::new(),
        x: Axis::linear(-most, most, if columns(numbers.len()) > 1 { 6 } else { 12 }),
        y: Axis::rows(&labels),
        legend: LOOKS.iter().rev().map(|(name, look)| Named::plain(name, *look)).collect(),
        panels: numbers.iter().map(|n| (n.title.clone(), None)).collect(),
        own_x: Vec::new(),
        panel_height: ROW * labels.len() as f64 + 10.0,
        right: 0.0,
        sheet: Sheet::Screen,
    };
    let row = |i: usize| page.y.ticks[i].0;
    let svg = page.svg(|c, panel, at| {
        let number = &numbers[at];
        let ends = [page.y.start(), page.y.end()];
        for (x, dash) in [(0.0, Dash::Solid), (number.bound, Dash::Dashed), (-number.bound, Dash::Dashed)] {
            c.line(&ends.map(|y| panel.at(100.0 * x, y)), RULE, 1.2, dash);
        }
        for (i, cell) in number.cells.iter().enumerate() {
            let x = |error: f64| panel.at(page.x.clamp(100.0 * error), row(i));
            let half = cell.spread / 2.0;
            // If a draft length was observed only once at this load, there is no spread between runs to draw.
            if cell.spread.is_finite() {
                c.line(&[x(-half), x(half)], RULE, 5.0, Dash::Solid);
            }
            for (error, (_, look)) in [cell.formula, cell.interpolated, Some(cell.simulated)].into_iter().zip(LOOKS) {
                let Some(error) = error else { continue };
                let percent = 100.0 * error;
                if page.x.clamp(percent) == percent {
                    c.marker(x(error), look);
                } else {
                    // The error lies beyond the panel's edge, so an arrowhead is drawn.
                    let (tip, back) = (x(error), -5.0 * error.signum());
                    let wings = [(tip.0 + back, tip.1 - 5.0), tip, (tip.0 + back, tip.1 + 5.0)];
                    c.line(&wings, look.colour, 2.0, Dash::Solid);
                }
            }
        }
    });
    Some(Figure::new(Kind::Validation, "predicted.svg", svg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_a_row_and_errors_too_large_are_at_the_edge() {
        let cell = |label: &str, simulated: f64| PredictedCell {
            label: label.into(),
            spread: 0.03,
            simulated,
            interpolated: Some(0.1),
            formula: None,
        };
        let number = |title: &str| PredictedNumber {
            title: title.into(),
            bound: 0.05,
            cells: vec![cell("K = 1, closed 4", 0.02), cell("K = 5, closed 4", 9.0)],
        };
        let figure = predicted_figure(&[number("throughput"), number("mean TPOT")], "observed; simulated").unwrap();
        for text in
            ["K = 1, closed 4", "K = 5, closed 4", "throughput", "mean TPOT", "interpolated", "observed; simulated"]
        {
            assert!(figure.svg.contains(text), "{text}");
        }
        assert_eq!(predicted_figure(&[], ""), None);
    }
}
