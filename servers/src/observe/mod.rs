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

use crate::recordings::says::Says;
use foretoken_run::spec::problem::Result;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use answer::read_stream;
pub use prompts::{Prompt, parse_jsonl};
pub use scrape::samples;

/// What the server says of itself.
pub fn says(client: &client::Client, interrupt: &Arc<AtomicBool>) -> Result<Says> {
    waiting::Waiting::new(interrupt)?.on(client.says())?
}
