//! Readers of the results that load generators write: means over the requests of a run at one load.
//!
//! Each format has one reader. All of them return [`Run`]s, with times in seconds. A file may hold several runs.

mod acceptance;
mod aiperf;
mod detect;
mod genai_perf;
mod guidellm;
mod mean;
mod metric;
mod run;
mod sglang;
#[cfg(test)]
mod testing;
mod totals;
mod vllm;

pub use detect::{ResultFormat, detect, parse};
pub use run::{Acceptance, Load, Run};
