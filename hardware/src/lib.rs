//! How long a forward pass takes on hardware: GPUs, shapes of models, rooflines, and measured tables.
//!
//! [`LatencySpec`] is what an experiment file says; it builds the [`LatencyModel`](foretoken_sim::LatencyModel) that
//! the event clock asks. A [`RooflineSpec`] needs no measurement: it takes a GPU's datasheet ([`gpus`]) and a model's
//! shape ([`models`]), which may come from any Hugging Face `config.json` ([`config`]).

mod bad;
pub mod config;
pub mod gpus;
mod measured;
pub mod models;
mod roofline;
mod spec;
mod staircase;

pub use bad::BadLatency;
pub use measured::{Measured, MeasuredSpec};
pub use roofline::{Memory, Roofline, RooflineSpec};
pub use spec::LatencySpec;
pub use staircase::{Staircase, StaircaseSpec};
