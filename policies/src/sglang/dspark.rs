//! `dspark`: SGLang's DSpark scheduler. Every request drafts a block of the same number of tokens. A table of steps per
//! second gives the batch a budget of draft tokens to verify. The tokens most likely to survive are verified. Survival
//! is the probability that a token and all before it are accepted.
//!
//! Source: DSpark (arXiv 2607.05147) as in SGLang 0.5.23, `srt/speculative/dspark_components/dspark_planner.py` and
//! `dspark_sps.py`, `kernels/ops/speculative/dspark/dspark_schedule.py`. These files were executed for the fixture that
//! the tests compare with (`tests/policies`).
//!
//! Let n be the number of requests and s₁ ≥ s₂ ≥ … the survivals of the batch's draft tokens. The budget is the
//! argmax_b of (n + Σ_{t≤b} s_t) / step(n, n + b), the smallest b on a tie. step(n, t) is the time of a step with n
//! requests and t tokens in the target pass. The budget is computed from confidences that are two steps old. The
//! confidences of the present draft tokens decide which of them are verified.
//!
//! SGLang's own defaults do none of this, for two reasons: `SGLANG_RAGGED_VERIFY_MODE` is `static`, and without a table
//! every step takes the same time, so that everything is verified. That equals a fixed length and is refused here,
//! unless `allow_degenerate` is set.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::sglang::dspark_relay::Relay;
use crate::sglang::dspark_table::{CostTable, SpsTable};
use crate::shared::profile::{capture_sizes, padded};
use crate::shared::survival::{RankedTokens, best_budget, survivals};
use crate::shared::weighed::Weighed;
use foretoken_sim::{
    BatchView, DraftLimits, DraftPlan, Drafts, Explanation, RequestId, SpecPolicy, Speculation, Wants,
};
use serde::{Deserialize, Serialize};

/// Draft tokens whose survival (the probability that a token and all before it are accepted) is below this value are
/// not candidates for verification. Survivals are compared in single precision.
const SURVIVAL_EPS: f64 = 1e-6f32 as f64;
/// Settings of the policy `dspark`, which is SGLang's DSpark scheduler: a cost table decides how many draft tokens are
/// verified.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dspark {
    /// Number of tokens that every request drafts in a step (a block), 1 to 32. Default: the engine's `max_draft_len`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gamma: Option<u32>,
    /// Where the time of a step, by its numbers of requests and tokens, comes from.
    pub table: SpsTable,
    /// The number of draft tokens to verify is computed from confidences that are this number of steps old, 1 to 16
    /// (`SGLANG_DSPARK_CONFIDENCE_RELAY_LAG_STEPS`); with overlapped scheduling at least 2.
    pub lag_steps: u32,
    /// Whether the scheduler overlaps with the device. If true, the host has no confidences yet in the first two steps,
    /// which verify all draft tokens.
    pub overlap_schedule: bool,
    /// True allows `table = "flat"`, by which every step takes the same time, so that all draft tokens are always
    /// verified.
    pub allow_degenerate: bool,
    /// True raises the number of draft tokens to verify until the verify pass fills the size of the captured CUDA graph
    /// to which it is padded.
    pub align_to_graph: bool,
    /// KV tokens of each request while steps are timed at start-up.
    pub profile_context_len: u32,
}

impl Default for Dspark {
    fn default() -> Self {
        Dspark {
            gamma: None,
            table: SpsTable::Profiled,
            lag_steps: 2,
            overlap_schedule: true,
            allow_degenerate: false,
            align_to_graph: false,
            profile_context_len: 2048,
        }
    }
}

impl Definition for Dspark {
    fn about(&self) -> About {
        About {
            summary: "drafts whole blocks; verifies the tokens most likely to survive, as many as pay by a table of \
                      steps per second",
            source: "DSpark (arXiv 2607.05147) as in SGLang 0.5.23, \
                     srt/speculative/dspark_components/dspark_planner.py",
            sees: "batch size and prefill tokens; the confidence of each drafted token, now and some rounds ago; \
                   step times at start-up",
            differences: "SGLang's defaults (static verification, no table) verify everything; here a table is \
                          profiled. Confidences are the draft's probabilities, not those of DSpark's trained head, \
                          and are not recalibrated (STS). A preempted request keeps its last confidences, where \
                          SGLang starts it over, and batches beyond the captured sizes are trimmed too. SGLang does \
                          not mix prefill into decode steps; here its tokens count as tokens of the pass. SGLang's \
                          additive table comes from a file; here it is drafting by requests plus the target pass by \
                          tokens. The context at which steps are timed is not given by the source: 2048; `decide` \
                          tabulates passes over the state's own requests. That the draft makes a block in one pass \
                          is a setting of the draft, not of the policy",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        self.gamma.map(|gamma| ("gamma", gamma))
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("dspark");
        if let Some(gamma) = self.gamma {
            check.length("gamma", gamma)?;
        }
        check.that("lag_steps", (1..=16).contains(&self.lag_steps), || {
            format!("{} is not a number of rounds from 1 to 16", self.lag_steps)
        })?;
        check.that("table", self.table != SpsTable::Flat || self.allow_degenerate, || {
            "with a flat table every draft token always pays, so that this is a fixed length; use \"profiled\", or set \
             allow_degenerate = true to run it all the same"
                .into()
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Scheduler::new(*self, context)))
    }
}

/// The policy `dspark` while the engine runs: its settings, and what it keeps from step to step.
struct Scheduler {
    gamma: u32,
    align: bool,
    table: CostTable,
    capture_sizes: Vec<u32>,
    relay: Relay,
    /// Buffer for the confidences of one request's draft tokens, as far as they have reached the host.
    late: Vec<f64>,
    /// True if the command `foretoken decide`, which asks for a decision on one given batch, gave the policy
    /// confidences. The number of draft tokens to verify is then computed from these, not from late confidences.
    told: bool,
    ranked: RankedTokens,
    own_estimate: Option<f64>,
    weighed: Weighed,
}

/// Rounds a survival (the probability that a token and all before it are accepted) to single precision, as SGLang does
/// before ranking. This decides which tokens tie.
fn single(survival: f64) -> f64 {
    f64::from(survival as f32)
}

impl Scheduler {
    fn new(params: Dspark, context: &PolicyContext) -> Scheduler {
        let gamma = params.gamma.unwrap_or(context.max_draft_len).min(context.max_draft_len);
        Scheduler {
            gamma,
            align: params.align_to_graph,
            table: CostTable::build(params.table, context, gamma, params.profile_context_len),
            capture_sizes: capture_sizes(context.max_num_seqs),
            relay: Relay::new(params.lag_steps, params.overlap_schedule, gamma),
            late: vec![1.0; gamma as usize],
            told: context.told.is_some(),
            ranked: RankedTokens::default(),
            own_estimate: None,
            weighed: Weighed::default(),
        }
    }

    /// Fills `ranked` with the batch's draft tokens, ranked by their present confidences. Survivals (the probabilities
    /// that a token and all before it are accepted) are rounded to single precision, unless the confidences are from
    /// the command `foretoken decide`.
    fn push_live(&mut self, drafts: &Drafts) {
        self.ranked.clear();
        for (i, &len) in drafts.draft_len.iter().enumerate() {
            let survivals = survivals((0..len as usize).map(|j| drafts.confidence(i, j)));
            match self.told {
                true => self.ranked.push_draft(i, survivals, SURVIVAL_EPS),
                false => self.ranked.push_draft(i, survivals.map(single), SURVIVAL_EPS),
            }
        }
    }

    /// Fills `ranked` with the batch's draft tokens, ranked by the confidences that have reached the host. Then notes
    /// in `relay`, which brings confidences to the host, that this step's number of tokens to verify is computed.
    fn push_late(&mut self, batch: &BatchView, drafts: &Drafts) {
        self.ranked.clear();
        for (i, (&id, &len)) in batch.ids.iter().zip(&drafts.draft_len).enumerate() {
            let live = (0..len as usize).map(|j| drafts.confidence(i, j));
            self.relay.late(id, live, &mut self.late);
            let late = self.late[..len as usize].iter().copied();
            self.ranked.push_draft(i, survivals(late).map(single), SURVIVAL_EPS);
        }
        self.relay.budget_computed();
    }

    /// The number of draft tokens whose verification gives the most tokens per second, by the cost table. With `align`
    /// it is raised until the verify pass fills the captured CUDA graph to which it is padded; it may then exceed the
    /// number of draft tokens. `None` before the first confidences have reached the host. Stores the tokens per second
    /// of each number for `explain`.
    fn budget(&mut self, batch: &BatchView, drafts: &Drafts) -> Option<usize> {
        if self.told {
            self.push_live(drafts);
        } else if self.relay.is_ready() {
            self.push_late(batch, drafts);
        } else {
            return None;
        }
        self.weighed.begin();
        let (requests, fixed) = (batch.len(), batch.len() + batch.prefill.tokens as usize);
        let table = &self.table;
        let rate = |expected: f64, b: usize| table.rate(expected, requests, fixed + b);
        let best = best_budget(requests as f64, self.ranked.descending(), rate, &mut self.weighed);
        self.own_estimate = Some(best.rate);
        let total = fixed + best.tokens;
        let filled = if self.align { padded(&self.capture_sizes, total as u32) as usize } else { total };
        Some(filled - fixed)
    }
}

impl SpecPolicy for Scheduler {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.gamma)
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.gamma);
        self.own_estimate = None;
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        // A flat table (every step takes the same time) counts as no table: everything is verified, also tokens with a
        // survival (probability of acceptance) below `SURVIVAL_EPS`.
        if let Some(budget) = self.budget(batch, drafts).filter(|_| !self.table.is_flat()) {
            self.push_live(drafts);
            self.ranked.allocate(budget, &mut drafts.verify_len);
        }
        if !self.told {
            for (i, (&id, &len)) in batch.ids.iter().zip(&drafts.draft_len).enumerate() {
                self.relay.record(id, (0..len as usize).map(|j| drafts.confidence(i, j)));
            }
            self.relay.next_round();
        }
    }

    fn request_finished(&mut self, id: RequestId) {
        self.relay.forget(id);
    }

    fn explain(&mut self) -> Explanation {
        self.weighed.explain(self.own_estimate)
    }
}

#[cfg(test)]
#[path = "dspark_recorded.rs"]
mod recorded;

#[cfg(test)]
#[path = "dspark_tests.rs"]
mod tests;
