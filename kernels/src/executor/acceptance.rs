//! The choice of what decides in a device run which drafts are accepted.

use foretoken_sim::AcceptanceSource;

/// What decides which draft tokens are accepted.
#[derive(Clone, Copy)]
pub enum Acceptance<'a> {
    /// The models, greedily: a draft is accepted if it is the target's most likely token.
    Greedy,
    /// The models, by exact rejection sampling of sampled drafts.
    Sampled {
        /// Temperature of both models' softmax; above 0.
        temperature: f32,
        /// Seed of all random draws. A draw depends on seed, request, first output position of the round and depth.
        seed: u64,
    },
    /// An acceptance source of the simulator: passes are real, but the source decides which drafts are accepted.
    Declared(&'a dyn AcceptanceSource),
}
