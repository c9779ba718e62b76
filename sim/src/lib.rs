//! Foretoken's engine: one loop, one scheduler and one policy interface, for a simulated and for a real clock.
//!
//! This crate has the common types ([`Workload`], [`BatchView`], [`StepOutcome`]), the executor interface between the
//! engine and a simulation or hardware, the vLLM-style scheduler with its KV blocks and prefix cache, the event clock
//! with the true latency and acceptance, and the metrics. The crate must not do I/O, read a clock, or know TOML,
//! polars, CUDA or clap.

pub mod acceptance;
mod around;
mod around_executor;
mod barrier;
mod categories;
mod common_len;
pub mod config;
pub mod drafts;
pub mod draws;
pub mod engine;
pub mod event_clock;
pub mod executor;
pub mod host;
pub mod latency;
mod ledger;
pub mod live;
pub mod luck;
pub mod metrics;
mod new_request;
mod noise;
pub mod online;
pub mod oracle;
pub mod pair;
pub mod patience;
pub mod policy;
mod prompt_balance;
mod ranks;
pub mod replica;
pub mod scripted;
pub mod serving;
pub mod shape;
pub mod simulation;
pub mod time;
pub mod tree;
pub mod workload;

pub use acceptance::constant_rate;
pub use acceptance::{AcceptanceSource, TruthRow};
pub use around::Around;
pub use around_executor::AroundExecutor;
pub use categories::Categories;
pub use config::{
    BadConfig, BudgetCharge, DeliverAt, DraftAt, DraftGap, DraftKv, DraftMethod, EngineConfig, EvictionPolicy,
    FirstDraftPass, MAX_SPEC_LEN, QueueOrder, Release, RetractionPolicy, Runner, SchedulingPolicy, SglangSettings,
    Version,
};
pub use drafts::{Drafts, Shown, Wants};
pub use draws::Draws;
pub use engine::{Ending, Given, Load, Part, RejectReason, Reserved};
pub use executor::RequestTruth;
pub use host::{Host, HostLaw};
pub use latency::{Coefficients, ContextReads, DraftDevice, Drafting, LatencyModel, Linear, PassShape};
pub use luck::{Luck, Stream};
pub use metrics::{Outcome, RequestRecords, StepRecord, Summary, Totals};
pub use new_request::NewRequest;
pub use online::Online;
pub use oracle::{OraclePolicy, Truth};
pub use pair::Pair;
pub use patience::Patience;
pub use policy::{
    BatchView, Candidate, ChunkTotals, Continue, DraftLimits, DraftPlan, DraftShape, Explanation, Memory, SpecPolicy,
    StepOutcome,
};
pub use prompt_balance::PromptBalance;
pub use ranks::{MOST_RANKS, in_lock_step};
pub use replica::Replica;
pub use serving::{Run, Served, Serving};
pub use simulation::{Simulation, Speculation};
pub use time::Time;
pub use tree::{DraftTree, Growth, MAX_TREE_TOKENS};
pub use workload::{Arrivals, AskedOutput, Recording, Request, RequestId, Workload, arrival_rate};
