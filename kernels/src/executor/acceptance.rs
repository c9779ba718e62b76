//! How a device run decides which draft tokens are accepted.

use foretoken_sim::AcceptanceSource;

/// What decides which draft tokens are accepted: the models, or an acceptance source of the simulator.
#[derive(Clone, Copy)]
pub enum Acceptance<'a> {
    /// The models decide, greedily: a draft token is accepted if it is the target's most likely token.
    Greedy,
    /// The models decide, by rejection sampling: draft tokens are sampled from the draft model, and the output keeps
    /// the target's distribution.
    Sampled {
        /// Temperature of both models' softmax; above 0.
        temperature: f32,
        /// Seed of all random draws. A draw depends on the seed, the request, the output position at which the
        /// request's draft tokens of this step begin, and the place of the draft token among them.
        seed: u64,
    },
    /// An acceptance source of the simulator decides. The passes of the models are real, but their tokens do not
    /// decide.
    Declared(&'a dyn AcceptanceSource),
}
