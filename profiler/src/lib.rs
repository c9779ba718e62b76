//! Fits latency coefficients to forward passes: `T = α·context + γ·batched + δ`, and says how far the fit can be trusted.
//!
//! Must never be trusted silently: a fit that is bad says so, with reasons.

mod fit;
mod grid;

pub use fit::{Fit, FitError, Sample, fit};
pub use grid::fit_truth;
