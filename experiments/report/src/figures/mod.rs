//! The figures of a report, each one SVG file. The list is here; each kind is drawn in a file of its own.
//!
//! Deterministic: no font is read, no clock, no map is walked. A policy has one colour, dash and marker everywhere; what would
//! look like another in a report is told apart from it (`view.rs`).

mod against;
mod axis;
mod by_policy;
mod canvas;
mod latency;
mod over_time;
mod page;
mod profile;
mod style;
#[cfg(test)]
mod tests;
mod view;

pub use profile::{Profiled, ProfiledFit, ProfiledPass, profile_figures};

use crate::{Report, ReportError, Staged, Swept};
use against::Quantity;
use over_time::Course;
use std::path::Path;
use view::View;

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its file name, such as `speedup.svg`; unique in a report.
    pub file: String,
    /// The SVG document.
    pub svg: String,
}

const SPEEDUP: Quantity = Quantity {
    title: "Speedup over autoregressive",
    axis: "speedup in mean end-to-end latency (×)",
    of: |c| c.speedup,
    decimals: 2,
    reference: Some(1.0),
    ends: None,
};

const ATTAINMENT: Quantity = Quantity {
    title: "SLO attainment",
    axis: "requests that met their SLO (%)",
    of: |c| c.summary.slo_attainment.map(|share| share * 100.0),
    decimals: 1,
    reference: None,
    ends: Some((0.0, 100.0)),
};

const BATCH_SIZE: Course = Course {
    title: "Batch size over time",
    axis: "decode batch size (requests)",
    of: over_time::batch_size,
    backdrop: true,
};

const DRAFT_LEN: Course = Course {
    title: "Draft length over time",
    axis: "draft length (tokens a request-step)",
    of: over_time::draft_len,
    backdrop: false,
};

/// Draws every figure the cells have data for, in a fixed order: speedup and SLO attainment per policy and against each
/// swept number, batch size and draft length over time (one file a combination), and end-to-end latency.
pub fn figures(report: &Report) -> Vec<Figure> {
    let view = View::new(report);
    let mut figures = Vec::new();
    let mut add = |file: String, svg: String| {
        let file = unused(&figures, &file);
        figures.push(Figure { file, svg });
    };
    for (name, quantity) in [("speedup", &SPEEDUP), ("slo-attainment", &ATTAINMENT)] {
        by_policy::draw(&view, quantity).into_iter().for_each(|svg| add(name.to_owned(), svg));
        against::draw(&view, quantity).into_iter().for_each(|(path, svg)| add(slug(name, &path), svg));
    }
    for (name, course) in [("batch-size", &BATCH_SIZE), ("draft-length", &DRAFT_LEN)] {
        over_time::draw(&view, course).into_iter().for_each(|(at, svg)| add(slug(name, &combination(at)), svg));
    }
    latency::draw(&view).into_iter().for_each(|svg| add("e2e-latency".to_owned(), svg));
    figures
}

/// Draws every figure into `folder`, which must exist, and returns the file names.
///
/// # Errors
/// When a file cannot be written.
pub fn write_figures(folder: &Path, report: &Report) -> Result<Vec<String>, ReportError> {
    let write = |figure: Figure| {
        Staged::write_all_to(&folder.join(&figure.file), figure.svg.as_bytes())?;
        Ok(figure.file)
    };
    figures(report).into_iter().map(write).collect()
}

fn combination(sweep: &[Swept]) -> String {
    view::words(sweep).replace(" = ", "-").replace(", ", "_")
}

/// `name` and what tells this figure from its siblings, as part of a file name of bounded length.
fn slug(name: &str, which: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let which: String = which.chars().take(80).map(plain).collect();
    if which.is_empty() { name.to_owned() } else { format!("{name}.{which}") }
}

/// The name with `.svg`, numbered when another figure has it already.
fn unused(figures: &[Figure], name: &str) -> String {
    let numbered = (2..).map(|n| format!("{name}.{n}.svg"));
    std::iter::once(format!("{name}.svg"))
        .chain(numbered)
        .find(|file| !figures.iter().any(|f| f.file == *file))
        .expect("there are more numbers than figures")
}
