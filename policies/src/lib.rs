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
mod acceptance_estimator;
mod adaedl;
mod adaserve;
mod adaspec;
mod adaspec_code;
mod adaspec_code_cost;
mod adaspec_verifier;
mod aimd;
mod autoregressive;
mod bandit;
mod banditspec;
mod belief;
mod by_batch_size;
mod cascade;
mod clairvoyant_static;
mod confidence_history;
mod confidence_stop;
mod disable_by_batch_size;
mod downshift;
mod draft_confidence;
mod draft_len_schedule;
mod dsde;
mod dspark;
mod dspark_relay;
mod dspark_table;
mod eagle2;
mod ema_tier;
mod estimator;
mod exp3spec;
mod fixed;
mod heads;
mod hf_dynamic;
mod ladder;
mod look;
mod measured_cost_depth;
mod measured_two_arm;
mod mlc_table;
mod mlx_vlm_expand;
mod nightjar;
mod oracle_goodput;
mod oracle_length;
mod per_request;
mod preset;
mod profile;
mod random;
pub mod registry;
mod request_rates;
mod roc;
mod sglang_gen3;
mod sglang_json;
mod sglang_router;
mod sglang_throughput;
mod slots;
mod smartspec;
mod smartspec_confidence;
mod smartspec_dsd;
mod smartspec_medusa;
mod smartspec_request;
mod specinfer;
mod speculation_gate;
mod stale;
mod survival;
mod svip;
mod tetris;
mod threshold;
mod timed_batch;
mod trtllm_auto;
mod true_cost;
mod turbospec;
mod turbospec_cost;
mod verify_budget;
mod vllm_adaptive;
mod vllm_cost_table;
mod vllm_dynamic;
mod weighed;
mod zero_lengths;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod registry_fuzz;
#[cfg(test)]
mod smartspec_family_tests;
#[cfg(test)]
mod testing;

pub use acceptance::{Rate, expected_tokens};
pub use adaedl::Adaedl;
pub use adaserve::Adaserve;
pub use adaspec::{Adaspec, Drafter, SloMode};
pub use adaspec_code::{AdaspecCode, Eliminate};
pub use aimd::Aimd;
pub use autoregressive::Autoregressive;
pub use banditspec::{Banditspec, Bonus};
pub use belief::Belief;
pub use cascade::CascadeLike;
pub use clairvoyant_static::ClairvoyantStatic;
pub use confidence_stop::ConfidenceStop;
pub use disable_by_batch_size::DisableByBatchSize;
pub use downshift::Downshift;
pub use draft_confidence::DraftConfidence;
pub use draft_len_schedule::DraftLenSchedule;
pub use dsde::Dsde;
pub use dspark::Dspark;
pub use dspark_table::SpsTable;
pub use eagle2::Eagle2;
pub use ema_tier::{EmaTier, OffList};
pub use estimator::{Depth, Depths, Estimate};
pub use exp3spec::Exp3spec;
pub use fixed::Fixed;
pub use hf_dynamic::{HfDynamic, Schedule};
pub use look::{Colour, Dash, Look, Marker};
pub use measured_cost_depth::MeasuredCostDepth;
pub use measured_two_arm::MeasuredTwoArm;
pub use mlc_table::MlcTable;
pub use mlx_vlm_expand::MlxVlmExpand;
pub use nightjar::NightjarLike;
pub use oracle_goodput::{Form, OracleGoodput};
pub use oracle_length::OracleLength;
pub use profile::PassTimes;
pub use random::Random;
pub use registry::{BadParameter, Definition, PolicyContext, PolicySpec, Told};
pub use sglang_gen3::{SglangGen3, Slot};
pub use sglang_json::{BadSglangJson, from_sglang_json, to_sglang_json};
pub use sglang_throughput::{CandidateSlot, SglangThroughput};
pub use smartspec::Smartspec;
pub use smartspec_confidence::SmartspecConfidence;
pub use smartspec_dsd::{Proposer, SmartspecDsd};
pub use smartspec_medusa::SmartspecMedusa;
pub use smartspec_request::SmartspecRequest;
pub use specinfer::Specinfer;
pub use speculation_gate::SpeculationGate;
pub use svip::Svip;
pub use tetris::Tetris;
pub use threshold::{Cost, Scope, Threshold};
pub use trtllm_auto::TrtllmAuto;
pub use turbospec::Turbospec;
pub use turbospec_cost::Coefficients as TurbospecCoefficients;
pub use verify_budget::VerifyBudget;
pub use vllm_adaptive::VllmAdaptive;
pub use vllm_cost_table::CostLookup;
pub use vllm_dynamic::{BatchRange, VllmDynamic, to_vllm_speculative_config};
