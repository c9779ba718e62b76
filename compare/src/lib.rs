//! How far a simulated run is from an observed one.
//!
//! The observed run is a live run on a device ([`live_runs`]) or a recording of a server ([`server_runs`]). Both are
//! compared with the same [`numbers`], the same [`row`] for each number, the same rule for what is decided ([`spread`])
//! and the same kind of [`bounds`]. This crate simulates nothing and reads no file.

pub mod bounds;
pub mod fluid;
pub mod format;
pub mod latencies;
pub mod live_runs;
pub mod numbers;
pub mod over_time;
pub mod pass_errors;
pub mod rankings;
pub mod row;
pub mod server_runs;
pub mod service_rate;
pub mod spread;
pub mod token_flow;
