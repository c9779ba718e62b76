//! Predicts how long a forward pass takes: presets of GPUs, shapes of models, rooflines, and measured tables.
//!
//! [`LatencySpec`] has the settings of an experiment file. It builds the [`LatencyModel`](foretoken_sim::LatencyModel)
//! that gives the pass times of a simulation. A [`RooflineSpec`] needs no measurement: it uses a GPU's datasheet
//! ([`gpus`]) and a model's shape ([`models`]), which may be read from a Hugging Face `config.json` ([`config`]).

mod bad;
pub mod config;
pub mod floors;
pub mod golden;
pub mod gpus;
mod hosts;
pub mod kernel_tables;
mod measured;
pub mod models;
mod roofline;
mod spec;
mod staircase;

pub use bad::BadLatency;
pub use hosts::Host;
pub use kernel_tables::KernelsSpec;
pub use measured::{Measured, MeasuredSpec};
pub use roofline::{Memory, Roofline, RooflineSpec};
pub use spec::LatencySpec;
pub use staircase::{Staircase, StaircaseSpec};
