//! Draft trees: several guesses for the same position, from which the target's own choice picks one path.
//!
//! A tree hangs below the newest emitted token (the root, which is not a node here). Each draft pass grows the tree by
//! one level: pass 1 processes the root and gives the nodes of depth 1; pass ℓ processes the *frontier* (the nodes of
//! depth ℓ−1 that are expanded) and gives their children. A chain is a tree with one node on each level. The draft
//! model's guesses below a node have ranks; the first guess has rank 1. Verification walks down the kept nodes as long
//! as the next kept node is the target's token (greedy tree attention: SpecInfer, arXiv 2305.09781, section 4; EAGLE-2,
//! arXiv 2406.16858).

use crate::luck::mix;
use std::sync::Arc;

/// Most tokens of one request's tree that may be verified in a step.
pub const MAX_TREE_TOKENS: u32 = 256;

/// The rule by which a draft tree grows from level to level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Every node of depth ℓ−1 gets `children[ℓ−1]` children, which are the draft model's best guesses (SpecInfer's
    /// expansion vector ⟨k₁ … k_m⟩; Medusa's heads). Deeper levels use the last entry. The list is an `Arc`, because a
    /// policy passes it in every step.
    Expansion(Arc<[u32]>),
    /// The `topk` best nodes of a level, by path probability, are expanded into `topk` children each (EAGLE-2).
    Beam {
        /// Number of nodes that are expanded on a level, and number of children of each.
        topk: u32,
    },
}

/// The value of [`Node::parent`] at depth 1. The root of a tree is not a node, so it has no index.
pub const ROOT: u32 = u32::MAX;

/// A number that identifies a path in a draft tree: a hash of the ranks of its guesses, 0 for first guesses alone.
/// `path` identifies the path to the parent. The returned path continues it by the guess of rank `rank` at `depth`
/// (from 0).
pub fn path_below(path: u64, depth: u32, rank: u32) -> u64 {
    if path == 0 && rank == 1 { 0 } else { mix(path ^ (u64::from(depth) << 32 | u64::from(rank))) }
}

/// A node of a draft tree: one drafted token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// Index of the node's parent in the tree; [`ROOT`] at depth 1.
    pub parent: u32,
    /// Depth of the node, from 1.
    pub depth: u32,
    /// The node's rank among the draft model's guesses below the same parent, from 1.
    pub rank: u32,
    /// The draft model's probability of the node's token, given its parent.
    pub confidence: f64,
    /// Product of the confidences along the path from the root to the node.
    pub score: f64,
    /// A number that identifies the path from the root to the node: 0 if all guesses are first guesses, else a hash of
    /// the ranks.
    pub path: u64,
    /// Whether the node will be verified.
    pub kept: bool,
}

/// The draft tree of one request in one step. Parents come before their children.
#[derive(Clone, Debug, Default)]
pub struct DraftTree {
    nodes: Vec<Node>,
    /// Indices of the nodes that the next draft pass expands, in the order in which they were drafted.
    frontier: Vec<u32>,
    depth: u32,
    /// Number of tokens of this tree, root included, that the draft model has processed: the sum of the widths of all
    /// passes so far.
    ran: u32,
    /// Indices of the nodes that were accepted last, from the root downwards.
    accepted: Vec<u32>,
    /// Number of nodes in `accepted` that the draft model has processed.
    fed: u32,
}

impl DraftTree {
    /// Empties the tree. Keeps the buffers.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.frontier.clear();
        self.depth = 0;
        self.ran = 0;
        self.accepted.clear();
        self.fed = 0;
    }

    /// All nodes of the tree, level by level.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Number of levels of the tree that were drafted.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Number of tokens of this tree that the next pass processes: the root in the first pass, later the frontier.
    pub fn width(&self) -> u32 {
        if self.depth == 0 { 1 } else { self.frontier.len() as u32 }
    }

    /// Indices of the nodes that the next draft pass expands, in the order in which they were drafted. Empty before the
    /// first pass, which expands the root.
    pub fn frontier(&self) -> &[u32] {
        &self.frontier
    }

    /// Number of tokens of this tree, including the root, that the draft model has processed.
    pub fn ran(&self) -> u32 {
        self.ran
    }

    /// Grows the tree by one level. `guess(parent, rank)` returns two values: the draft model's probability of its
    /// `rank`-th guess below the node `parent` (`None` for the root), and a number that identifies the path to this
    /// guess ([`Node::path`]).
    pub fn grow(&mut self, growth: &Growth, mut guess: impl FnMut(Option<&Node>, u32) -> (f64, u64)) {
        let children = match growth {
            Growth::Expansion(children) => children[(self.depth as usize).min(children.len() - 1)],
            Growth::Beam { topk } => *topk,
        };
        self.ran += self.width();
        let first = self.nodes.len() as u32;
        let mut below = |nodes: &mut Vec<Node>, parent: u32| {
            let above = (parent != ROOT).then(|| nodes[parent as usize]);
            let (depth, reached) = above.map_or((1, 1.0), |n| (n.depth + 1, n.score));
            for rank in 1..=children {
                let (confidence, path) = guess(above.as_ref(), rank);
                let score = reached * confidence;
                nodes.push(Node { parent, depth, rank, confidence, score, path, kept: true });
            }
        };
        match self.depth {
            0 => below(&mut self.nodes, ROOT),
            _ => self.frontier.iter().for_each(|&parent| below(&mut self.nodes, parent)),
        }
        self.frontier.clear();
        self.frontier.extend(first..self.nodes.len() as u32);
        if let Growth::Beam { topk } = growth {
            let nodes = &self.nodes;
            // Of two nodes with the same score, the one that was drafted earlier comes first.
            let by_score =
                |&a: &u32, &b: &u32| nodes[b as usize].score.total_cmp(&nodes[a as usize].score).then(a.cmp(&b));
            self.frontier.sort_unstable_by(by_score);
            self.frontier.truncate(*topk as usize);
            self.frontier.sort_unstable();
        }
        self.depth += 1;
    }

    /// Marks for verification (keeps) exactly the nodes for which `keep` is true. Panics if a kept node's parent is not
    /// kept.
    pub fn keep(&mut self, mut keep: impl FnMut(usize, &Node) -> bool) {
        for at in 0..self.nodes.len() {
            let kept = keep(at, &self.nodes[at]);
            let parent = self.nodes[at].parent;
            assert!(
                !kept || parent == ROOT || self.nodes[parent as usize].kept,
                "node {at} is kept without its parent"
            );
            self.nodes[at].kept = kept;
        }
    }

    /// Marks for verification (keeps) the `most` nodes with the highest scores, and among nodes with equal scores the
    /// earlier ones. Scores never rise along a path, so a kept node's parent is kept too (EAGLE-2's rerank). `order` is
    /// a buffer.
    pub fn keep_best(&mut self, most: u32, order: &mut Vec<u32>) {
        order.clear();
        order.extend(0..self.nodes.len() as u32);
        let nodes = &self.nodes;
        if order.len() > most as usize {
            let by_score =
                |a: &u32, b: &u32| nodes[*b as usize].score.total_cmp(&nodes[*a as usize].score).then(a.cmp(b));
            order.select_nth_unstable_by(most as usize, by_score);
            order.truncate(most as usize);
        }
        self.nodes.iter_mut().for_each(|n| n.kept = false);
        for &at in order.iter() {
            self.nodes[at as usize].kept = true;
        }
    }

    /// Of the nodes that are marked for verification (kept), keeps only the first `most`. Parents come before their
    /// children, so no kept node loses its parent.
    pub fn keep_first(&mut self, most: u32) {
        self.nodes.iter_mut().filter(|n| n.kept).skip(most as usize).for_each(|n| n.kept = false);
    }

    /// Number of kept nodes, which are the tokens to verify. The root does not count.
    pub fn kept(&self) -> u32 {
        self.nodes.iter().filter(|n| n.kept).count() as u32
    }

    /// Depth of the deepest node that is marked for verification (kept).
    pub fn kept_depth(&self) -> u32 {
        self.nodes.iter().filter(|n| n.kept).map(|n| n.depth).max().unwrap_or(0)
    }

    /// Verifies the tree: walks down the nodes to verify (kept nodes) as long as the next one is the target's token,
    /// stores the path of accepted nodes, and returns its length. At depth d (from 1) the target's token is the draft
    /// model's `rank(d)`-th guess. `rank` is called for each accepted depth, and for the next depth if the last
    /// accepted node has a kept child.
    pub fn accepted(&mut self, mut rank: impl FnMut(u32) -> u32) -> u32 {
        let mut at = ROOT;
        let mut depth = 0;
        self.accepted.clear();
        loop {
            let wanted = |n: &Node| n.kept && n.parent == at;
            if !self.nodes.iter().any(wanted) {
                break;
            }
            let right = rank(depth + 1);
            match self.nodes.iter().position(|n| wanted(n) && n.rank == right) {
                Some(next) => at = next as u32,
                None => break,
            }
            self.accepted.push(at);
            depth += 1;
        }
        self.count_fed();
        depth
    }

    /// Stores `path`, the indices of nodes from the root downwards, as the accepted path. Executors call this if they
    /// know already which nodes the target followed.
    pub fn accept_path(&mut self, path: impl IntoIterator<Item = u32>) {
        self.accepted.clear();
        self.accepted.extend(path);
        self.count_fed();
    }

    /// Sets `fed`, the number of accepted nodes that the draft model has processed. The draft model has processed every
    /// node that has children. So the last accepted node does not count if it has no children.
    fn count_fed(&mut self) {
        let unfed = self.accepted.last().is_some_and(|at| !self.nodes.iter().any(|n| n.parent == *at));
        self.fed = self.accepted.len() as u32 - u32::from(unfed);
    }

    /// Indices of the nodes that were [accepted](DraftTree::accepted) last, from the root downwards.
    pub fn accepted_path(&self) -> &[u32] {
        &self.accepted
    }

    /// How many of the nodes that were [accepted](DraftTree::accepted) last the draft model has processed: all, or all
    /// but the last node if that node was not expanded.
    pub fn fed(&self) -> u32 {
        self.fed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At every node the first guess has the probability 0.6, the second 0.3, the third 0.1.
    fn guess(_: Option<&Node>, rank: u32) -> (f64, u64) {
        ([0.6, 0.3, 0.1][rank as usize - 1], 0)
    }

    fn grown(growth: &Growth, depth: u32) -> DraftTree {
        let mut tree = DraftTree::default();
        (0..depth).for_each(|_| tree.grow(growth, guess));
        tree
    }

    #[test]
    fn an_expansion_vector_gives_as_many_nodes_as_the_sum_of_its_products() {
        // Number of nodes. SpecInfer's expansion ⟨1,1,3,1,1,1,1,1⟩ gives 2 + 6·3 = 20 nodes (docs/model.md 5.3).
        // Medusa's (3,2,3) gives 3 + 6 + 18 = 27.
        assert_eq!(grown(&Growth::Expansion([1, 1, 3, 1, 1, 1, 1, 1].into()), 8).nodes().len(), 20);
        let tree = grown(&Growth::Expansion([3, 2, 3].into()), 3);
        assert_eq!((tree.nodes().len(), tree.kept(), tree.kept_depth()), (27, 27, 3));
    }

    #[test]
    fn a_beam_drafts_topk_nodes_and_then_topk_squared_a_level() {
        let mut tree = DraftTree::default();
        let growth = Growth::Beam { topk: 3 };
        let mut widths = Vec::new();
        for _ in 0..4 {
            widths.push(tree.width());
            tree.grow(&growth, guess);
        }
        assert_eq!(widths, [1, 3, 3, 3]);
        assert_eq!(tree.nodes().len(), 3 + 3 * 9);
        // `keep_best` never keeps a node without its parent. If it did, the call of `keep` below would panic.
        let mut order = Vec::new();
        tree.keep_best(7, &mut order);
        let kept: Vec<bool> = tree.nodes().iter().map(|n| n.kept).collect();
        tree.keep(|at, _| kept[at]);
        assert_eq!(tree.kept(), 7);
        let best: f64 = tree.nodes().iter().filter(|n| n.kept).map(|n| n.score).fold(1.0, f64::min);
        assert!(tree.nodes().iter().all(|n| n.kept || n.score <= best));
    }

    #[test]
    fn the_longest_path_that_follows_the_target_is_accepted() {
        let mut tree = grown(&Growth::Expansion([2, 1, 2].into()), 3);
        let mut accepted = |ranks: [u32; 3]| tree.accepted(|d| ranks[d as usize - 1]);
        assert_eq!(accepted([1, 1, 1]), 3);
        assert_eq!(accepted([2, 1, 2]), 3);
        assert_eq!(accepted([2, 2, 1]), 1);
        assert_eq!(accepted([3, 1, 1]), 0);
        let mut cut = tree.clone();
        cut.keep(|_, n| n.depth < 3);
        assert_eq!(cut.accepted(|_| 1), 2);
    }

    #[test]
    #[should_panic(expected = "kept without its parent")]
    fn a_node_without_its_parent_is_refused() {
        grown(&Growth::Expansion([1].into()), 2).keep(|_, n| n.depth == 2);
    }
}
