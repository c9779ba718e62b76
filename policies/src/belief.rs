//! What a policy believes a pass costs: α, γ, δ of each model. It is the policy's own and may differ from the truth,
//! which the executor keeps; this module must never look at that truth.

use foretoken_sim::{BatchView, Coefficients, ContextReads, Drafting, PassShape, shape};
use serde::{Deserialize, Serialize};

/// The linear belief `T = α·context + γ·batched + δ` for both models (SmartSpec 4.3, AdaSpec 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Belief {
    /// The draft model, seconds.
    pub draft: Coefficients,
    /// The target model, seconds.
    pub target: Coefficients,
    /// How the verify pass is believed to read context.
    pub context_reads: ContextReads,
    /// How the draft is believed to come by its tokens.
    #[serde(default)]
    pub drafting: Drafting,
}

impl Belief {
    /// Believed time of a whole step in seconds: `draft_len[i]` tokens drafted and `verify_len[i]` verified for
    /// decode request i, this step's prefill chunks and the draft's catch-up included (policies.md 12).
    ///
    /// The plain reading of section 12 over [`shape`]: O(requests × depth). Policies that weigh many lengths in a step
    /// grow an [`Estimate`](crate::Estimate) instead, which must agree with this.
    pub fn step_s(&self, batch: &BatchView, draft_len: &[u32], verify_len: &[u32]) -> f64 {
        let passes = draft_len.iter().copied().max().unwrap_or(0);
        let draft_s: f64 = match passes {
            0 => shape::draft_idle_pass(batch).map_or(0.0, |s| pass_s(&self.draft, s)),
            _ if self.drafting == Drafting::Parallel => pass_s(&self.draft, shape::draft_block(batch, draft_len)),
            _ => (1..=passes).map(|pass| pass_s(&self.draft, shape::draft_pass(batch, draft_len, pass))).sum(),
        };
        draft_s + pass_s(&self.target, shape::verify_pass(batch, verify_len, self.context_reads))
    }
}

/// Believed time of one pass in seconds.
pub(crate) fn pass_s(model: &Coefficients, shape: PassShape) -> f64 {
    model.pass_s(shape.context as f64, shape.batched as f64)
}
