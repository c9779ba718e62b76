//! Answers a question about a line that starts a server: what to draft instead, by how much, and how sure.
//!
//! The line (`line/`; `served.rs` makes one of a running server) becomes a server (`vllm.rs`, `sglang.rs`). Models and
//! GPU come from presets or files (`models.rs`, `drafter.rs`). With a load (`load.rs`) and an acceptance
//! (`acceptance.rs`) they become an experiment (`experiment.rs`), which the comparison of `recommend` runs. This room
//! has no formula of its own.

pub mod acceptance;
mod answer;
mod drafter;
mod experiment;
mod flags;
mod line;
pub mod load;
mod models;
mod option;
mod paste;
mod prepare;
mod question;
pub mod served;
mod server;
mod sglang;
mod sglang_flags;
mod sglang_memory;
mod vllm;
mod vllm_flags;
mod words;

pub use experiment::text;
pub use prepare::{Options, prepare};
pub use question::ask;
