//! `sglang-throughput`: SGLang's throughput-aware strategy. It takes the draft length with the most expected tokens per
//! measured time of a decode round (the draft passes of a step and their verification), at the present batch size.
//!
//! Source: sgl-project/sglang PR #28045, `srt/speculative/throughput_aware_controller.py` (@088c5abe) and
//! `throughput_aware_spec_params.py` (@23570745); restated in docs/model.md 1.4. The pull request is open; 0.5.23 does
//! not have it.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::sglang::gen3::{check_candidates, check_keys};
use crate::sglang::router::{Router, captured_sizes};
use crate::shared::profile::{PassTimes, uniform_pass};
use crate::shared::weighed::Weighed;
use foretoken_sim::{
    BatchView, ContextReads, DraftLimits, DraftPlan, Drafting, Explanation, MAX_SPEC_LEN, SpecPolicy, Speculation,
    StepOutcome,
};
use serde::{Deserialize, Serialize};

/// The candidate draft lengths of a slot, that is, of a range of batch sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CandidateSlot {
    /// Smallest batch size of this range of batch sizes, after padding to a captured size. The range ends before the
    /// smallest batch size of the next range.
    pub batch_size: u32,
    /// Allowed draft lengths (`candidate_steps`), ascending, each 1 to 32.
    pub candidates: Vec<u32>,
}

/// Settings of the policy `sglang-throughput`, which takes the draft length with the most expected tokens per measured
/// time. The default slots (ranges of batch sizes) are the example in SGLang's code, which has no default for them. All
/// other defaults are SGLang's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SglangThroughput {
    /// The candidate draft lengths of each range of batch sizes (a slot), ascending by batch size.
    pub slots: Vec<CandidateSlot>,
    /// Number of verify batches (steps with verified draft tokens) over which the acceptance rate of each draft
    /// position is averaged, 1 to 10000.
    pub window_size: u32,
    /// Number of verify batches (steps with verified draft tokens) from one decision about the draft length to the
    /// next, at least 1.
    pub update_interval: u32,
    /// Another draft length must beat the present length's score (expected tokens per second) by more than this share,
    /// ≥ 0. SGLang's code defines this setting but does not use it, so the default is 0.
    pub switch_hysteresis: f64,
    /// Context tokens of each request while decode steps are timed at start-up, at least 1.
    pub profile_run_seq_len: u32,
    /// Captured batch sizes at which decode steps are timed at start-up. Default: all captured sizes.
    pub profile_run_batch_sizes: Option<Vec<u32>>,
    /// Largest batch size at which decode steps are timed at start-up. Default: no limit.
    pub max_profile_run_batch_size: Option<u32>,
    /// Draft length at the start (`speculative_num_steps`). If it is no candidate of any range of batch sizes, the
    /// middle candidate of the first range is used.
    pub initial_steps: u32,
}

impl Default for SglangThroughput {
    fn default() -> Self {
        let slot = |batch_size, candidates: &[u32]| CandidateSlot { batch_size, candidates: candidates.to_vec() };
        SglangThroughput {
            slots: vec![slot(1, &[1, 3, 5, 7]), slot(8, &[1, 3, 5]), slot(32, &[1, 3]), slot(128, &[1])],
            window_size: 20,
            update_interval: 10,
            switch_hysteresis: 0.0,
            profile_run_seq_len: 2048,
            profile_run_batch_sizes: None,
            max_profile_run_batch_size: None,
            initial_steps: 3,
        }
    }
}

impl SglangThroughput {
    fn longest(&self) -> u32 {
        self.slots.iter().flat_map(|s| &s.candidates).copied().max().unwrap_or(0)
    }
}

impl Definition for SglangThroughput {
    fn about(&self) -> About {
        About {
            summary: "the length with the most expected tokens per profiled time of a round at this batch size",
            source: "SGLang PR #28045 (open), srt/speculative/throughput_aware_controller.py @088c5abe; in no \
                     release (absent from 0.5.23)",
            sees: "number of decode requests; accepted counts of past steps; a cost table profiled at the start",
            differences: "the slots are the example in SGLang's code, which has no default. The profile is exact, of \
                          S draft passes and a verify pass without prefill, at 2048 tokens of context (SGLang takes \
                          less where the model's context is short). A position's rate is over the requests that had \
                          it verified; in SGLang all have. Scores are in tokens a second",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("slots", self.longest()))
    }

    fn learns_from_counts(&self) -> bool {
        true
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("sglang-throughput");
        check_keys(&check, self.slots.iter().map(|s| s.batch_size))?;
        for slot in &self.slots {
            check_candidates(&check, slot.batch_size, &slot.candidates, 1)?;
        }
        let longest = self.longest();
        let choice = self.slots.iter().flat_map(|s| &s.candidates).any(|&c| c != longest);
        check.that("slots", choice, || format!("the only draft length is {longest}; use fixed"))?;
        check.that("window_size", (1..=10_000).contains(&self.window_size), || {
            format!("{} is not a number of batches from 1 to 10000", self.window_size)
        })?;
        check.that("update_interval", self.update_interval > 0, || "must be at least 1 batch".into())?;
        let why = || format!("{} is not a share of 0 or more", self.switch_hysteresis);
        check.that("switch_hysteresis", self.switch_hysteresis >= 0.0 && self.switch_hysteresis.is_finite(), why)?;
        check.that("profile_run_seq_len", self.profile_run_seq_len > 0, || "must be at least 1 token".into())?;
        if let Some(sizes) = &self.profile_run_batch_sizes {
            let good = !sizes.is_empty() && sizes.iter().all(|&s| s > 0);
            check.that("profile_run_batch_sizes", good, || format!("{sizes:?} are not batch sizes from 1 on"))?;
        }
        let why = || "must be at least 1; leave it out for all".into();
        check.that("max_profile_run_batch_size", self.max_profile_run_batch_size != Some(0), why)?;
        let why = || format!("{} is more than {MAX_SPEC_LEN} draft tokens", self.initial_steps);
        check.that("initial_steps", self.initial_steps <= MAX_SPEC_LEN, why)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(BestScore::new(self, context)))
    }
}

/// For each draft position (from 0): its acceptance rates in the last verify batches (steps with verified draft
/// tokens).
struct Tracker {
    window: usize,
    positions: Vec<Window>,
}

/// For one draft position: its acceptance rates in the last verify batches (steps with verified draft tokens); a ring
/// buffer once it is full.
#[derive(Default)]
struct Window {
    rates: Vec<f64>,
    oldest: usize,
}

impl Tracker {
    fn new(window: usize, positions: usize) -> Tracker {
        let empty = || Window { rates: Vec::with_capacity(window), oldest: 0 };
        Tracker { window, positions: (0..positions).map(|_| empty()).collect() }
    }

    /// Adds a verify batch (a step with verified draft tokens). For each draft position below `steps`, it adds the
    /// acceptance rate over the requests whose draft token at this position was verified. Stops at the first position
    /// at which no draft token was verified.
    fn take_in(&mut self, outcome: &StepOutcome, steps: u32) {
        for (j, position) in (0..steps).zip(&mut self.positions) {
            let verified = outcome.verified.iter().filter(|&&v| v > j).count();
            if verified == 0 {
                return;
            }
            let accepted = outcome.accepted.iter().filter(|&&a| a > j).count();
            let rate = accepted as f64 / verified as f64;
            if position.rates.len() < self.window {
                position.rates.push(rate);
            } else {
                position.rates[position.oldest] = rate;
                position.oldest = (position.oldest + 1) % self.window;
            }
        }
    }

    /// Removes the acceptance rates of the draft positions from `steps` (from 0) on.
    fn clear_from(&mut self, steps: u32) {
        self.positions.iter_mut().skip(steps as usize).for_each(|p| {
            p.rates.clear();
            p.oldest = 0;
        });
    }

    /// True if the window of acceptance rates of the last verify batches is full at every draft position below `steps`.
    fn warm(&self, steps: u32) -> bool {
        self.positions.iter().take(steps as usize).all(|p| p.rates.len() == self.window)
    }

    /// Expected tokens of a step of one request with `steps` draft tokens: 1 + the sum of the acceptance rates of their
    /// positions. Positions without a measured rate continue the rates before them as a geometric series. `None` if the
    /// first position has no rate yet (docs/model.md 1.4).
    fn expected_tokens(&self, steps: u32) -> Option<f64> {
        let (mut sum, mut first, mut last) = (1.0, 0.0, 0.0);
        for j in 0..steps as usize {
            let known = self.positions.get(j).map_or(&[][..], |p| &p.rates);
            let rate = match (known.len(), j) {
                (0, 0) => return None,
                (0, 1) => last,
                (0, _) if first <= 0.0 => 0.0,
                (0, _) => f64::min(last, last * f64::powf(last / first, 1.0 / (j as f64 - 1.0))).max(0.0),
                (n, _) => known.iter().sum::<f64>() / n as f64,
            };
            if j == 0 {
                first = rate;
            }
            last = rate;
            sum += rate;
        }
        Some(sum)
    }
}

/// Measured seconds of a decode round (the draft passes of a step and their verification), by batch size and draft
/// length.
struct CostTable {
    /// Batch sizes whose decode steps were timed at start-up, ascending; the index of a size is its index in `seconds`.
    batch_sizes: Vec<u32>,
    /// Measured seconds of a decode step at `[batch size index][draft length]`; NaN for draft lengths that were not
    /// timed.
    seconds: Vec<Vec<f64>>,
}

impl CostTable {
    /// Times a decode step at each captured batch size that the settings do not leave out, with each candidate draft
    /// length of the range of batch sizes to which it belongs.
    fn profile(params: &SglangThroughput, router: &Router, longest: u32, context: &PolicyContext) -> CostTable {
        let wanted = |size: &u32| {
            params.profile_run_batch_sizes.as_ref().is_none_or(|sizes| sizes.contains(size))
                && params.max_profile_run_batch_size.is_none_or(|most| *size <= most)
        };
        let batch_sizes: Vec<u32> = router.captured().iter().copied().filter(wanted).collect();
        let reads = context.profile.context_reads();
        let row = |&size: &u32| {
            let mut row = vec![f64::NAN; longest as usize + 1];
            for &steps in &params.slots[router.slot(size)].candidates {
                row[steps as usize] =
                    round_s(context.profile, size, steps, params.profile_run_seq_len, reads, context.belief.drafting);
            }
            row
        };
        let seconds = batch_sizes.iter().map(row).collect();
        CostTable { batch_sizes, seconds }
    }

    /// Seconds of a decode step with `steps` draft tokens per request, at the smallest timed batch size that is at
    /// least `batch_size`, or at the largest timed one if all are smaller. `None` if this draft length was not timed
    /// there, or no batch size was.
    fn at(&self, batch_size: u32, steps: u32) -> Option<f64> {
        let last = self.batch_sizes.len().checked_sub(1)?;
        let i = self.batch_sizes.partition_point(|&s| s < batch_size).min(last);
        self.seconds[i].get(steps as usize).copied().filter(|s| *s > 0.0)
    }
}

/// Seconds of a decode step of `requests` requests with `context` KV tokens each: the passes that draft `steps` tokens
/// per request, and their verification.
fn round_s(
    profile: &dyn PassTimes,
    requests: u32,
    steps: u32,
    context: u32,
    reads: ContextReads,
    drafting: Drafting,
) -> f64 {
    let (requests, steps, context) = (requests.into(), u64::from(steps), u64::from(context));
    let draft = |each, context| profile.draft_s(uniform_pass(requests, each, context, ContextReads::Once));
    let drafts: f64 = match drafting {
        Drafting::Parallel => draft(steps, context),
        _ => (0..steps).map(|j| draft(1, context + j)).sum(),
    };
    drafts + profile.target_s(uniform_pass(requests, steps + 1, context, reads))
}

/// The policy `sglang-throughput` while the engine runs: its settings, and what it keeps from step to step.
struct BestScore {
    params: SglangThroughput,
    max_draft_len: u32,
    router: Router,
    table: CostTable,
    tracker: Tracker,
    /// The draft length that the last decision chose. It is in use at every batch size until the next decision.
    steps: u32,
    batches: u64,
    /// Number of decode requests of the last batch. `explain` computes the policy's estimate for this batch size.
    batch_size: u32,
    weighed: Weighed,
}

impl BestScore {
    fn new(params: &SglangThroughput, context: &PolicyContext) -> BestScore {
        let router =
            Router::new(params.slots.iter().map(|s| s.batch_size).collect(), captured_sizes(context.max_num_seqs));
        let longest = params.longest();
        let listed = params.slots.iter().any(|s| s.candidates.contains(&params.initial_steps));
        let first = &params.slots[0].candidates;
        BestScore {
            table: CostTable::profile(params, &router, longest, context),
            tracker: Tracker::new(params.window_size as usize, longest as usize),
            steps: if listed { params.initial_steps } else { first[first.len() / 2] },
            params: params.clone(),
            max_draft_len: context.max_draft_len,
            router,
            batches: 0,
            batch_size: 0,
            weighed: Weighed::default(),
        }
    }

    /// True if this step decides about the draft length: the interval between decisions is over, the window of
    /// acceptance rates is full at every position of the present length, and at least one batch size was timed.
    fn due(&self) -> bool {
        self.batches > 0
            && self.batches.is_multiple_of(self.params.update_interval.into())
            && self.tracker.warm(self.steps)
            && !self.table.batch_sizes.is_empty()
    }

    /// The score of the draft length `steps`: expected tokens per second of one request in a batch of this size. `None`
    /// if an acceptance rate or the time of a step is not known.
    fn score(&self, steps: u32, batch_size: u32) -> Option<f64> {
        Some(self.tracker.expected_tokens(steps)? / self.table.at(batch_size, steps)?)
    }

    /// Sets `steps`, the draft length, to the candidate with the best score (expected tokens per second) for this batch
    /// size, the shortest one on a tie. The present length stays if no candidate has a score, or if the best score is
    /// not higher by more than `switch_hysteresis`. If the length falls, the acceptance rates of the positions beyond
    /// it are cleared.
    fn decide(&mut self, batch_size: u32) {
        self.weighed.begin();
        let mut best = (f64::NEG_INFINITY, self.steps);
        let mut present = f64::NEG_INFINITY;
        for &steps in &self.params.slots[self.router.slot(batch_size)].candidates {
            let Some(score) = self.score(steps, batch_size) else { continue };
            if score > best.0 {
                best = (score, steps);
            }
            if steps == self.steps {
                present = score;
            }
            self.weighed.note(score, || format!("{steps} steps"));
        }
        let margin = self.params.switch_hysteresis;
        if margin > 0.0 && best.0 <= present * (1.0 + margin) {
            return;
        }
        if best.1 < self.steps {
            self.tracker.clear_from(best.1);
        }
        self.steps = best.1;
    }
}

impl SpecPolicy for BestScore {
    /// The engine's limit on the draft length of the next step: the present draft length. If the next batch brings a
    /// decision, it is the longest length that may be chosen.
    fn limits(&self) -> DraftLimits<'_> {
        let most = if self.due() { self.params.longest() } else { self.steps };
        DraftLimits::chain(most.min(self.max_draft_len))
            .up_to(self.params.longest().max(self.steps).min(self.max_draft_len))
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.batch_size = batch.len() as u32;
        self.weighed.begin();
        if self.due() {
            self.decide(self.batch_size);
        }
        plan.fill(self.steps.min(self.max_draft_len));
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        if outcome.verified.iter().any(|&v| v > 0) {
            self.tracker.take_in(outcome, self.steps);
            self.batches += 1;
        }
    }

    fn warnings(&self) -> Vec<String> {
        match self.table.batch_sizes.is_empty() {
            true => vec![format!("sglang-throughput profiled no batch size, so it stays at {} steps", self.steps)],
            false => Vec::new(),
        }
    }

    fn explain(&mut self) -> Explanation {
        let estimate = self.score(self.steps, self.batch_size);
        self.weighed.explain(estimate)
    }
}

#[cfg(test)]
#[path = "throughput_tests.rs"]
mod tests;
