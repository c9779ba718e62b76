//! Who decides on a device which drafts are accepted.

use foretoken_sim::AcceptanceSource;

/// What decides which draft tokens are accepted.
#[derive(Clone, Copy)]
pub enum Acceptance<'a> {
    /// The models, greedily: the target's most likely token is the next one.
    Greedy,
    /// The models, by exact rejection sampling of sampled drafts.
    Sampled {
        /// Temperature of both models' softmax; above 0.
        temperature: f32,
        /// Seed of all draws. They are keyed by request, round start and depth.
        seed: u64,
    },
    /// A source of the simulator, imposed on real passes.
    Declared(&'a dyn AcceptanceSource),
}
