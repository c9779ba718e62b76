//! The policy interface: the decisions of a policy about requests and draft tokens, and the values from which it
//! decides and learns. A policy sees only values that a real server would know.

use crate::categories::Categories;
use crate::config::BatchRange;
use crate::drafts::{Drafts, Wants};
use crate::new_request::NewRequest;
use crate::time::Time;
use crate::tree::Growth;
use crate::workload::RequestId;

/// The prefill work of a pass: sums over its prefill chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkTotals {
    /// Number of prefill chunks (pieces of prompts).
    pub chunks: u32,
    /// Sum over the chunks of the numbers of new prompt tokens, n_p for chunk p (docs/model.md 12).
    pub tokens: u64,
    /// Sum over the chunks of the tokens that the chunk's request already has in KV, m_p for chunk p (docs/model.md
    /// 12).
    pub context: u64,
    /// Query-key pairs of attention over all chunks: sum of n_p·m_p + n_p(n_p+1)/2, for n_p new tokens and m_p tokens
    /// in KV of chunk p.
    pub pairs: u64,
}

impl ChunkTotals {
    /// Adds a chunk of `tokens` new tokens of a request that has `computed` tokens in KV.
    pub fn add(&mut self, computed: u32, tokens: u32) {
        let (m, n) = (u64::from(computed), u64::from(tokens));
        self.chunks += 1;
        self.tokens += n;
        self.context += m;
        self.pairs += n * m + n * (n + 1) / 2;
    }
}

/// The state that a policy sees: the decode requests of this step, in columns of equal length in the order of the
/// running list, and the numbers of running and waiting requests.
#[derive(Clone, Copy, Debug)]
pub struct BatchView<'a> {
    /// The engine's time at the start of this step.
    pub now: Time,
    /// Index of the step.
    pub step: u64,
    /// Ids of the decode requests in this step. All columns have the entries of these requests in the same order.
    pub ids: &'a [RequestId],
    /// Tokens of each decode request in the target's KV: `num_computed_tokens` = prompt + output − 1.
    pub context: &'a [u32],
    /// Number of output tokens that each decode request has emitted so far.
    pub emitted: &'a [u32],
    /// The most tokens that may be drafted now for each decode request. The limits of token budget, KV and length are
    /// applied.
    pub limit: &'a [u32],
    /// Number of tokens of each request in the target's KV that the draft model has skipped before this step and must
    /// run over (docs/model.md 12 `g_i`).
    pub draft_gap: &'a [u32],
    /// The TPOT limit of each decode request, seconds; infinity for none.
    pub slo_tpot_s: &'a [f64],
    /// The categories (chat, code, documents) of the requests; read them with [`category`](BatchView::category).
    pub categories: Categories<'a>,
    /// Sum over the decode requests of their tokens in the target's KV.
    pub context_sum: u64,
    /// Sums over the prefill chunks in the step's target pass: number of chunks, new tokens, and tokens in KV.
    pub prefill: ChunkTotals,
    /// Sums over the prefill chunks in the step's first draft pass: number of chunks, new tokens, and tokens in KV.
    pub draft_prefill: ChunkTotals,
    /// Whether the draft model processes in every step all tokens that it has skipped, also for requests that do not
    /// draft (`DraftGap = always-extend`).
    pub always_extend: bool,
    /// Number of requests in the running list, including requests in prefill.
    pub num_running: u32,
    /// Number of waiting requests.
    pub num_waiting: u32,
}

impl BatchView<'_> {
    /// Number of decode requests.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// The category of the `i`-th decode request: an index into the list of names with which the policy was built.
    /// `None` if the workload has no categories.
    pub fn category(&self, i: usize) -> Option<u16> {
        self.categories.of(self.ids[i])
    }

    /// Whether this step has no decode request.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Whether a policy drafts chains or trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DraftShape {
    /// A chain: one draft token at each depth.
    #[default]
    Chain,
    /// A tree of draft tokens for each request.
    Tree(Growth),
}

/// What a policy plans before drafting: chains or trees, and the draft length of each decode request.
#[derive(Clone, Debug, Default)]
pub struct DraftPlan {
    /// Whether chains or trees are drafted. A policy that drafts trees must set this in every step.
    pub shape: DraftShape,
    /// Planned draft length of each decode request (for a tree, its depth). The engine lowers a length to the request's
    /// limit.
    pub draft_len: Vec<u32>,
}

impl DraftPlan {
    /// Sets the same planned draft length for all decode requests.
    pub fn fill(&mut self, len: u32) {
        self.draft_len.fill(len);
    }

    /// Resets the plan to chains of length 0 for `n` requests.
    #[inline]
    pub(crate) fn reset(&mut self, n: usize) {
        self.shape = DraftShape::Chain;
        self.draft_len.clear();
        self.draft_len.resize(n, 0);
    }
}

/// The most that a policy may draft for any request, now and in the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftLimits<'a> {
    /// The most draft tokens of a request in the next step (for trees, the greatest depth). For chains, each decode
    /// request is charged this number of tokens in the step's token budget, and gets KV slots for them.
    pub depth: u32,
    /// The most tokens of a tree that are verified in the next step; 0 for chains. For trees, each decode request is
    /// charged this number of tokens, in place of the depth.
    pub tree_tokens: u32,
    /// The largest number of draft tokens (for trees, the greatest depth) of a request in any step of the run. For most
    /// drafters this is also the number of lookahead slots, or `max_tree_tokens` if that is larger.
    pub max_depth: u32,
    /// The most tokens of a tree that are verified in any step of the run.
    pub max_tree_tokens: u32,
    /// Set if vLLM's settings can express the policy. It is then vLLM's table `num_speculative_tokens_per_batch_size`,
    /// or an empty table if the policy has one length for all batch sizes. vLLM's drafter may then make all its draft
    /// passes even if fewer tokens are wanted. If the table is not empty, vLLM's scheduler pads no admission.
    pub vllm: Option<&'a [BatchRange]>,
}

impl<'a> DraftLimits<'a> {
    /// The limits of a policy that drafts chains of at most `depth` tokens.
    pub const fn chain(depth: u32) -> Self {
        DraftLimits::tree(depth, 0)
    }

    /// The limits of a policy that drafts trees with at most `depth` levels. At most `tokens` tokens of a tree are
    /// verified.
    pub const fn tree(depth: u32, tokens: u32) -> Self {
        DraftLimits { depth, tree_tokens: tokens, max_depth: depth, max_tree_tokens: tokens, vllm: None }
    }

    /// Sets `max_depth`: the most draft tokens (for trees, the greatest depth) of a request in any step of the run.
    pub const fn up_to(self, max_depth: u32) -> Self {
        DraftLimits { max_depth, ..self }
    }

    /// Sets `max_tree_tokens`: the most tokens of a tree in any step of the run.
    pub const fn with_trees_up_to(self, max_tree_tokens: u32) -> Self {
        DraftLimits { max_tree_tokens, ..self }
    }

    /// Marks a policy that vLLM's settings can express, with this table of lengths by batch size. An empty table means
    /// one length for all batch sizes.
    pub const fn as_in_vllm(self, per_batch_size: &'a [BatchRange]) -> Self {
        DraftLimits { vllm: Some(per_batch_size), ..self }
    }
}

/// Whether the step runs another draft pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continue {
    /// Run the next draft pass over the requests that still draft.
    Yes,
    /// Stop drafting for the whole batch.
    Stop,
}

/// An alternative that a policy considered for its decision, such as another draft length.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// What the policy would do in this alternative.
    pub what: String,
    /// The policy's estimate of its own objective for this alternative.
    pub estimate: f64,
}

/// The reasons for a policy's decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// The policy's estimate of its own objective for its decision; `None` if the policy estimates no objective.
    pub estimate: Option<f64>,
    /// The alternatives that the policy considered.
    pub candidates: Vec<Candidate>,
}

/// The outcome of a step, as any server would see it.
#[derive(Clone, Copy, Debug)]
pub struct StepOutcome<'a> {
    /// Ids of the decode requests, in the order of the step's [`BatchView`].
    pub ids: &'a [RequestId],
    /// Number of drafted tokens of each request (for a tree, its depth).
    pub drafted: &'a [u32],
    /// Number of verified tokens of each request (for a tree, the depth of its deepest verified node).
    pub verified: &'a [u32],
    /// Number of accepted draft tokens of each request. Draft tokens beyond the output's end count; the bonus token
    /// does not.
    pub accepted: &'a [u32],
    /// The draft tokens of the step, with the values that the policy wants (such as confidences) and the number of
    /// draft passes.
    pub drafts: &'a Drafts,
    /// Time in draft passes and in the policy's decisions.
    pub draft_time: Time,
    /// Time of the target pass and of the host's other work in the step.
    pub verify_time: Time,
}

/// What a policy sees when it says whether the draft model's weights stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Whether the weights are in memory and the engine can draft.
    pub loaded: bool,
    /// Number of requests in the running list, including requests in prefill.
    pub num_running: u32,
    /// Number of waiting requests.
    pub num_waiting: u32,
    /// Number of free KV blocks.
    pub free_blocks: u32,
    /// Number of KV blocks that fit into the memory of the weights.
    pub weight_blocks: u32,
}

/// A speculation policy: a pure state machine that sees only what a server sees.
pub trait SpecPolicy: Send {
    /// The most that the policy may draft for any request, now and in the whole run. Called before every step is
    /// scheduled.
    fn limits(&self) -> DraftLimits<'_>;

    /// The values of draft tokens (such as confidences) that the policy reads.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// Whether to draft for a request that starts. If false, the draft model never processes the request's prompt, and
    /// the request joins no draft pass. Called once for each request, in the order of admission, and only if the draft
    /// model processes prompts (SmartSpec's draft-prefill skipping).
    fn drafts_for_next(&mut self, _request: &NewRequest) -> bool {
        true
    }

    /// Whether the draft model's weights stay in memory. If not, KV blocks take their place and nothing is drafted. If
    /// they are gone, true brings them back, as soon as their memory is free. Called before every step is scheduled, if
    /// the engine may give the weights up (`engine.draft_weights`).
    fn keeps_weights(&mut self, _memory: &Memory) -> bool {
        true
    }

    /// How many decode requests take part in this step: the first n of the batch, at least 1, or all if `None`.
    /// Requests that are left out keep their KV and wait.
    fn max_batch(&mut self, _batch: &BatchView) -> Option<usize> {
        None
    }

    /// Called before drafting: sets the draft length of each decode request. `plan.draft_len` has one entry for each
    /// request, all 0.
    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan);

    /// Called between draft passes: decides whether to run the next draft pass. `drafts` has the confidences of the
    /// last pass. [`Drafts::stop`] ends the drafting of a single request.
    fn keep_drafting(&mut self, _batch: &BatchView, drafts: &mut Drafts) -> Continue {
        drafts.nothing_to_decide();
        Continue::Yes
    }

    /// Called before verification: may lower `drafts.verify_len`, the number of draft tokens of each request that are
    /// verified.
    fn select(&mut self, _batch: &BatchView, drafts: &mut Drafts) {
        drafts.nothing_to_decide();
    }

    /// Called after every step that ran a pass: the policy learns from the outcome. For a step with prompts only, the
    /// outcome has no requests, and `propose` was not called. The outcome may come some steps late. So an
    /// implementation must use only the outcome, and not what the policy remembers of the current step.
    fn observe(&mut self, _outcome: &StepOutcome) {}

    /// Called when a request has ended (finished, aborted or rejected); the policy may forget the request. Called once
    /// for each request that ran or waited, after the policy has observed the request's last outcome. Not called for
    /// requests that are rejected on arrival. No later call names the request.
    fn request_finished(&mut self, _id: RequestId) {}

    /// Whether a later request may get the id of a request whose end was reported. A policy returns false if its
    /// decisions depend on the ids themselves, or if it uses an id after
    /// [`request_finished`](SpecPolicy::request_finished). Then an engine forgets no requests.
    fn ids_may_return(&self) -> bool {
        true
    }

    /// Warnings for the user at the end of a run, such as "chose 0 for the last 20,000 steps".
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The reasons for the policy's decision in the last step. A policy records its alternatives only after the first
    /// call of this method. So call it once before the step and again after the step.
    fn explain(&mut self) -> Explanation {
        Explanation::default()
    }
}
