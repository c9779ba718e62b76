//! What a policy is: three moments of decision and one of learning, over a view that holds nothing a real server
//! would not know.

use crate::engine::BatchRange;
use crate::tree::{DraftTree, Growth};
use crate::{RequestId, Time};

/// Prefill work that rides in a pass: sums over its chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkTotals {
    /// Number of chunks.
    pub chunks: u32,
    /// New prompt tokens (policies.md 12, sum of n_p).
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
    /// Tokens of each that the draft has not seen before this step (its catch-up, policies.md 12 `g_i`).
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

/// Goes the draft loop on?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continue {
    /// Run the next pass over the requests still drafting.
    Yes,
    /// Stop drafting for the whole batch.
    Stop,
}

/// What a policy looks at. It is made (and, on hardware, copied back) only then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// The draft's probability of each token it drafted.
    pub confidence: bool,
    /// The entropy, in nats, of the distribution each token was drafted from.
    pub entropy: bool,
    /// KL(target ‖ draft) in nats at each verified position up to the first rejected one, known after verification.
    pub divergence: bool,
}

impl Wants {
    /// Confidences alone.
    pub const CONFIDENCE: Wants = Wants { confidence: true, entropy: false, divergence: false };
    /// Entropies alone.
    pub const ENTROPY: Wants = Wants { confidence: false, entropy: true, divergence: false };
    /// Divergences alone.
    pub const DIVERGENCE: Wants = Wants { confidence: false, entropy: false, divergence: true };
}

/// Something a policy weighed before it decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// What would be done.
    pub what: String,
    /// The policy's own estimate of it.
    pub estimate: f64,
}

/// What was drafted in this step, and what of it is to be verified.
#[derive(Debug, Default)]
pub struct Drafts {
    /// Draft tokens each request has now; for a tree, its depth.
    pub draft_len: Vec<u32>,
    /// Draft tokens of each to verify. Equals `draft_len` until `select` lowers it. For a tree, the depth of the deepest
    /// token to verify, which follows from what is [kept](DraftTree::keep).
    pub verify_len: Vec<u32>,
    /// The tree of each request, when [trees are drafted](Drafts::in_trees).
    pub trees: Vec<DraftTree>,
    /// What the policy looks at.
    pub wants: Wants,
    /// Draft forwards run so far in this step.
    pub passes: u32,
    /// Requests that left the draft batch early (`stop`).
    stopped: Vec<bool>,
    any_stopped: bool,
    confidence: Vec<f64>,
    entropy: Vec<f64>,
    divergence: Vec<f64>,
    stride: usize,
    in_trees: bool,
    undecided: bool,
    /// Tokens drafted and kept of each tree.
    tree_tokens: Vec<(u32, u32)>,
}

/// Written out so that `clone_from` keeps buffers: outcomes that reach a policy late are copied in every step.
impl Clone for Drafts {
    fn clone(&self) -> Drafts {
        let mut copy = Drafts::default();
        copy.clone_from(self);
        copy
    }

    fn clone_from(&mut self, from: &Drafts) {
        let Drafts { wants, passes, any_stopped, stride, in_trees, .. } = *from;
        self.draft_len.clone_from(&from.draft_len);
        self.verify_len.clone_from(&from.verify_len);
        self.trees.clone_from(&from.trees);
        self.stopped.clone_from(&from.stopped);
        self.confidence.clone_from(&from.confidence);
        self.entropy.clone_from(&from.entropy);
        self.divergence.clone_from(&from.divergence);
        self.tree_tokens.clone_from(&from.tree_tokens);
        (self.wants, self.passes, self.any_stopped) = (wants, passes, any_stopped);
        (self.stride, self.in_trees) = (stride, in_trees);
    }
}

impl Drafts {
    /// Empties the drafts for a batch of `n` requests with at most `max_draft_len` tokens each. Keeps its buffers.
    #[inline]
    pub fn reset(&mut self, n: usize, max_draft_len: u32) {
        self.draft_len.clear();
        self.draft_len.resize(n, 0);
        self.verify_len.clear();
        self.passes = 0;
        self.in_trees = false;
        self.undecided = false;
        if self.any_stopped {
            self.stopped.fill(false);
            self.any_stopped = false;
        }
        if self.stopped.len() < n {
            self.stopped.resize(n, false);
        }
        self.stride = max_draft_len as usize;
        if self.confidence.len() < n * self.stride {
            self.confidence.resize(n * self.stride, 0.0);
        }
    }

    /// Begins a batch of `n` requests whose drafts are to be copied from `from`. Keeps its buffers.
    pub(crate) fn begin_copy(&mut self, from: &Drafts, n: usize) {
        self.reset(n, from.stride as u32);
        if from.in_trees {
            self.plant(n);
        }
        self.want(from.wants);
        self.verify_len.resize(n, 0);
        self.passes = from.passes;
    }

    /// Moves the drafts of a row of `from` here.
    pub(crate) fn copy_row(&mut self, i: usize, from: &mut Drafts, row: usize) {
        if self.in_trees != from.in_trees || self.stride != from.stride {
            return;
        }
        self.draft_len[i] = from.draft_len[row];
        self.verify_len[i] = from.verify_len[row];
        let (to, of) = (i * self.stride, row * self.stride);
        let n = self.draft_len[i] as usize;
        if self.wants.confidence || self.wants.divergence {
            self.confidence[to..to + n].copy_from_slice(&from.confidence[of..of + n]);
        }
        if self.wants.entropy && from.wants.entropy {
            self.entropy[to..to + n].copy_from_slice(&from.entropy[of..of + n]);
        }
        if from.in_trees {
            std::mem::swap(&mut self.trees[i], &mut from.trees[row]);
        }
    }

    /// Moves the drafts of a row of `from` behind the last one.
    pub(crate) fn push_row(&mut self, from: &mut Drafts, row: usize) {
        let i = self.draft_len.len();
        self.draft_len.push(0);
        self.verify_len.push(0);
        if self.confidence.len() < (i + 1) * self.stride {
            self.confidence.resize((i + 1) * self.stride, 0.0);
        }
        if self.in_trees {
            self.trees.resize_with(i + 1, DraftTree::default);
            self.tree_tokens.resize(i + 1, (0, 0));
        }
        self.want(self.wants);
        self.copy_row(i, from, row);
    }

    /// All that was drafted is to be verified.
    pub(crate) fn verify_all(&mut self) {
        self.verify_len.clear();
        self.verify_len.extend_from_slice(&self.draft_len);
    }

    /// What does not fit when drafts come to be verified is lost.
    pub(crate) fn begin_verification(&mut self, limit: &[u32]) {
        if self.in_trees {
            self.trees.iter_mut().zip(limit).for_each(|(tree, &limit)| tree.keep_first(limit));
            self.measure_trees(limit);
            return;
        }
        self.verify_len.iter_mut().zip(limit).for_each(|(v, &limit)| *v = (*v).min(limit));
    }

    /// The most tokens of a chain, or levels of a tree, that may be drafted.
    pub(crate) fn max_draft_len(&self) -> u32 {
        self.stride as u32
    }

    /// Says what is looked at in this step, and makes room for it.
    #[inline]
    pub fn want(&mut self, wants: Wants) {
        self.wants = wants;
        let room = self.draft_len.len() * self.stride;
        for (wanted, column) in [(wants.entropy, &mut self.entropy), (wants.divergence, &mut self.divergence)] {
            if wanted && column.len() < room {
                column.resize(room, 0.0);
            }
        }
    }

    /// The confidence in the (j+1)-th draft token of the request at batch index `i`.
    ///
    /// Only filled when the policy says it [looks](SpecPolicy::wants).
    #[inline]
    pub fn confidence(&self, i: usize, j: usize) -> f64 {
        self.confidence[i * self.stride + j]
    }

    /// Records a confidence (executors do).
    #[inline]
    pub fn set_confidence(&mut self, i: usize, j: usize, c: f64) {
        self.confidence[i * self.stride + j] = c;
    }

    /// The entropy, in nats, of the distribution that the (j+1)-th draft token of the request at batch index `i` came from.
    #[inline]
    pub fn entropy(&self, i: usize, j: usize) -> f64 {
        self.entropy[i * self.stride + j]
    }

    /// Records an entropy (executors do).
    #[inline]
    pub fn set_entropy(&mut self, i: usize, j: usize, nats: f64) {
        self.entropy[i * self.stride + j] = nats;
    }

    /// KL(target ‖ draft), in nats, at the (j+1)-th draft position of the request at batch index `i`; known after
    /// verification, for j up to the accepted count.
    #[inline]
    pub fn divergence(&self, i: usize, j: usize) -> f64 {
        self.divergence[i * self.stride + j]
    }

    /// Records a divergence (executors do).
    #[inline]
    pub fn set_divergence(&mut self, i: usize, j: usize, nats: f64) {
        self.divergence[i * self.stride + j] = nats;
    }

    /// Takes the request at batch index `i` out of the draft batch; its tokens so far stay.
    pub fn stop(&mut self, i: usize) {
        self.stopped[i] = true;
        self.any_stopped = true;
    }

    /// Says that nothing is decided at this moment, so that no time is charged for it. The hooks between passes and before
    /// verification do so unless a policy has its own; one that only sometimes decides says so itself.
    pub fn nothing_to_decide(&mut self) {
        self.undecided = true;
    }

    /// Was something decided since the last time this was asked?
    pub(crate) fn was_decided(&mut self) -> bool {
        !std::mem::take(&mut self.undecided)
    }

    /// Starts a tree for each of `n` requests. Keeps buffers.
    pub(crate) fn plant(&mut self, n: usize) {
        if self.trees.len() < n {
            self.trees.resize_with(n, DraftTree::default);
        }
        self.trees.iter_mut().for_each(DraftTree::clear);
        self.tree_tokens.clear();
        self.tree_tokens.resize(n, (0, 0));
        self.in_trees = true;
    }

    /// Are trees drafted in this step?
    pub fn in_trees(&self) -> bool {
        self.in_trees
    }

    /// Counts the trees after selection: tokens drafted and kept, and the depth to verify. Panics when more is kept than
    /// the request's limit allows.
    pub(crate) fn measure_trees(&mut self, limit: &[u32]) {
        if !self.in_trees {
            return;
        }
        for (i, &limit) in limit.iter().enumerate() {
            let tree = &self.trees[i];
            let kept = tree.kept();
            assert!(kept <= limit, "a policy keeps {kept} tokens of a tree where {limit} are allowed");
            self.tree_tokens[i] = (tree.nodes().len() as u32, kept);
            self.verify_len[i] = tree.kept_depth();
        }
    }

    /// Tokens drafted for the request at batch index `i`, and those of them to verify.
    #[inline]
    pub(crate) fn tokens(&self, i: usize) -> (u32, u32) {
        if self.in_trees { self.tree_tokens[i] } else { (self.draft_len[i], self.verify_len[i]) }
    }

    /// Shortens the plan of the requests that left to what they have; says whether anybody ever left.
    #[inline]
    pub(crate) fn leave_stopped(&self, planned: &mut [u32]) -> bool {
        if !self.any_stopped {
            return false;
        }
        for ((plan, &have), &stopped) in planned.iter_mut().zip(&self.draft_len).zip(&self.stopped) {
            if stopped {
                *plan = have;
            }
        }
        true
    }

    /// Did the request leave the draft batch early?
    #[inline]
    pub fn is_stopped(&self, i: usize) -> bool {
        self.any_stopped && self.stopped[i]
    }
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
    /// The most it may draft now for any request: charged to the token budget and as lookahead slots. For trees, their
    /// greatest depth.
    fn limit(&self) -> u32;

    /// The most tokens of a tree it may have verified for any request, which is charged instead of the depth; 0 when it
    /// drafts chains.
    fn tree_tokens(&self) -> u32 {
        0
    }

    /// The most [`limit`](SpecPolicy::limit) will ever be, from the first step to the last: what lookahead slots are reserved for.
    fn max_limit(&self) -> u32 {
        self.limit()
    }

    /// The most [`tree_tokens`](SpecPolicy::tree_tokens) will ever be.
    fn max_tree_tokens(&self) -> u32 {
        self.tree_tokens()
    }

    /// vLLM's `num_speculative_tokens_per_batch_size`, of a policy that is that table: the scheduler then pads no admission.
    fn per_batch_size(&self) -> Vec<BatchRange> {
        Vec::new()
    }

    /// Can vLLM be set to these lengths: one for all, or one by the batch? Then it drafts as vLLM does, with passes that nobody
    /// asked for.
    fn vllm_has_it(&self) -> bool {
        !self.per_batch_size().is_empty()
    }

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

    /// From now on, remember what is weighed in a step.
    fn explain(&mut self) {}

    /// The policy's own objective for what it decided in the last step, where it has one.
    fn own_estimate(&self) -> Option<f64> {
        None
    }

    /// What it weighed in the last step, once told to [explain](SpecPolicy::explain) itself.
    fn weighed(&self) -> Vec<Candidate> {
        Vec::new()
    }
}
