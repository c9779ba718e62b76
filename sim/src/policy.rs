//! What a policy is: three moments of decision and one of learning, over a view that holds nothing a real server
//! would not know.

use crate::config::BatchRange;
use crate::drafts::{Drafts, Wants};
use crate::time::Time;
use crate::tree::Growth;
use crate::workload::RequestId;

/// Prefill work that rides in a pass: sums over its chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkTotals {
    /// Number of chunks.
    pub chunks: u32,
    /// New prompt tokens (docs/model.md 12, sum of n_p).
    pub tokens: u64,
    /// Tokens already in KV before them (sum of m_p).
    pub context: u64,
    /// Query-key pairs: sum of n_p·m_p + n_p(n_p+1)/2.
    pub pairs: u64,
}

impl ChunkTotals {
    /// Adds a chunk of `tokens` new tokens after `computed` in KV.
    pub fn add(&mut self, computed: u32, tokens: u32) {
        let (m, n) = (u64::from(computed), u64::from(tokens));
        self.chunks += 1;
        self.tokens += n;
        self.context += m;
        self.pairs += n * m + n * (n + 1) / 2;
    }
}

/// What a policy sees: the decode requests of this step (columns of equal length, in running order) and its load.
#[derive(Clone, Copy, Debug)]
pub struct BatchView<'a> {
    /// The clock at the start of the step.
    pub now: Time,
    /// Index of the step.
    pub step: u64,
    /// Decode requests scheduled in this step.
    pub ids: &'a [RequestId],
    /// Tokens of each in the target's KV: `num_computed_tokens` = prompt + output − 1.
    pub context: &'a [u32],
    /// Output tokens emitted so far.
    pub emitted: &'a [u32],
    /// The most each may draft now (budget, KV and length limits applied).
    pub limit: &'a [u32],
    /// Tokens of each that the draft has not seen before this step (its catch-up, docs/model.md 12 `g_i`).
    pub draft_gap: &'a [u32],
    /// Each request's own TPOT limit in seconds; infinity when it has none.
    pub slo_tpot_s: &'a [f64],
    /// Sum of `context`.
    pub context_sum: u64,
    /// Prefill chunks that join the target pass.
    pub prefill: ChunkTotals,
    /// Prefill chunks the draft must run in its first pass.
    pub draft_prefill: ChunkTotals,
    /// Does the draft close every gap in every step, drafting or not (`DraftGap = always-extend`)?
    pub always_extend: bool,
    /// Requests in the running list, prefilling ones included.
    pub num_running: u32,
    /// Requests waiting.
    pub num_waiting: u32,
}

impl BatchView<'_> {
    /// Number of decode requests.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// No decode request this step?
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// The shape of what is drafted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DraftShape {
    /// One token a depth.
    #[default]
    Chain,
    /// A tree for each request.
    Tree(Growth),
}

/// What a policy proposes before drafting.
#[derive(Clone, Debug, Default)]
pub struct DraftPlan {
    /// Chain or tree. A policy that drafts trees says so in every step.
    pub shape: DraftShape,
    /// Planned draft length of each decode request, for a tree its depth; the engine clamps it to the request's limit.
    pub draft_len: Vec<u32>,
}

impl DraftPlan {
    /// The same length for everybody.
    pub fn fill(&mut self, len: u32) {
        self.draft_len.fill(len);
    }

    /// Nothing for each of `n` requests.
    #[inline]
    pub(crate) fn reset(&mut self, n: usize) {
        self.shape = DraftShape::Chain;
        self.draft_len.clear();
        self.draft_len.resize(n, 0);
    }
}

/// The most a policy may draft for any request, now and from the first step to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftLimits<'a> {
    /// The longest draft now, of a tree its depth: charged to the token budget and as lookahead slots.
    pub depth: u32,
    /// The most tokens of a tree that are verified now, which are charged instead of the depth; 0 for chains.
    pub tree_tokens: u32,
    /// The most `depth` will ever be: what lookahead slots are reserved for.
    pub max_depth: u32,
    /// The most `tree_tokens` will ever be.
    pub max_tree_tokens: u32,
    /// Of a policy that vLLM can be set to, its `num_speculative_tokens_per_batch_size`, empty for one length for all.
    /// vLLM then drafts with passes that nobody asked for, and with a table its scheduler pads no admission.
    pub vllm: Option<&'a [BatchRange]>,
}

impl<'a> DraftLimits<'a> {
    /// Chains of at most `depth` tokens.
    pub const fn chain(depth: u32) -> Self {
        DraftLimits::tree(depth, 0)
    }

    /// Trees of at most `depth` levels, `tokens` tokens of which are verified.
    pub const fn tree(depth: u32, tokens: u32) -> Self {
        DraftLimits { depth, tree_tokens: tokens, max_depth: depth, max_tree_tokens: tokens, vllm: None }
    }

    /// In other steps as deep as this.
    pub const fn up_to(self, max_depth: u32) -> Self {
        DraftLimits { max_depth, ..self }
    }

    /// In other steps with trees of so many tokens.
    pub const fn with_trees_up_to(self, max_tree_tokens: u32) -> Self {
        DraftLimits { max_tree_tokens, ..self }
    }

    /// vLLM can be set to it, with this table by the batch size; with none to one length for all.
    pub const fn as_in_vllm(self, per_batch_size: &'a [BatchRange]) -> Self {
        DraftLimits { vllm: Some(per_batch_size), ..self }
    }
}

/// Goes the draft loop on?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continue {
    /// Run the next pass over the requests still drafting.
    Yes,
    /// Stop drafting for the whole batch.
    Stop,
}

/// Something a policy weighed before it decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// What would be done.
    pub what: String,
    /// The policy's own estimate of it.
    pub estimate: f64,
}

/// How a policy came to its decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// Its own objective for what it decided, where it has one.
    pub estimate: Option<f64>,
    /// What it weighed.
    pub candidates: Vec<Candidate>,
}

/// What a step brought, as any server would see it.
#[derive(Clone, Copy, Debug)]
pub struct StepOutcome<'a> {
    /// Decode requests, as in the step's [`BatchView`].
    pub ids: &'a [RequestId],
    /// Drafted tokens of each (a tree's depth).
    pub drafted: &'a [u32],
    /// Verified tokens of each (the depth of what was verified of a tree).
    pub verified: &'a [u32],
    /// Accepted draft tokens of each, before any trim at the output's end; the bonus token is not counted.
    pub accepted: &'a [u32],
    /// Confidences and passes.
    pub drafts: &'a Drafts,
    /// Time spent in draft passes, and deciding.
    pub draft_time: Time,
    /// Time of the target pass.
    pub verify_time: Time,
}

/// A speculation policy: a pure state machine that sees only what a server sees.
pub trait SpecPolicy: Send {
    /// The most it may draft for any request, now and ever. Asked before every step is scheduled.
    fn limits(&self) -> DraftLimits<'_>;

    /// What it looks at.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// Is the request that starts now to be drafted for, ever? If not, the draft does not even run over its prompt. Asked
    /// once a request, in the order of admission (SmartSpec's draft-prefill skipping), where the draft runs over prompts at all.
    fn drafts_for_next(&mut self) -> bool {
        true
    }

    /// How many decode requests, from the first, take part in this step, at least one; the others keep their KV and wait.
    /// `None` is all of them.
    fn max_batch(&mut self, _batch: &BatchView) -> Option<usize> {
        None
    }

    /// Before drafting: lengths for each decode request. `plan.draft_len` comes zeroed, one entry a request.
    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan);

    /// Between draft forwards, with the confidences of the pass that just ran. Single requests leave with
    /// [`Drafts::stop`].
    fn keep_drafting(&mut self, _batch: &BatchView, drafts: &mut Drafts) -> Continue {
        drafts.nothing_to_decide();
        Continue::Yes
    }

    /// Before verification: lower `drafts.verify_len` to what is worth verifying.
    fn select(&mut self, _batch: &BatchView, drafts: &mut Drafts) {
        drafts.nothing_to_decide();
    }

    /// After the step, or some steps later where what a policy learns is stale: it may use the outcome only, nothing it
    /// remembers of the step in progress.
    fn observe(&mut self, _outcome: &StepOutcome) {}

    /// A request that was running has ended: what is remembered of it can be forgotten. Called once, after the last outcome
    /// that names it has been made, which may be observed later.
    fn request_finished(&mut self, _id: RequestId) {}

    /// What a user should be told at the end of a run ("chose 0 for the last 20,000 steps").
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// How it came to what it decided in the last step. From the first call on it remembers what it weighs: before the
    /// step for whoever wants the candidates, and after it to have them.
    fn explain(&mut self) -> Explanation {
        Explanation::default()
    }
}
