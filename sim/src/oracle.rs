//! The oracle boundary: the only door to the hidden truth.
//!
//! An oracle is not a [`SpecPolicy`](crate::SpecPolicy) and no policy can be built with a [`Truth`]. Only the event
//! clock can make one, so an oracle cannot run live: there is no such function to call.
//!
//! On the event clock an oracle is a drafter (invariant 8):
//!
//! ```
//! use foretoken_sim::{engine::{ByOracle, Drafter}, event_clock::EventClock, executor::Executor};
//! fn drafts<E: Executor, D: Drafter<E>>() {}
//! drafts::<EventClock<'static>, ByOracle>();
//! ```
//!
//! On any other executor it is none, which a compiler says and not a check at run time:
//!
//! ```compile_fail,E0277
//! use foretoken_sim::{engine::{ByOracle, Drafter}, executor::Executor};
//! fn drafts<E: Executor, D: Drafter<E>>() {}
//! fn live<E: Executor>() {
//!     drafts::<E, ByOracle>();
//! }
//! ```

use crate::latency::{ContextReads, Drafting, LatencyModel};
use crate::policy::{BatchView, DraftPlan};
use crate::time::Time;

/// What only an oracle sees: the accepted runs of the batch and the true cost of passes.
pub struct Truth<'a> {
    /// For each decode request, how many drafts in a row would be accepted, at most its limit.
    pub run: &'a [u32],
    /// The true cost of a draft pass.
    pub draft: &'a dyn LatencyModel,
    /// The true cost of a target pass.
    pub target: &'a dyn LatencyModel,
    /// How the true verify pass reads context.
    pub context_reads: ContextReads,
    /// How the draft comes by its tokens.
    pub drafting: Drafting,
    /// The true host time of a step, drafting or not.
    pub overhead: Time,
}

/// A bound that chooses with the hidden truth in hand.
pub trait OraclePolicy: Send {
    /// The most it may draft now for any request.
    fn limit(&self) -> u32;

    /// Chooses lengths for each decode request; everything drafted is verified.
    fn propose(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan);
}
