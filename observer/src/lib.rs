//! Sends an experiment's workload to an OpenAI-compatible server and records what comes back. Only this crate uses a
//! network.

/// Shadows `eprintln!` for the whole crate. Progress and diagnostics quote files and servers, so control characters
/// are escaped.
macro_rules! eprintln {
    ($($words:tt)*) => { foretoken_spec::eprintln!($($words)*) };
}

mod answer;
mod body;
mod bounded;
pub mod client;
mod drive;
mod progress;
mod prompts;
mod recorder;
pub mod run;
mod scrape;
mod tail;
mod waiting;
