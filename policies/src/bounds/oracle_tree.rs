//! `oracle-tree`: [`oracle-goodput`](super::oracle_goodput) for draft trees. It knows for every position which of the
//! draft model's guesses is right, and takes the trees with the most tokens per second in this step.
//!
//! Among the trees with the same accepted tokens, the one without wrong tokens takes the least time. It is a path: one
//! guess for each position, of any rank up to `topk`. Drafting and verifying a path costs what a chain of the same
//! length costs. So the oracle chooses path lengths as `oracle-goodput` chooses chain lengths. A path can continue as
//! long as one of the `topk` best guesses is right. The choice is exact if true pass times are linear.
//!
//! Another policy that drafts trees can do better than this oracle in two cases. Over a whole run its choices may lead
//! to other batches, as with chains (docs/model.md 13). And its trees may be wider than `topk`.
//!
//! Source: docs/model.md 5.3 and 12.

use crate::bounds::oracle_goodput::{OracleGoodput, Running};
use crate::bounds::price::Price;
use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{BatchView, DraftPlan, MAX_TREE_TOKENS, OraclePolicy, Speculation, StepOutcome, Truth};
use serde::{Deserialize, Serialize};

/// Settings of the bound `oracle-tree`, which knows which guesses are right and takes the trees with the most tokens
/// per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OracleTree {
    /// How many of the draft model's best guesses at each position the oracle may choose from, 1 to 256. With 1 it is
    /// `oracle-goodput`. SGLang's EAGLE-2 trees have 4.
    pub topk: u32,
    /// How step time is priced. In each step the oracle takes the trees with the most tokens − price · seconds.
    pub price: Price,
}

impl Default for OracleTree {
    fn default() -> Self {
        OracleTree { topk: 4, price: Price::Step }
    }
}

impl Definition for OracleTree {
    fn about(&self) -> About {
        About {
            summary: "the draft trees with the most accepted tokens per second of this step, from the hidden truth \
                      and the true cost",
            source: "hindsight on acceptance and cost; topk as in SGLang's EAGLE-2 trees",
            sees: "the hidden truth: which of the draft's guesses is right at each position, and the true cost of \
                   passes",
            differences: "its trees are paths without wrong tokens, so that results show them as chains",
        }
    }

    fn drafts_trees(&self) -> bool {
        true
    }

    fn sees_hidden_truth(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), BadParameter> {
        Check("oracle-tree").that("topk", (1..=MAX_TREE_TOKENS).contains(&self.topk), || {
            format!("{} is not a number of guesses from 1 to {MAX_TREE_TOKENS}", self.topk)
        })?;
        self.price.check("oracle-tree")
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let settings = OracleGoodput { price: self.price, ..OracleGoodput::default() };
        Speculation::Oracle(Box::new(Paths { topk: self.topk, oracle: Running::new(settings, context) }))
    }
}

/// `oracle-tree` in a run. It is `oracle-goodput`, but a request's path of draft tokens goes on as long as one of the
/// draft model's `topk` best guesses is right.
struct Paths {
    topk: u32,
    oracle: Running,
}

impl OraclePolicy for Paths {
    fn limit(&self) -> u32 {
        self.oracle.limit()
    }

    fn guesses(&self) -> u32 {
        self.topk
    }

    fn propose(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        self.oracle.propose(batch, truth, plan);
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.oracle.observe(outcome);
    }
}

#[cfg(test)]
#[path = "oracle_tree_tests.rs"]
mod tests;
