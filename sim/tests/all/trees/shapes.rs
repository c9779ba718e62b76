//! Compares the shapes (tokens, context, query-key pairs) of passes over draft trees with a count token by token.

use foretoken_sim::tree::ROOT;
use foretoken_sim::{BatchView, Categories, ChunkTotals, ContextReads, DraftTree, Growth, PassShape, Time, shape};
use proptest::prelude::*;

struct Columns {
    context: Vec<u32>,
    gap: Vec<u32>,
    zeros: Vec<u32>,
    slo: Vec<f64>,
}

impl Columns {
    fn view(&self, prefill: ChunkTotals) -> BatchView<'_> {
        BatchView {
            now: Time::ZERO,
            step: 0,
            ids: &self.zeros,
            context: &self.context,
            emitted: &self.zeros,
            limit: &self.zeros,
            draft_gap: &self.gap,
            slo_tpot_s: &self.slo,
            categories: Categories::default(),
            context_sum: self.context.iter().map(|&c| u64::from(c)).sum(),
            prefill,
            draft_prefill: prefill,
            always_extend: false,
            num_running: 0,
            num_waiting: 0,
        }
    }
}

fn guess(tree: usize, rank: u32) -> (f64, u64) {
    (0.7 / f64::from(rank + tree as u32), 0)
}

fn growths() -> impl Strategy<Value = Growth> {
    prop_oneof![
        prop::collection::vec(1u32..=3, 1..=4).prop_map(|v| Growth::Expansion(v.into())),
        (1u32..=4).prop_map(|topk| Growth::Beam { topk }),
    ]
}

/// The shape (tokens, context, query-key pairs) of a pass over the prefill chunks alone.
fn with_chunks(prefill: ChunkTotals) -> PassShape {
    let ChunkTotals { chunks, tokens, context, pairs } = prefill;
    PassShape { requests: chunks.into(), batched: tokens, context, pairs }
}

proptest! {
    /// Compares the shapes (tokens, context, query-key pairs) of every draft pass and of the target pass of a step with
    /// a count node by node.
    #[test]
    fn passes_over_trees_are_counted_token_by_token(
        requests in prop::collection::vec((1u32..3000, 0u32..3, 0u32..=4), 1..6),
        growth in growths(), chunk in prop_oneof![Just(None), (0u32..300, 1u32..300).prop_map(Some)],
        cut in 0u32..30,
    ) {
        let mut prefill = ChunkTotals::default();
        if let Some((computed, tokens)) = chunk {
            prefill.add(computed, tokens);
        }
        let n = requests.len();
        let columns = Columns {
            context: requests.iter().map(|r| r.0).collect(),
            gap: requests.iter().map(|r| r.1.min(r.0)).collect(),
            zeros: vec![0; n],
            slo: vec![f64::INFINITY; n],
        };
        let draft_len: Vec<u32> = requests.iter().map(|r| r.2).collect();
        let view = columns.view(prefill);
        let mut trees = vec![DraftTree::default(); n];
        // Number of nodes of each draft tree, without the root, that the draft model has processed.
        let mut run_over = vec![0u64; n];
        for pass in 1..=4 {
            let before = trees.clone();
            let made = shape::draft_tree_pass(&view, &draft_len, pass, &trees);
            let mut counted = PassShape::default();
            if pass == 1 {
                counted = with_chunks(prefill);
            }
            for i in (0..n).filter(|&i| draft_len[i] >= pass) {
                let c = u64::from(columns.context[i]);
                trees[i].grow(&growth, |_, rank| guess(i, rank));
                // The draft pass processed every parent of the tree's new level. Each parent attends to the request's
                // context, to the nodes above it and to itself.
                let fresh = &trees[i].nodes()[before[i].nodes().len()..];
                let mut parents: Vec<u32> = fresh.iter().map(|node| node.parent).collect();
                parents.dedup();
                counted.requests += 1;
                counted.batched += parents.len() as u64;
                counted.context += c + if pass == 1 { 0 } else { 1 + run_over[i] };
                for &parent in &parents {
                    let depth = if parent == ROOT { 0 } else { u64::from(trees[i].nodes()[parent as usize].depth) };
                    counted.pairs += c + depth + 1;
                }
                run_over[i] += if pass == 1 { 0 } else { parents.len() as u64 };
                if pass == 1 {
                    for back in 1..=u64::from(columns.gap[i]) {
                        counted.batched += 1;
                        counted.pairs += c - back + 1;
                    }
                }
            }
            if draft_len.iter().any(|&d| d >= pass) {
                prop_assert_eq!(made, counted, "pass {}", pass);
            }
        }
        trees.iter_mut().for_each(|t| t.keep_best(cut, &mut Vec::new()));
        for reads in [ContextReads::Once, ContextReads::PerPosition] {
            let mut counted = with_chunks(prefill);
            for (tree, &c) in trees.iter().zip(&columns.context) {
                counted.requests += 1;
                let depths = tree.nodes().iter().filter(|node| node.kept).map(|node| u64::from(node.depth));
                for (place, depth) in [0].into_iter().chain(depths).enumerate() {
                    counted.batched += 1;
                    counted.pairs += u64::from(c) + depth + 1;
                    if reads == ContextReads::PerPosition || place == 0 {
                        counted.context += u64::from(c) + depth;
                    }
                }
            }
            prop_assert_eq!(shape::verify_tree_pass(&view, &trees, reads), counted);
        }
    }

    /// In every pass a draft tree of width 1 has the same shape (tokens, context, query-key pairs) as a chain.
    #[test]
    fn a_tree_of_width_one_costs_what_the_chain_costs(
        requests in prop::collection::vec((1u32..3000, 0u32..3, 0u32..=5), 1..6),
    ) {
        let n = requests.len();
        let columns = Columns {
            context: requests.iter().map(|r| r.0).collect(),
            gap: requests.iter().map(|r| r.1.min(r.0)).collect(),
            zeros: vec![0; n],
            slo: vec![f64::INFINITY; n],
        };
        let draft_len: Vec<u32> = requests.iter().map(|r| r.2).collect();
        let view = columns.view(ChunkTotals::default());
        let mut trees = vec![DraftTree::default(); n];
        for pass in 1..=5 {
            let chain = shape::draft_pass(&view, &draft_len, pass);
            prop_assert_eq!(shape::draft_tree_pass(&view, &draft_len, pass, &trees), chain);
            for i in (0..n).filter(|&i| draft_len[i] >= pass) {
                trees[i].grow(&Growth::Expansion([1].into()), |_, rank| guess(i, rank));
            }
        }
        for reads in [ContextReads::Once, ContextReads::PerPosition] {
            prop_assert_eq!(shape::verify_tree_pass(&view, &trees, reads), shape::verify_pass(&view, &draft_len, reads));
        }
    }
}
