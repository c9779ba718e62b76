//! Tests of the policy `adaserve-like`: its rules against results computed by hand, and the nodes chosen for
//! verification against a second implementation, which was written from docs/model.md 7.2.

use super::*;
use crate::testing::{BELIEF, Batch, CONTEXT, any_batch, any_belief, close};
use foretoken_sim::acceptance::RankLaw;
use itertools::Itertools;
use proptest::prelude::*;

fn policy(params: Adaserve, belief: Belief) -> TwoPhases {
    params.check().expect("good settings");
    TwoPhases::new(params, &PolicyContext { belief, ..CONTEXT })
}

/// Runs a step without an engine: proposes, grows the trees, selects the nodes to verify. `first(request, depth)` is
/// the draft model's probability of its likeliest token at that depth.
fn step(policy: &mut TwoPhases, view: &BatchView, first: impl Fn(usize, u32) -> f64) -> Drafts {
    let mut plan = DraftPlan { draft_len: vec![0; view.len()], ..DraftPlan::default() };
    policy.propose(view, &mut plan);
    let DraftShape::Tree(growth) = &plan.shape else { panic!("a tree") };
    let mut drafts = Drafts::default();
    drafts.reset(view.len(), 8);
    drafts.trees = vec![DraftTree::default(); view.len()];
    let ranks = RankLaw::default();
    for (i, (d, &limit)) in plan.draft_len.iter().zip_eq(view.limit).enumerate() {
        drafts.draft_len[i] = limit.min(*d);
        for depth in 0..drafts.draft_len[i] {
            drafts.trees[i].grow(growth, |_, rank| (ranks.guess(first(i, depth), rank), 0));
        }
    }
    drafts.passes = drafts.draft_len.iter().copied().max().unwrap_or(0);
    if drafts.passes > 0 {
        policy.select(view, &mut drafts);
    }
    drafts
}

/// The number of verified nodes of each request's tree.
fn kept(drafts: &Drafts) -> Vec<u32> {
    drafts.trees.iter().map(DraftTree::kept).collect()
}

/// Expected tokens of the request: one for the root of its tree, plus the path probabilities of the nodes that are
/// verified.
fn promised(tree: &DraftTree) -> f64 {
    1.0 + tree.nodes().iter().filter(|n| n.kept).map(|n| n.score).sum::<f64>()
}

#[test]
fn beams_shrink_with_load() {
    let beam = |n| Adaserve::default().beam(n);
    // For n requests the depth of the draft trees is floor(512 / n) − 1, from 4 to 8, and the width is floor(96 / n),
    // from 1 to 3.
    assert_eq!([1, 32, 48, 56, 64, 85, 96, 103].map(|n| beam(n).0), [8, 8, 8, 8, 7, 5, 4, 4]);
    assert_eq!([1, 32, 33, 48, 49, 96, 97, 500].map(|n| beam(n).1), [3, 3, 2, 2, 1, 1, 1, 1]);
    let offset = Adaserve { depth_offset: 40, width_offset: 1, ..Adaserve::default() };
    assert_eq!((offset.beam(45), offset.beam(60)), ((5, 3), (4, 2)));
}

/// The need of a request by hand: the tokens that it must gain in this step for its TPOT limit, A_i = (l_i + t_step) /
/// TPOT_i − o_i. l_i = 0.1 s have passed since its first decode step, the step takes t_step = 0.05 s, and o_i = 3
/// tokens came since then. With TPOT_i = 0.02 s the need is 4.5.
#[test]
fn need_is_time_over_tpot_less_what_was_gained() {
    let mut policy = policy(Adaserve::default(), BELIEF);
    let mut batch = Batch::new(&[100, 100, 100], &[8, 8, 8]);
    batch.slo_tpot_s = vec![0.02, 0.02, f64::INFINITY];
    batch.emitted = vec![7, 1, 1];
    policy.see(&batch.view());
    batch.emitted = vec![10, 9, 1];
    let view = BatchView { now: Time::from_s(0.1), ..batch.view() };
    policy.see(&view);
    policy.weigh_needs(&view, 0.05);
    // The second request gained 8 tokens where 7.5 were due for its TPOT, so it is not among the requests that need
    // more tokens. The third has no TPOT limit.
    assert_eq!(policy.needy.len(), 1);
    assert!((policy.needy[0].0 - 4.5).abs() < 1e-9 && policy.needy[0].1 == 0);
}

/// Two requests with equal contexts and limits, one of them behind its TPOT target, and a budget too small for both.
/// The request behind its target gets nodes first, although the other request's nodes are more probable.
#[test]
fn need_comes_before_probability() {
    let params = Adaserve { verify_budget: 2 + 6, min_depth: 4, max_depth: 4, ..Adaserve::default() };
    let mut batch = Batch::new(&[100, 100], &[20, 20]);
    batch.slo_tpot_s = vec![1e-3, f64::INFINITY];
    let unsure_first = |i: usize, _: u32| if i == 0 { 0.5 } else { 0.9 };
    let drafts = step(&mut policy(params, BELIEF), &batch.view(), unsure_first);
    assert_eq!(kept(&drafts), [6, 0]);
    batch.slo_tpot_s = vec![f64::INFINITY; 2];
    let drafts = step(&mut policy(params, BELIEF), &batch.view(), unsure_first);
    assert_eq!(kept(&drafts), [2, 4]);
    // If a request may get at most one node for its TPOT target, the rest of the budget goes to the most probable
    // nodes.
    let capped = Adaserve { max_slo_nodes: 1, min_depth: 5, max_depth: 5, ..params };
    batch.slo_tpot_s = vec![1e-3, f64::INFINITY];
    let drafts = step(&mut policy(capped, BELIEF), &batch.view(), |i, _| if i == 0 { 0.2 } else { 0.9 });
    assert_eq!(kept(&drafts), [1, 5]);
}

#[test]
fn bad_settings_are_named() {
    let d = Adaserve::default();
    for (params, key) in [
        (Adaserve { min_depth: 0, ..d }, "min_depth"),
        (Adaserve { min_depth: 5, max_depth: 4, ..d }, "max_depth"),
        (Adaserve { max_depth: 40, ..d }, "max_depth"),
        (Adaserve { max_width: 0, ..d }, "max_width"),
        (Adaserve { max_width: 33, ..d }, "max_width"),
        (Adaserve { verify_budget: 1, ..d }, "verify_budget"),
        (Adaserve { draft_budget: 0, ..d }, "draft_budget"),
        (Adaserve { max_slo_nodes: 0, ..d }, "max_slo_nodes"),
        (Adaserve { depth_offset: 513, ..d }, "depth_offset"),
        (Adaserve { width_offset: 300, ..d }, "width_offset"),
    ] {
        assert_eq!(params.check().map_err(|e| e.key), Err(key));
    }
}

/// The indices of a draft tree's nodes that a beam of `width` holds, best first: the most probable `width` nodes of
/// each level, found by sorting the whole level.
fn beam_of(tree: &DraftTree, width: usize) -> Vec<usize> {
    let score = |at: usize| tree.nodes()[at].score;
    let best = |a: &usize, b: &usize| score(*b).total_cmp(&score(*a)).then(a.cmp(b));
    let mut all = Vec::new();
    for depth in 1..=tree.depth() {
        let mut level: Vec<usize> = (0..tree.nodes().len()).filter(|&at| tree.nodes()[at].depth == depth).collect();
        level.sort_by(best);
        all.extend(level.into_iter().take(width));
    }
    all.sort_by(best);
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The nodes chosen for verification equal both phases of AdaServe done one node at a time, as the paper's text
    /// says: requests by descending need, then repeatedly the most probable node left. Also checks what the phases
    /// guarantee: no request gets a node in the second phase while the token budget could meet the need of another
    /// request.
    #[test]
    fn the_selection_is_the_rule(
        batch in any_batch(12, 24), belief in any_belief(), budget in 2u32..150, cap in 1u32..30,
        max_width in 1u32..=3, max_depth in 1u32..=6,
        quality in prop::collection::vec(0.05f64..1.0, 12),
        slo in prop::collection::vec(prop_oneof![Just(f64::INFINITY), 1e-3f64..0.1], 12),
        emitted in prop::collection::vec(0u32..6, 12), elapsed_s in 0.0f64..0.3,
    ) {
        let params = Adaserve {
            min_depth: 1, max_depth, max_width, verify_budget: budget, max_slo_nodes: cap, ..Adaserve::default()
        };
        let mut batch = batch;
        let n = batch.ids.len();
        batch.slo_tpot_s = slo[..n].to_vec();
        let mut ours = policy(params, belief);
        ours.see(&batch.view());
        (0..n).for_each(|i| batch.emitted[i] += emitted[i]);
        let view = BatchView { now: Time::from_s(elapsed_s), ..batch.view() };
        let drafts = step(&mut ours, &view, |i, depth| (quality[i] * (1.0 - 0.05 * f64::from(depth))).max(0.02));
        prop_assume!(drafts.passes > 0);

        let width = (96 / n as u32).clamp(1, max_width) as usize;
        let candidates: Vec<Vec<usize>> = drafts.trees.iter().zip_eq(view.limit)
            .map(|(tree, &limit)| beam_of(tree, width).into_iter().take(limit as usize).collect()).collect();
        let pool: usize = candidates.iter().map(Vec::len).sum();
        let mut left = (budget as usize).saturating_sub(n);

        // The step's time by the policy's belief (a linear cost formula), from trees that are grown anew pass by pass.
        let verified = left.min(pool);
        let mut grown = vec![DraftTree::default(); n];
        let mut step_s = 0.0;
        for pass in 1..=drafts.passes {
            let shape = match belief.drafting {
                Drafting::Parallel if pass == 1 => Some(shape::draft_block(&view, &drafts.draft_len)),
                Drafting::Parallel => None,
                _ => Some(shape::draft_tree_pass(&view, &drafts.draft_len, pass, &grown)),
            };
            step_s += shape.map_or(0.0, |s| pass_s(&belief.draft, s));
            for i in (0..n).filter(|&i| drafts.draft_len[i] >= pass) {
                grown[i].grow(&Growth::Beam { topk: width as u32 }, |_, _| (0.5, 0));
            }
        }
        let mut all = drafts.trees.clone();
        for (tree, candidates) in all.iter_mut().zip_eq(&candidates) {
            tree.keep(|at, _| candidates.contains(&at));
        }
        let roots = pass_s(&belief.target, shape::plain_pass(&view));
        let whole = pass_s(&belief.target, shape::verify_tree_pass(&view, &all, belief.context_reads));
        step_s += roots + (whole - roots) * verified as f64 / pool.max(1) as f64;
        prop_assert!(close(step_s, ours.step_s(&view, &drafts.draft_len, drafts.passes, verified)));

        // The need A_i of each request (the tokens that it must gain in this step for its TPOT), by the paper's
        // formula.
        let need = |i: usize| (elapsed_s + step_s) / view.slo_tpot_s[i] - f64::from(emitted[i]);
        let mut by_need: Vec<usize> = (0..n).collect();
        by_need.sort_by(|&a, &b| need(b).total_cmp(&need(a)).then(a.cmp(&b)));
        let mut chosen = vec![Vec::new(); n];
        for i in by_need {
            let wanted = need(i).min(f64::from(drafts.draft_len[i] + 1));
            let mut sum = 1.0;
            while sum < wanted && left > 0 && chosen[i].len() < cap as usize && chosen[i].len() < candidates[i].len() {
                let next = candidates[i][chosen[i].len()];
                sum += drafts.trees[i].nodes()[next].score;
                chosen[i].push(next);
                left -= 1;
            }
        }
        let slo_phase: Vec<usize> = chosen.iter().map(Vec::len).collect();
        while left > 0 {
            let open = (0..n).filter(|&i| chosen[i].len() < candidates[i].len());
            let next = |i: usize| drafts.trees[i].nodes()[candidates[i][chosen[i].len()]].score;
            let Some(best) = open.reduce(|a, b| if next(b) > next(a) { b } else { a }) else { break };
            let node = candidates[best][chosen[best].len()];
            chosen[best].push(node);
            left -= 1;
        }
        let mut expected = n as f64;
        for (i, tree) in drafts.trees.iter().enumerate() {
            let kept: Vec<usize> = (0..tree.nodes().len()).filter(|&at| tree.nodes()[at].kept).collect();
            chosen[i].sort_unstable();
            prop_assert_eq!(&kept, &chosen[i], "request {}", i);
            prop_assert!(kept.len() <= view.limit[i] as usize);
            expected += promised(tree) - 1.0;
            // The second phase (for throughput) gives a request nodes only if the first phase met every need for tokens
            // that it could meet with at most `cap` nodes a request (`max_slo_nodes`).
            let unmet = (0..n).any(|j| {
                promised(&drafts.trees[j]) < need(j).min(f64::from(drafts.draft_len[j] + 1))
                    && slo_phase[j] < candidates[j].len() && slo_phase[j] < cap as usize
            });
            prop_assert!(!unmet || kept.len() == slo_phase[i]);
        }
        prop_assert!((ours.explain().estimate.unwrap() - expected).abs() < 1e-9 * expected);
    }
}
