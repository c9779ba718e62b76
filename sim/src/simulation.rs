//! The whole of a simulated run behind one call: workload, settings, truth and a policy in, records out.

use crate::metrics::{Series, Totals};
use crate::{
    AcceptanceSource, ContextReads, EngineConfig, LatencyModel, OraclePolicy, RequestRecords, SpecPolicy, StepRecord,
    Workload,
};
use std::sync::atomic::AtomicBool;

/// How requests come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At the workload's instants.
    Open,
    /// This many clients, each sending its next request when its last one ends; instants are ignored.
    Closed {
        /// Requests in the system at any time.
        clients: u32,
    },
}

/// Who decides the draft lengths.
pub enum Speculation {
    /// Nobody: the plain engine, without a drafter (invariant 7).
    Off,
    /// A policy.
    Policy(Box<dyn SpecPolicy>),
    /// A bound that sees the hidden truth.
    Oracle(Box<dyn OraclePolicy>),
}

/// Everything that is fixed before a policy acts.
#[derive(Clone, Copy)]
pub struct Simulation<'a> {
    /// What arrives.
    pub workload: &'a Workload,
    /// How it arrives.
    pub arrivals: Arrivals,
    /// The engine's settings.
    pub config: &'a EngineConfig,
    /// True time of a draft pass.
    pub draft: &'a dyn LatencyModel,
    /// True time of a target pass.
    pub target: &'a dyn LatencyModel,
    /// How the true verify pass reads context.
    pub context_reads: ContextReads,
    /// Coefficient of variation of the log-normal residual noise of a pass (mean 1); 0 is none.
    pub noise_cv: f64,
    /// What the draft gets right.
    pub acceptance: &'a dyn AcceptanceSource,
    /// The seed of everything drawn while running.
    pub seed: u64,
    /// The run's TPOT limit shown to policies, seconds; infinity is none. A request's own comes before it.
    pub slo_tpot_s: f64,
    /// Keep a record of every step.
    pub keep_steps: bool,
    /// Set from outside to end the run early.
    pub interrupt: &'a AtomicBool,
}

/// What a run leaves behind.
#[derive(Clone, Debug)]
pub struct Run {
    /// One record a request.
    pub records: RequestRecords,
    /// Sums over steps.
    pub totals: Totals,
    /// Load over time.
    pub series: Series,
    /// One record a step, when asked for.
    pub steps: Vec<StepRecord>,
    /// What the user should be told.
    pub warnings: Vec<String>,
    /// Ended by `interrupt`.
    pub interrupted: bool,
    /// Blocks of the target's pool that requests can use.
    pub usable_blocks: u32,
}
