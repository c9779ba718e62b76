//! The estimates of the policy `foresight` of what draft and target passes cost. They are times measured at start-up,
//! by the number of batched tokens and by context. The times of real steps correct them slowly.

use crate::definition::PolicyContext;
use crate::foresight::next_prompts::{Expected, NextPrompts};
use crate::foresight::pass_times::PassTimes;
use crate::foresight::trips::Trips;
use foretoken_sim::{BatchView, DraftAt, Drafting, StepOutcome};
use std::collections::VecDeque;

/// A step that has begun and whose outcome was not observed yet. `prefill` and `context` are the numbers of prompt
/// tokens and of context tokens of its target pass. `draft_prefill` has the numbers of prompt tokens and of context
/// tokens of the prompts in its first draft pass.
struct Pending {
    step: u64,
    /// Number of decode requests in its first draft pass.
    joins: u64,
    /// Number of its prompts.
    prompts: u64,
    prefill: u64,
    draft_prefill: (u64, f64),
    context: f64,
    /// The first draft pass of this step after which the policy decides whether to draft on; `u32::MAX` if it decides
    /// after none.
    first_asked: u32,
    /// Whether the policy selected which draft tokens are verified.
    selected: bool,
}

/// How a step made its draft tokens.
#[derive(Clone, Copy, Default)]
struct Made {
    step: u64,
    joins: u64,
    first_asked: u32,
    selected: bool,
    /// Whether the draft model also ran over prompts.
    prompts: bool,
}

/// The settings of `foresight` that say where the costs of draft and target passes come from.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// True for pass times measured at start-up, false for the policy's linear cost formula (belief).
    pub profile: bool,
    /// Weight of the newest step when the times of real steps correct the pass times; 0 for no correction.
    pub correction: f64,
    /// True if the policy estimates the prompts of the next step from past steps. This matters only where the next step
    /// verifies the draft tokens.
    pub expect_prompts: bool,
}

/// The policy's estimates of how long the passes of the step in progress take.
pub(crate) struct Costs {
    target: PassTimes,
    draft: PassTimes,
    /// True if the engine runs the first draft pass in every step, also if nothing is drafted. One draft token then
    /// costs no further draft pass.
    first_pass_is_free: bool,
    correction: f64,
    /// What decisions cost, learned from the times of steps.
    trips: Trips,
    /// The last draft pass after which the policy can decide whether to draft on: one pass before the last pass of the
    /// longest draft length.
    last_asked: u32,
    next_prompts: NextPrompts,
    /// What it expects of the next step.
    next: Expected,
    /// True if the next step verifies the draft tokens, so that its prompts are estimated. False if the prompts are
    /// known.
    expects_prompts: bool,
    /// The sizes of passes, each as (batched tokens, context): the target pass without draft tokens (`plain`), the
    /// prompts in the first draft pass (`ride`), and the decode requests (`decodes`).
    plain: (u64, f64),
    ride: (u64, f64),
    decodes: (u64, f64),
    /// Number of the step's prompts in the target pass (`prompts`) and in the first draft pass (`riders`).
    prompts: u64,
    riders: u64,
    /// The decode requests in the first draft pass if nothing is drafted, as (tokens, context). A request that may not
    /// draft is in no draft pass.
    joins: (u64, f64),
    pending: VecDeque<Pending>,
    /// If the next step verifies the draft tokens: how the step before the next outcome's made its draft tokens.
    made: Option<Made>,
    /// Number of draft tokens that the step's decode requests are charged each in the token budget.
    charged: u32,
    /// Whether one pass makes all draft tokens.
    parallel: bool,
    /// Number of step outcomes observed so far, which is also the index of the step whose outcome comes next.
    outcomes: u64,
}

impl Costs {
    /// Builds the tables of pass times: measures them at start-up if `settings.profile` is true, else takes them from
    /// the linear belief (a cost model with a coefficient for context, one for tokens, and a constant).
    pub fn new(context: &PolicyContext, settings: Settings) -> Costs {
        let most = (context.max_num_batched_tokens, context.max_num_seqs);
        let (target, draft) = match settings.profile {
            true => (
                PassTimes::measured(most, |s| context.profile.target_s(s)),
                PassTimes::measured(most, |s| context.profile.draft_s(s)),
            ),
            false => (PassTimes::linear(most, &context.belief.target), PassTimes::linear(most, &context.belief.draft)),
        };
        Costs {
            target,
            draft,
            first_pass_is_free: context.draft_at == DraftAt::StepEnd,
            correction: settings.correction,
            trips: Trips::default(),
            last_asked: context.max_draft_len.saturating_sub(1),
            next_prompts: NextPrompts::default(),
            next: Expected::default(),
            expects_prompts: settings.expect_prompts && context.draft_at == DraftAt::StepEnd,
            plain: (0, 0.0),
            ride: (0, 0.0),
            decodes: (0, 0.0),
            prompts: 0,
            riders: 0,
            joins: (0, 0.0),
            pending: VecDeque::new(),
            made: None,
            parallel: context.belief.drafting == Drafting::Parallel,
            outcomes: 0,
            charged: 0,
        }
    }

    /// Begins a step: stores the sizes of its batch and its prompts. If pass times are corrected, also stores the step
    /// until its outcome arrives.
    pub fn begin(&mut self, batch: &BatchView) {
        self.decodes = (batch.len() as u64, batch.context_sum as f64);
        self.plain = (self.decodes.0 + batch.prefill.tokens, self.decodes.1 + batch.prefill.context as f64);
        self.ride = (batch.draft_prefill.tokens, batch.draft_prefill.context as f64);
        (self.prompts, self.riders) = (batch.prefill.chunks.into(), batch.draft_prefill.chunks.into());
        self.joins = self.decodes;
        if self.first_pass_is_free {
            let joins = batch.limit.iter().filter(|&&limit| limit > 0).count() as u64;
            self.joins = (joins, self.decodes.1 * joins as f64 / self.decodes.0.max(1) as f64);
        }
        self.next_prompts.begin(batch, self.budget(), self.charged.into());
        self.next = self.next_prompts.expected();
        if self.correction > 0.0 {
            self.pending.push_back(Pending {
                step: batch.step,
                joins: self.joins.0,
                prompts: batch.prefill.chunks.into(),
                prefill: batch.prefill.tokens,
                draft_prefill: self.ride,
                context: self.plain.1,
                first_asked: u32::MAX,
                selected: false,
            });
        }
    }

    /// Notes how many draft tokens of each request the next step is charged for.
    pub fn planned(&mut self, length: u32) {
        self.charged = length;
    }

    /// Stores `pass`, the number of the first draft pass of this step after which the policy decides whether to draft
    /// on.
    pub fn asked_from(&mut self, pass: u32) {
        if let Some(pending) = self.pending.back_mut() {
            pending.first_asked = pass;
        }
    }

    /// Notes that the policy selects which draft tokens of this step are verified.
    pub fn selected(&mut self) {
        if let Some(pending) = self.pending.back_mut() {
            pending.selected = true;
        }
    }

    /// Estimated seconds that the policy takes after a draft pass to decide whether to draft on.
    pub fn decision_s(&self) -> f64 {
        self.trips.each_s()
    }

    /// Seconds that one decode request adds to the target pass without prompts and draft tokens, as a mean over the
    /// batch: (time of the pass over all decode requests − time of a pass over one token without context) / number of
    /// decode requests.
    pub fn request_s(&self) -> f64 {
        let (n, context) = self.decodes;
        (self.target.pass_s(n, n, context) - self.target.pass_s(1, 1, 0.0)) / n.max(1) as f64
    }

    /// Seconds of the target pass that verifies `drafts` tokens. If this step verifies them, the pass has this step's
    /// prompts. If the next step verifies them, its prompts are not known. The result is then a mean of the time
    /// without prompts, the time with the usual prompts, and the time in a step that prompts fill, weighted by how
    /// often past steps were such. In a full step a token takes the place of a prompt's token, which a later step
    /// computes. So it costs its share of a full step of the target and of the draft model, which runs over the same
    /// tokens.
    pub fn verify_s(&self, drafts: u64) -> f64 {
        if !self.expects_prompts {
            let requests = self.decodes.0 + self.prompts;
            return self.target.pass_s(requests, self.plain.0 + drafts, self.plain.1)
                + self.follow_s(drafts, self.plain.0 - self.decodes.0);
        }
        let Expected { with, full, tokens } = self.next;
        let n = self.decodes.0;
        let time =
            |prompts: u64| self.target.pass_s(n, n + drafts + prompts, self.decodes.1) + self.follow_s(drafts, prompts);
        if with == 0.0 {
            return time(0);
        }
        let draft_s = if self.parallel { 0.0 } else { self.draft.pass_s(1, self.budget(), 0.0) };
        let pass_s = self.target.pass_s(1, self.budget(), 0.0) + draft_s;
        let share_s = pass_s / self.budget() as f64;
        let filled = share_s * (self.decodes.0 + drafts + tokens) as f64;
        full * filled + (with - full) * time(tokens) + (1.0 - with) * time(0)
    }

    /// Seconds of the target pass that verifies `drafts` tokens in a step without prompts.
    pub fn verify_alone_s(&self, drafts: u64) -> f64 {
        self.target.pass_s(self.decodes.0, self.decodes.0 + drafts, self.decodes.1) + self.follow_s(drafts, 0)
    }

    /// Seconds by which `drafts` verified tokens make the draft pass behind their step longer: where drafts are made
    /// behind a step, its first draft pass runs over all tokens of the step, the rejected ones too. A block drafter
    /// only writes their KV.
    fn follow_s(&self, drafts: u64, prompts: u64) -> f64 {
        if !self.first_pass_is_free || self.parallel {
            return 0.0;
        }
        let pass_s = |drafts| self.draft.pass_s(self.joins.0, self.joins.0 + drafts + prompts, self.joins.1);
        pass_s(drafts) - pass_s(0)
    }

    /// Most tokens of a step.
    fn budget(&self) -> u64 {
        self.target.by_tokens.len() as u64 - 1
    }

    /// Seconds of a step of one request, with the mean context of the batch, that makes `drafts` draft tokens and
    /// verifies them.
    pub fn alone_s(&self, drafts: u32) -> f64 {
        let (drafts, context) = (u64::from(drafts), self.decodes.1 / self.decodes.0.max(1) as f64);
        let draft_s = match self.parallel {
            true => self.draft.pass_s(1, drafts, context),
            false if drafts > 0 && self.first_pass_is_free => {
                (drafts - 1) as f64 * self.draft.pass_s(1, 1, context) + self.draft.pass_s(1, drafts + 1, context)
            }
            false => drafts as f64 * self.draft.pass_s(1, 1, context),
        };
        draft_s + self.target.pass_s(1, drafts + 1, context)
    }

    /// Seconds that the draft model takes for `tokens` prompt tokens, in passes that run anyway or are full of them.
    pub fn draft_prompt_s(&self, tokens: u32) -> f64 {
        let most = self.draft.by_tokens.len() as u64 - 1;
        let each = (self.draft.pass_s(1, most, 0.0) - self.draft.pass_s(1, 1, 0.0)) / (most - 1).max(1) as f64;
        f64::from(tokens) * each
            + self.draft.per_context * self.draft.slower * f64::from(tokens).powi(2) / (2.0 * most as f64)
    }

    /// Seconds of the first draft pass if nothing is drafted: over the step's prompts, and over the decode requests if
    /// the engine runs this pass in every step.
    pub fn idle_s(&self) -> f64 {
        match self.first_pass_is_free {
            true => self.first_pass_s(self.joins.0, self.joins.0, self.joins.1),
            false => self.first_pass_s(0, 0, 0.0),
        }
    }

    /// Seconds of the first draft pass in a step that drafts nothing and has no prompts: 0 unless the engine runs this
    /// pass in every step.
    pub fn idle_alone_s(&self) -> f64 {
        if self.first_pass_is_free { self.draft.pass_s(self.joins.0, self.joins.0, self.joins.1) } else { 0.0 }
    }

    /// Seconds of the first draft pass, over `tokens` tokens of `requests` requests with this context and over the
    /// step's prompts.
    fn first_pass_s(&self, requests: u64, tokens: u64, context: f64) -> f64 {
        self.draft.pass_s(requests + self.riders, tokens + self.ride.0, context + self.ride.1)
    }

    /// Seconds of the draft pass at `depth` (from 1) over `m` requests. The pass at depth 1 also has the step's prompts
    /// and the batch's catch-up, that is, context tokens that the draft model skipped.
    pub fn draft_pass_s(&self, batch: &BatchView, depth: u32, m: u32) -> f64 {
        let share = f64::from(m) / batch.len().max(1) as f64;
        let context = share * self.decodes.1 + f64::from(m) * f64::from(depth - 1);
        match depth {
            1 => {
                let gap: u64 = batch.draft_gap.iter().map(|&gap| u64::from(gap)).sum();
                self.first_pass_s(m.into(), u64::from(m) + gap, context)
            }
            _ => self.draft.pass_s(m.into(), m.into(), context),
        }
    }

    /// Seconds of all draft passes up to `depth`. In the pass at `depth`, `m` requests draft. `before` are the seconds
    /// of the earlier passes. `drafts` is the number of draft tokens up to `depth`, which a `parallel` drafter makes in
    /// a single pass.
    pub fn draft_s(&self, batch: &BatchView, depth: u32, m: u32, drafts: u64, before: f64, parallel: bool) -> f64 {
        match parallel {
            true => self.first_pass_s(self.decodes.0, drafts, self.decodes.1),
            false => before + self.draft_pass_s(batch, depth, m),
        }
    }

    /// The seconds of [`draft_s`](Costs::draft_s) in a step without prompts and without tokens that the draft model
    /// must catch up with.
    pub fn draft_alone_s(&self, depth: u32, m: u32, drafts: u64, before: f64, parallel: bool) -> f64 {
        let share = f64::from(m) / self.decodes.0.max(1) as f64;
        match parallel {
            true => self.draft.pass_s(self.decodes.0, drafts, self.decodes.1),
            false => {
                before + self.draft.pass_s(m.into(), m.into(), share * self.decodes.1 + f64::from(m * (depth - 1)))
            }
        }
    }

    /// Compares the measured draft and verify time of a step with the estimates, and corrects the pass times and the
    /// estimated time of a decision whether to draft on.
    pub fn observe(&mut self, outcome: &StepOutcome) {
        let step = self.outcomes;
        self.outcomes += 1;
        while self.pending.front().is_some_and(|p| p.step < step) {
            self.pending.pop_front();
        }
        let Some(pending) = self.pending.pop_front_if(|p| p.step == step) else { return };
        let n = outcome.ids.len() as u64;
        let verified: u64 = outcome.verified.iter().map(|&v| u64::from(v)).sum();
        let tokens = n + verified + pending.prefill;
        let predicted = self.target.pass_s(n + pending.prompts, tokens, pending.context);
        self.target.correct(outcome.verify_time.as_s(), predicted, self.correction);
        let own = Made {
            step,
            joins: pending.joins,
            first_asked: pending.first_asked,
            selected: pending.selected,
            prompts: pending.draft_prefill.0 > 0,
        };
        // Behind a step the draft tokens of this outcome were made by the step before.
        let made = if self.first_pass_is_free { self.made.filter(|made| made.step + 1 == step) } else { Some(own) };
        self.made = Some(own);
        let Some(made) = made else { return };
        // If the draft model also ran over prompts, this step corrects no draft time, because it is not known how many
        // prompt tokens the draft model processed in it.
        let passes = outcome.drafts.passes;
        if (passes > 1 || passes == 1 && made.selected) && !made.prompts {
            let drafted: u64 = outcome.drafted.iter().map(|&d| u64::from(d)).sum();
            let (requests, first) = match (self.parallel, self.first_pass_is_free) {
                (true, _) => (n, drafted),
                (false, true) => (made.joins, made.joins + verified),
                (false, false) => (n, n),
            };
            let mut predicted = self.draft.pass_s(requests, first, pending.context);
            for depth in 2..=if self.parallel { 1 } else { passes } {
                let m = outcome.drafted.iter().filter(|&&d| d >= depth).count() as u64;
                predicted += self.draft.pass_s(m, m, pending.context * m as f64 / n.max(1) as f64);
            }
            // The measured draft time does not separate passes from the decisions after them (whether to draft on). If
            // the step had a decision, the time above the estimate does not say that passes are slower.
            let asked = (passes.min(self.last_asked) + 1).saturating_sub(made.first_asked);
            let decisions = asked + u32::from(made.selected);
            let took = outcome.draft_time.as_s();
            if decisions == 0 || took < predicted {
                self.draft.correct(took, predicted, self.correction);
            }
            self.trips.add(f64::from(decisions), took - predicted);
        }
    }

    /// By what factor real passes are slower than measured at start-up: (target passes, draft passes).
    #[cfg(test)]
    pub fn slower(&self) -> (f64, f64) {
        (self.target.slower, self.draft.slower)
    }
}
