//! Answers the `[question]` of an experiment: measures its claims, decides over all assumed values, and words the
//! answer. Must not run or tune anything.

mod answer;
mod check;
mod markdown;
mod table;
mod verdict;

pub use answer::{Answer, Decided, Finding};
pub use check::check;
pub use markdown::render as render_markdown;
pub use table::{render, render_json};
pub use verdict::Verdict;
