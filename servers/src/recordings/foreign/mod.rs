//! Readers of files that vLLM, SGLang and load generators write, in the formats of released versions. Each format has
//! one reader; [`detect`] recognises a file's format by its content.
//!
//! A reader takes the fields that it knows and ignores other fields. If it cannot read a file, it returns an
//! [`Unread`](crate::recordings::Unread) that names line and field. Times are converted to seconds; lengths are tokens.

pub mod aiperf_records;
mod detect;
mod file;
mod json;
mod number;
mod python;
mod rate;
pub mod results;
pub mod sglang_bench;
pub mod sglang_requests;
#[cfg(test)]
mod testing;
pub mod vllm_bench;
pub mod vllm_forward;

pub use detect::{Format, detect};
pub use file::bytes;
