//! `eagle2`: a dynamic draft tree for each request and step. The `topk` most probable nodes of each level are expanded,
//! and the most probable of all drafted nodes are verified.
//!
//! Source: Li et al., "EAGLE-2" (arXiv 2406.16858), sections 4.1 (expansion) and 4.2 (rerank), with the numbers and
//! names of SGLang, which builds these trees for every EAGLE draft. SGLang's automatic choice is 5 steps, top 4, 8
//! draft tokens (docs/model.md 1.6).

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{
    BatchView, DraftLimits, DraftPlan, DraftShape, Drafts, Growth, MAX_TREE_TOKENS, SpecPolicy, Speculation,
};
use serde::{Deserialize, Serialize};

/// Settings of the policy `eagle2`, which drafts the most probable nodes of a dynamic tree. The names of the settings
/// are SGLang's (`--speculative-num-steps` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Eagle2 {
    /// Number of levels of a request's draft tree, 1 to 32; each is one draft pass.
    pub num_steps: u32,
    /// Number of nodes of each level that are expanded, and also the number of children of each such node.
    pub topk: u32,
    /// Number of tokens of a request that are verified in a step, the root of its tree included, at least 2. With `topk
    /// = 1` it is always `num_steps + 1`.
    pub num_draft_tokens: u32,
}

impl Default for Eagle2 {
    fn default() -> Self {
        Eagle2 { num_steps: 5, topk: 4, num_draft_tokens: 8 }
    }
}

impl Eagle2 {
    /// Number of nodes that a request drafts in `steps` levels: topk in the first level and topk² in each further one.
    fn pool(&self, steps: u32) -> u64 {
        let topk = u64::from(self.topk);
        if steps == 0 { 0 } else { topk + u64::from(steps - 1) * topk * topk }
    }

    /// Number of drafted nodes of a request that are verified, without the root.
    fn verified(&self) -> u32 {
        if self.topk == 1 { self.num_steps } else { self.num_draft_tokens - 1 }
    }
}

impl Definition for Eagle2 {
    fn about(&self) -> About {
        About {
            summary: "a draft tree that grows where the draft is confident; its most probable nodes are verified",
            source: "EAGLE-2 (arXiv 2406.16858) 4.1 and 4.2; numbers of SGLang's automatic choice (5 steps, top 4, 8 \
                     draft tokens)",
            sees: "the draft's probability of each node",
            differences: "verification is greedy. SGLang draws the first level in the draft's extension over what \
                          was accepted: here that is draft pass 1. A tree is cut to a request's limit, where SGLang \
                          always verifies num_draft_tokens",
        }
    }

    fn drafts_trees(&self) -> bool {
        true
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("num_steps", self.num_steps))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("eagle2");
        check.length("num_steps", self.num_steps)?;
        check.that("topk", (1..=MAX_TREE_TOKENS).contains(&self.topk), || {
            format!("{} is not a width from 1 to {MAX_TREE_TOKENS}", self.topk)
        })?;
        check.that("num_draft_tokens", (2..=MAX_TREE_TOKENS).contains(&self.num_draft_tokens), || {
            format!("{} is not a number from 2 (the root and one draft) to {MAX_TREE_TOKENS}", self.num_draft_tokens)
        })?;
        let pool = self.pool(self.num_steps);
        check.that("num_draft_tokens", u64::from(self.verified()) <= pool, || {
            format!(
                "{} is more than the {pool} nodes that {} steps of top {} draft, and the root",
                self.num_draft_tokens, self.num_steps, self.topk
            )
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let depth = self.num_steps.min(context.max_draft_len);
        Speculation::Policy(Box::new(DynamicTree {
            params: *self,
            depth,
            verified: u64::from(self.verified()).min(self.pool(depth)) as u32,
            order: Vec::new(),
        }))
    }
}

/// The policy `eagle2` while the engine runs: its settings, and what it keeps from step to step.
struct DynamicTree {
    params: Eagle2,
    depth: u32,
    /// Number of drafted nodes of a request that are verified, without the root.
    verified: u32,
    /// Buffer in which `keep_best` ranks the nodes of one request's tree by path probability.
    order: Vec<u32>,
}

impl SpecPolicy for DynamicTree {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::tree(self.depth, self.verified)
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.shape = DraftShape::Tree(Growth::Beam { topk: self.params.topk });
        plan.fill(self.depth);
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        for (tree, &limit) in drafts.trees.iter_mut().zip(batch.limit) {
            tree.keep_best(self.verified.min(limit), &mut self.order);
        }
    }

    fn warnings(&self) -> Vec<String> {
        let Eagle2 { num_steps, topk, num_draft_tokens } = self.params;
        if topk > 1 || num_draft_tokens == num_steps + 1 {
            return Vec::new();
        }
        vec![format!(
            "eagle2 with topk 1 drafts a chain: it verifies num_steps + 1 = {} tokens, not num_draft_tokens = \
             {num_draft_tokens}, as SGLang does",
            num_steps + 1
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};
    use foretoken_sim::DraftTree;
    use proptest::prelude::*;

    fn policy(params: Eagle2, max_draft_len: u32) -> Box<dyn SpecPolicy> {
        params.check().expect("good settings");
        match params.build(&PolicyContext { max_draft_len, ..CONTEXT }) {
            Speculation::Policy(policy) => policy,
            _ => panic!("a policy"),
        }
    }

    #[test]
    fn the_automatic_choice_verifies_eight_tokens_of_a_pool_of_68() {
        let auto = Eagle2::default();
        assert_eq!(auto.pool(auto.num_steps), 68);
        let policy = policy(auto, 8);
        assert_eq!((policy.limits().depth, policy.limits().tree_tokens), (5, 7));
        let drafts = Run::of(&auto, &CONTEXT).step(&Batch::new(&[50, 60, 70], &[7, 2, 0]), |_, _| 0.6, &[0; 3]);
        assert_eq!(drafts.draft_len, [5, 2, 0]);
        assert_eq!([0, 1, 2].map(|i| drafts.trees[i].nodes().len()), [68, 20, 0]);
        assert_eq!([0, 1, 2].map(|i| drafts.trees[i].kept()), [7, 2, 0]);
    }

    /// The four most probable nodes of a tree, by hand. Guesses after the first have .28, .122 and .078 of the
    /// probability that the first guess leaves. If the first guess has .6, the four nodes are the chain .6, .36, .216,
    /// .1296, because the best branch has .112. If the first guess has .3, the four nodes are .3, .196, .3² = .09 and
    /// the third guess's .086.
    #[test]
    fn it_is_deep_where_the_draft_is_sure_and_wide_where_it_is_not() {
        let four = Eagle2 { num_draft_tokens: 5, ..Eagle2::default() };
        let ranks_and_depths = |confidence: f64| -> Vec<(u32, u32)> {
            let drafts = Run::of(&four, &CONTEXT).step(&Batch::new(&[50], &[7]), |_, _| confidence, &[0]);
            drafts.trees[0].nodes().iter().filter(|n| n.kept).map(|n| (n.rank, n.depth)).collect()
        };
        assert_eq!(ranks_and_depths(0.6), [(1, 1), (1, 2), (1, 3), (1, 4)]);
        assert_eq!(ranks_and_depths(0.3), [(1, 1), (2, 1), (3, 1), (1, 2)]);
    }

    #[test]
    fn a_width_of_one_is_a_chain_of_num_steps() {
        let chain = Eagle2 { num_steps: 4, topk: 1, num_draft_tokens: 8 };
        let policy = policy(chain, 8);
        assert_eq!((policy.limits().depth, policy.limits().tree_tokens), (4, 4));
        assert!(policy.warnings()[0].contains("num_steps + 1 = 5"));
        let drafts = Run::of(&chain, &CONTEXT).step(&Batch::new(&[50, 60], &[8, 3]), |_, _| 0.2, &[9, 9]);
        assert_eq!((drafts.draft_len, drafts.verify_len), (vec![4, 3], vec![4, 3]));
    }

    #[test]
    fn bad_settings_are_named() {
        let refused =
            |num_steps, topk, num_draft_tokens| Eagle2 { num_steps, topk, num_draft_tokens }.check().map_err(|e| e.key);
        assert_eq!(refused(5, 0, 8), Err("topk"));
        assert_eq!(refused(0, 4, 8), Err("num_steps"));
        assert_eq!(refused(5, 4, 1), Err("num_draft_tokens"));
        assert_eq!(refused(1, 4, 5), Ok(()));
        assert_eq!(refused(1, 4, 6), Err("num_draft_tokens"));
        assert_eq!(refused(2, 3, 13), Ok(()));
        assert_eq!(refused(2, 3, 14), Err("num_draft_tokens"));
    }

    /// Made-up draft probabilities for the test: the probability of the `rank`-th guess that follows a path, and the
    /// key of the path with this guess at its end. The sum over all ranks is below 1, and no rank is more probable than
    /// a rank before it.
    fn guess(path: u64, rank: u32) -> (f64, u64) {
        let mix = |value: u64| foretoken_sim::luck::mix(value.wrapping_add(0x9E37_79B9_7F4A_7C15));
        let first = (mix(path) % 1000 + 1) as f64 / 1002.0;
        (first * (1.0 - first).powi(rank as i32 - 1), mix(path ^ u64::from(rank) << 48))
    }

    /// EAGLE-2 from its paper, on whole paths from the root: expands the best `topk` paths of each level (4.1), and
    /// returns the best `verified` of all paths (4.2), each as the list of the ranks of its guesses. Among equals the
    /// path that was drafted first is better.
    fn second(seed: u64, depth: u32, topk: u32, verified: usize) -> Vec<Vec<u32>> {
        let best = |paths: &[(f64, usize, u64, Vec<u32>)], most: usize| {
            let mut paths = paths.to_vec();
            paths.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            paths.truncate(most);
            paths.sort_by_key(|path| path.1);
            paths
        };
        let mut all = Vec::new();
        let mut frontier = vec![(1.0, 0, seed, Vec::new())];
        for _ in 0..depth {
            let mut level = Vec::new();
            for (reached, _, key, ranks) in &frontier {
                for rank in 1..=topk {
                    let (probability, longer) = guess(*key, rank);
                    let ranks = [ranks.as_slice(), &[rank]].concat();
                    level.push((reached * probability, all.len() + level.len(), longer, ranks));
                }
            }
            frontier = best(&level, topk as usize);
            all.extend(level);
        }
        best(&all, verified).into_iter().map(|path| path.3).collect()
    }

    /// The ranks of the draft model's guesses on the way from the root to node `at`.
    fn ranks(tree: &DraftTree, mut at: usize) -> Vec<u32> {
        let mut ranks = vec![tree.nodes()[at].rank];
        while tree.nodes()[at].depth > 1 {
            at = tree.nodes()[at].parent as usize;
            ranks.insert(0, tree.nodes()[at].rank);
        }
        ranks
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        /// The policy verifies the same nodes as `second`, an implementation of EAGLE-2 in this test that works on
        /// whole paths.
        #[test]
        fn trees_equal_a_second_implementation(
            num_steps in 1u32..=6, topk in 1u32..=6, tokens in 2u32..=40, seed in any::<u64>(), limit in 0u32..=40,
        ) {
            let params = Eagle2 { num_steps, topk, num_draft_tokens: tokens };
            let pool = params.pool(num_steps) as u32;
            let params = Eagle2 { num_draft_tokens: tokens.min(pool + 1), ..params };
            let mut policy = policy(params, 8);
            let batch = Batch::new(&[50], &[limit]);
            let mut plan = DraftPlan { draft_len: vec![0], ..DraftPlan::default() };
            policy.propose(&batch.view(), &mut plan);
            let DraftShape::Tree(growth) = &plan.shape else { panic!("it drafts trees") };
            let depth = plan.draft_len[0];
            let mut tree = DraftTree::default();
            for _ in 0..depth {
                tree.grow(growth, |above, rank| guess(above.map_or(seed, |node| node.path), rank));
            }
            let mut drafts = Drafts::default();
            drafts.trees.push(tree);
            policy.select(&batch.view(), &mut drafts);
            let tree = &drafts.trees[0];
            let kept = (0..tree.nodes().len()).filter(|&at| tree.nodes()[at].kept);
            let ours: Vec<Vec<u32>> = kept.map(|at| ranks(tree, at)).collect();
            let most = if topk == 1 { num_steps } else { params.num_draft_tokens - 1 };
            prop_assert_eq!(ours, second(seed, num_steps, topk, most.min(limit) as usize));
        }
    }

    /// True if the parent of every node that is chosen for verification is chosen too. `kept` has one bit for each node
    /// of `tree`.
    fn closed(tree: &DraftTree, kept: u32) -> bool {
        let has = |at: u32| kept >> at & 1 == 1;
        tree.nodes().iter().enumerate().all(|(at, n)| !has(at as u32) || n.depth == 1 || has(n.parent))
    }

    proptest! {
        /// The policy verifies a set of nodes that has the parent of each of its nodes. Of all such sets with the same
        /// number of nodes, it has the highest sum of path probabilities, which is the expected number of accepted
        /// tokens. The test tries every subset of small trees.
        #[test]
        fn the_kept_set_is_the_best_of_its_size(
            steps in 1u32..=3, topk in 1u32..=2, most in 1u32..=8,
            quality in prop::collection::vec(0.01f64..1.0, 12),
        ) {
            let mut tree = DraftTree::default();
            for _ in 0..steps {
                let mut at = tree.nodes().len();
                let mut left = 1.0;
                tree.grow(&Growth::Beam { topk }, |_, rank| {
                    left = if rank == 1 { 1.0 } else { left };
                    let p = left * quality[at % quality.len()];
                    left -= p;
                    at += 1;
                    (p, 0)
                });
            }
            let n = tree.nodes().len() as u32;
            let most = most.min(n);
            tree.keep_best(most, &mut Vec::new());
            let gain = |kept: u32| -> f64 {
                (0..n).filter(|at| kept >> at & 1 == 1).map(|at| tree.nodes()[at as usize].score).sum()
            };
            let ours = tree.nodes().iter().enumerate().fold(0u32, |kept, (at, n)| kept | u32::from(n.kept) << at);
            prop_assert!(closed(&tree, ours) && ours.count_ones() == most);
            let best = (0..1u32 << n).filter(|&k| k.count_ones() == most && closed(&tree, k)).map(gain).fold(0.0, f64::max);
            prop_assert!((gain(ours) - best).abs() < 1e-12, "{} against {best}", gain(ours));
        }
    }
}
