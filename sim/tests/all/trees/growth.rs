//! Tests how draft trees grow, which nodes are kept, and which are accepted. The reference is simple code that
//! enumerates paths.

use foretoken_sim::tree::{Node, ROOT};
use foretoken_sim::{DraftTree, Growth};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Identifies a node of a draft tree by its path: the ranks of the guesses from the root to the node.
type Path = Vec<u32>;

/// A made-up confidence of the draft model in the node at `path`: a number from 0.15 to 0.95 (a hash of the parent's
/// path), divided by the square of the node's rank.
fn opinion(path: &[u32]) -> f64 {
    let (rank, above) = path.split_last().expect("a node is no root");
    let key = above.iter().fold(17u64, |key, &r| key.wrapping_mul(31).wrapping_add(u64::from(r)));
    let first = 0.15 + 0.8 * ((key.wrapping_mul(2_654_435_761) >> 7) % 1000) as f64 / 1000.0;
    first / f64::from(*rank * *rank)
}

/// The path of each node of a tree, computed from the paths of the parents.
fn paths(tree: &DraftTree) -> Vec<Path> {
    let mut paths: Vec<Path> = Vec::new();
    for node in tree.nodes() {
        let mut path = if node.parent == ROOT { Path::new() } else { paths[node.parent as usize].clone() };
        path.push(node.rank);
        paths.push(path);
    }
    paths
}

fn grown(growth: &Growth, depth: u32) -> DraftTree {
    let mut tree = DraftTree::default();
    for _ in 0..depth {
        // `grow` passes the parent to the closure as a node and not as a path. The closure finds the parent's path by
        // comparing nodes.
        let known = (paths(&tree), tree.nodes().to_vec());
        tree.grow(growth, |parent, rank| {
            let at = parent.map(|p| known.1.iter().position(|n: &Node| n == p).expect("a node of the tree"));
            let mut path = at.map_or(Path::new(), |at| known.0[at].clone());
            path.push(rank);
            // The second number, which identifies the path, must differ for every node, because the lookup above
            // compares nodes.
            (opinion(&path), path.iter().fold(1, |key, &r| key * 64 + u64::from(r)))
        });
    }
    tree
}

fn score(path: &[u32]) -> f64 {
    (1..=path.len()).map(|n| opinion(&path[..n])).product()
}

/// The paths of each level of a draft tree, found by enumeration: all children of the nodes that are expanded. A beam
/// expands the nodes of a level that have the best scores.
fn by_enumeration(growth: &Growth, depth: u32) -> Vec<Vec<Path>> {
    let mut expanded = vec![Path::new()];
    let mut levels = Vec::new();
    for level in 0..depth as usize {
        let children = match growth {
            Growth::Expansion(children) => children[level.min(children.len() - 1)],
            Growth::Beam { topk } => *topk,
        };
        let below = |p: &Path| (1..=children).map(move |r| [p.as_slice(), &[r]].concat()).collect::<Vec<Path>>();
        let all: Vec<Path> = expanded.iter().flat_map(below).collect();
        expanded = all.clone();
        if let Growth::Beam { topk } = growth {
            expanded.sort_by(|a, b| score(b).total_cmp(&score(a)));
            expanded.truncate(*topk as usize);
            // The next draft pass processes the expanded nodes in the order in which they were drafted.
            expanded.sort_by_key(|p| all.iter().position(|q| q == p));
        }
        levels.push(all);
    }
    levels
}

fn any_growth() -> impl Strategy<Value = (Growth, u32)> {
    let expansion = prop::collection::vec(1u32..=3, 1..=4);
    prop_oneof![
        (expansion, 1u32..=4).prop_map(|(v, depth)| (Growth::Expansion(v.into()), depth)),
        (1u32..=4, 1u32..=4).prop_map(|(topk, depth)| (Growth::Beam { topk }, depth)),
    ]
}

proptest! {
    /// Compares draft trees grown by `DraftTree` with trees by enumeration: nodes, order, scores, the width of the next
    /// pass, and the number of tokens that the draft model has processed.
    #[test]
    fn grown_trees_are_the_enumerated_ones((growth, depth) in any_growth()) {
        let tree = grown(&growth, depth);
        let levels = by_enumeration(&growth, depth);
        prop_assert_eq!(paths(&tree), levels.concat());
        for (node, path) in tree.nodes().iter().zip(paths(&tree)) {
            prop_assert_eq!(node.depth as usize, path.len());
            prop_assert!((node.score - score(&path)).abs() < 1e-12);
            prop_assert!(node.parent == ROOT || node.score <= tree.nodes()[node.parent as usize].score);
        }
        prop_assert_eq!(tree.depth(), depth);
        // Each draft pass processes the nodes that then get children. So the draft model has processed the root and
        // each expanded node once.
        let expanded = levels.concat().iter().filter(|p| levels.concat().contains(&[p.as_slice(), &[1]].concat())).count();
        prop_assert_eq!(tree.ran() as usize, 1 + expanded);
        let next = by_enumeration(&growth, depth + 1);
        let mut parents: Vec<&[u32]> = next[depth as usize].iter().map(|p| &p[..p.len() - 1]).collect();
        parents.dedup();
        prop_assert_eq!(tree.width() as usize, parents.len());
    }

    /// Compares the accepted path of a draft tree with an enumeration of all paths: it must be the longest path of kept
    /// nodes (nodes to verify) from the root that agrees with the target. Also checks that `rank` is never called for a
    /// depth below the deepest kept node, and compares the number and the depth of the kept nodes.
    #[test]
    fn acceptance_is_the_longest_matching_path(
        (growth, depth) in any_growth(), drop in prop::collection::vec(any::<bool>(), 1..40),
        target in prop::collection::vec(1u32..=4, 4),
    ) {
        let mut tree = grown(&growth, depth);
        let mut kept: BTreeMap<Path, bool> = BTreeMap::new();
        let at_path = paths(&tree);
        for (at, path) in at_path.iter().enumerate() {
            let parent = path.len() == 1 || kept[&path[..path.len() - 1]];
            kept.insert(path.clone(), parent && !drop[at % drop.len()]);
        }
        tree.keep(|at, _| kept[&at_path[at]]);
        let longest = kept.iter().filter(|(p, k)| **k && target.starts_with(p)).map(|(p, _)| p.len()).max().unwrap_or(0);
        let mut asked = 0;
        let accepted = tree.accepted(|d| { asked = asked.max(d); target[d as usize - 1] });
        prop_assert_eq!(accepted as usize, longest);
        // An executor knows the target's path only to the depth of the tree, so `rank` may not be called for greater
        // depths.
        prop_assert!(asked <= tree.kept_depth());
        prop_assert_eq!(tree.kept() as usize, kept.values().filter(|k| **k).count());
        let deepest = kept.iter().filter(|(_, k)| **k).map(|(p, _)| p.len()).max().unwrap_or(0);
        prop_assert_eq!(tree.kept_depth() as usize, deepest);
    }

    /// `keep_best` keeps the `most` nodes with the highest scores, at any place in the tree (among equal scores the
    /// earlier nodes). With each node it keeps the node's parent.
    #[test]
    fn the_best_nodes_are_a_prefix_of_the_sorted_pool((growth, depth) in any_growth(), most in 0u32..60) {
        let mut tree = grown(&growth, depth);
        tree.keep_best(most, &mut vec![7; 3]);
        let mut order: Vec<usize> = (0..tree.nodes().len()).collect();
        order.sort_by(|&a, &b| tree.nodes()[b].score.total_cmp(&tree.nodes()[a].score).then(a.cmp(&b)));
        for (place, at) in order.into_iter().enumerate() {
            prop_assert_eq!(tree.nodes()[at].kept, place < most as usize);
        }
        let kept: Vec<bool> = tree.nodes().iter().map(|n| n.kept).collect();
        // `keep` panics if the parent of a kept node is not kept.
        tree.keep(|at, _| kept[at]);
    }
}
