//! `sglang-gen3`: SGLang's adaptive speculative decoding, third generation. Each range of batch sizes is a slot with
//! its own candidate draft lengths and its own average number of accepted draft tokens; 0 may be a candidate.
//!
//! Source: SGLang 0.5.23 `srt/speculative/adaptive_spec_params.py` (PR #24055), which was executed for the fixture that
//! the tests compare with (`tests/policies`).

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::sglang::router::{Router, captured_sizes};
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, MAX_SPEC_LEN, SpecPolicy, Speculation, StepOutcome};
use serde::{Deserialize, Serialize};

/// The settings of a slot, that is, of a range of batch sizes. A setting that a slot leaves out has the value that the
/// policy has for all slots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Slot {
    /// Smallest batch size of this range of batch sizes, after padding to a captured size. The range ends before the
    /// smallest batch size of the next range.
    pub batch_size: u32,
    /// Allowed draft lengths (`candidate_steps`), ascending, each 0 to 32; 0 drafts nothing.
    pub candidates: Vec<u32>,
    /// Weight, [0, 1], of the newest batch in the average number of accepted draft tokens of this range of batch sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema_alpha: Option<f64>,
    /// Number of verify batches (steps with verified draft tokens) of this range of batch sizes before the first
    /// decision about its draft length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_batches: Option<u32>,
    /// Number of verify batches (steps with verified draft tokens) of this range of batch sizes from one decision about
    /// its draft length to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_interval: Option<u32>,
    /// Tokens that are added to the threshold of the average accepted length below which this range of batch sizes
    /// moves to a shorter draft length. A negative number delays the move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_hysteresis: Option<f64>,
    /// Tokens that are added to the threshold of the average accepted length above which this range of batch sizes
    /// moves to a longer draft length. A positive number delays the move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_hysteresis: Option<f64>,
    /// Limits the draft length of this range of batch sizes to this factor times its average number of accepted draft
    /// tokens, rounded up; 0 is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_coeff: Option<f64>,
}

/// Settings of the policy `sglang-gen3`, which moves each range of batch sizes between draft lengths by an average
/// number of accepted draft tokens. The defaults are SGLang's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SglangGen3 {
    /// The settings of each range of batch sizes (a slot), ascending by batch size.
    pub slots: Vec<Slot>,
    /// Weight, [0, 1], of the newest batch in the average number of accepted draft tokens.
    pub ema_alpha: f64,
    /// Number of verify batches (steps with verified draft tokens) of a slot (a range of batch sizes) before its first
    /// decision about the draft length.
    pub warmup_batches: u32,
    /// Number of verify batches (steps with verified draft tokens) of a slot (a range of batch sizes) from one decision
    /// about the draft length to the next, at least 1.
    pub update_interval: u32,
    /// Tokens that are added to the threshold of the average accepted length below which a slot (a range of batch
    /// sizes) moves to a shorter draft length. A negative number delays the move.
    pub down_hysteresis: f64,
    /// Tokens that are added to the threshold of the average accepted length above which a slot (a range of batch
    /// sizes) moves to a longer draft length. A positive number delays the move.
    pub up_hysteresis: f64,
    /// Limits the draft length to this factor times the average number of accepted draft tokens, rounded up and at
    /// least 1, except when the length rises; 0 is no limit.
    pub ceiling_coeff: f64,
    /// Draft length at the start (`speculative_num_steps`), 0 to 32. A slot (a range of batch sizes) without this
    /// candidate starts at its middle candidate.
    pub initial_steps: u32,
    /// Whether batch sizes are padded to captured CUDA-graph sizes before the settings of their range of batch sizes
    /// are looked up.
    pub cuda_graph: bool,
}

impl Default for SglangGen3 {
    fn default() -> Self {
        let slot = |batch_size, candidates: &[u32], down| Slot {
            batch_size,
            candidates: candidates.to_vec(),
            down_hysteresis: Some(down),
            ..Slot::default()
        };
        SglangGen3 {
            slots: vec![
                slot(1, &[1, 3, 5, 7], -0.25),
                slot(8, &[0, 1, 3], 0.0),
                slot(32, &[0, 1], 0.0),
                slot(64, &[0], 0.0),
            ],
            ema_alpha: 0.2,
            warmup_batches: 10,
            update_interval: 5,
            down_hysteresis: -0.25,
            up_hysteresis: 0.0,
            ceiling_coeff: 0.0,
            initial_steps: 3,
            cuda_graph: true,
        }
    }
}

/// Checks the smallest batch sizes of the slots (ranges of batch sizes): at least one, ascending, from 1 on.
pub(crate) fn check_keys(check: &Check, keys: impl Iterator<Item = u32>) -> Result<(), BadParameter> {
    let mut below = 0;
    for key in keys {
        check.that("slots", key > below, || format!("batch size {key} does not come after {below}; sort the slots"))?;
        below = key;
    }
    check.that("slots", below > 0, || "is empty; give at least one slot".into())
}

/// Checks the candidate draft lengths of a slot (a range of batch sizes): at least one, ascending, from `shortest` to
/// `MAX_SPEC_LEN`.
pub(crate) fn check_candidates(
    check: &Check,
    batch_size: u32,
    candidates: &[u32],
    shortest: u32,
) -> Result<(), BadParameter> {
    let sorted = !candidates.is_empty() && candidates.is_sorted_by(|a, b| a < b);
    let in_range = candidates.iter().all(|c| (shortest..=MAX_SPEC_LEN).contains(c));
    check.that("slots", sorted && in_range, || {
        format!(
            "batch size {batch_size}: candidates {candidates:?} are not ascending draft lengths from {shortest} to \
             {MAX_SPEC_LEN}"
        )
    })
}

impl Definition for SglangGen3 {
    fn about(&self) -> About {
        About {
            summary: "captured draft lengths by an average of accepted drafts, for each range of batch sizes by \
                      itself, 0 included",
            source: "SGLang 0.5.23, srt/speculative/adaptive_spec_params.py (PR #24055, generation 3)",
            sees: "number of decode requests; accepted counts of past steps",
            differences: "a request that had no room to draft is left out of a batch's mean; SGLang has no such \
                          request. SGLang charges drafts to no token budget; here it is charged with the length of \
                          the last batch's slot, so a slot with a longer one has it from its second batch on. The \
                          captured sizes are SGLang's up to max_num_seqs. A slot's candidates must be sorted. At 0 \
                          steps SGLang extends the draft's KV all the same, unless \
                          SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND is set: engine.draft_gap has both",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        self.slots.iter().flat_map(|s| &s.candidates).max().map(|&longest| ("slots", longest))
    }

    fn learns_from_counts(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("sglang-gen3");
        check_keys(&check, self.slots.iter().map(|s| s.batch_size))?;
        Rule::of(self, &Slot::default()).check(&check)?;
        let mut all: Vec<u32> = Vec::new();
        for slot in &self.slots {
            check_candidates(&check, slot.batch_size, &slot.candidates, 0)?;
            all.extend(&slot.candidates);
            // The policy's own settings were checked above. This checks the settings of one slot (a range of batch
            // sizes).
            let own = Rule::of(self, slot).check(&check);
            own.map_err(|e| BadParameter {
                key: "slots",
                why: format!("batch size {}: {}: {}", slot.batch_size, e.key, e.why),
                ..e
            })?;
        }
        all.sort_unstable();
        all.dedup();
        let why = || format!("the only draft length is {}; use fixed", all[0]);
        check.that("slots", all.len() >= 2, why)?;
        let why = || format!("{} is more than {MAX_SPEC_LEN} draft tokens", self.initial_steps);
        check.that("initial_steps", self.initial_steps <= MAX_SPEC_LEN, why)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Slots::new(self, context)))
    }
}

/// The settings by which a slot (a range of batch sizes) chooses its draft length: the slot's own, and the policy's
/// values for what the slot leaves out.
#[derive(Clone, Copy)]
struct Rule {
    ema_alpha: f64,
    warmup_batches: u32,
    update_interval: u32,
    down_hysteresis: f64,
    up_hysteresis: f64,
    ceiling_coeff: f64,
}

impl Rule {
    /// The settings by which `slot` (a range of batch sizes) chooses its draft length. What the slot leaves out has the
    /// policy's value.
    fn of(policy: &SglangGen3, slot: &Slot) -> Rule {
        Rule {
            ema_alpha: slot.ema_alpha.unwrap_or(policy.ema_alpha),
            warmup_batches: slot.warmup_batches.unwrap_or(policy.warmup_batches),
            update_interval: slot.update_interval.unwrap_or(policy.update_interval),
            down_hysteresis: slot.down_hysteresis.unwrap_or(policy.down_hysteresis),
            up_hysteresis: slot.up_hysteresis.unwrap_or(policy.up_hysteresis),
            ceiling_coeff: slot.ceiling_coeff.unwrap_or(policy.ceiling_coeff),
        }
    }

    fn check(&self, check: &Check) -> Result<(), BadParameter> {
        check.share("ema_alpha", self.ema_alpha)?;
        check.that("update_interval", self.update_interval > 0, || "must be at least 1 batch".into())?;
        for (key, value) in [("down_hysteresis", self.down_hysteresis), ("up_hysteresis", self.up_hysteresis)] {
            check.that(key, value.is_finite(), || format!("{value} is not a number of tokens"))?;
        }
        let why = || format!("{} is not a factor of 0 or more", self.ceiling_coeff);
        check.that("ceiling_coeff", self.ceiling_coeff >= 0.0 && self.ceiling_coeff.is_finite(), why)
    }
}

/// The average number of accepted draft tokens of a slot (a range of batch sizes), and the slot's present draft length.
/// The average and the length do not change while batches of other slots run.
struct SlotState {
    rule: Rule,
    candidates: Vec<u32>,
    /// Index in `candidates` (the draft lengths that the slot may use) of the length that the slot drafts now.
    now: usize,
    ema: f64,
    batches: u64,
}

impl SlotState {
    fn new(policy: &SglangGen3, slot: &Slot) -> SlotState {
        let candidates = slot.candidates.clone();
        let now = candidates.binary_search(&policy.initial_steps).unwrap_or(candidates.len() / 2);
        let ema = f64::from(candidates[now]) - 1.0;
        SlotState { rule: Rule::of(policy, slot), candidates, now, ema, batches: 0 }
    }

    fn steps(&self) -> u32 {
        self.candidates[self.now]
    }

    /// Adds one batch (one step) of the slot (range of batch sizes); `mean` is its mean number of accepted draft tokens
    /// per request. At draft length 0 the average stays, but the batch counts. Decides about the length if an interval
    /// between decisions ends with this batch.
    fn feed(&mut self, mean: f64) {
        if self.steps() > 0 {
            self.ema = (1.0 - self.rule.ema_alpha) * self.ema + self.rule.ema_alpha * mean;
        }
        self.batches += 1;
        let since_warmup = self.batches.saturating_sub(u64::from(self.rule.warmup_batches));
        if since_warmup > 0 && since_warmup.is_multiple_of(u64::from(self.rule.update_interval)) {
            self.decide();
        }
    }

    fn decide(&mut self) {
        if self.steps() == 0 {
            return self.probe();
        }
        let tier = |i: usize| f64::from(self.candidates[i]);
        let before = self.now;
        let mut now = before;
        // The threshold for a draft length is the length − 0.5. For length 0 that would be −0.5, which no average
        // accepted length reaches. So length 0 has the threshold 0.5.
        let drop = |to: f64| if to == 0.0 { 0.5 } else { to - 0.5 } + self.rule.down_hysteresis;
        while now > 0 && self.ema <= drop(tier(now - 1)) {
            now -= 1;
        }
        if now == before {
            while now + 1 < self.candidates.len() && self.ema > tier(now) - 0.5 + self.rule.up_hysteresis {
                now += 1;
            }
        }
        if self.rule.ceiling_coeff > 0.0 && now <= before {
            let ceiling = (self.ema * self.rule.ceiling_coeff).ceil().max(1.0);
            while now > 0 && tier(now) > ceiling {
                now -= 1;
            }
        }
        self.now = now;
    }

    /// Moves a slot (a range of batch sizes) from draft length 0 to its next candidate length, if it has one. At length
    /// 0 there are no accepted draft tokens to decide by, so every decision does this. A slot that never drafted has a
    /// negative average, which is then set to the new length − 1.
    fn probe(&mut self) {
        self.now = (self.now + 1).min(self.candidates.len() - 1);
        if self.steps() > 0 && self.ema < 0.0 {
            self.ema = f64::from(self.steps()) - 1.0;
        }
    }
}

/// The policy `sglang-gen3` while the engine runs: its settings, and what it keeps from step to step.
struct Slots {
    router: Router,
    slots: Vec<SlotState>,
    max_draft_len: u32,
    /// The slot (range of batch sizes) of the last batch; `None` before the first.
    last: Option<usize>,
}

impl Slots {
    fn new(params: &SglangGen3, context: &PolicyContext) -> Slots {
        let captured = if params.cuda_graph { captured_sizes(context.max_num_seqs) } else { Vec::new() };
        let keys = params.slots.iter().map(|s| s.batch_size).collect();
        Slots {
            router: Router::new(keys, captured),
            slots: params.slots.iter().map(|slot| SlotState::new(params, slot)).collect(),
            max_draft_len: context.max_draft_len,
            last: None,
        }
    }
}

impl SpecPolicy for Slots {
    /// The engine's limit on the draft length of the next step: the present length of the last batch's slot (its range
    /// of batch sizes), because the next batch's slot is not yet known. Before the first batch it is the longest
    /// present length of all slots.
    fn limits(&self) -> DraftLimits<'_> {
        let steps = match self.last {
            Some(slot) => self.slots[slot].steps(),
            None => self.slots.iter().map(SlotState::steps).max().unwrap_or(0),
        };
        let most = self.slots.iter().flat_map(|slot| &slot.candidates).copied().max().unwrap_or(0);
        DraftLimits::chain(steps.min(self.max_draft_len)).up_to(most.min(self.max_draft_len))
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        let slot = self.router.slot(batch.len() as u32);
        self.last = Some(slot);
        plan.fill(self.slots[slot].steps().min(self.max_draft_len));
    }

    /// Feeds the accepted draft tokens of a step to the average of its range of batch sizes. Leaves out requests
    /// without verified draft tokens, because they say nothing about acceptance. SGLang has no such requests.
    fn observe(&mut self, outcome: &StepOutcome) {
        let requests = outcome.accepted.len();
        if requests == 0 {
            return;
        }
        let slot = &mut self.slots[self.router.slot(requests as u32)];
        if slot.steps() == 0 {
            return slot.feed(0.0);
        }
        let (mut drafted, mut accepted) = (0u32, 0u64);
        for (&a, _) in outcome.accepted.iter().zip(outcome.verified).filter(|&(_, &v)| v > 0) {
            drafted += 1;
            accepted += u64::from(a);
        }
        if drafted > 0 {
            slot.feed(accepted as f64 / f64::from(drafted));
        }
    }
}

#[cfg(test)]
#[path = "gen3_recorded.rs"]
mod recorded;

#[cfg(test)]
#[path = "gen3_tests.rs"]
mod tests;
