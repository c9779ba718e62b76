//! Measures each claim of a paper in the finished comparison and compares it with the paper's value. Must not run or
//! tune anything.

mod check;
mod compared;
mod cost;
mod measure;
mod metric;
mod render;
mod replay;
mod results;
mod windows;

pub use check::check;
pub use compared::PaperReport;
pub use render::{render, render_json};
