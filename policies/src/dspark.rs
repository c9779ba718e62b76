//! `dspark`: SGLang's DSpark scheduler. Drafts whole blocks; a budget of draft tokens for the batch comes from a table of
//! steps per second, and the tokens most likely to survive get it.
//!
//! Source: DSpark (arXiv 2607.05147) as sgl-project/sglang implements it, `srt/speculative/dspark_components/`
//! `dspark_planner.py` and `dspark_sps_table.py` (policies.md 6.1). With n requests and s₁ ≥ s₂ ≥ … the survival of the
//! batch's draft tokens, the budget is argmax_b (n + Σ_{t≤b} s_t) · SPS(n + b), the smallest on a tie, from confidences two
//! rounds old; who gets it is decided by those of the drafts at hand. Without a profiled table SPS is constant, and the
//! argmax provably verifies everything: SGLang's shipped default, which is a fixed length under another name and refused
//! here unless it is asked for.

use crate::confidence_history::History;
use crate::profile::{capture_sizes, padded};
use crate::registry::{BadParameter, Check, Definition, PolicyContext};
use crate::survival::{Slots, best_budget};
use crate::timed_batch::TimedBatch;
use foretoken_sim::{BatchView, Candidate, DraftPlan, Drafts, SpecPolicy, Speculation, Wants};
use serde::{Deserialize, Serialize};

/// Survivals below this are no candidates.
const SURVIVAL_EPS: f64 = 1e-6;
/// Rounds by which the budget's confidences are late.
const LAG: usize = 2;

/// Where steps per second come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpsTable {
    /// Timed at start-up.
    #[default]
    Profiled,
    /// One constant: no table was given.
    Flat,
}

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dspark {
    /// Tokens of a block, drafted for every request; absent is the engine's longest draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gamma: Option<u32>,
    /// Where steps per second come from.
    pub table: SpsTable,
    /// Run with a flat table, which verifies everything?
    pub allow_degenerate: bool,
    /// Raise the budget to what fills the captured graph that the pass is padded to?
    pub align_to_graph: bool,
    /// Tokens of KV a request when steps are timed.
    pub profile_context_len: u32,
}

impl Default for Dspark {
    fn default() -> Self {
        Dspark {
            gamma: None,
            table: SpsTable::Profiled,
            allow_degenerate: false,
            align_to_graph: false,
            profile_context_len: 2048,
        }
    }
}

impl Definition for Dspark {
    fn summary(&self) -> &'static str {
        "drafts whole blocks; verifies the tokens most likely to survive, as many as pay by a table of steps per second"
    }

    fn source(&self) -> &'static str {
        "DSpark (arXiv 2607.05147) as in SGLang srt/speculative/dspark_components/dspark_planner.py"
    }

    fn sees(&self) -> &'static str {
        "batch size and prefill tokens; the confidence of each drafted token, now and two rounds ago; step times at start-up"
    }

    fn differences(&self) -> &'static str {
        "SGLang has no budget in the step after a prefill; prompts ride along here, so that only a batch nobody of \
         which drafted before has none. Two rounds are a request's own; in SGLang they are the server's. Confidences \
         are the draft's probabilities, not those of DSpark's trained head, and are not recalibrated (STS). SGLang \
         does not mix prefill into decode steps; here its tokens count as tokens of the pass. The context at which \
         steps are timed is not given by the source: 2048; `decide` tabulates passes over the state's own requests. The additive form of the table is left out. That the draft \
         makes a block in one pass is a setting of the draft, not of the policy"
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        self.gamma.map(|gamma| ("gamma", gamma))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("dspark");
        if let Some(gamma) = self.gamma {
            check.length("gamma", gamma)?;
        }
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

/// Steps per second by the tokens of the target pass: constant from each probe up to the next.
#[derive(Clone, Debug)]
struct Sps {
    tokens: Vec<u32>,
    steps_per_s: Vec<f64>,
}

impl Sps {
    /// SGLang's sweep: dense for small passes, sparse for large ones.
    fn sweep(most: u32) -> Vec<u32> {
        let ranges =
            [(12, 128, 4), (128, 256, 16), (256, 1024, 32), (1024, 2048, 128), (2048, most.saturating_add(1), 256)];
        let steps = ranges.into_iter().flat_map(|(from, to, by)| (from..to.max(from)).step_by(by));
        let mut sweep: Vec<u32> = [1, 2, 4, 8].into_iter().chain(steps).filter(|&n| n <= most).collect();
        if sweep.last() != Some(&most) {
            sweep.push(most);
        }
        sweep
    }

    /// Times steps in which every request has its whole block verified; where that would take more requests than the
    /// engine runs, they have more tokens each. A given batch is timed at the captured sizes, up to the largest.
    fn measure(context: &PolicyContext, gamma: u32, kv: u32) -> Sps {
        let mut tokens = Sps::sweep(context.max_num_batched_tokens.max(1));
        if context.told.is_some() {
            let captured = capture_sizes(context.max_num_seqs);
            tokens.retain(|n| captured.last() < Some(n));
            tokens.splice(..0, captured);
        }
        let step_s = |&n: &u32| {
            let (requests, batch) = match TimedBatch::of(context, kv) {
                TimedBatch::MadeUp { context, most } => {
                    let requests = n.div_ceil(gamma + 1).min(most);
                    (requests, TimedBatch::MadeUp { most: requests, context })
                }
                TimedBatch::Given(contexts) => (contexts.len() as u32, TimedBatch::Given(contexts)),
            };
            let draft_s = batch.drafting_s(context.profile, context.belief.drafting, requests, gamma);
            draft_s + context.profile.target_s(batch.target_pass(n, context.profile.context_reads()))
        };
        let steps_per_s = tokens.iter().map(|n| 1.0 / step_s(n)).collect();
        Sps { tokens, steps_per_s }
    }

    fn flat() -> Sps {
        Sps { tokens: vec![1], steps_per_s: vec![1.0] }
    }

    fn at(&self, tokens: usize) -> f64 {
        let above = self.tokens.partition_point(|&probe| probe as usize <= tokens);
        self.steps_per_s[above.saturating_sub(1)]
    }
}

/// The running policy.
struct Scheduler {
    gamma: u32,
    align: bool,
    sps: Sps,
    capture_sizes: Vec<u32>,
    history: History,
    /// The given confidences serve the budget too.
    told: bool,
    slots: Slots,
    own_estimate: Option<f64>,
    weighed: Option<Vec<Candidate>>,
}

impl Scheduler {
    fn new(params: Dspark, context: &PolicyContext) -> Scheduler {
        let gamma = params.gamma.unwrap_or(context.max_draft_len).min(context.max_draft_len);
        Scheduler {
            gamma,
            align: params.align_to_graph,
            sps: match params.table {
                SpsTable::Profiled => Sps::measure(context, gamma, params.profile_context_len),
                SpsTable::Flat => Sps::flat(),
            },
            capture_sizes: capture_sizes(context.max_num_seqs),
            history: History::new(LAG, gamma, context.max_num_seqs),
            told: context.told.is_some(),
            slots: Slots::default(),
            own_estimate: None,
            weighed: None,
        }
    }

    fn push_live(slots: &mut Slots, drafts: &Drafts) {
        slots.clear();
        for (i, &len) in drafts.draft_len.iter().enumerate() {
            slots.push_draft(i, (0..len as usize).map(|j| drafts.confidence(i, j)), SURVIVAL_EPS);
        }
    }

    /// How many draft tokens to verify; `None` when nobody drafted before, as in the first step after a
    /// prefill. A request whose round of that age is missing counts as certain.
    fn budget(&mut self, batch: &BatchView, drafts: &Drafts) -> Option<usize> {
        let Scheduler { slots, history, sps, weighed, .. } = self;
        if self.told {
            Scheduler::push_live(slots, drafts);
        } else {
            if !batch.ids.iter().any(|&id| history.knows(id)) {
                return None;
            }
            slots.clear();
            for (i, (&id, &len)) in batch.ids.iter().zip(&drafts.draft_len).enumerate() {
                let known = history.lagged(id);
                let confidence = (0..len as usize).map(|j| known.map_or(1.0, |row| row[j]));
                slots.push_draft(i, confidence, SURVIVAL_EPS);
            }
        }
        if let Some(weighed) = weighed {
            weighed.clear();
        }
        let fixed = batch.len() + batch.prefill.tokens as usize;
        let steps_per_s = |b: usize| sps.at(fixed + b);
        let best = best_budget(batch.len() as f64, slots.descending(), steps_per_s, weighed.as_mut());
        self.own_estimate = Some(best.rate);
        let total = fixed + best.tokens;
        let filled = if self.align { padded(&self.capture_sizes, total as u32) as usize } else { total };
        Some(filled - fixed)
    }
}

impl SpecPolicy for Scheduler {
    fn limit(&self) -> u32 {
        self.gamma
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.gamma);
        self.own_estimate = None;
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        if let Some(budget) = self.budget(batch, drafts) {
            Scheduler::push_live(&mut self.slots, drafts);
            self.slots.allocate(budget, &mut drafts.verify_len);
        }
        if !self.told {
            self.history.next_step();
            for (i, (&id, &len)) in batch.ids.iter().zip(&drafts.draft_len).enumerate() {
                self.history.record(id, (0..len as usize).map(|j| drafts.confidence(i, j)));
            }
        }
    }

    fn explain(&mut self) {
        self.weighed = Some(Vec::new());
    }

    fn own_estimate(&self) -> Option<f64> {
        self.own_estimate
    }

    fn weighed(&self) -> Vec<Candidate> {
        self.weighed.clone().unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "dspark_tests.rs"]
mod tests;
