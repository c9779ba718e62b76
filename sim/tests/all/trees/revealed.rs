//! Compares the draft trees of a simulation with values that the test asks of the acceptance source directly: the
//! confidences of the nodes, and the numbers of accepted tokens.

use crate::trees::simulations::{SEED, run_with};
use foretoken_sim::acceptance::{AcceptanceSpec, RankLaw, Rates};
use foretoken_sim::tree::ROOT;
use foretoken_sim::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The draft trees of a step, and for each tree the number of accepted tokens.
struct Seen {
    ids: Vec<RequestId>,
    emitted: Vec<u32>,
    trees: Vec<DraftTree>,
    accepted: Vec<u32>,
}

/// A policy that drafts trees, keeps a part of the nodes, and records what it sees.
struct Spy {
    growth: Growth,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl SpecPolicy for Spy {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::tree(4, 9)
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.shape = DraftShape::Tree(self.growth.clone());
        plan.fill(4);
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        let trees = &mut drafts.trees[..batch.len()];
        for (tree, &limit) in trees.iter_mut().zip(batch.limit) {
            tree.keep_best(limit, &mut Vec::new());
        }
        let (ids, emitted) = (batch.ids.to_vec(), batch.emitted.to_vec());
        self.seen.lock().expect("one thread").push(Seen { ids, emitted, trees: trees.to_vec(), accepted: Vec::new() });
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        if let Some(last) = self.seen.lock().expect("one thread").last_mut() {
            last.accepted = outcome.accepted.to_vec();
        }
    }
}

#[test]
fn confidences_and_accepted_tokens_are_those_of_the_source() {
    const OUTPUT: u32 = 60;
    let spec = AcceptanceSpec {
        source: Rates::ByDepth { rates: vec![0.7, 0.6, 0.5, 0.4] },
        ranks: RankLaw::new(vec![0.5, 0.3]).expect("probabilities"),
        ..AcceptanceSpec::default()
    };
    for growth in [Growth::Beam { topk: 3 }, Growth::Expansion([2, 1, 3].into())] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let spy = Spy { growth: growth.clone(), seen: seen.clone() };
        // The policy matches its proposal with the outcome of the same step, so draft tokens must be made at the start
        // of the step.
        let config = EngineConfig { draft_at: Some(DraftAt::StepStart), ..EngineConfig::default() };
        run_with(&spec, 40, OUTPUT, config, Speculation::Policy(Box::new(spy)));
        let source = spec.build(SEED, &Workload::default()).expect("a good source");
        // Counts of three kinds of nodes, each of which must occur in the run. The target's path is the path of the
        // tokens that the target chooses. The kinds are: nodes whose parent is on this path, first guesses off this
        // path, and accepted nodes that are not first guesses.
        let mut met = (0, 0, 0);
        for step in seen.lock().expect("one thread").iter() {
            for (i, tree) in step.trees.iter().enumerate() {
                let request =
                    RequestTruth { id: step.ids[i], prompt_len: 0, output_len: OUTPUT, category: 0, recording: None };
                let mut row = TruthRow::default();
                source.start(request, 8, &mut row);
                let start = step.emitted[i];
                let rank = |d: u32| match row.right(start + d, d) {
                    true => 1,
                    false => source.rank_if_wrong(request, start + d),
                };
                // For each node: whether the node and all nodes above it are the target's choice.
                let mut on_target: Vec<bool> = Vec::new();
                let mut firsts: HashMap<u32, f64> = HashMap::new();
                let mut longest = 0;
                for node in tree.nodes() {
                    let above = node.parent == ROOT || on_target[node.parent as usize];
                    let depth = node.depth - 1;
                    on_target.push(above && rank(depth) == node.rank);
                    if on_target[on_target.len() - 1] && node.kept {
                        longest = longest.max(node.depth);
                        met.2 += u32::from(node.rank > 1);
                    }
                    let first = match (above, node.rank) {
                        (true, _) => {
                            met.0 += 1;
                            source.confidence(request, start, depth, Some(row.right(start + depth, depth)), 0).into()
                        }
                        // Off the target's path (the path of tokens that the target chooses) each parent has its own
                        // random draw. It gives the confidence of the parent's first child.
                        (false, 1) => {
                            met.1 += 1;
                            node.confidence
                        }
                        (false, _) => firsts[&node.parent],
                    };
                    firsts.insert(node.parent, first);
                    assert_eq!(node.confidence, source.ranks().guess(first, node.rank));
                }
                assert_eq!(step.accepted[i], longest);
                let off = tree.nodes().iter().enumerate().filter(|(_, n)| n.rank == 1 && n.parent != ROOT);
                let mut own: Vec<u64> =
                    off.filter(|(_, n)| !on_target[n.parent as usize]).map(|(_, n)| n.confidence.to_bits()).collect();
                let all = own.len();
                own.sort_unstable();
                own.dedup();
                assert_eq!(own.len(), all, "two parents off the path share a draw");
            }
        }
        assert!(met.0 > 1000 && met.1 > 1000 && met.2 > 100, "{met:?}");
    }
}
