//! What real servers say of themselves: recordings of observed runs, and the files that vLLM, SGLang and their
//! benchmarks write. It reads and knows no network; `foretoken observe` records.

pub mod bounds;
mod doubts;
pub mod findings;
pub mod foreign;
pub mod metrics;
pub mod recording;
pub mod request;
pub mod run;
pub mod stated;
pub mod step_log;
pub mod steps;
mod unread;

pub use unread::Unread;
