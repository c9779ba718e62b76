//! Two figures of recorded acceptance. The first shows the share of right draft tokens by depth (the token's position
//! in the draft of its step), one line per family of texts. The second shows the calibration of the draft model's
//! confidence. A draft token is right if the target model chooses the same token.

use super::axis::Axis;
use super::canvas::Anchor;
use super::page::Page;
use super::sheet::{Named, Sheet};
use super::style::{GREY, MARKER, RULE, Rgb, TEXT};
use super::{Figure, Kind};
use crate::{Dash, Look, Marker};

/// The data of two figures of recorded draft tokens: acceptance by depth (the token's position in the draft of its
/// step), and calibration of the draft model's confidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// Names of the target and the draft model.
    pub title: String,
    /// The line under the figures: where the numbers come from, and the number of samples.
    pub source: String,
    /// For each family of texts: its name, and its acceptance at each depth (position in the draft of a step), from
    /// depth 1 on. The acceptance is the share of right draft tokens among those draft tokens whose predecessors in the
    /// same step were all right. `None` if no draft token of the family reached the depth.
    pub families: Vec<(String, Vec<Option<f64>>)>,
    /// Bins of the draft model's confidence, as (mean confidence, share of right draft tokens, number of output
    /// positions at which a token was drafted). Both the mean confidence and the share are 0 to 1.
    pub calibration: Vec<(f64, f64, u64)>,
    /// Expected calibration error of the draft model's confidence: the mean distance between confidence and share of
    /// right draft tokens, as a share (0 to 1).
    pub calibration_error: f64,
}

/// Colours of the families of texts: Okabe and Ito's, which people with any colour vision can distinguish.
const COLOURS: [Rgb; 7] = [
    (0x00, 0x00, 0x00),
    (0xc4, 0x85, 0x00),
    (0x34, 0x96, 0xcd),
    (0x00, 0x9e, 0x73),
    (0x00, 0x72, 0xb2),
    (0xd5, 0x5e, 0x00),
    (0xc4, 0x71, 0x9f),
];
const MARKERS: [Marker; 7] = [
    Marker::Circle,
    Marker::Square,
    Marker::Triangle,
    Marker::Diamond,
    Marker::TriangleDown,
    Marker::Ring,
    Marker::Plus,
];

/// Draws both figures: acceptance by depth (position in the draft of a step), and the calibration of the draft model's
/// confidence.
pub fn acceptance_figures(of: &Accepted) -> Vec<Figure> {
    let figure = |kind, file: &str, svg: String| Figure::new(kind, file, svg);
    vec![
        figure(Kind::Depth, "acceptance-by-depth.svg", by_depth(of)),
        figure(Kind::Calibration, "calibration.svg", calibration(of)),
    ]
}

fn look(family: usize) -> Look {
    let dash = if family == 0 { Dash::Solid } else { Dash::Dashed };
    Look { colour: COLOURS[family % COLOURS.len()], dash, marker: MARKERS[family % MARKERS.len()] }
}

fn by_depth(of: &Accepted) -> String {
    let deepest = of.families.iter().map(|f| f.1.len()).max().unwrap_or(1);
    let page = Page {
        title: format!("Acceptance by draft depth: {}", of.title),
        source: of.source.clone(),
        x_name: "depth in a round (tokens since the last verification)".to_owned(),
        y_name: "right, where all before it were (%)".to_owned(),
        x: Axis::linear(1.0, deepest as f64, deepest.max(2) - 1),
        y: Axis::linear(0.0, 100.0, 5),
        legend: of.families.iter().enumerate().map(|(i, f)| Named::plain(&f.0, look(i))).collect(),
        panels: vec![(String::new(), None)],
        own_x: Vec::new(),
        panel_height: 380.0,
        right: 0.0,
        sheet: Sheet::Screen,
    };
    page.svg(|c, panel, _| {
        for (i, (_, rates)) in of.families.iter().enumerate() {
            let reached = rates.iter().zip(1..).filter_map(|(rate, d)| Some(panel.at(f64::from(d), (*rate)? * 100.0)));
            let points: Vec<_> = reached.collect();
            c.line(&points, look(i).colour, 1.8, look(i).dash);
            c.markers(&points, look(i), MARKER);
        }
    })
}

fn calibration(of: &Accepted) -> String {
    let page = Page {
        title: format!("Calibration of the draft's confidence: {}", of.title),
        source: format!("{}; expected calibration error {:.1} %", of.source, of.calibration_error * 100.0),
        x_name: "draft's probability of its first guess (%)".to_owned(),
        y_name: "guesses that are right (%)".to_owned(),
        x: Axis::linear(0.0, 100.0, 10),
        y: Axis::linear(0.0, 100.0, 10),
        legend: Vec::new(),
        panels: vec![(String::new(), None)],
        own_x: Vec::new(),
        panel_height: 460.0,
        right: 24.0,
        sheet: Sheet::Screen,
    };
    page.svg(|c, panel, _| {
        c.line(&[panel.at(0.0, 0.0), panel.at(100.0, 100.0)], RULE, 1.5, Dash::Dashed);
        let points: Vec<_> = of.calibration.iter().map(|b| panel.at(b.0 * 100.0, b.1 * 100.0)).collect();
        c.line(&points, look(4).colour, 1.8, Dash::Solid);
        for (&at, (_, _, positions)) in points.iter().zip(&of.calibration) {
            c.marker(at, look(4));
            c.text(&format!("n = {positions}"), (at.0 + 8.0, at.1 + 12.0), Anchor::Start, TEXT, GREY);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_bin_and_source_is_drawn() {
        let figures = acceptance_figures(&Accepted {
            title: "large with small".into(),
            source: "recorded: 4 outputs".into(),
            families: vec![("all".into(), vec![Some(0.5), Some(0.75), None]), ("facts".into(), vec![None, None, None])],
            calibration: vec![(0.25, 0.5, 17), (0.9, 0.8, 4)],
            calibration_error: 0.125,
        });
        let names: Vec<&str> = figures.iter().map(|f| f.file.as_str()).collect();
        assert_eq!(names, ["acceptance-by-depth.svg", "calibration.svg"]);
        for text in ["large with small", "recorded: 4 outputs", "facts"] {
            assert!(figures[0].svg.contains(text), "{text}");
        }
        for text in ["n = 17", "n = 4", "error 12.5 %"] {
            assert!(figures[1].svg.contains(text), "{text}");
        }
    }
}
