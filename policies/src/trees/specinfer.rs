//! `specinfer`: a token tree of one static shape for every request in every step; `specinfer-star` is a tree of width
//! 1, a chain.
//!
//! Source: Miao et al., "SpecInfer" (arXiv 2305.09781), section 3: the expansion configuration ⟨k₁ … k_m⟩ gives each
//! node of depth ℓ−1 its k_ℓ best children. Verification is one pass with tree attention (greedy: section 4). The
//! default vector is FlexFlow's spec_infer: widths 1, 1, then `expansion_degree` (3), then 1 down to `MAX_BEAM_DEPTH`
//! (8), in all `max_spec_tree_token_num` = 20 nodes. The AdaSpec paper compares with SpecInfer's chain, "SpecInfer*"
//! (docs/model.md 5.3).

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{
    BatchView, DraftLimits, DraftPlan, DraftShape, Drafts, Growth, MAX_SPEC_LEN, MAX_TREE_TOKENS, SpecPolicy,
    Speculation,
};
use serde::{Deserialize, Serialize};

/// Settings of the policy `specinfer`, which drafts a tree of one static shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Specinfer {
    /// Number of children of each node of a draft tree, by depth from the root on. The length of the list is the tree's
    /// depth.
    pub expansion: Vec<u32>,
}

impl Default for Specinfer {
    fn default() -> Self {
        Specinfer { expansion: vec![1, 1, 3, 1, 1, 1, 1, 1] }
    }
}

impl Specinfer {
    /// The settings of `specinfer-star`: a chain (a tree of width 1) as deep as the default tree, as in AdaSpec's
    /// comparison.
    pub fn star() -> Specinfer {
        Specinfer { expansion: vec![1; 8] }
    }

    /// Number of nodes in the first `depth` levels of a draft tree. The number of nodes of level ℓ is the product of
    /// the first ℓ entries of `expansion`.
    fn nodes(&self, depth: usize) -> u64 {
        let mut width = 1u64;
        let levels = self.expansion.iter().take(depth);
        levels.fold(0, |nodes: u64, &children| {
            width = width.saturating_mul(children.into());
            nodes.saturating_add(width)
        })
    }
}

impl Definition for Specinfer {
    fn about(&self) -> About {
        About {
            summary: match self.expansion.iter().all(|&children| children == 1) {
                true => "one static chain for every request: a token tree of width 1",
                false => "one static token tree for every request, given by the children of a node at each depth",
            },
            source: "SpecInfer (arXiv 2305.09781) section 3; vector of FlexFlow's spec_infer: 1, 1, expansion_degree \
                     3, then 1 to depth 8",
            sees: "nothing; where a tree does not fit a request's limit, the draft's path probabilities choose what \
                   is verified",
            differences: "one draft model: no merging of several models' trees. Verification is greedy; the \
                          multi-step speculative sampling of section 4 is not modelled",
        }
    }

    fn drafts_trees(&self) -> bool {
        self.expansion.iter().any(|&children| children > 1)
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("expansion", self.expansion.len() as u32))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("specinfer");
        let depth = self.expansion.len();
        check.that("expansion", (1..=MAX_SPEC_LEN as usize).contains(&depth), || {
            format!("names {depth} levels; a tree has 1 to {MAX_SPEC_LEN}")
        })?;
        check.that("expansion", self.expansion.iter().all(|&children| children > 0), || {
            "has a level of zero width; end the vector where the tree ends".into()
        })?;
        let nodes = self.nodes(depth);
        check.that("expansion", nodes <= u64::from(MAX_TREE_TOKENS), || {
            format!("makes a tree of {nodes} tokens; at most {MAX_TREE_TOKENS} can be verified")
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let depth = (self.expansion.len() as u32).min(context.max_draft_len);
        Speculation::Policy(Box::new(StaticTree {
            shape: DraftShape::Tree(Growth::Expansion(self.expansion.as_slice().into())),
            depth,
            nodes: self.nodes(depth as usize) as u32,
            order: Vec::new(),
        }))
    }
}

/// The policy `specinfer` while the engine runs: its settings, and what it keeps from step to step.
struct StaticTree {
    shape: DraftShape,
    depth: u32,
    /// Number of nodes of a request's whole draft tree, before its limit on draft tokens cuts it.
    nodes: u32,
    /// Buffer in which `keep_best` ranks the nodes of one request's tree by path probability.
    order: Vec<u32>,
}

impl SpecPolicy for StaticTree {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::tree(self.depth, self.nodes)
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.shape = self.shape.clone();
        plan.fill(self.depth);
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        drafts.nothing_to_decide();
        cut_to_limits(batch, drafts, &mut self.order);
    }
}

/// Cuts each request's draft tree to its most probable nodes, as many as the request's limit on draft tokens allows.
pub(crate) fn cut_to_limits(batch: &BatchView, drafts: &mut Drafts, order: &mut Vec<u32>) {
    for (tree, &limit) in drafts.trees.iter_mut().zip(batch.limit) {
        if tree.nodes().len() > limit as usize {
            tree.keep_best(limit, order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BELIEF, Batch, CONTEXT, Run};
    use crate::{Adaserve, Eagle2, Fixed};
    use foretoken_sim::acceptance::AcceptanceSpec;
    use foretoken_sim::{Arrivals, DraftAt, EngineConfig, Linear, Request, Simulation, Time, Workload};
    use std::sync::atomic::AtomicBool;

    fn step(policy: &Specinfer, limit: &[u32]) -> Drafts {
        let batch = Batch::new(&vec![100; limit.len()], limit);
        Run::of(policy, &CONTEXT).step(&batch, |_, _| 0.8, &vec![0; limit.len()])
    }

    #[test]
    fn the_default_has_twenty_nodes_and_a_star_has_its_depth() {
        let Speculation::Policy(policy) = Specinfer::default().build(&CONTEXT) else { panic!("a policy") };
        assert_eq!((policy.limits().depth, policy.limits().tree_tokens), (8, 20));
        let drafts = step(&Specinfer::default(), &[20]);
        assert_eq!((drafts.trees[0].nodes().len(), drafts.trees[0].kept(), drafts.verify_len[0]), (20, 20, 8));
        let star = step(&Specinfer::star(), &[20]);
        assert_eq!((star.trees[0].nodes().len(), star.verify_len[0]), (8, 8));
    }

    /// First guesses of the draft model have probability .8 and further guesses less, so a tree that is cut loses all
    /// other nodes before it loses a node of the path of first guesses.
    #[test]
    fn a_tree_is_cut_to_the_best_nodes_that_fit() {
        let drafts = step(&Specinfer::default(), &[20, 8, 3, 0]);
        assert_eq!(drafts.draft_len, [8, 8, 3, 0]);
        assert_eq!(drafts.verify_len, [8, 8, 3, 0]);
        assert_eq!([0, 1, 2, 3].map(|i| drafts.trees[i].kept()), [20, 8, 3, 0]);
        assert!(drafts.trees[1].nodes().iter().all(|n| !n.kept || n.rank == 1));
    }

    #[test]
    fn an_engine_with_shorter_drafts_gets_the_first_levels() {
        let context = PolicyContext { max_draft_len: 3, ..CONTEXT };
        let Speculation::Policy(policy) = Specinfer::default().build(&context) else { panic!("a policy") };
        assert_eq!((policy.limits().depth, policy.limits().tree_tokens), (3, 5));
    }

    /// Simulates 40 requests on an engine with little KV memory, a small token budget per step and a TPOT limit of 12
    /// ms.
    fn whole_run(speculation: Speculation) -> foretoken_sim::Run {
        let at = |i: u32| Time::from_s(0.01 * f64::from(i));
        let workload: Workload = (0..40).map(|i| Request::new(at(i), 30 + i, 80)).collect();
        let acceptance = AcceptanceSpec::default().build(3, &workload).expect("a good source");
        let simulation = Simulation {
            workload: &workload,
            arrivals: Arrivals::Open,
            config: &EngineConfig {
                num_gpu_blocks: 120,
                max_num_batched_tokens: 256,
                draft_at: Some(DraftAt::StepStart),
                ..EngineConfig::default()
            },
            draft: &Linear::new(BELIEF.draft),
            target: &Linear::new(BELIEF.target),
            context_reads: BELIEF.context_reads,
            drafting: BELIEF.drafting,
            noise_cv: 0.05,
            acceptance: &*acceptance,
            seed: 3,
            slo_tpot_s: 0.012,
            keep_steps: true,
            keep_lives: false,
            interrupt: &AtomicBool::new(false),
        };
        simulation.run(speculation)
    }

    /// A tree of width 1 and a chain of the same depth give the same simulated run.
    #[test]
    fn a_star_runs_as_the_fixed_length() {
        for k in [1, 4, 8] {
            let chain = whole_run(Fixed { k }.build(&CONTEXT));
            let eagle = Eagle2 { num_steps: k, topk: 1, num_draft_tokens: k + 1 };
            for tree in [Specinfer { expansion: vec![1; k as usize] }.build(&CONTEXT), eagle.build(&CONTEXT)] {
                let tree = whole_run(tree);
                assert_eq!((&tree.records, &tree.steps), (&chain.records, &chain.steps));
                assert_eq!(tree.totals.verified_accepted, chain.totals.verified_accepted);
            }
            assert!(chain.totals.preemptions > 0 && chain.totals.accepted() > 0);
        }
    }

    /// With little KV memory every request still gets its whole output, draft trees are cut to what fits, and a request
    /// has more than one accepted draft token per step on average.
    #[test]
    fn trees_serve_all_requests_with_little_memory() {
        for tree in [
            Specinfer::default().build(&CONTEXT),
            Eagle2::default().build(&CONTEXT),
            Adaserve::default().build(&CONTEXT),
        ] {
            let run = whole_run(tree);
            assert_eq!(run.records.emitted, vec![80; 40]);
            let totals = &run.totals;
            println!("preempted {}, drafted {}, verified {}", totals.preemptions, totals.drafted, totals.verified);
            assert!(totals.verified < totals.drafted, "no tree was ever cut");
            assert!(run.totals.accepted() > run.totals.rounds());
        }
    }

    #[test]
    fn bad_vectors_are_refused() {
        for expansion in [vec![], vec![1, 0, 2], vec![1; 33], vec![4; 5], vec![u32::MAX; 3]] {
            let error = Specinfer { expansion }.check().expect_err("degenerate");
            assert_eq!(error.key, "expansion");
        }
    }
}
