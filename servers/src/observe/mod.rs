//! Sends an experiment's workload to an OpenAI-compatible server and records the answers. Of all crates, only this one
//! sends requests over a network.

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
mod whole_lines;

pub use answer::read_stream;
pub use prompts::{Prompt, parse_jsonl};
pub use scrape::samples;
