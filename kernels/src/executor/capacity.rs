//! The sizes of the memory that a target and a draft model need for the engine's settings and a policy.

use super::acceptance::Acceptance;
use super::error::CannotServe;
use crate::forward::Limits;
use crate::paged::BLOCK_SIZE;
use foretoken_sim::{DraftKv, EngineConfig, MAX_TREE_TOKENS, SpecPolicy};

/// A draft pass has memory for this number of rows of draft logits per request, if the policy drafts trees. A row is
/// needed for each node of a tree level. A level with more nodes may need several passes on the device.
const TREE_WIDTH: usize = 32;

/// What a run needs from the models' memory, because of its policy and of what decides acceptance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// True if a draft model must be loaded, because the run has a policy.
    pub draft: bool,
    /// True if the policy drafts trees (several guesses at a position) and not chains.
    pub trees: bool,
    /// True if whole distributions over the vocabulary are needed, and not only the most likely tokens. Sampling needs
    /// them, and so does a policy that wants entropies or divergences.
    pub distributions: bool,
}

impl Needs {
    /// Returns what `policy` needs from the models' memory if `acceptance` decides which draft tokens are accepted.
    /// Without a policy there is no speculation.
    pub fn of(policy: Option<&dyn SpecPolicy>, acceptance: &Acceptance<'_>) -> Result<Needs, CannotServe> {
        let trees = policy.is_some_and(|p| p.limits().tree_tokens > 0);
        let wants = policy.map(|p| p.wants()).unwrap_or_default();
        let looks = wants.entropy || wants.divergence;
        match *acceptance {
            Acceptance::Sampled { temperature, .. } if !(temperature > 0.0 && temperature.is_finite()) => {
                Err(CannotServe::Temperature(temperature))
            }
            Acceptance::Sampled { .. } if trees => Err(CannotServe::SampledTrees),
            Acceptance::Declared(source) if source.may_lack_proposals() => Err(CannotServe::PromptLookup),
            Acceptance::Sampled { .. } => Ok(Needs { draft: policy.is_some(), trees, distributions: true }),
            Acceptance::Greedy => Ok(Needs { draft: policy.is_some(), trees, distributions: looks }),
            Acceptance::Declared(_) => Ok(Needs { draft: policy.is_some(), trees, distributions: false }),
        }
    }

    /// Returns the needs that cover both `self` and `other`. They are for models that are loaded once and serve several
    /// policies.
    pub fn and(self, other: Needs) -> Needs {
        Needs {
            draft: self.draft || other.draft,
            trees: self.trees || other.trees,
            distributions: self.distributions || other.distributions,
        }
    }
}

/// Sizes of the memory with which a target and a draft model are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Number of the target's KV blocks. The first block is vLLM's null block.
    pub blocks: u32,
    /// Number of the draft model's KV blocks. The first block is vLLM's null block.
    pub draft_blocks: u32,
    /// Number of scratch blocks, which hold the draft model's KV for nodes of draft trees. They are the last of the
    /// `draft_blocks` blocks. The scheduler never gives a scratch block to a request.
    pub draft_scratch: u32,
    /// Most new tokens of a pass of either model.
    pub rows: usize,
    /// Most rows (tokens) of a target pass for which logits are computed.
    pub logit_rows: usize,
    /// Most rows (tokens) of a draft pass for which logits are computed.
    pub draft_logit_rows: usize,
    /// Most requests of a step for which the draft model's distributions are stored until verification. 0 if no
    /// distributions are stored.
    pub kept_requests: usize,
    /// Most drafted tokens of a request for which the draft model's distributions are stored.
    pub kept_len: usize,
}

impl Capacity {
    /// Computes the sizes for an engine with the settings `config`. If the policy drafts trees, the draft model gets
    /// scratch KV blocks besides the scheduler's blocks, because more nodes of a tree are drafted than verified. The
    /// scratch blocks hold [`MAX_TREE_TOKENS`] tokens per request.
    pub fn of(config: &EngineConfig, needs: Needs) -> Capacity {
        let (seqs, budget) = (config.max_num_seqs as usize, config.max_num_batched_tokens as usize);
        let verified = if needs.trees { MAX_TREE_TOKENS.max(config.max_draft_len) } else { config.max_draft_len };
        let pool = match config.draft_kv {
            DraftKv::None => config.num_gpu_blocks,
            DraftKv::EqualSplit { ratio } => (f64::from(config.num_gpu_blocks) / (1.0 + ratio)) as u32,
            DraftKv::Separate { blocks } => blocks.saturating_add(1),
        };
        let tree_blocks = MAX_TREE_TOKENS / BLOCK_SIZE as u32 + 1;
        let scratch = if needs.trees { config.max_num_seqs.saturating_mul(tree_blocks) } else { 0 };
        let width = if needs.trees { TREE_WIDTH } else { 1 };
        let (kept_requests, kept_len) = match needs.distributions {
            true => (seqs.min(budget), config.max_draft_len as usize),
            false => (0, 0),
        };
        Capacity {
            blocks: config.num_gpu_blocks,
            draft_blocks: pool.saturating_add(scratch),
            draft_scratch: scratch,
            rows: budget,
            logit_rows: seqs.saturating_mul(1 + verified as usize).min(budget),
            draft_logit_rows: seqs.saturating_mul(width).min(budget),
            kept_requests,
            kept_len,
        }
    }

    /// Takes the larger number of `self` and `other` for each size. Models that are loaded with the result can serve
    /// all runs that `self` or `other` is enough for.
    pub fn or(&self, other: &Capacity) -> Capacity {
        let draft_scratch = self.draft_scratch.max(other.draft_scratch);
        Capacity {
            blocks: self.blocks.max(other.blocks),
            draft_blocks: (self.draft_pool().max(other.draft_pool()) as u32).saturating_add(draft_scratch),
            draft_scratch,
            rows: self.rows.max(other.rows),
            logit_rows: self.logit_rows.max(other.logit_rows),
            draft_logit_rows: self.draft_logit_rows.max(other.draft_logit_rows),
            kept_requests: self.kept_requests.max(other.kept_requests),
            kept_len: self.kept_len.max(other.kept_len),
        }
    }

    /// Returns the limits with which the target is loaded: its number of KV blocks and its largest passes.
    pub fn target(&self) -> Limits {
        Limits { kv_blocks: self.blocks, max_rows: self.rows, max_logit_rows: self.logit_rows }
    }

    /// Returns the limits with which the draft model is loaded: its number of KV blocks and its largest passes.
    pub fn draft(&self) -> Limits {
        Limits { kv_blocks: self.draft_blocks, max_rows: self.rows, max_logit_rows: self.draft_logit_rows }
    }

    /// Returns the number of draft tokens whose distributions are stored until verification.
    pub(super) fn kept_rows(&self) -> usize {
        self.kept_requests * self.kept_len
    }

    /// Number of the draft model's KV blocks without the scratch blocks (for nodes of draft trees): the scheduler's
    /// blocks and the null block.
    fn draft_pool(&self) -> usize {
        (self.draft_blocks - self.draft_scratch) as usize
    }

    /// Checks that each size of `self` is at least the same size of `needed`. The error names the first size that is
    /// too small.
    pub(super) fn covers(&self, needed: &Capacity) -> Result<(), CannotServe> {
        let pairs = [
            ("blocks of KV", self.blocks as usize, needed.blocks as usize),
            ("blocks of the draft's KV", self.draft_pool(), needed.draft_pool()),
            ("scratch blocks of the draft's KV", self.draft_scratch as usize, needed.draft_scratch as usize),
            ("tokens a pass", self.rows, needed.rows),
            ("rows of logits", self.logit_rows, needed.logit_rows),
            ("rows of the draft's logits", self.draft_logit_rows, needed.draft_logit_rows),
            ("requests' distributions", self.kept_requests, needed.kept_requests),
            ("tokens' distributions a request", self.kept_len, needed.kept_len),
        ];
        match pairs.into_iter().find(|&(_, has, needed)| has < needed) {
            Some((what, has, needed)) => Err(CannotServe::Capacity { what, has, needed }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_sizes_cover_both_runs() {
        let one = Capacity {
            blocks: 10,
            draft_blocks: 30,
            draft_scratch: 20,
            rows: 5,
            logit_rows: 4,
            draft_logit_rows: 1,
            kept_requests: 2,
            kept_len: 3,
        };
        let other = Capacity {
            blocks: 7,
            draft_blocks: 12,
            draft_scratch: 0,
            rows: 9,
            logit_rows: 9,
            draft_logit_rows: 2,
            kept_requests: 0,
            kept_len: 0,
        };
        let either = one.or(&other);
        assert!(either.covers(&one).is_ok() && either.covers(&other).is_ok());
        // The scheduler's blocks and the scratch blocks are compared separately. The result has the 12 scheduler's
        // blocks of `other` and the 20 scratch blocks of `one`, together 32.
        assert_eq!((either.draft_blocks, either, one.or(&one)), (32, other.or(&one), one));
        assert!(one.covers(&other).is_err() && other.covers(&one).is_err());
    }
}
