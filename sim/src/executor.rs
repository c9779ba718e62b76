//! The one seam between simulation and hardware.

use crate::drafts::Drafts;
use crate::engine::TablesOf;
use crate::latency::{ContextReads, PassShape};
use crate::policy::BatchView;
use crate::shape;
use crate::time::Time;
use crate::tree::{DraftTree, Growth};
use crate::workload::RequestId;
use serde::{Deserialize, Serialize};

/// A request as it is started: what an acceptance source may know of it when it lays down its truth.
#[derive(Clone, Copy, Debug)]
pub struct RequestTruth {
    /// The request.
    pub id: RequestId,
    /// Tokens it will emit.
    pub output_len: u32,
    /// Its category (index into `Workload::categories`).
    pub category: u16,
    /// Its recording (index into `Workload::recordings`), if it replays one.
    pub recording: Option<u32>,
}

/// A piece of a prompt that rides in the target pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Whose prompt.
    pub request: RequestId,
    /// Tokens of it in KV already.
    pub computed: u32,
    /// New tokens, and what an admission with one token left is padded with.
    pub tokens: u32,
    /// Does it end the prompt, so that the pass samples the next output token?
    pub last: bool,
    /// How many tokens up to the chunk's end the draft runs over in its first pass: those it has not seen yet. 0 where it
    /// does not run over this prompt.
    pub draft_tokens: u32,
}

/// What a step is to run: the same for its draft passes and its target pass.
#[derive(Clone, Copy, Debug)]
pub struct StepPlan<'a> {
    /// The decode requests and the load.
    pub batch: BatchView<'a>,
    /// Does the target pass run over all `batch.limit` tokens of each, drafts or padding, and not over its drafts alone?
    pub padded: bool,
    /// The prefill chunks.
    pub chunks: &'a [Chunk],
    /// The KV blocks that the step's requests hold.
    pub block_tables: TablesOf<'a>,
}

/// One draft pass of a step.
#[derive(Clone, Copy, Debug)]
pub struct DraftPass<'a> {
    /// Which pass, from 1; 0 for one that drafts nothing (prefill and catch-up only).
    pub pass: u32,
    /// Draft tokens each decode request is to get; the pass runs over those with `draft_len ≥ pass`.
    pub draft_len: &'a [u32],
    /// Every decode request drafts at least this many: a hint that spares a walk over `draft_len`; 0 is always right.
    pub common_len: u32,
    /// How trees grow, when trees are drafted.
    pub growth: Option<&'a Growth>,
    /// What it runs over.
    pub cost: PassCost,
}

impl DraftPass<'_> {
    /// What it runs over when the draft makes one token after the other; `trees` as they are before the pass.
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
    /// What its target pass runs over. `drafting`: is there a drafter?
    pub fn target_shape(&self, drafts: &Drafts, drafting: bool, reads: ContextReads) -> PassShape {
        let batch = &self.batch;
        match (drafts.in_trees(), self.padded) {
            _ if !drafting => shape::plain_pass(batch),
            (true, _) => shape::verify_tree_pass(batch, &drafts.trees[..batch.len()], reads),
            (false, true) => shape::verify_pass(batch, batch.limit, reads),
            (false, false) => shape::verify_pass(batch, &drafts.verify_len, reads),
        }
    }
}

/// What a draft pass runs over, for clocks that predict its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassCost {
    /// What follows from `pass` and `draft_len` (docs/model.md 12).
    ByPass,
    /// This.
    Given(PassShape),
    /// Nothing: its tokens came out of the pass before.
    Free,
}

/// A moment in which the host decides, where that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// A step has been scheduled.
    Schedule,
    /// A step's output has been taken.
    Update,
    /// Before drafting.
    Propose,
    /// After a draft pass.
    KeepDrafting,
    /// Before verification.
    Select,
}

/// What the host takes for its decisions: a draft loop that looks at confidences waits for the device once a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionTime {
    /// Each call of the scheduler.
    pub schedule: Time,
    /// Each output that is taken.
    pub update: Time,
    /// Each proposal.
    pub propose: Time,
    /// Each look after a draft pass, of a policy that looks.
    pub keep_drafting: Time,
    /// Each selection before verification, of a policy that selects.
    pub select: Time,
}

impl DecisionTime {
    /// The time of one decision.
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

/// Runs what the scheduler planned, on its own clock. No hook has a default, so that what wraps an executor
/// ([`AroundExecutor`]) cannot forget one.
pub trait Executor {
    /// What can go wrong in a pass (nothing, on the event clock).
    type Error;

    /// May the engine skip stretches with [`plain_step`](Executor::plain_step)?
    const SKIPS: bool;

    /// The clock. It stands still between the calls that move it.
    fn now(&self) -> Time;

    /// Another iteration of the engine's loop begins. A clock that runs by itself is read here, and before and after its
    /// passes.
    fn begin_iteration(&mut self);

    /// When all that it was given to run will have ended; not before now. A device that is waited for is through.
    fn queued_until(&self) -> Time;

    /// Waits until `at`: the event clock jumps, a wall clock sleeps.
    fn wait_until(&mut self, at: Time);

    /// A request is scheduled for the first time.
    fn start(&mut self, request: RequestTruth);

    /// A request lost its KV: it waits, and what it had is computed again once it is readmitted.
    fn preempted(&mut self, id: RequestId);

    /// A request has ended, or was rejected without ever being started.
    fn end(&mut self, id: RequestId);

    /// Lowers the draft limits of a batch to what there is to propose: a prompt lookup without a match proposes nothing
    /// (docs/model.md 5.6). `emitted` is where each round would start.
    fn cap_draft_limits(&mut self, ids: &[RequestId], emitted: &[u32], limit: &mut [u32]);

    /// Does one forward bring all draft tokens of a round ([`Drafting::Parallel`](crate::Drafting))? The draft loop then only
    /// iterates over the tokens of that forward.
    fn drafts_in_parallel(&self) -> bool;

    /// The host has decided something: simulated clocks charge it, on others the time has passed anyway.
    fn charge_decision(&mut self, moment: Moment);

    /// One draft forward over the requests still drafting; what is [wanted](crate::Wants) of them goes to `out`.
    ///
    /// # Errors
    /// The device's.
    fn draft(&mut self, step: &StepPlan, pass: &DraftPass, out: &mut Drafts) -> Result<(), Self::Error>;

    /// The target forward: verifies `drafts.verify_len` of each decode request, or the kept nodes of its tree, and runs the
    /// chunks. Writes the accepted count of each decode request, and divergences to `drafts` when wanted. Without a drafter
    /// `drafts` and `accepted` are empty.
    ///
    /// # Errors
    /// The device's.
    fn verify(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Result<(), Self::Error>;

    /// One step that is a target pass of `shape` and nothing else. The engine calls it only where `SKIPS`.
    fn plain_step(&mut self, shape: PassShape);
}
