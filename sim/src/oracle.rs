//! The oracle boundary: only oracles have access to the hidden truth (which draft tokens are right, true pass times).
//!
//! An oracle is not a [`SpecPolicy`](crate::SpecPolicy), and no policy can be built with a [`Truth`]. Only the event
//! clock can make a `Truth`, so an oracle cannot run live: there is no such function to call.
//!
//! On the event clock an oracle is a drafter (invariant 8):
//!
//! ```
//! use foretoken_sim::{engine::{ByOracle, Drafter}, event_clock::EventClock, executor::Executor};
//! fn drafts<E: Executor, D: Drafter<E>>() {}
//! drafts::<EventClock<'static>, ByOracle>();
//! ```
//!
//! On any other executor an oracle is not a drafter, and the compiler checks this:
//!
//! ```compile_fail,E0277
//! use foretoken_sim::{engine::{ByOracle, Drafter}, executor::Executor};
//! fn drafts<E: Executor, D: Drafter<E>>() {}
//! fn live<E: Executor>() {
//!     drafts::<E, ByOracle>();
//! }
//! ```

use crate::acceptance::Hidden;
use crate::host::Host;
use crate::latency::{ContextReads, Drafting, LatencyModel};
use crate::policy::{BatchView, DraftPlan, StepOutcome};
use crate::time::Time;
use crate::workload::RequestId;

/// The data that only an oracle sees: how many draft tokens would be accepted, and the true latency of passes.
pub struct Truth<'a> {
    /// For each decode request: how many of the next draft tokens in a row would be accepted, at most the request's
    /// limit. If the oracle may choose among several [guesses](OraclePolicy::guesses) at a position, the position
    /// counts as accepted if any of these guesses is right.
    pub run: &'a [u32],
    /// The latency model that gives the true time of a draft pass.
    pub draft: &'a dyn LatencyModel,
    /// The latency model that gives the true time of a target pass.
    pub target: &'a dyn LatencyModel,
    /// Whether a verify pass truly reads a request's context once, or once for each verified position.
    pub context_reads: ContextReads,
    /// How the draft model makes a request's draft tokens of one step: one pass for each token, or one pass for all.
    pub drafting: Drafting,
    /// The constant part of the true host time of a step, with or without drafting.
    pub overhead: Time,
    /// What the acceptance source knows about the unfinished requests, for oracles that may see less than `run`. `None`
    /// if the `Truth` was written by hand and not made by an event clock.
    pub hidden: Option<Hidden<'a>>,
    /// The part of a step's true host time that depends on the step's requests and tokens.
    pub host: Host,
}

/// An oracle policy: it chooses draft lengths with the hidden truth (which draft tokens are right, true pass times).
/// Other policies are compared with the oracle.
pub trait OraclePolicy: Send {
    /// The most tokens that the oracle may draft for a request in the next step.
    fn limit(&self) -> u32;

    /// How many of the draft model's best guesses at each position the oracle may choose from, at least 1. With 1 the
    /// oracle drafts chains of first guesses. With more it drafts trees. The best tree is then a single path of right
    /// guesses, whatever their ranks, because every wrong token only takes time. Such a path takes as long as a chain
    /// of the same length. The engine calls this once, before the run.
    fn guesses(&self) -> u32 {
        1
    }

    /// Chooses the draft length of each decode request. All draft tokens are verified.
    fn propose(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan);

    /// Called after every step that ran a pass, like [`SpecPolicy::observe`](crate::SpecPolicy::observe).
    fn observe(&mut self, _outcome: &StepOutcome) {}

    /// Called when a request has ended, like [`SpecPolicy::request_finished`](crate::SpecPolicy::request_finished).
    fn request_finished(&mut self, _id: RequestId) {}
}
