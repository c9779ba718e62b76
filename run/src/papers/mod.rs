//! Measures each claim of a paper in the finished comparison, and compares the measured value with the paper's value.
//! This module must not run the engine, and must not change an experiment's values to come closer to the paper.

mod check;
pub(crate) mod compared;
mod cost;
pub(crate) mod measure;
pub(crate) mod render;
mod replay;
pub(crate) mod results;
mod windows;

pub use check::{check, check_claims};
pub use compared::PaperReport;
pub use render::{render, render_json};
