//! The executor: the only interface between the engine and what runs the passes (a simulation or hardware).

use crate::drafts::Drafts;
use crate::engine::TablesOf;
use crate::latency::{ContextReads, PassShape};
use crate::metrics::Spent;
use crate::policy::BatchView;
use crate::shape;
use crate::time::Time;
use crate::tree::{DraftTree, Growth};
use crate::workload::{RequestId, Workload};
use serde::{Deserialize, Serialize};

/// What an acceptance source (it decides in a simulation which draft tokens are right) must know of a request that
/// starts.
#[derive(Clone, Copy, Debug)]
pub struct RequestTruth {
    /// The request's [number](Workload::number), by which random draws are keyed.
    pub id: RequestId,
    /// Number of tokens of the request's prompt.
    pub prompt_len: u32,
    /// Number of tokens that the request will emit.
    pub output_len: u32,
    /// The request's category (index into `Workload::categories`).
    pub category: u16,
    /// The request's recorded acceptance (index into `Workload::recordings`), if the run repeats which of its draft
    /// tokens were right in a real run; else `None`.
    pub recording: Option<u32>,
}

impl RequestTruth {
    /// What an acceptance source must know of request `id` of a workload: number, lengths, category and recording.
    pub fn of(workload: &Workload, id: RequestId) -> RequestTruth {
        let i = id as usize;
        RequestTruth {
            id: workload.number(id),
            prompt_len: workload.prompt_len[i],
            output_len: workload.output_len[i],
            category: workload.category[i],
            recording: workload.recording.get(i).copied().filter(|&r| r != u32::MAX),
        }
    }
}

/// A prefill chunk: tokens of a prompt that run in one target pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// The request to whose prompt the chunk belongs.
    pub request: RequestId,
    /// Number of tokens of the request that are in KV already.
    pub computed: u32,
    /// Number of new tokens. Includes the padding tokens that an admitted request with one token left to compute gets.
    pub tokens: u32,
    /// Whether the chunk ends the prompt, so that the pass samples the next output token.
    pub last: bool,
    /// Number of tokens that the first draft pass processes for this chunk: the request's tokens up to the chunk's end
    /// that the draft model has not processed yet. 0 if the draft model does not process this prompt.
    pub draft_tokens: u32,
}

/// The work of a step for draft model and target: decode requests, prefill chunks and block tables.
#[derive(Clone, Copy, Debug)]
pub struct StepPlan<'a> {
    /// The decode requests of the step, the sums over its prefill chunks, and the numbers of running and waiting
    /// requests.
    pub batch: BatchView<'a>,
    /// Whether the target pass processes `batch.limit` draft tokens for each request, with padding in place of draft
    /// tokens that the request lacks. If false, it processes only the request's draft tokens.
    pub padded: bool,
    /// Whether all decode requests draft as many tokens as the one that drafts most, as SGLang's drafters do.
    pub one_length: bool,
    /// The prefill chunks of the step's target pass.
    pub chunks: &'a [Chunk],
    /// The tables of the KV blocks that the step's requests hold.
    pub block_tables: TablesOf<'a>,
}

/// One draft pass of a step.
#[derive(Clone, Copy, Debug)]
pub struct DraftPass<'a> {
    /// Number of the pass, from 1. 0 for a pass that drafts nothing: it processes only prompts, and context tokens that
    /// the draft model skipped.
    pub pass: u32,
    /// Number of draft tokens that each decode request will get. Requests with `draft_len ≥ pass` are in the pass.
    pub draft_len: &'a [u32],
    /// A hint for speed: every decode request drafts at least this number of tokens. 0 is always allowed.
    pub common_len: u32,
    /// How the draft trees grow in each pass; `None` if chains are drafted.
    pub growth: Option<&'a Growth>,
    /// From what a simulated clock computes the time of the pass.
    pub cost: PassCost,
}

impl DraftPass<'_> {
    /// How many tokens the pass processes, and how many KV tokens it reads, if the draft model makes its tokens one
    /// after the other. `trees` are the draft trees before the pass.
    #[inline]
    pub fn shape(&self, batch: &BatchView, trees: &[DraftTree]) -> PassShape {
        match self.pass {
            0 => shape::draft_idle_pass(batch).unwrap_or_default(),
            n if self.growth.is_some() => shape::draft_tree_pass(batch, self.draft_len, n, trees),
            n if n <= self.common_len => shape::draft_pass_all(batch, n),
            n => shape::draft_pass(batch, self.draft_len, n),
        }
    }
}

impl StepPlan<'_> {
    /// How many tokens the step's target pass processes, and how many KV tokens it reads. `drafting` says whether there
    /// is a drafter.
    pub fn target_shape(&self, drafts: &Drafts, drafting: bool, reads: ContextReads) -> PassShape {
        let batch = &self.batch;
        match (drafts.in_trees(), self.padded) {
            _ if !drafting => shape::plain_pass(batch),
            (true, _) => shape::verify_tree_pass(batch, &drafts.trees[..batch.len()], reads),
            (false, true) => shape::verify_pass(batch, batch.limit, reads),
            (false, false) => match drafts.common_verify_len() {
                Some(verified) => shape::verify_pass_all(batch, verified, reads),
                None => shape::verify_pass(batch, &drafts.verify_len, reads),
            },
        }
    }
}

/// From what a simulated clock computes the time of a draft pass: the number of tokens that the pass processes, and the
/// number of KV tokens that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassCost {
    /// The clock computes these two numbers of tokens from the number of the pass and the requests' draft lengths
    /// (docs/model.md 12).
    ByPass,
    /// The pass processes, and reads from KV, the numbers of tokens that the `PassShape` has.
    Given(PassShape),
    /// The pass only writes the keys and values of the tokens that the `PassShape` has
    /// ([`LatencyModel::context_pass`](crate::LatencyModel::context_pass)).
    Context(PassShape),
    /// The pass takes no time, because an earlier pass of the step already made its tokens.
    Free,
}

/// A moment at which the host decides something, which may take host time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// A step has been scheduled.
    Schedule,
    /// A step's output has been taken.
    Update,
    /// A policy has decided, before drafting, how many tokens each request drafts.
    Propose,
    /// A policy has decided, after a draft pass, whether to run the next draft pass.
    KeepDrafting,
    /// A policy has decided, before verification, which draft tokens are verified.
    Select,
}

/// Host time of each kind of work other than passes: calling the scheduler, taking the output of a step, and the
/// decisions of the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionTime {
    /// Time of each scheduler call.
    pub schedule: Time,
    /// Host time to take the output of a step, once for each step.
    pub update: Time,
    /// Time to decide the draft lengths before drafting ([`SpecPolicy::propose`](crate::SpecPolicy::propose)), once in
    /// each step with decode requests.
    pub propose: Time,
    /// Host time of each decision after a draft pass. It counts only for policies that decide there.
    pub keep_drafting: Time,
    /// Host time of each selection before verification. It counts only for policies that select among their draft
    /// tokens.
    pub select: Time,
}

impl DecisionTime {
    /// The host time of one decision at the moment `moment`.
    pub fn of(&self, moment: Moment) -> Time {
        match moment {
            Moment::Schedule => self.schedule,
            Moment::Update => self.update,
            Moment::Propose => self.propose,
            Moment::KeepDrafting => self.keep_drafting,
            Moment::Select => self.select,
        }
    }
}

/// Runs the passes that the scheduler has decided, on its own clock. No hook has a default, so that a wrapper of an
/// executor ([`AroundExecutor`](crate::AroundExecutor)) cannot forget one.
pub trait Executor {
    /// The error of a pass (none on the event clock).
    type Error;

    /// Whether the engine may compute steps in one go with [`plain_step`](Executor::plain_step).
    const SKIPS: bool;

    /// The time on the executor's clock. It changes only in the calls that move the clock.
    fn now(&self) -> Time;

    /// Called at the begin of each iteration of the engine's loop. An executor whose clock runs by itself (hardware)
    /// reads the clock here, and before and after each pass.
    fn begin_iteration(&mut self);

    /// When all queued passes will have ended; not before `now`. An executor whose host waits for the device has no
    /// queue and returns `now`.
    fn queued_until(&self) -> Time;

    /// Waits until `at`: the event clock jumps, a wall clock sleeps.
    fn wait_until(&mut self, at: Time);

    /// Called when a request is scheduled for the first time.
    fn start(&mut self, request: RequestTruth);

    /// Like [`start`](Executor::start), for an engine that forgets ended requests. The engine names the request by
    /// `id`. The field `request.id` is the request's [number](crate::Workload::number): how many requests came before
    /// it. In an engine that forgets no requests, `id` and number are equal.
    fn start_as(&mut self, id: RequestId, request: RequestTruth) {
        debug_assert_eq!(id, request.id, "only the event clock knows requests by other ids than their numbers");
        self.start(request);
    }

    /// Called when a request has lost its KV. The request waits, and its tokens are computed again after it is
    /// readmitted.
    fn preempted(&mut self, id: RequestId);

    /// Called when a request has ended, or was rejected before it started.
    fn end(&mut self, id: RequestId);

    /// Lowers the draft limit of each request to the number of draft tokens that can be proposed. For example, a prompt
    /// lookup without a match proposes nothing (docs/model.md 5.6). `emitted` is the output position where each
    /// request's draft tokens would start.
    fn cap_draft_limits(&mut self, ids: &[RequestId], emitted: &[u32], limit: &mut [u32]);

    /// Whether one pass gives all draft tokens of a round ([`Drafting::Parallel`](crate::Drafting)). The draft loop
    /// still calls the executor once for each depth, but the calls after the first take no time and only read the first
    /// pass's tokens.
    fn drafts_in_parallel(&self) -> bool;

    /// Called when the host has decided something. A simulated clock adds the time of the decision. On a real clock
    /// that time has passed already.
    fn charge_decision(&mut self, moment: Moment);

    /// Runs one draft pass over the requests that still draft. Writes to `out` the values of draft tokens that the
    /// policy [wants](crate::Wants), such as confidences.
    ///
    /// # Errors
    /// The device fails.
    fn draft(&mut self, step: &StepPlan, pass: &DraftPass, out: &mut Drafts) -> Result<(), Self::Error>;

    /// Runs the target pass: verifies the first `drafts.verify_len` drafts of each decode request, or the nodes to
    /// verify of its tree, and processes the prefill chunks. Writes the number of accepted draft tokens of each decode
    /// request to `accepted`, and the divergences to `drafts` if the policy wants them. Without a drafter `drafts` and
    /// `accepted` are empty.
    ///
    /// # Errors
    /// The device fails.
    fn verify(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Result<(), Self::Error>;

    /// How the device has spent its time until `at`; `None` if the executor does not record this. `at` is now or
    /// earlier, and never before the `at` of an earlier call.
    fn spent(&mut self, at: Time) -> Option<Spent>;

    /// Runs one step that has only a target pass; `shape` says how many tokens the pass processes and how many KV
    /// tokens it reads. The engine calls this only if `SKIPS` is true.
    fn plain_step(&mut self, shape: PassShape);
}
