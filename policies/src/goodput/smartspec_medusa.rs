//! `smartspec-medusa`: trees of a drafter with one head per depth. The policy chooses the widths k_1 … k_h, that is,
//! the tokens of each head, with the best estimated goodput.
//!
//! Source: SmartSpec (arXiv 2406.14066), Alg. 1 and 2 in their tree form, 4.3, 4.4 and 7.2.2 (Medusa, dense
//! connections: every token of a head follows every token of the head before). The expected length is corrected
//! (docs/model.md 3.1): E = 1 + Σ_i Π_{j≤i} s_j with s_j = 1 − (1 − α_j)^{k_j}. Eq. 10 as printed omits the case that
//! nothing is accepted, and has 1 − α where 1 − s is meant. Tokens verified: Σ_d Π_{j≤d} k_j.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::goodput::heads::{Heads, MOST_HEADS};
use crate::goodput::zero_lengths::ZeroLengths;
use crate::shared::belief::{Belief, pass_s};
use crate::shared::estimator::Depths;
use crate::shared::weighed::Weighed;
use foretoken_sim::{
    BatchView, ContextReads, DraftLimits, DraftPlan, DraftShape, Drafting, Explanation, Growth, MAX_TREE_TOKENS,
    PassShape, SpecPolicy, Speculation, StepOutcome, shape,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Settings of the policy `smartspec-medusa`, which chooses the widths of draft trees by estimated goodput.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SmartspecMedusa {
    /// Number of Medusa heads, which is the greatest depth of a tree (three in the paper).
    pub heads: u32,
    /// Most tokens that a head proposes at its depth (up to 3 in the paper).
    pub max_topk: u32,
    /// Most tokens of a request's tree, at least `max_topk`. The scheduler reserves this number for each request.
    pub max_tree_tokens: u32,
    /// Acceptance rate, [0, 1], of a head's token that is assumed until the first tree was verified.
    pub initial_acceptance: f64,
    /// Weight, [0, 1], of the old acceptance rate of a head when a step updates it.
    pub ema_keep: f64,
    /// Number of steps in a row without a tree after which the run warns that the policy no longer drafts, at least 1.
    pub absorbing_steps: u64,
}

impl Default for SmartspecMedusa {
    fn default() -> Self {
        SmartspecMedusa {
            heads: 3,
            max_topk: 3,
            max_tree_tokens: 39,
            initial_acceptance: 0.7,
            ema_keep: 0.85,
            absorbing_steps: 1000,
        }
    }
}

impl Definition for SmartspecMedusa {
    fn about(&self) -> About {
        About {
            summary: "trees of Medusa heads: the widths with the best estimated goodput",
            source: "SmartSpec (arXiv 2406.14066) 4.3, 4.4 Eq. 10 (corrected), 7.2.2",
            sees: "batch size, contexts and limits; the depth that past trees were accepted to",
            differences: "Eq. 10 is corrected. The paper's simulation sets each head's rate; here it is learnt from \
                          how deep trees were accepted, which is all a server sees. Widths are searched exactly, up \
                          to max_tree_tokens; the paper does not say how. Heads may stay unused, down to no tree at \
                          all; the paper's three do not. A request that may verify less than the whole tree gets the \
                          levels that fit. Verification is greedy: Medusa's own typical acceptance is lossy. \
                          Drafting is the experiment's (parallel for heads); there is no draft prefill to skip",
        }
    }

    fn drafts_trees(&self) -> bool {
        true
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("smartspec-medusa");
        check.that("heads", (1..=MOST_HEADS as u32).contains(&self.heads), || {
            format!("{} is not a number of heads from 1 to {MOST_HEADS}", self.heads)
        })?;
        check.that("max_topk", (1..=MAX_TREE_TOKENS).contains(&self.max_topk), || {
            format!("{} is not a width from 1 to {MAX_TREE_TOKENS}", self.max_topk)
        })?;
        check.that("max_tree_tokens", (self.max_topk..=MAX_TREE_TOKENS).contains(&self.max_tree_tokens), || {
            format!("must be from max_topk = {} to {MAX_TREE_TOKENS}, to hold one head's tokens", self.max_topk)
        })?;
        check.share("initial_acceptance", self.initial_acceptance)?;
        check.share("ema_keep", self.ema_keep)?;
        check.that("absorbing_steps", self.absorbing_steps > 0, || "must be at least 1 step".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(*self, context)))
    }
}

/// A tree of the drafter: its widths (tokens of each head), the cost of a step with it, and its expected tokens.
#[derive(Clone, Copy, Debug)]
struct Tree {
    /// Number of tokens that each head proposes at its depth; only the first `depth` entries are used.
    widths: [u32; MOST_HEADS],
    depth: usize,
    /// Tokens of the whole tree without its root (`tokens`), and tokens of its deepest level (`last`).
    tokens: u32,
    last: u32,
    /// Expected tokens of the whole batch in a step with this tree, bonus tokens included.
    expected: f64,
    /// Probability that, on every level of the tree, one of a request's tokens is accepted.
    reached: f64,
    draft_s: f64,
    verify_s: f64,
}

impl Tree {
    fn goodput(&self) -> f64 {
        self.expected / (self.draft_s + self.verify_s)
    }

    fn widths(&self) -> &[u32] {
        &self.widths[..self.depth]
    }
}

/// The policy `smartspec-medusa` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: SmartspecMedusa,
    belief: Belief,
    heads: Heads,
    depth: usize,
    most: u32,
    /// For each n, the number of the batch's requests that may verify at least n tokens of a tree.
    room: Depths,
    /// For each head j and each k from 1 to `max_topk`: s_j(k), the probability that one of the head's k tokens is
    /// accepted, as of the last decision.
    passes: Vec<f64>,
    /// For each level of the tree that was chosen last, its number of tokens per node. It is shared with the draft
    /// plans that the policy hands to the engine.
    widths: Arc<[u32]>,
    goodput: f64,
    zeroes: ZeroLengths,
    weighed: Weighed,
}

impl Running {
    fn new(params: SmartspecMedusa, context: &PolicyContext) -> Running {
        let start = context.told.map_or(params.initial_acceptance, |t| t.acceptance_rate);
        let depth = params.heads.min(context.max_draft_len) as usize;
        // Number of tokens of the widest possible tree. The scheduler reserves this number of tokens for each request,
        // or `max_tree_tokens` if that is less.
        let widest = (1..=depth as u32).fold(0u32, |sum, d| sum.saturating_add(params.max_topk.saturating_pow(d)));
        Running {
            belief: context.belief,
            heads: Heads::new(start, params.ema_keep),
            depth,
            most: params.max_tree_tokens.min(widest),
            room: Depths::default(),
            passes: Vec::new(),
            widths: Arc::new([1]),
            goodput: 0.0,
            zeroes: ZeroLengths::new(params.absorbing_steps, 1.0, context.belief.drafting),
            weighed: Weighed::default(),
            params,
        }
    }

    /// The tree of depth 0, with which the step drafts nothing. It has the cost and the expected tokens of such a step.
    fn bare(&self, batch: &BatchView) -> Tree {
        Tree {
            widths: [0; MOST_HEADS],
            depth: 0,
            tokens: 0,
            last: 1,
            expected: batch.len() as f64,
            reached: 1.0,
            draft_s: shape::draft_idle_pass(batch).map_or(0.0, |s| pass_s(&self.belief.draft, s)),
            verify_s: pass_s(&self.belief.target, shape::plain_pass(batch)),
        }
    }

    /// Returns `tree` with `width` tokens below each token of its last level, with its expected tokens and times.
    /// `None` if it would have more than `most` tokens, or if no request may verify it.
    fn deepen(&self, batch: &BatchView, tree: &Tree, width: u32) -> Option<Tree> {
        let level = tree.last.checked_mul(width)?;
        let tokens = tree.tokens.checked_add(level).filter(|&t| t <= self.most)?;
        let at = self.room.at(tokens);
        if at.requests == 0 {
            return None;
        }
        let mut next = Tree { depth: tree.depth + 1, tokens, last: level, ..*tree };
        next.widths[tree.depth] = width;
        next.reached *= self.passes(next.depth, width);
        next.expected += at.requests as f64 * next.reached;

        let (n, level) = (at.requests, u64::from(level));
        let positions = level * (at.context + n * next.depth as u64);
        let target = &self.belief.target;
        next.verify_s += target.gamma_s * (n * level) as f64
            + match self.belief.context_reads {
                ContextReads::Once => 0.0,
                ContextReads::PerPosition => target.alpha_s * positions as f64,
            };
        // The draft pass runs over the tokens of the last level. It reads the context and the tokens of the levels
        // before.
        let before = u64::from(tree.tokens + 1 - tree.last);
        let mut pass =
            PassShape { requests: n, batched: n * u64::from(tree.last), context: at.context + n * before, pairs: 0 };
        if self.belief.drafting == Drafting::Parallel {
            // A parallel drafter makes the tokens of all heads in one pass, in which each request counts one token per
            // head. A deeper head adds only the time of its tokens.
            pass.batched = n;
        }
        if tree.depth == 0 {
            let riders = shape::draft_idle_pass(batch).unwrap_or_default();
            pass.batched += riders.batched + at.catch_up;
            pass.context += riders.context;
            next.draft_s = 0.0;
        }
        next.draft_s += match self.belief.drafting {
            Drafting::Parallel if tree.depth > 0 => self.belief.draft.gamma_s * n as f64,
            _ => pass_s(&self.belief.draft, pass),
        };
        Some(next)
    }

    /// Returns the tree with the greatest goodput (expected tokens per second), the first found on a tie, by
    /// depth-first search. The search leaves a branch if no tree below it can beat the best tree so far.
    fn best_tree(&mut self, batch: &BatchView) -> Tree {
        self.room.fill(batch, self.most);
        let topk = self.params.max_topk as usize;
        self.passes.clear();
        for depth in 1..=self.depth {
            let miss = 1.0 - self.heads.alpha(depth);
            let mut all_miss = 1.0;
            self.passes.extend((0..topk).map(|_| {
                all_miss *= miss;
                1.0 - all_miss
            }));
        }
        let bare = self.bare(batch);
        let mut best = bare;
        let mut weighed = std::mem::take(&mut self.weighed);
        weighed.begin();
        weighed.note(bare.goodput(), || "no tree".to_string());
        self.search(batch, &bare, &mut best, &mut weighed);
        self.weighed = weighed;
        best
    }

    fn search(&self, batch: &BatchView, tree: &Tree, best: &mut Tree, weighed: &mut Weighed) {
        if tree.depth == self.depth {
            return;
        }
        for width in 1..=self.params.max_topk {
            let Some(next) = self.deepen(batch, tree, width) else { break };
            let goodput = next.goodput();
            weighed.note(goodput, || format!("widths {:?}", next.widths()));
            if goodput > best.goodput() {
                *best = next;
            }
            if self.bound(&next) > best.goodput() {
                self.search(batch, &next, best, weighed);
            }
        }
    }

    /// An upper bound of the goodput (tokens per second) of all trees that extend `tree`. The bound on tokens assumes
    /// two things: every further head has the greatest width that the tokens left allow for the next head, and all
    /// requests that verify `tree` also verify the larger tree. The bound on time assumes one more token below each
    /// token of the last level, for the requests that may verify `most` tokens, and nothing more.
    fn bound(&self, tree: &Tree) -> f64 {
        let widest = ((self.most - tree.tokens) / tree.last).min(self.params.max_topk);
        if widest == 0 {
            return 0.0;
        }
        let further = (tree.depth + 1..=self.depth).rev().fold(0.0, |below, d| self.passes(d, widest) * (1.0 + below));
        let expected = tree.expected + self.room.at(tree.tokens).requests as f64 * tree.reached * further;
        let least = self.room.at(self.most).requests * u64::from(tree.last);
        expected / (tree.draft_s + tree.verify_s + self.belief.target.gamma_s * least as f64)
    }

    /// s_j(k) of the last decision: the probability that one of the `width` tokens of the head at `depth` is accepted.
    fn passes(&self, depth: usize, width: u32) -> f64 {
        self.passes[(depth - 1) * self.params.max_topk as usize + width as usize - 1]
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::tree(self.depth as u32, self.most)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        let best = self.best_tree(batch);
        self.goodput = best.goodput();
        if self.room.at(1).requests > 0 {
            self.zeroes.chose(best.depth as u32);
        }
        // An expansion vector (widths of the levels) must not be empty. If the best tree has no levels, the vector is
        // [1], which no request uses.
        let widths = if best.depth == 0 { &[1][..] } else { best.widths() };
        if *self.widths != *widths {
            self.widths = widths.into();
        }
        plan.shape = DraftShape::Tree(Growth::Expansion(self.widths.clone()));
        for (depth, &limit) in plan.draft_len.iter_mut().zip(batch.limit) {
            *depth = levels_within(best.widths(), limit);
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.heads.observe(outcome);
    }

    fn warnings(&self) -> Vec<String> {
        match self.depth {
            0 => Vec::new(),
            _ => self.zeroes.warnings("smartspec-medusa", self.heads.alpha(1)),
        }
    }

    fn explain(&mut self) -> Explanation {
        self.weighed.explain(Some(self.goodput))
    }
}

/// Number of levels of a tree with these widths that fit into `limit` tokens in total.
fn levels_within(widths: &[u32], limit: u32) -> u32 {
    let (mut tokens, mut level) = (0, 1);
    for (depth, width) in (0..).zip(widths) {
        level *= width;
        tokens += level;
        if tokens > limit {
            return depth;
        }
    }
    widths.len() as u32
}

#[cfg(test)]
#[path = "smartspec_medusa_tests.rs"]
mod tests;
