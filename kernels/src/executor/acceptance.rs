//! How a run on a device decides which draft tokens are accepted.

use foretoken_sim::AcceptanceSource;

/// What decides which draft tokens are accepted: the models, or an acceptance source of the simulator, which says
/// without a model which draft tokens are right.
#[derive(Clone, Copy)]
pub enum Acceptance<'a> {
    /// The models decide, greedily: a draft token is accepted if it is the target's most likely token.
    Greedy,
    /// The models decide, by rejection sampling: draft tokens are sampled from the draft model, and the output keeps
    /// the target's distribution.
    Sampled {
        /// Temperature of the softmax of the target and of the draft model; above 0.
        temperature: f32,
        /// Seed of all random draws. A draw depends on the seed, the request, the request's number of output tokens
        /// before this step, and the index of the draft token in its chain.
        seed: u64,
    },
    /// An acceptance source of the simulator decides: it says without a model which draft tokens are right. The passes
    /// of the target and the draft model really run, but their tokens do not decide.
    Declared(&'a dyn AcceptanceSource),
}
