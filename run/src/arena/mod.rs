//! The arena: a set of experiments (scenarios) in which all speculation policies run, and the table that ranks the
//! policies by their latency.

mod field;
mod page;
mod rank;
mod render;
mod scenario;
mod standings;

pub use field::{fill, priced, read, references};
pub use page::page;
pub use rank::{CAP, Rank};
pub use render::{render, render_csv, render_json, render_markdown};
pub use scenario::{Numbers, Part, Ran, Scenario, check};
pub use standings::{Column, Field, Means, Standing, Standings, TreeReference};
