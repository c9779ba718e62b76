//! Reads what real servers report: recordings of observed runs, and files of vLLM, SGLang and their benchmarks. This
//! crate uses no network. `foretoken observe` makes the recordings.

pub mod bounds;
mod doubts;
pub mod findings;
pub mod foreign;
pub mod llama_cpp;
pub mod metrics;
pub mod order;
pub mod recording;
pub mod request;
pub mod run;
pub mod says;
pub mod seat_log;
pub mod stated;
pub mod step_log;
pub mod steps;
mod unread;

pub use unread::Unread;
