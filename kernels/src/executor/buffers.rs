//! Buffers of draft and target passes. Later passes reuse them, so that a pass allocates nothing.

use super::capacity::Capacity;
use crate::accept::{Accepted, Choice};
use crate::paged::Batch;
use foretoken_sim::RequestId;
use std::ops::Range;

/// Buffers of a draft pass; later draft passes reuse them.
#[derive(Debug)]
pub(super) struct Drafting {
    pub(super) max_rows: usize,
    pub(super) max_logit_rows: usize,
    /// For each row of logits of the draft pass: the request that needs this row, as an index in the step's batch.
    pub(super) askers: Vec<u32>,
    pub(super) choices: Vec<Choice>,
    pub(super) entropies: Vec<f64>,
    pub(super) uniforms: Vec<f64>,
    pub(super) kept_rows: Vec<u32>,
    pub(super) frontier: Vec<u32>,
}

impl Drafting {
    pub(super) fn new(capacity: Capacity) -> Drafting {
        Drafting {
            max_rows: capacity.rows,
            max_logit_rows: capacity.draft_logit_rows,
            askers: Vec::new(),
            choices: Vec::new(),
            entropies: Vec::new(),
            uniforms: Vec::new(),
            kept_rows: Vec::new(),
            frontier: Vec::new(),
        }
    }

    /// Returns the number of rows (new tokens) that can still be added to the present draft pass. `asks` is true if the
    /// last of these rows needs logits. In this case the result is 0 if the pass already has its largest number of rows
    /// with logits.
    pub(super) fn room(&self, batch: &Batch, asks: bool) -> usize {
        match asks && self.askers.len() == self.max_logit_rows {
            true => 0,
            false => self.max_rows - batch.rows(),
        }
    }
}

/// A request for which a target pass samples a token: a decode request, or a request whose prompt ends in this pass.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) request: RequestId,
    /// Number of output tokens that the request had emitted before this pass.
    pub(super) start: u32,
    /// Index of the request's first row in the pass's matrix of logits, which has one row per token that needs logits.
    pub(super) first: usize,
    /// The request's draft tokens to verify, as a range of [`Verifying::tokens`] and [`Verifying::parents`].
    pub(super) checked: Range<usize>,
}

/// Buffers of a target pass; later target passes reuse them.
#[derive(Debug, Default)]
pub(super) struct Verifying {
    pub(super) askers: Vec<Asker>,
    pub(super) tokens: Vec<u32>,
    pub(super) parents: Vec<u32>,
    /// For each entry of `tokens`: the index of its node in the draft tree. In a chain: the token's index in the chain.
    pub(super) nodes: Vec<u32>,
    /// For each node of the present draft tree: how many earlier nodes of the tree were selected for verification.
    /// For a selected node, this number is its index among the request's verified tokens.
    pub(super) kept: Vec<u32>,
    pub(super) pass_tokens: Vec<u32>,
    pub(super) pass_parents: Vec<u32>,
    pub(super) out: Vec<Accepted>,
    pub(super) moves: Vec<(u32, u32)>,
    pub(super) draft_moves: Vec<(u32, u32)>,
    pub(super) pairs: Vec<(u32, u32)>,
    pub(super) divergences: Vec<f64>,
}
