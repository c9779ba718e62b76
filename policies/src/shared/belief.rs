//! A policy's belief about the cost of a pass: the linear formula α·context + γ·tokens + δ seconds for the draft model
//! and for the target model. The belief may differ from the true pass times, by which the simulator runs. This module
//! must never read the true pass times.

use foretoken_sim::{BatchView, Coefficients, ContextReads, DraftTree, Drafting, PassShape, shape};
use serde::{Deserialize, Serialize};

/// A policy's linear estimate of pass times, `T = α·context + γ·batched + δ` in seconds, for the draft model and the
/// target model (SmartSpec 4.3, AdaSpec 4.1). `batched` is the pass's number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Belief {
    /// Coefficients α, γ, δ of the draft model's pass time, in seconds.
    pub draft: Coefficients,
    /// Coefficients α, γ, δ of the target model's pass time, in seconds.
    pub target: Coefficients,
    /// How often the verify pass reads a request's context, as the policy assumes: once, or once per verified position.
    pub context_reads: ContextReads,
    /// How the draft model drafts, as the policy assumes: one pass per token, or one pass for all tokens.
    #[serde(default)]
    pub drafting: Drafting,
}

impl Belief {
    /// Believed time of a whole step in seconds, if `draft_len[i]` tokens of decode request i are drafted and
    /// `verify_len[i]` are verified. Includes this step's prefill chunks and the catch-up tokens (context tokens that
    /// the draft model has skipped; docs/model.md 12).
    ///
    /// Computes docs/model.md 12 pass by pass with [`shape`], in O(requests × depth). Policies that compare many draft
    /// lengths in a step extend an [`Estimate`](crate::Estimate) depth by depth. An estimate must agree with this
    /// function.
    pub fn step_s(&self, batch: &BatchView, draft_len: &[u32], verify_len: &[u32]) -> f64 {
        let passes = draft_len.iter().copied().max().unwrap_or(0);
        let draft_s: f64 = match passes {
            0 => shape::draft_idle_pass(batch).map_or(0.0, |s| pass_s(&self.draft, s)),
            _ if self.drafting == Drafting::Parallel => pass_s(&self.draft, shape::draft_block(batch, draft_len)),
            _ => (1..=passes).map(|pass| pass_s(&self.draft, shape::draft_pass(batch, draft_len, pass))).sum(),
        };
        draft_s + pass_s(&self.target, shape::verify_pass(batch, verify_len, self.context_reads))
    }

    /// Believed time, in seconds, of a whole step that drafted `trees` (one tree of draft tokens per request) and
    /// verifies the nodes marked as kept. Reports use this function; policies do not, because it walks the trees and
    /// allocates memory.
    pub fn tree_step_s(&self, batch: &BatchView, trees: &[DraftTree]) -> f64 {
        let depth: Vec<u32> = trees.iter().map(DraftTree::depth).collect();
        let passes = depth.iter().copied().max().unwrap_or(0);
        let verify_s = pass_s(&self.target, shape::verify_tree_pass(batch, trees, self.context_reads));
        let block = passes > 0 && self.drafting == Drafting::Parallel;
        if block || passes == 0 {
            let alone = if block { Some(shape::draft_block(batch, &depth)) } else { shape::draft_idle_pass(batch) };
            return verify_s + alone.map_or(0.0, |s| pass_s(&self.draft, s));
        }
        let widths: Vec<Vec<u64>> = trees.iter().map(widths).collect();
        let draft_s: f64 = (0..passes as usize)
            .map(|pass| {
                // The first draft pass over a tree runs over the roots, together with prefill chunks and catch-up
                // tokens (context tokens that the draft model has skipped).
                let mut shape = if pass == 0 { shape::draft_pass(batch, &depth, 1) } else { PassShape::default() };
                for (w, &c) in widths.iter().zip(batch.context).filter(|(w, _)| pass > 0 && w.len() > pass) {
                    shape.batched += w[pass];
                    shape.context += u64::from(c) + w[..pass].iter().sum::<u64>();
                }
                pass_s(&self.draft, shape)
            })
            .sum();
        draft_s + verify_s
    }
}

/// One number per draft pass over a request's tree: the number of tree nodes that the pass runs over. The first pass
/// runs over the root, and each later pass over the nodes of one depth that have children.
fn widths(tree: &DraftTree) -> Vec<u64> {
    let nodes = tree.nodes();
    let expanded = |depth: u32| nodes.iter().enumerate().filter(move |(_, n)| n.depth == depth);
    let has_children = |at: usize| nodes.iter().any(|n| n.parent == at as u32);
    let level = |depth| if depth == 0 { 1 } else { expanded(depth).filter(|(at, _)| has_children(*at)).count() as u64 };
    (0..tree.depth()).map(level).collect()
}

/// Time of one pass of this shape in seconds, by the linear cost model with the coefficients `model`.
pub(crate) fn pass_s(model: &Coefficients, shape: PassShape) -> f64 {
    model.pass_s(shape.context as f64, shape.batched as f64)
}
