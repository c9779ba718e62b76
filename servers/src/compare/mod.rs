//! Measures how far a simulated run is from an observed run.
//!
//! The observed run is a live run on a device ([`live_runs`]) or a recording of a server ([`server_runs`]). For both
//! kinds, this crate compares the same [`numbers`]; each of them has a [`row`]. One rule says whether repeated runs
//! agree ([`spread`]), and one kind of [`bounds`] limits errors. This crate simulates nothing and reads no file.

pub mod bounds;
pub mod fluid;
pub mod format;
pub mod latencies;
pub mod live_runs;
pub mod numbers;
pub mod over_time;
#[cfg(test)]
pub(crate) mod page_text;
pub mod pass_errors;
pub mod rankings;
pub mod row;
pub mod server_runs;
pub mod service_rate;
pub mod spread;
pub mod token_flow;
