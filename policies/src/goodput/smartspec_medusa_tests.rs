//! Tests of the policy `smartspec-medusa`: the corrected formula of the expected tokens, the costs, and the search for
//! the best tree against exhaustive search over real trees.

use super::*;
use crate::testing::{BELIEF, Batch, CONTEXT, Run, any_batch, any_belief, close};
use foretoken_sim::DraftTree;
use itertools::Itertools;
use proptest::prelude::*;

const HEADS: Belief = Belief { drafting: Drafting::Parallel, ..BELIEF };

fn policy(params: SmartspecMedusa, belief: Belief, alpha: &[f64]) -> Running {
    let mut p = Running::new(params, &PolicyContext { belief, ..CONTEXT });
    p.heads = Heads::of(alpha);
    p
}

/// The draft tree that the simulator grows with these `widths`: the number of tokens below each node, by depth.
fn grown(widths: &[u32]) -> DraftTree {
    let mut tree = DraftTree::default();
    let growth = Growth::Expansion(widths.into());
    widths.iter().for_each(|_| tree.grow(&growth, |_, _| (0.5, 0)));
    tree
}

/// All lists of at most `heads` widths (tokens per head), each from 1 to `topk`.
fn all_widths(heads: usize, topk: u32) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..heads {
        let to = all.len();
        for at in from..to {
            for width in 1..=topk {
                let mut longer = all[at].clone();
                longer.push(width);
                all.push(longer);
            }
        }
        from = to;
    }
    all
}

/// Expected tokens of one request in a step with a tree, the corrected Eq. 10 of SmartSpec: E = 1 + Σ Π s, where s is
/// the probability that one of a head's tokens is accepted.
fn expected(alpha: &[f64], widths: &[u32]) -> f64 {
    let s = |j: usize| 1.0 - (1.0 - alpha[j]).powi(widths[j] as i32);
    1.0 + (1..=widths.len()).map(|i| (0..i).map(s).product::<f64>()).sum::<f64>()
}

/// The same number as [`expected`] (the expected tokens of a request in a step), computed as a mean over the accepted
/// length: Σ_{i=0..h} (i+1)·(1 − s_{i+1})·Π_{j≤i} s_j. s_j is the probability that one token of head j is accepted;
/// s_{h+1} is 0.
fn expected_by_length(alpha: &[f64], widths: &[u32]) -> f64 {
    let h = widths.len();
    let s = |j: usize| if j < h { 1.0 - (1.0 - alpha[j]).powi(widths[j] as i32) } else { 0.0 };
    (0..=h).map(|i| (i + 1) as f64 * (1.0 - s(i)) * (0..i).map(s).product::<f64>()).sum()
}

/// The expected tokens of a request in a step by Eq. 10 of SmartSpec as printed: the sum has no term i = 0, and has 1 −
/// α (α: one token is accepted) where 1 − s (s: one of the head's tokens is accepted) is meant.
fn expected_as_printed(alpha: &[f64], widths: &[u32]) -> f64 {
    let h = widths.len();
    let s = |j: usize| 1.0 - (1.0 - alpha[j]).powi(widths[j] as i32);
    let a = |j: usize| if j < h { alpha[j] } else { 0.0 };
    (1..=h).map(|i| (i + 1) as f64 * (1.0 - a(i)) * (0..i).map(s).product::<f64>()).sum()
}

#[test]
fn the_expectation_is_the_corrected_one() {
    let (alpha, widths) = ([0.6, 0.5, 0.3], [3, 2, 3]);
    // For the three heads s (the probability that one of their tokens is accepted) is .936, .75 and .657, so the
    // expected tokens of a request in a step are 1 + .936 + .702 + .461214.
    assert!(close(expected(&alpha, &widths), 3.099214));
    assert!(close(expected_by_length(&alpha, &widths), 3.099214));
    // Eq. 10 as printed gives 2·.5·.936 + 3·.7·.702 + 4·.461214, whose weights do not sum to 1.
    assert!(close(expected_as_printed(&alpha, &widths), 4.255056));
    // If no token of a tree is ever accepted, a step makes one token a request; the printed form of Eq. 10 gives none.
    assert_eq!((expected(&[0.0], &[1]), expected_as_printed(&[0.0], &[1])), (1.0, 0.0));

    let mut p = policy(SmartspecMedusa::default(), HEADS, &alpha);
    let batch = Batch::new(&[100, 200], &[39, 39]);
    p.best_tree(&batch.view());
    let mut tree = p.bare(&batch.view());
    for (width, tokens) in widths.into_iter().zip_eq([3, 9, 27]) {
        tree = p.deepen(&batch.view(), &tree, width).expect("fits");
        assert_eq!(tree.tokens, tokens);
    }
    assert!(close(tree.expected, 2.0 * 3.099214));
    // The step has one draft pass of 2 requests and 3 heads, and verifies 2 + 2·27 tokens.
    assert!(close(tree.draft_s, 1e-9 * 300.0 + 2e-6 * 6.0 + 0.5e-3));
    assert!(close(tree.verify_s, 1e-7 * 300.0 + 40e-6 * 56.0 + 8e-3));
}

/// Section 7.2.2 of the paper: under load the tree shrinks to one token a head, which is 4 tokens a request with the
/// newest token. Under still more load, heads stay unused, which the paper's simulation of three fixed heads does not
/// show.
#[test]
fn widths_shrink_to_one_as_the_batch_grows() {
    let target = foretoken_sim::Coefficients { alpha_s: 0.0, gamma_s: 0.1e-3, delta_s: 10e-3 };
    for alpha in [0.6, 0.8] {
        let mut p = policy(SmartspecMedusa::default(), Belief { target, ..HEADS }, &[alpha; 3]);
        let tokens = [1, 4, 16, 64].map(|n| p.best_tree(&Batch::new(&vec![200; n], &vec![39; n]).view()).tokens);
        assert!(tokens.is_sorted_by(|a, b| a >= b) && tokens[0] > 3 && tokens[2] == 3, "{alpha}: {tokens:?}");
    }
}

#[test]
fn a_request_with_less_room_gets_the_levels_that_fit() {
    assert_eq!([0, 2, 3, 8, 9, 26, 27, 99].map(|limit| levels_within(&[3, 2, 3], limit)), [0, 0, 1, 1, 2, 2, 3, 3]);
    let params = SmartspecMedusa { initial_acceptance: 0.6, ..SmartspecMedusa::default() };
    let mut run = Run::of(&params, &PolicyContext { belief: HEADS, ..CONTEXT });
    let step = run.step(&Batch::new(&[100; 4], &[39, 0, 39, 39]), |_, _| 0.5, &[3, 0, 1, 0]);
    assert_eq!(step.draft_len, [3, 0, 3, 3]);
    let shape: Vec<u32> =
        (1..=3).map(|d| step.trees[0].nodes().iter().filter(|n| n.depth == d).count() as u32).collect();
    assert!(shape[0] > 1, "wide at so small a batch: {shape:?}");
}

#[test]
fn where_nothing_pays_nothing_is_drafted() {
    let params = SmartspecMedusa { initial_acceptance: 0.0, ..SmartspecMedusa::default() };
    let mut run = Run::of(&params, &PolicyContext { belief: HEADS, ..CONTEXT });
    let step = run.step(&Batch::new(&[100; 2], &[39; 2]), |_, _| 0.5, &[3, 3]);
    assert_eq!((step.draft_len, step.passes), (vec![0, 0], 0));
}

#[test]
fn the_reservation_is_the_widest_trees() {
    let reserved = |params: SmartspecMedusa| Running::new(params, &CONTEXT).limits().tree_tokens;
    let base = SmartspecMedusa::default();
    assert_eq!(reserved(base), 39);
    assert_eq!(reserved(SmartspecMedusa { max_topk: 2, ..base }), 14);
    assert_eq!(reserved(SmartspecMedusa { heads: 5, max_topk: 10, max_tree_tokens: 63, ..base }), 63);
}

#[test]
fn bad_settings_are_named() {
    let good = SmartspecMedusa::default();
    for (params, key) in [
        (SmartspecMedusa { heads: 0, ..good }, "heads"),
        (SmartspecMedusa { heads: 9, ..good }, "heads"),
        (SmartspecMedusa { max_topk: 0, ..good }, "max_topk"),
        (SmartspecMedusa { max_tree_tokens: 2, ..good }, "max_tree_tokens"),
        (SmartspecMedusa { max_tree_tokens: 1000, ..good }, "max_tree_tokens"),
        (SmartspecMedusa { initial_acceptance: f64::NAN, ..good }, "initial_acceptance"),
        (SmartspecMedusa { ema_keep: 2.0, ..good }, "ema_keep"),
        (SmartspecMedusa { absorbing_steps: 0, ..good }, "absorbing_steps"),
    ] {
        assert_eq!(params.check().map_err(|e| e.key), Err(key));
    }
}

/// Seconds of a step with these trees, from the shapes of the passes that the simulator would run.
fn step_s(belief: &Belief, batch: &BatchView, depths: &[u32], trees: &[DraftTree]) -> f64 {
    let passes = depths.iter().copied().max().unwrap_or(0);
    let draft = |s| pass_s(&belief.draft, s);
    let draft_s: f64 = match (passes, belief.drafting) {
        (0, _) => shape::draft_idle_pass(batch).map_or(0.0, draft),
        (_, Drafting::Parallel) => draft(shape::draft_block(batch, depths)),
        (_, Drafting::Autoregressive) => {
            // A draft pass runs over a request's tree as it was before the pass added its level.
            let widths = |tree: &DraftTree, d: u32| {
                let nodes_at = |d: u32| tree.nodes().iter().filter(|n| n.depth == d).count() as u32;
                (1..d).map(|l| nodes_at(l) / if l == 1 { 1 } else { nodes_at(l - 1) }).collect::<Vec<u32>>()
            };
            (1..=passes)
                .map(|pass| {
                    let before: Vec<DraftTree> =
                        trees.iter().map(|t| grown(&widths(t, pass.min(t.depth() + 1)))).collect();
                    draft(shape::draft_tree_pass(batch, depths, pass, &before))
                })
                .sum()
        }
    };
    draft_s + pass_s(&belief.target, shape::verify_tree_pass(batch, trees, belief.context_reads))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The search finds the best of all vectors of widths. The test computes the cost of each vector by growing its
    /// trees.
    #[test]
    fn equals_exhaustive_search(
        batch in any_batch(6, 40),
        belief in any_belief(),
        alpha in prop::collection::vec(0.0f64..=1.0, 4),
        (heads, max_topk) in prop_oneof![Just((3, 3)), Just((4, 2)), Just((2, 6))],
        most in 6u32..=42,
    ) {
        let params = SmartspecMedusa { heads, max_topk, max_tree_tokens: most, ..SmartspecMedusa::default() };
        let mut p = policy(params, belief, &alpha);
        let view = batch.view();
        let goodput = |widths: &[u32]| {
            let depths: Vec<u32> = view.limit.iter().map(|&l| levels_within(widths, l)).collect();
            let trees: Vec<DraftTree> = depths.iter().map(|&d| grown(&widths[..d as usize])).collect();
            let tokens: f64 = depths.iter().map(|&d| expected(&alpha, &widths[..d as usize])).sum();
            tokens / step_s(&belief, &view, &depths, &trees)
        };
        let chosen = p.best_tree(&view);
        prop_assert!(close(chosen.goodput(), goodput(chosen.widths())), "{} {}", chosen.goodput(), goodput(chosen.widths()));
        let fits = |w: &Vec<u32>| grown(w).nodes().len() <= most as usize;
        let best = all_widths(heads as usize, max_topk).into_iter().filter(fits).map(|w| goodput(&w)).fold(0.0, f64::max);
        prop_assert!(chosen.goodput() >= best * (1.0 - 1e-9), "{} below {best}", chosen.goodput());
    }
}
