//! Drives an OpenAI-compatible server with an experiment's workload and records what comes back. The only crate that
//! uses a network.

/// Progress and diagnostics name files, servers and what these say: what the terminal gets of them, for every line of
/// the crate.
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
