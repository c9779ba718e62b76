//! Requests that two engines share: one engine computes the prompt and hands its KV over, the other engine computes the
//! output. `hand_over.rs` has the rules.

use crate::engine::request::{Reserved, RunningRequest};
use crate::time::Time;

/// The requests that an engine shares with another engine.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// Requests that have blocks for their prompt, whose KV comes from another engine, in order of allocation.
    pub(super) held: Vec<Held>,
    /// Requests whose blocks were allocated since the last `take_reserved`.
    pub(super) reserved: Vec<Reserved>,
    /// When the host last asked the device which KV has arrived, among the questions whose answer the scheduler has.
    pub(super) asked: Time,
    /// Requests that ended with their prompt, and keep its blocks until the KV is transferred.
    pub(super) kept: Vec<RunningRequest>,
}

/// A request that has blocks for its prompt, whose KV comes from another engine.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) r: RunningRequest,
    /// Prompt tokens found in this engine's prefix cache.
    pub(super) cached: u32,
    /// Whether the draft's KV arrived too.
    pub(super) draft_kv: bool,
    /// When all KV had arrived; `Time::MAX` until then.
    pub(super) arrived: Time,
}

impl Handed {
    /// Whether no request holds or keeps blocks.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.kept.is_empty()
    }

    /// Number of requests whose KV comes from another engine.
    #[inline]
    pub(super) fn num_held(&self) -> usize {
        self.held.len()
    }

    /// Whether blocks will be released or KV will arrive without a further step of this engine.
    pub(super) fn is_served(&self) -> bool {
        !self.kept.is_empty() || self.held.iter().any(|held| held.arrived > self.asked)
    }

    /// Keeps the blocks of a request that ended with its prompt.
    #[cold]
    pub(super) fn keep(&mut self, r: &RunningRequest) {
        self.kept.push(r.clone());
    }
}
