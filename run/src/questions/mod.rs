//! Answers the `[question]` of an experiment: measures its claims, decides whether they hold for all values that the
//! experiment assumes, and writes the answer. This module must not run the engine, and must not change an experiment's
//! values to come closer to an answer.

mod answer;
mod check;
mod markdown;
mod page;
mod table;
mod verdict;

pub use answer::{Answer, Decided, Finding};
pub use check::check;
pub use markdown::render as render_markdown;
pub use page::page;
pub use table::render;
pub use verdict::Verdict;
