//! A policy in the seat of an engine outside of Foretoken: before each step the engine asks for draft lengths, after it
//! the engine says what was accepted. The policy is the one that is simulated.

use crate::{BadParameter, Belief, PassTimes, PolicyContext, PolicySpec};
use foretoken_sim::{
    BatchView, Coefficients, ContextReads, DraftAt, DraftLimits, DraftPlan, Drafting, Drafts, NewRequest, PassShape,
    RequestId, SpecPolicy, Speculation, StepOutcome, Time,
};
use serde::Deserialize;

/// What the engine knows before its first step.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// The most draft tokens of a request in a step.
    pub max_draft_len: u32,
    /// The most requests that run at once.
    pub max_num_seqs: u32,
    /// The most tokens of a step.
    pub max_num_batched_tokens: u32,
    /// The draft model's pass times.
    pub draft: Passes,
    /// The target model's pass times.
    pub target: Passes,
    /// Whether the drafter makes one token a pass, or all in one pass.
    #[serde(default)]
    pub drafting: Drafting,
    /// How often a target pass reads a request's context.
    #[serde(default)]
    pub context_reads: ContextReads,
    /// Whether draft tokens are made at the start or at the end of a step.
    #[serde(default = "step_end")]
    pub draft_at: DraftAt,
    /// For policies that draw at random.
    #[serde(default)]
    pub seed: u64,
}

const fn step_end() -> DraftAt {
    DraftAt::StepEnd
}

/// The pass times of one model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passes {
    /// Entry n: seconds of a pass over n tokens without context. Passes over more tokens take the time of the last
    /// entry. If it is empty, `line` gives the times.
    #[serde(default)]
    pub by_tokens_s: Vec<f64>,
    /// Coefficients of a linear pass time, for policies with a linear cost formula. `by_tokens_s` is without context,
    /// so `alpha_s` is added to it for each token of context.
    pub line: Coefficients,
}

impl Passes {
    fn pass_s(&self, shape: PassShape) -> f64 {
        let context = shape.context as f64;
        match self.by_tokens_s.len() {
            0 => self.line.pass_s(context, shape.batched as f64),
            n => self.by_tokens_s[(shape.batched as usize).min(n - 1)] + self.line.alpha_s * context,
        }
    }
}

impl PassTimes for Setup {
    fn draft_s(&self, shape: PassShape) -> f64 {
        self.draft.pass_s(shape)
    }

    fn target_s(&self, shape: PassShape) -> f64 {
        self.target.pass_s(shape)
    }

    fn context_reads(&self) -> ContextReads {
        self.context_reads
    }
}

/// Why a policy cannot sit in an engine's seat.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unseated {
    /// A setting has a bad value.
    #[error(transparent)]
    BadParameter(#[from] BadParameter),
    /// The policy never drafts.
    #[error("{0} never drafts")]
    Off(&'static str),
    /// The policy sees the hidden truth: which draft tokens are right, or what passes cost.
    #[error("{0} sees the hidden truth, which no engine knows")]
    Oracle(&'static str),
    /// The policy drafts trees.
    #[error("{0} drafts trees, and the seat chooses the lengths of chains")]
    Trees(&'static str),
    /// The policy reads values of draft tokens, which the engine's scheduler does not have.
    #[error("{0} reads confidences of draft tokens, which an engine's scheduler does not have")]
    Confidences(&'static str),
}

/// What an engine says of a step that it ran. All lists have one entry for each decode request.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The requests.
    pub ids: &'a [RequestId],
    /// Number of drafted tokens.
    pub drafted: &'a [u32],
    /// Number of verified draft tokens.
    pub verified: &'a [u32],
    /// Number of accepted draft tokens.
    pub accepted: &'a [u32],
    /// Number of draft passes.
    pub passes: u32,
    /// Time of the draft passes.
    pub draft_time: Time,
    /// Time of the target pass.
    pub verify_time: Time,
}

/// A policy that lives across the steps of an engine.
pub struct Seat {
    policy: Box<dyn SpecPolicy>,
    max_draft_len: u32,
    plan: DraftPlan,
    drafts: Drafts,
}

impl Seat {
    /// Builds the policy for an engine that has confidences of draft tokens.
    ///
    /// # Errors
    /// The policy cannot sit in the seat.
    pub fn with_confidences(policy: &PolicySpec, setup: &Setup) -> Result<Seat, Unseated> {
        policy.check()?;
        if policy.sees_hidden_truth() {
            return Err(Unseated::Oracle(policy.name()));
        }
        let context = PolicyContext {
            belief: Belief {
                draft: setup.draft.line,
                target: setup.target.line,
                context_reads: setup.context_reads,
                drafting: setup.drafting,
            },
            profile: setup,
            max_draft_len: setup.max_draft_len,
            max_num_seqs: setup.max_num_seqs,
            max_num_batched_tokens: setup.max_num_batched_tokens,
            seed: setup.seed,
            staleness_steps: 0,
            draft_at: setup.draft_at,
            categories: &[],
            told: None,
            truths: None,
            own_rates: None,
        };
        let built = match policy.build(&context) {
            Speculation::Off => return Err(Unseated::Off(policy.name())),
            Speculation::Oracle(_) => return Err(Unseated::Oracle(policy.name())),
            Speculation::Policy(built) => built,
        };
        if built.limits().max_tree_tokens > 0 {
            return Err(Unseated::Trees(policy.name()));
        }
        let (plan, drafts) = (DraftPlan::default(), Drafts::default());
        Ok(Seat { policy: built, max_draft_len: setup.max_draft_len, plan, drafts })
    }

    /// Builds the policy for an engine whose scheduler chooses the lengths and has no confidences.
    ///
    /// # Errors
    /// The policy cannot sit in the seat.
    pub fn new(policy: &PolicySpec, setup: &Setup) -> Result<Seat, Unseated> {
        let seat = Seat::with_confidences(policy, setup)?;
        let wants = seat.policy.wants();
        match wants.confidence || wants.entropy || wants.divergence {
            true => Err(Unseated::Confidences(policy.name())),
            false => Ok(seat),
        }
    }

    /// The policy itself, for an engine that asks it between draft passes too.
    pub fn policy(&mut self) -> &mut Box<dyn SpecPolicy> {
        &mut self.policy
    }

    /// The most that the policy drafts for a request, in the next step and ever.
    pub fn limits(&self) -> DraftLimits<'_> {
        self.policy.limits()
    }

    /// Whether the drafter reads the prompt of a request that is admitted.
    pub fn drafts_for_next(&mut self, request: &NewRequest) -> bool {
        self.policy.drafts_for_next(request)
    }

    /// The draft length of each request of the batch, in its order; at most the request's `limit`.
    pub fn choose(&mut self, batch: &BatchView) -> &[u32] {
        self.plan.draft_len.clear();
        self.plan.draft_len.resize(batch.len(), 0);
        if !batch.is_empty() {
            self.policy.propose(batch, &mut self.plan);
        }
        for (len, &limit) in self.plan.draft_len.iter_mut().zip(batch.limit) {
            *len = (*len).min(limit);
        }
        &self.plan.draft_len
    }

    /// The policy learns what a step gave. A step with prompts only has no requests.
    pub fn observe(&mut self, of: &Outcome) {
        self.drafts.reset(of.ids.len(), self.max_draft_len);
        self.drafts.draft_len.copy_from_slice(of.drafted);
        self.drafts.verify_len.extend_from_slice(of.verified);
        self.drafts.passes = of.passes;
        self.policy.observe(&StepOutcome {
            ids: of.ids,
            drafted: of.drafted,
            verified: of.verified,
            accepted: of.accepted,
            drafts: &self.drafts,
            draft_time: of.draft_time,
            verify_time: of.verify_time,
        });
    }

    /// Whether a later request may get the id of a request that has ended.
    pub fn ids_may_return(&self) -> bool {
        self.policy.ids_may_return()
    }

    /// The policy forgets a request that has ended.
    pub fn request_finished(&mut self, id: RequestId) {
        self.policy.request_finished(id);
    }
}
