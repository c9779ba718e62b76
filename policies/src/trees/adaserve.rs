//! `adaserve-like`: token trees by latency target. All requests draft beams of the same depth and width. The nodes to
//! verify are chosen across the batch: first the nodes that each request needs to keep its TPOT, then the nodes with
//! the most expected tokens.
//!
//! Source: Li et al., "AdaServe" (arXiv 2501.12162v2), Algorithms 1 and 2, with the settings of its artefact
//! (zikun-li/AdaServe-Artifact-Evaluation, Llama-3.1-70B: depth 4 to 8, width up to 3, 512 tokens verified, 96 drafted
//! a pass) and three corrections of the paper: a node always counts with the probability of its whole path, requests
//! are served in descending order of need, and no more nodes are chosen once the token budget is used up (docs/model.md
//! 7.2).

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::shared::belief::{Belief, pass_s};
use crate::shared::estimator::Depths;
use foretoken_sim::{
    BatchView, ContextReads, DraftLimits, DraftPlan, DraftShape, DraftTree, Drafting, Drafts, Explanation, Growth,
    MAX_TREE_TOKENS, RequestId, SpecPolicy, Speculation, Time, shape,
};
use serde::{Deserialize, Serialize};

/// Settings of the policy `adaserve-like`, which drafts a tree of tokens for each request and chooses the nodes (draft
/// tokens) to verify by latency targets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Adaserve {
    /// Smallest depth of a request's draft tree (its beam), that is, the number of draft passes, 1 to 32.
    pub min_depth: u32,
    /// Greatest depth of a request's draft tree (its beam), from `min_depth` to 32.
    pub max_depth: u32,
    /// Greatest width of a request's draft tree (its beam), that is, its nodes in one draft pass; at least 1.
    pub max_width: u32,
    /// B₁: most tokens that a step verifies over all requests, the root of each request's tree included; at least 2.
    pub verify_budget: u32,
    /// B₂: most tokens that the whole batch drafts in one pass, at least 1.
    pub draft_budget: u32,
    /// The batch of n requests drafts trees of the depth `floor(verify_budget / (n + depth_offset)) − 1`. The paper
    /// calls this setting c₁ and gives no value for it.
    pub depth_offset: u32,
    /// The batch of n requests drafts trees of the width `floor(draft_budget / n) + width_offset`. The paper calls this
    /// setting c₂ and gives no value for it.
    pub width_offset: u32,
    /// n_max: most nodes (draft tokens) that a request gets in a step for the sake of its TPOT target, at least 1.
    pub max_slo_nodes: u32,
}

impl Default for Adaserve {
    fn default() -> Self {
        Adaserve {
            min_depth: 4,
            max_depth: 8,
            max_width: 3,
            verify_budget: 512,
            draft_budget: 96,
            depth_offset: 0,
            width_offset: 0,
            max_slo_nodes: MAX_TREE_TOKENS,
        }
    }
}

impl Adaserve {
    /// The depth and width, in this order, of the draft trees (beams) of a batch of `n` requests.
    fn beam(&self, n: u32) -> (u32, u32) {
        let depth = (self.verify_budget / n.saturating_add(self.depth_offset).max(1)).saturating_sub(1);
        let width = (self.draft_budget / n.max(1)).saturating_add(self.width_offset);
        (depth.clamp(self.min_depth, self.max_depth), width.clamp(1, self.max_width))
    }
}

impl Definition for Adaserve {
    fn about(&self) -> About {
        About {
            summary: "beams by load; verifies what each request needs for its TPOT limit, then the most probable \
                      nodes of the batch",
            source: "AdaServe (arXiv 2501.12162v2) Alg. 1 and 2, errata corrected; settings of its artefact for \
                     Llama-3.1-70B",
            sees: "batch size; each request's TPOT limit, time since its first decode step and tokens emitted since; \
                   path probabilities",
            differences: "Alg. 2 line 15 adds conditional probabilities: path probabilities here, as its text says. \
                          The offsets c1, c2 and the cap n_max are not published: 0, 0 and no cap. The step time is \
                          the belief's for the beams and the whole budget, where the artefact has two tables. Code \
                          seen second-hand also stops at path probabilities of 0.04 and 0.02: not here",
        }
    }

    fn drafts_trees(&self) -> bool {
        true
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("max_depth", self.max_depth))
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("adaserve-like");
        check.length("min_depth", self.min_depth)?;
        check.length("max_depth", self.max_depth)?;
        check.that("max_depth", self.min_depth <= self.max_depth, || {
            format!("{} is below min_depth = {}", self.max_depth, self.min_depth)
        })?;
        let widest = MAX_TREE_TOKENS / self.max_depth;
        check.that("max_width", (1..=widest).contains(&self.max_width), || {
            format!("{} is not a width from 1 to {widest}: a tree has at most {MAX_TREE_TOKENS} tokens", self.max_width)
        })?;
        let positive = [("draft_budget", self.draft_budget), ("max_slo_nodes", self.max_slo_nodes)];
        check.that("verify_budget", self.verify_budget >= 2, || "must be at least 2: a root and a draft".into())?;
        for (key, value) in positive {
            check.that(key, value > 0, || "must be at least 1 token".into())?;
        }
        check.that("width_offset", self.width_offset <= MAX_TREE_TOKENS, || {
            format!("{} is more than any width", self.width_offset)
        })?;
        check.that("depth_offset", self.depth_offset <= self.verify_budget, || {
            format!("{} is more than verify_budget: every beam has min_depth", self.depth_offset)
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(TwoPhases::new(*self, context)))
    }
}

/// A node (draft token) of a request's draft tree that may be verified. Its score is the draft model's probability of
/// the path from the root to the node.
#[derive(Clone, Copy, Debug)]
struct Choice {
    score: f64,
    /// Batch index of the request to whose tree the node belongs.
    request: u32,
    /// Index of the node (draft token) in the request's draft tree.
    node: u32,
}

/// Orders nodes of draft trees by falling score, then by request, then by index in the tree, so that parents come
/// before their children.
fn better_first(a: &Choice, b: &Choice) -> std::cmp::Ordering {
    b.score.total_cmp(&a.score).then(a.request.cmp(&b.request)).then(a.node.cmp(&b.node))
}

/// The time at which a request was first seen decoding, and the number of tokens that it had emitted then. The
/// request's TPOT is measured from this time on.
#[derive(Clone, Copy, Debug)]
struct FirstSeen {
    at: Time,
    emitted: u32,
}

/// The policy `adaserve-like` while the engine runs. The fields after `seen` belong to the step in progress.
struct TwoPhases {
    params: Adaserve,
    belief: Belief,
    longest: u32,
    /// For each request, by request id: when it was first seen decoding; `None` before.
    seen: Vec<Option<FirstSeen>>,
    /// Width of this step's draft trees: the number of nodes of a request in one draft pass.
    width: u32,
    /// Nodes of the draft trees (draft tokens) that may be verified, request after request; the i-th request has
    /// `pool[bounds[i]..bounds[i + 1]]`.
    pool: Vec<Choice>,
    bounds: Vec<usize>,
    /// Sum, over all nodes of `pool` (draft tokens that may be verified), of the KV tokens to which the node attends.
    positions: u64,
    /// Requests that need more tokens in this step than the one token that every step brings, to keep their TPOT: (need
    /// in tokens, batch index).
    needy: Vec<(f64, u32)>,
    /// For each request: the number of its nodes that phase 1 took. Phase 1 gives requests the draft tokens that they
    /// need for their TPOT. These nodes come first in the request's part of `pool`.
    taken: Vec<usize>,
    /// Nodes (draft tokens) that phase 1, which serves TPOT limits, did not take. Phase 2, which serves throughput,
    /// chooses among them.
    rest: Vec<Choice>,
    /// For each node, tree after tree: true if it was chosen for verification. `first_node[i]` is the index at which
    /// the tree of request i begins.
    kept: Vec<bool>,
    first_node: Vec<usize>,
    depths: Depths,
    /// Expected tokens of the batch in this step: one for the root of each request's tree, and the path probabilities
    /// of the verified nodes.
    expected: f64,
}

impl TwoPhases {
    fn new(params: Adaserve, context: &PolicyContext) -> TwoPhases {
        TwoPhases {
            params,
            belief: context.belief,
            longest: params.max_depth.min(context.max_draft_len),
            seen: Vec::new(),
            width: 1,
            pool: Vec::new(),
            bounds: Vec::new(),
            positions: 0,
            needy: Vec::new(),
            taken: Vec::new(),
            rest: Vec::new(),
            kept: Vec::new(),
            first_node: Vec::new(),
            depths: Depths::default(),
            expected: 0.0,
        }
    }

    /// Stores the time and the emitted tokens of each request that decodes for the first time.
    fn see(&mut self, batch: &BatchView) {
        for (&id, &emitted) in batch.ids.iter().zip(batch.emitted) {
            let id = id as usize;
            if self.seen.len() <= id {
                self.seen.resize(id + 1, None);
            }
            self.seen[id].get_or_insert(FirstSeen { at: batch.now, emitted });
        }
    }

    /// Fills `pool` with the nodes (draft tokens) that may be verified: the `width` most probable nodes of each level
    /// of each request's tree. If a request has more of these nodes than its limit allows, only the most probable ones
    /// stay.
    fn gather(&mut self, batch: &BatchView, trees: &[DraftTree]) {
        self.pool.clear();
        self.bounds.clear();
        self.bounds.push(0);
        self.positions = 0;
        self.kept.clear();
        self.first_node.clear();
        for (i, tree) in trees.iter().enumerate() {
            self.first_node.push(self.kept.len());
            self.kept.resize(self.kept.len() + tree.nodes().len(), false);
            let mut node = 0;
            for level in tree.nodes().chunk_by(|a, b| a.depth == b.depth) {
                let start = self.pool.len();
                for n in level {
                    self.pool.push(Choice { score: n.score, request: i as u32, node });
                    node += 1;
                }
                keep_first(&mut self.pool, start, self.width as usize);
            }
            let start = self.bounds[i];
            keep_first(&mut self.pool, start, batch.limit[i] as usize);
            let context = u64::from(batch.context[i]);
            let position = |c: &Choice| context + u64::from(tree.nodes()[c.node as usize].depth);
            self.positions += self.pool[start..].iter().map(position).sum::<u64>();
            self.bounds.push(self.pool.len());
        }
    }

    /// Time of the step in seconds, by the policy's belief (a linear cost formula), if `nodes` of the nodes in `pool`
    /// are verified.
    fn step_s(&mut self, batch: &BatchView, draft_len: &[u32], passes: u32, nodes: usize) -> f64 {
        let Belief { draft, target, context_reads, drafting } = self.belief;
        let draft_s = match drafting {
            Drafting::Parallel => pass_s(&draft, shape::draft_block(batch, draft_len)),
            Drafting::Autoregressive => {
                self.depths.fill(batch, self.longest);
                let first = pass_s(&draft, shape::draft_pass(batch, draft_len, 1));
                let deeper = (2..=passes).map(|pass| {
                    let at = self.depths.at(pass);
                    // The number of nodes of a request's tree that are already in the draft model's KV: the root and
                    // the nodes of all levels before the level that the pass runs over.
                    let ran = 1 + u64::from((pass - 2) * self.width);
                    draft.pass_s((at.context + at.requests * ran) as f64, (at.requests * u64::from(self.width)) as f64)
                });
                first + deeper.sum::<f64>()
            }
        };
        let share = if self.pool.is_empty() { 0.0 } else { nodes as f64 / self.pool.len() as f64 };
        let read = match context_reads {
            ContextReads::Once => 0.0,
            ContextReads::PerPosition => target.alpha_s * self.positions as f64 * share,
        };
        draft_s + pass_s(&target, shape::plain_pass(batch)) + target.gamma_s * nodes as f64 + read
    }

    /// Computes A_i, the need of each request: the tokens that the request must gain in this step for its TPOT to be
    /// within its limit at the step's end. Every step brings one token anyway. Requests with a need above 1 go to
    /// `needy`, in falling order of need.
    fn weigh_needs(&mut self, batch: &BatchView, step_s: f64) {
        self.needy.clear();
        for (i, &id) in batch.ids.iter().enumerate() {
            let Some(seen) = self.seen[id as usize] else { continue };
            let elapsed_s = (batch.now - seen.at).as_s();
            let gained = f64::from(batch.emitted[i] - seen.emitted);
            let need = (elapsed_s + step_s) / batch.slo_tpot_s[i] - gained;
            if need > 1.0 {
                self.needy.push((need, i as u32));
            }
        }
        self.needy.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    }

    /// Phase 1: takes the most probable nodes (draft tokens) of each needy request until the request's expected tokens
    /// meet the need for its TPOT. Stops earlier for a request with `max_slo_nodes` nodes, or when `left`, the number
    /// of tokens that may still be verified, is used up. Returns the number that is still left.
    fn toward_slo(&mut self, draft_len: &[u32], mut left: usize) -> usize {
        self.taken.clear();
        self.taken.resize(draft_len.len(), 0);
        for &(need, i) in &self.needy {
            let i = i as usize;
            let wanted = need.min(f64::from(draft_len[i] + 1));
            let own = &mut self.pool[self.bounds[i]..self.bounds[i + 1]];
            own.sort_unstable_by(better_first);
            let most = left.min(self.params.max_slo_nodes as usize);
            let mut promised = 1.0;
            for choice in own.iter().take(most) {
                if promised >= wanted {
                    break;
                }
                promised += choice.score;
                self.taken[i] += 1;
            }
            left -= self.taken[i];
        }
        left
    }

    /// Phase 2, for throughput: takes the `left` most probable nodes (draft tokens) of the whole batch that phase 1 did
    /// not take.
    fn toward_throughput(&mut self, left: usize) {
        self.rest.clear();
        for (bounds, &taken) in self.bounds.windows(2).zip(&self.taken) {
            self.rest.extend_from_slice(&self.pool[bounds[0] + taken..bounds[1]]);
        }
        keep_first(&mut self.rest, 0, left);
    }

    /// Marks, in the draft trees, the nodes that phase 1 or phase 2 took, and sums the step's expected tokens.
    fn keep(&mut self, trees: &mut [DraftTree]) {
        let first = self.bounds.iter().zip(&self.taken);
        let first = first.flat_map(|(&start, &taken)| &self.pool[start..start + taken]);
        self.expected = trees.len() as f64;
        for choice in first.chain(&self.rest) {
            self.kept[self.first_node[choice.request as usize] + choice.node as usize] = true;
            self.expected += choice.score;
        }
        for (tree, &first) in trees.iter_mut().zip(&self.first_node) {
            tree.keep(|at, _| self.kept[first + at]);
        }
    }
}

/// Keeps the `most` best nodes (by `better_first`) of `choices` from index `start` on, in any order, and drops the
/// other nodes from `start` on.
fn keep_first(choices: &mut Vec<Choice>, start: usize, most: usize) {
    if choices.len() - start > most {
        choices[start..].select_nth_unstable_by(most, better_first);
        choices.truncate(start + most);
    }
}

impl SpecPolicy for TwoPhases {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::tree(self.longest, (self.longest * self.params.max_width).min(self.params.verify_budget - 1))
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.see(batch);
        let (depth, width) = self.params.beam(batch.len() as u32);
        self.width = width;
        self.expected = batch.len() as f64;
        plan.shape = DraftShape::Tree(Growth::Beam { topk: width });
        plan.fill(depth.min(self.longest));
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        let n = batch.len();
        self.gather(batch, &drafts.trees[..n]);
        let budget = (self.params.verify_budget as usize).saturating_sub(n);
        let step_s = self.step_s(batch, &drafts.draft_len, drafts.passes, budget.min(self.pool.len()));
        self.weigh_needs(batch, step_s);
        let left = self.toward_slo(&drafts.draft_len, budget);
        self.toward_throughput(left);
        self.keep(&mut drafts.trees[..n]);
    }

    fn request_finished(&mut self, id: RequestId) {
        if let Some(seen) = self.seen.get_mut(id as usize) {
            *seen = None;
        }
    }

    /// The policy's estimate is the expected tokens of the step, with the draft model's path probabilities taken as
    /// true (the objective of Eq. 1 of AdaServe).
    fn explain(&mut self) -> Explanation {
        Explanation { estimate: Some(self.expected), candidates: Vec::new() }
    }
}

#[cfg(test)]
#[path = "adaserve_tests.rs"]
mod tests;
