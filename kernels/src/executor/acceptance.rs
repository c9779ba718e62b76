//! How a device run decides which drafts are accepted.

use foretoken_sim::AcceptanceSource;

/// Who decides which draft tokens are accepted: the models, or an acceptance source of the simulator.
#[derive(Clone, Copy)]
pub enum Acceptance<'a> {
    /// The models decide, greedily: a draft is accepted if it is the target's most likely token.
    Greedy,
    /// The models decide, by rejection sampling: drafts are sampled, and the output keeps the target's distribution.
    Sampled {
        /// Temperature of both models' softmax; above 0.
        temperature: f32,
        /// Seed of all random draws. A draw depends on the seed, the request, the output position at which the round
        /// begins, and the depth in the draft.
        seed: u64,
    },
    /// An acceptance source of the simulator decides. The passes of the models are real, but their tokens do not
    /// decide.
    Declared(&'a dyn AcceptanceSource),
}
