//! Files of other tools, in the formats that released versions write. One reader a format, and [`detect`] that tells
//! the formats apart by what is in a file.
//!
//! A reader takes what the format states and ignores what else is there. What it cannot read it refuses with an
//! [`Unread`](crate::Unread) that names line and field. Times are seconds whatever the file has, lengths are tokens.

mod arrays;
mod detect;
mod file;
mod json;
mod number;
mod python;
mod rate;
pub mod sglang_bench;
pub mod sglang_dspark;
pub mod sglang_forward;
pub mod sglang_requests;
#[cfg(test)]
mod testing;
pub mod vllm_bench;
pub mod vllm_forward;

pub use detect::{Format, detect};
pub use rate::Rate;
