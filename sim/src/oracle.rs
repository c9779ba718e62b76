//! The oracle boundary: the only access to the hidden truth.
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

/// The data that only an oracle sees: how many drafts would be accepted, and the true latency of passes.
pub struct Truth<'a> {
    /// For each decode request: how many of the next drafts in a row would be accepted, at most the request's limit. At
    /// each position the best of the oracle's [guesses](OraclePolicy::guesses) is drafted.
    pub run: &'a [u32],
    /// The true cost of a draft pass.
    pub draft: &'a dyn LatencyModel,
    /// The true cost of a target pass.
    pub target: &'a dyn LatencyModel,
    /// How the true verify pass reads context.
    pub context_reads: ContextReads,
    /// How the draft makes its tokens.
    pub drafting: Drafting,
    /// The true host time of a step, with or without drafting.
    pub overhead: Time,
    /// The requests as their acceptance source knows them, for bounds that may see less than `run`. `None` in a state
    /// that was written by hand.
    pub hidden: Option<Hidden<'a>>,
    /// The true law of the host time that depends on the step.
    pub host: Host,
}

/// An oracle policy: a bound that chooses draft lengths with the hidden truth.
pub trait OraclePolicy: Send {
    /// The most tokens that the oracle may draft for a request in the next step.
    fn limit(&self) -> u32;

    /// How many of the draft's best guesses at each position the oracle may choose from, at least 1. With 1 it drafts
    /// chains of first guesses. With more it drafts trees: the best tree has no wrong token, because a wrong token only
    /// takes time. So it is a path of right guesses, whatever their ranks, and costs what a chain of the same length
    /// costs. Asked once, before the run.
    fn guesses(&self) -> u32 {
        1
    }

    /// Chooses the draft length of each decode request. All drafts are verified.
    fn propose(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan);

    /// Called after every step that ran a pass, as [`SpecPolicy::observe`](crate::SpecPolicy::observe).
    fn observe(&mut self, _outcome: &StepOutcome) {}

    /// Called when a request has ended, as [`SpecPolicy::request_finished`](crate::SpecPolicy::request_finished).
    fn request_finished(&mut self, _id: RequestId) {}
}
