//! Who judges drafts on a device.

use foretoken_sim::AcceptanceSource;

/// Who says which draft tokens are right.
#[derive(Clone, Copy)]
pub enum Acceptance<'a> {
    /// The models, greedily: the target's likeliest token is the next one.
    Greedy,
    /// The models, by exact rejection sampling of sampled drafts.
    Sampled {
        /// Of both models' softmax; above 0.
        temperature: f32,
        /// Seed of all draws, which are keyed by request, round start and depth.
        seed: u64,
    },
    /// A source of the simulator, forced onto real passes.
    Declared(&'a dyn AcceptanceSource),
}
