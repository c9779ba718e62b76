//! Request traces: the requests that arrive at the simulated server, read from public formats or generated.
//!
//! A [`WorkloadSpec`] says where arrivals and lengths come from and how they are transformed. [`build`] makes a
//! [`foretoken_sim::Workload`] from it and a seed. [`read`] reads one file of a public format, and [`inspect`] computes
//! its statistics. This crate ships no third-party data, only parameters that were calibrated on such data, with their
//! source. It never drops a request silently: [`Trace::notes`] and [`Built::notes`] count what was left out.

mod build;
mod checks;
mod drawn;
mod error;
mod format;
pub mod generate;
pub mod intact;
pub mod limits;
mod open;
mod pipe;
pub mod readers;
mod spec;
mod stats;
pub mod text;
mod trace_spec;
mod transform;
pub mod truth;

pub use build::{Built, build};
pub use drawn::Drawn;
pub use error::TraceError;
pub use format::TraceFormat;
pub use open::raw;
pub use readers::{Gives, Trace, read};
pub use spec::{ArrivalSpec, Batch, LengthSpec, MooncakePoisson, T3, WorkloadSpec};
pub use stats::{ArrivalStats, BinStats, LengthStats, RecordedStats, TraceStats, inspect};
pub use trace_spec::{Columns, FailedRows, Sample, Ties, TimeUnit, TraceSpec, Turns, Unsorted, ZeroTokens};
pub use transform::Transform;
