//! Tests of the bound `oracle-tree`: its choice against all trees, for small batches and trees of depth 2.

use super::*;
use crate::Belief;
use crate::testing::{Batch, CONTEXT, any_batch, any_belief};
use foretoken_sim::{DraftTree, Drafting, Growth, Host, LatencyModel, Linear, PassShape, Time, shape};
use itertools::Itertools;
use proptest::prelude::*;

const TOPK: u32 = 2;
const DEPTH: u32 = 2;

/// A tree of one request. It has all [`DEPTH`] levels; the nodes that are drafted and verified are marked as kept.
/// `accepted` is the number of kept tokens that the target accepts.
#[derive(Clone, Debug)]
struct Choice {
    tree: DraftTree,
    accepted: u32,
}

/// All trees with at most `TOPK` children of each node, `DEPTH` levels and `limit` tokens. `ranks[d]` is the rank,
/// among the draft model's guesses, of the right guess at depth d + 1.
fn all_trees(limit: u32, ranks: &[u32]) -> Vec<Choice> {
    let mut whole = DraftTree::default();
    (0..DEPTH).for_each(|_| whole.grow(&Growth::Expansion([TOPK].into()), |_, _| (0.5, 0)));
    let n = whole.nodes().len();
    let parent = |at: usize| whole.nodes()[at].parent;
    let closed =
        |kept: u32| (0..n).all(|at| kept >> at & 1 == 0 || whole.nodes()[at].depth == 1 || kept >> parent(at) & 1 == 1);
    let tree = |kept: u32| {
        let mut tree = whole.clone();
        tree.keep(|at, _| kept >> at & 1 == 1);
        let accepted = tree.accepted(|depth| ranks[depth as usize - 1]);
        Choice { tree, accepted }
    };
    (0..1u32 << n).filter(|&kept| kept.count_ones() <= limit && closed(kept)).map(tree).collect()
}

/// The size of draft pass `pass` over trees. A request is in the pass if its tree has nodes of the depth `pass`; the
/// pass processes their parents. Written from docs/model.md 12, without the engine's trees.
fn draft_pass(batch: &BatchView, trees: &[&Choice], pass: u32) -> PassShape {
    let parents = |tree: &DraftTree, depth: u32| {
        let nodes = tree.nodes().iter().filter(|n| n.kept && n.depth == depth);
        nodes.map(|n| n.parent).collect::<std::collections::BTreeSet<u32>>().len() as u64
    };
    let depths: Vec<u32> = trees.iter().map(|t| t.tree.kept_depth()).collect();
    let mut shape = match pass {
        1 => shape::draft_pass(batch, &depths, 1),
        _ => PassShape::default(),
    };
    if pass > 1 {
        for ((choice, &depth), &context) in trees.iter().zip(&depths).zip(batch.context) {
            if depth >= pass {
                let width = parents(&choice.tree, pass);
                let ran: u64 = (1..pass).map(|earlier| parents(&choice.tree, earlier)).sum();
                shape.requests += 1;
                shape.batched += width;
                shape.context += u64::from(context) + ran;
                shape.pairs += width * (u64::from(context) + u64::from(pass));
            }
        }
    }
    shape
}

/// Tokens (one bonus token for each request included) and picoseconds of a step that drafts and verifies `trees`, one
/// tree for each request.
fn realised(batch: &BatchView, truth: &Truth, trees: &[&Choice]) -> (u64, u64) {
    let deepest = trees.iter().map(|t| t.tree.kept_depth()).max().unwrap_or(0);
    let kept: Vec<DraftTree> = trees.iter().map(|t| t.tree.clone()).collect();
    let mut time = truth.overhead + truth.target.pass(shape::verify_tree_pass(batch, &kept, truth.context_reads));
    (1..=deepest).for_each(|pass| time += truth.draft.pass(draft_pass(batch, trees, pass)));
    if deepest == 0 {
        time += shape::draft_idle_pass(batch).map_or(Time::ZERO, |idle| truth.draft.pass(idle));
    }
    let accepted: u32 = trees.iter().map(|t| t.accepted).sum();
    (batch.len() as u64 + u64::from(accepted), time.0)
}

/// For each request: the number of successive positions, from the first on, at which one of the `TOPK` best guesses is
/// right; at most the request's limit on draft tokens.
fn runs(batch: &Batch, ranks: &[Vec<u32>]) -> Vec<u32> {
    let run = |(&limit, ranks): (&u32, &Vec<u32>)| ranks.iter().take_while(|&&r| r <= TOPK).count().min(limit as usize);
    batch.limit.iter().zip(ranks).map(|pair| run(pair) as u32).collect()
}

fn lengths(batch: &Batch, truth: &Truth, price: Price) -> Vec<u32> {
    let Speculation::Oracle(mut oracle) = (OracleTree { topk: TOPK, price }).build(&CONTEXT) else {
        unreachable!("an oracle is built as one")
    };
    assert_eq!(oracle.guesses(), TOPK);
    let mut plan = DraftPlan { draft_len: vec![0; batch.context.len()], ..DraftPlan::default() };
    oracle.propose(&batch.view(), truth, &mut plan);
    plan.draft_len
}

fn with_truth<T>(
    run: &[u32],
    belief: &Belief,
    (draft, target): (&dyn LatencyModel, &dyn LatencyModel),
    f: impl FnOnce(&Truth) -> T,
) -> T {
    f(&Truth {
        run,
        draft,
        target,
        context_reads: belief.context_reads,
        drafting: Drafting::Autoregressive,
        overhead: Time(1_500_000_000),
        hidden: None,
        host: Host::NONE,
    })
}

/// The tree among `trees` that is a path of `length` right guesses, without other tokens.
fn path(trees: &[Choice], length: u32) -> &Choice {
    trees.iter().find(|t| t.accepted == length && t.tree.kept() == length).expect("a path of right guesses")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// If true pass times are linear, no choice of trees has more tokens per second than the oracle's paths. The search
    /// is over all trees of up to three requests.
    #[test]
    fn no_tree_is_better(
        batch in any_batch(3, 6),
        belief in any_belief(),
        ranks in prop::collection::vec(prop::collection::vec(1u32..=3, DEPTH as usize), 3),
    ) {
        let models = (Linear::new(belief.draft), Linear::new(belief.target));
        let run = runs(&batch, &ranks);
        with_truth(&run, &belief, (&models.0, &models.1), |truth| {
            let view = batch.view();
            let trees: Vec<Vec<Choice>> = view.limit.iter().zip(&ranks).map(|(&l, ranks)| all_trees(l, ranks)).collect();
            let lens = lengths(&batch, truth, Price::Step);
            let chosen: Vec<&Choice> = trees.iter().zip(&lens).map(|(trees, &len)| path(trees, len)).collect();
            let ours = realised(&view, truth, &chosen);
            for other in trees.iter().map(|trees| trees.iter()).multi_cartesian_product() {
                let brute = realised(&view, truth, &other);
                let (a, b) = (u128::from(brute.0) * u128::from(ours.1), u128::from(ours.0) * u128::from(brute.1));
                prop_assert!(a <= b, "{other:?} {brute:?} beats {lens:?} {ours:?}");
            }
            Ok(())
        })?;
    }
}

/// True pass times that rise in steps: the number of batched tokens is padded to a multiple of 4.
struct Padded(Linear);

impl LatencyModel for Padded {
    fn pass(&self, shape: PassShape) -> Time {
        self.0.pass(PassShape { batched: shape.batched.next_multiple_of(4), ..shape })
    }
}

/// If the time of a pass rises in steps, the oracle may miss the best trees. The test bounds how often, and by how
/// much, against all trees of two requests, so that a worse rule would fail.
#[test]
fn on_a_staircase_it_is_close_to_all_trees() {
    let belief = CONTEXT.belief;
    let (draft, target) = (Padded(Linear::new(belief.draft)), Padded(Linear::new(belief.target)));
    let luck = foretoken_sim::Luck::new(5, foretoken_sim::Stream::Policy, 0);
    let (mut missed, mut worst, states) = (0, 1.0f64, 200);
    for s in 0..states {
        let draw = |position: u64, below: u64| luck.narrow(s).bits(position) % below;
        let batch = Batch::new(&[1 + draw(0, 3000) as u32, 1 + draw(1, 3000) as u32], &[6; 2]);
        let ranks: Vec<Vec<u32>> =
            (0..2).map(|i| (0..2).map(|d| 1 + draw(10 + 2 * i + d, 3) as u32).collect()).collect();
        let run = runs(&batch, &ranks);
        with_truth(&run, &belief, (&draft, &target), |truth| {
            let view = batch.view();
            let trees: Vec<Vec<Choice>> = ranks.iter().map(|ranks| all_trees(6, ranks)).collect();
            let rate = |(tokens, time): (u64, u64)| tokens as f64 / time as f64;
            let lens = lengths(&batch, truth, Price::Step);
            let chosen: Vec<&Choice> = trees.iter().zip(&lens).map(|(trees, &len)| path(trees, len)).collect();
            let ours = rate(realised(&view, truth, &chosen));
            let all = trees.iter().map(|trees| trees.iter()).multi_cartesian_product();
            let best = all.map(|other| rate(realised(&view, truth, &other))).fold(0.0, f64::max);
            missed += u32::from(ours < best * (1.0 - 1e-12));
            worst = worst.min(ours / best);
        });
    }
    assert!(missed * 50 <= states as u32, "{missed} of {states} states missed, the worst at {worst}");
    assert!(worst > 0.99, "{worst}");
}

#[test]
fn bad_settings_are_named() {
    let bad = |topk, price| OracleTree { topk, price }.check().map_err(|e| e.key);
    assert_eq!(bad(0, Price::Step), Err("topk"));
    assert_eq!(bad(257, Price::Step), Err("topk"));
    assert_eq!(bad(4, Price::Decode(0.0)), Err("price"));
    assert_eq!(bad(4, Price::System(1.5)), Ok(()));
}
