//! What real servers say of themselves: recordings of observed runs, and the files that vLLM, SGLang and their benchmarks write.
//! It reads and knows no network; `foretoken observe` records.

pub mod foreign;
pub mod recording;
pub mod request;
pub mod run;
pub mod step_log;
mod unread;

pub use unread::Unread;
