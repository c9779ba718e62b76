//! Measures the times of forward passes, fits `T = α·context + γ·batched + δ` and a table to these times, and reports
//! how far the formula and the table can be trusted.
//!
//! [`grid`] lists the shapes of passes to measure, [`measure()`] times them, [`Timed`] holds the times of one shape,
//! [`assess`] fits costs to the times, and [`Profile`] is the resulting file. [`fit_truth`] fits the formula to a
//! latency model. A bad fit always comes with reasons, so that it is never trusted silently.

// A part of the program: CONTRIBUTING.md says which comments it has.
#![allow(missing_docs)]

mod assess;
mod busy;
mod calibrated;
mod fit;
pub mod hardware;
mod linear;
mod measure;
mod modelled;
pub mod nnls;
mod partial;
mod profile;
mod served;
mod setup;
mod shapes;
mod table;
#[cfg(test)]
mod testing;

pub use assess::{
    FOLDS, INTERRUPTED, TABLE_ERROR, TRUSTED_ERROR, Timed, assess, context_reads, failures, folds, median,
    uninterrupted_mean,
};
pub use busy::{Busy, CpuTime};
pub use calibrated::{CALIBRATED_VERSION, Calibrated, CalibratedModel, ProbedPass};
pub use fit::{Fit, FitError, Sample, fit};
pub use linear::{fit_linear, fit_ols};
pub use measure::{Effort, MeasureError, Passes, ROUNDS, Stop, Until, Visit, collect, drift, measure, schedule};
pub use modelled::fit_truth;
pub use partial::{Partial, PartialError, SavedVisits};
pub use profile::{
    ByRegion, DeviceInfo, Errors, LinearFit, Measurement, Measuring, ModelInfo, ModelProfile, OlsFit, Profile,
    ProfileError, Range, SCHEMA_VERSION, Truth,
};
pub use served::{Served, ServedPass};
pub use setup::{STEADY, Setup};
pub use shapes::{Density, Kind, Region, Role, Room, SERVING_TOKENS, Shape, grid};
pub use table::fit_table;
