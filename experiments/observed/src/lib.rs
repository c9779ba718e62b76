//! What real servers say of themselves: recordings of observed runs, and the files that vLLM, SGLang and their benchmarks write.
//! It reads and knows no network; `foretoken observe` records.

mod unread;

pub use unread::Unread;

pub mod foreign;
