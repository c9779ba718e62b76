//! Requests that two engines share: one engine computes the prompt and hands its KV over, the other engine computes the
//! output. `hand_over.rs` has the rules.

use crate::engine::request::{Reserved, RunningRequest};
use crate::time::Time;

/// The requests that this engine shares with another engine: one engine computes the prompt, the other engine the
/// output.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// Requests that have blocks for their prompt, whose KV comes from another engine, in order of allocation.
    pub(super) held: Vec<Held>,
    /// Requests whose blocks were allocated since the last call of `take_reserved`.
    pub(super) reserved: Vec<Reserved>,
    /// The host asks the device from time to time which KV has arrived. This is the time of the newest question whose
    /// answer the scheduler knows.
    pub(super) asked: Time,
    /// Requests of which this engine computed only the prompt, and that keep the prompt's blocks until the KV is
    /// transferred.
    pub(super) kept: Vec<RunningRequest>,
}

/// A request that has blocks for its prompt, whose KV comes from another engine.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) r: RunningRequest,
    /// Prompt tokens found in this engine's prefix cache.
    pub(super) cached: u32,
    /// Whether the KV of the draft model arrived together with the KV of the target.
    pub(super) draft_kv: bool,
    /// When all KV of the request's prompt had arrived; `Time::MAX` until then.
    pub(super) arrived: Time,
}

impl Handed {
    /// Whether this engine shares no request with another engine: no request waits for KV, and no request keeps blocks
    /// for a transfer.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.kept.is_empty()
    }

    /// Number of held requests: requests that have blocks here and wait for KV from another engine.
    #[inline]
    pub(super) fn num_held(&self) -> usize {
        self.held.len()
    }

    /// Whether the shared requests will change without a further step of this engine. That is the case if a request's
    /// blocks will be released, if KV will arrive, or if KV has arrived of which the scheduler does not know yet.
    pub(super) fn is_served(&self) -> bool {
        !self.kept.is_empty() || self.held.iter().any(|held| held.arrived > self.asked)
    }

    /// Keeps the KV blocks of a request of which this engine computed only the prompt, until another engine has this
    /// KV.
    #[cold]
    pub(super) fn keep(&mut self, r: &RunningRequest) {
        self.kept.push(r.clone());
    }
}
