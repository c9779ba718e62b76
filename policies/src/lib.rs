//! Foretoken's speculation policies: one file a policy, and the two things several of them share, a cost estimate and
//! acceptance-rate estimators.
//!
//! A policy is a pure state machine over [`foretoken_sim::BatchView`]. It must never see the future: output lengths and
//! acceptance to come are not in its view, and only the oracles of this crate are built as
//! [`foretoken_sim::OraclePolicy`], the one type the hidden truth is shown to. Nothing here reads a clock, does I/O or
//! knows whether the engine is simulated or live.
//!
//! To add a policy: its file, one line in the table of [`registry`], one golden line.

mod acceptance;
mod adaspec;
mod adaspec_verifier;
mod autoregressive;
mod belief;
mod ema_tier;
mod estimator;
mod fixed;
mod heads;
mod ladder;
mod look;
mod oracle_goodput;
mod oracle_length;
mod preset;
mod profile;
mod random;
pub mod registry;
mod request_rates;
mod smartspec;
mod smartspec_confidence;
mod smartspec_dsd;
mod smartspec_medusa;
mod smartspec_request;
mod stale;
mod threshold;
mod true_cost;
mod turbospec;
mod turbospec_cost;
mod weighed;
mod zero_lengths;

#[cfg(test)]
mod smartspec_family_tests;
#[cfg(test)]
mod testing;

pub use acceptance::{Rate, expected_tokens};
pub use adaspec::{Adaspec, Drafter, SloMode};
pub use autoregressive::Autoregressive;
pub use belief::Belief;
pub use ema_tier::EmaTier;
pub use estimator::{Depth, Depths, Estimate};
pub use fixed::Fixed;
pub use look::{Colour, Dash, Look, Marker};
pub use oracle_goodput::{Form, OracleGoodput};
pub use oracle_length::OracleLength;
pub use profile::PassTimes;
pub use random::Random;
pub use registry::{BadParameter, Definition, PolicyContext, PolicySpec, Told};
pub use smartspec::Smartspec;
pub use smartspec_confidence::SmartspecConfidence;
pub use smartspec_dsd::{Proposer, SmartspecDsd};
pub use smartspec_medusa::SmartspecMedusa;
pub use smartspec_request::SmartspecRequest;
pub use threshold::{Cost, Scope, Threshold};
pub use turbospec::Turbospec;
pub use turbospec_cost::Coefficients as TurbospecCoefficients;
