//! `dsde`: a length for each request, from the divergences between draft and target in its last steps: from their size
//! and from how much they vary. A common cap limits the longest lengths.
//!
//! Source: DSDE (arXiv 2509.01083), `KLScheduler` and `coordinate_batch_k` in samsungsds-research-paper/DSDE
//! (`vllm/spec_decode/dynamic_scheduler.py`, `spec_decode_worker.py`, defaults from `vllm/config.py`); restated in
//! docs/model.md 7.6. After each verification the policy sets a request's next length k from x = WVIR · SF:
//!
//! - WVIR, the weighted variance intensity ratio, is the variance of the newest third of the request's divergences
//!   divided by the variance of its whole history. Newer divergences weigh more. WVIR is 20 if the history hardly
//!   varies, and 0 with fewer than two divergences.
//! - SF = exp(2 · mean divergence of the request in the step / temperature) − 1. At temperature 0 the mean divergence
//!   is not divided.
//! - k = ⌈(k_max − k_min)(1 − x) + k_min⌉ while x ≤ 1, else k_min. The cap on k is the mean of the batch's lengths,
//!   rounded up.
//!
//! Until its history is full, a new request doubles its length k after each step in which at least k draft tokens were
//! accepted. The history then fixes the request's k_max and k_min.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::shared::slots::Slots;
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, RequestId, SpecPolicy, Speculation, StepOutcome, Wants};
use serde::{Deserialize, Serialize};

/// Settings of the policy `dsde`, which sets each request's length from the divergences between draft and target. The
/// defaults are the published implementation's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dsde {
    /// Number of divergences between draft and target that are stored for each request, 2 to 10000
    /// (`dsl_activation_tokens`). The warm-up ends when the history is full.
    pub history: u32,
    /// When divergences are averaged, the weight of each relative to the next newer one, in (0, 1].
    pub decay: f64,
    /// The variance of the newest 1/`short_window` of a request's divergences is compared with the variance of all; at
    /// least 1.
    pub short_window: u32,
    /// Factor, ≥ 0, on the mean divergence between draft and target in SF = exp(`sensitivity` · mean divergence /
    /// temperature) − 1. The greater SF, the fewer tokens the request drafts.
    pub sensitivity: f64,
    /// Sampling temperature of the requests, ≥ 0.
    pub temperature: f64,
    /// Draft length of a new request, from 1 to `k_max` (`num_speculative_tokens`).
    pub initial: u32,
    /// Fewest draft tokens of a request in a step, from 1 to `k_max` (`min_spec_tokens`).
    pub k_min: u32,
    /// Most draft tokens of a request in a step, 1 to 32 (`max_spec_tokens`). A value above the engine's
    /// `max_draft_len` is cut to it.
    pub k_max: u32,
    /// True limits each request's draft length to the mean of the batch's lengths (`sl_cap_activation`).
    pub batch_cap: bool,
}

impl Default for Dsde {
    fn default() -> Self {
        Dsde {
            history: 100,
            decay: 0.9,
            short_window: 3,
            sensitivity: 2.0,
            temperature: 0.0,
            initial: 5,
            k_min: 6,
            k_max: 20,
            batch_cap: true,
        }
    }
}

impl Definition for Dsde {
    fn about(&self) -> About {
        About {
            summary: "a length per request from the size and steadiness of past divergences, capped at the batch's \
                      mean",
            source: "DSDE (arXiv 2509.01083), KLScheduler in samsungsds-research-paper/DSDE \
                     vllm/spec_decode/dynamic_scheduler.py",
            sees: "KL(target || draft) per verified position and accepted counts of past steps, per request",
            differences: "divergences are known up to the first rejected position, the artefact has them beyond: its \
                          step mean runs over all drafted positions, ours over the known ones, and its history fills \
                          faster. The batch cap is on; the artefact's configuration leaves it off unless asked. \
                          Bounds of 6 to 20 are cut to the engine's longest draft. A request without drafts in a \
                          step keeps its length",
        }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("dsde");
        check.that("history", (2..=10_000).contains(&self.history), || {
            format!("{} is not a number of divergences from 2 to 10000", self.history)
        })?;
        check.that("decay", self.decay > 0.0 && self.decay <= 1.0, || {
            format!("{} is not above 0 and at most 1", self.decay)
        })?;
        check.that("short_window", self.short_window > 0, || "must be at least 1".into())?;
        for (key, value) in [("sensitivity", self.sensitivity), ("temperature", self.temperature)] {
            check.that(key, value.is_finite() && value >= 0.0, || format!("{value} is not a number from 0"))?;
        }
        check.length("k_max", self.k_max)?;
        check.that("initial", (1..=self.k_max).contains(&self.initial), || {
            format!("{} is not from 1 to k_max ({})", self.initial, self.k_max)
        })?;
        check.that("k_min", (1..=self.k_max).contains(&self.k_min), || {
            format!("{} is not from 1 to k_max ({})", self.k_min, self.k_max)
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(*self, context)))
    }
}

/// The state of a request: its draft length in the next step, its shortest and longest draft length, and its position
/// in the ring buffer of divergences.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RequestState {
    /// The draft length of the request in its next step, in tokens.
    k: u32,
    /// The request's shortest and longest draft length, in tokens. The warm-up fixes them when the request's history of
    /// divergences is full. `None` before.
    bounds: Option<(u32, u32)>,
    /// Number of divergences in the request's ring buffer (`filled`), and the index at which the next divergence is
    /// written (`next`).
    filled: u32,
    next: u32,
    /// Collected during the request's warm-up: the most draft tokens accepted in a step; sum, number and maximum of the
    /// divergences between draft and target, in nats.
    most_accepted: u32,
    sum: f64,
    samples: u32,
    greatest: f64,
}

/// The policy `dsde` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    rule: Dsde,
    slots: Slots,
    /// The states of the requests. A state's index is the request's slot, which the request keeps until it ends.
    states: Vec<RequestState>,
    /// The last divergences of each request: `history` values per slot (the index that a request keeps until it ends),
    /// written as a ring.
    history: Vec<f64>,
    /// Weights of the divergences of one request with a full history, oldest first. A newer divergence weighs more.
    weights: Vec<f64>,
    /// Buffer for the divergences between draft and target of one request, oldest first, in nats.
    ordered: Vec<f64>,
    /// For each request of the observed step with verified draft tokens: its slot (index into `states`), its mean
    /// divergence in nats, and its next draft length before the cap (0 during the warm-up).
    step: Vec<(usize, f64, u32)>,
}

impl Running {
    fn new(rule: Dsde, context: &PolicyContext) -> Running {
        let cut = |k: u32| k.min(context.max_draft_len);
        let rule = Dsde { initial: cut(rule.initial), k_min: cut(rule.k_min), k_max: cut(rule.k_max), ..rule };
        let n = rule.history as i32;
        Running {
            slots: Slots::default(),
            states: Vec::new(),
            history: Vec::new(),
            weights: (0..n).map(|i| rule.decay.powi(n - 1 - i)).collect(),
            ordered: Vec::with_capacity(rule.history as usize),
            step: Vec::new(),
            rule,
        }
    }

    fn fresh(&self) -> RequestState {
        RequestState {
            k: self.rule.initial,
            bounds: None,
            filled: 0,
            next: 0,
            most_accepted: 0,
            sum: 0.0,
            samples: 0,
            greatest: 0.0,
        }
    }

    /// Copies the divergences of the request with the slot `place` (its index into `states`) from the ring into
    /// `ordered`, oldest first.
    fn order(&mut self, place: usize) {
        let (n, state) = (self.rule.history as usize, &self.states[place]);
        let ring = &self.history[place * n..][..n];
        let start = if state.filled == self.rule.history { state.next as usize } else { 0 };
        self.ordered.clear();
        self.ordered.extend_from_slice(&ring[start..state.filled as usize]);
        self.ordered.extend_from_slice(&ring[..start]);
    }

    /// Returns the next draft length of the request with the slot `place` (its index into `states`), before the cap.
    /// `mean` is its mean divergence in this step, in nats. Fills `ordered`.
    fn length(&mut self, place: usize, mean: f64, (k_min, k_max): (u32, u32)) -> u32 {
        self.order(place);
        let wvir = variance_ratio(&self.ordered, &self.weights, self.rule.short_window);
        let softened = if self.rule.temperature < 1e-8 { mean } else { mean / (self.rule.temperature + 1e-8) };
        let x = wvir * ((self.rule.sensitivity * softened).exp() - 1.0);
        if x <= 1.0 {
            let k = f64::from(k_max - k_min) * (1.0 - x) + f64::from(k_min);
            (k.ceil() as u32).max(k_min)
        } else {
            k_min
        }
    }

    /// Adds a step to the warm-up of the request with the slot `place` (its index into `states`). Stores the most draft
    /// tokens accepted so far and sums the divergences `newest`. If at least as many tokens as the draft length were
    /// accepted, the length doubles, up to `k_max`. Otherwise it stays, but is at least `k_min`.
    fn warm_up(&mut self, place: usize, accepted: u32, newest: impl Iterator<Item = f64>) {
        let state = &mut self.states[place];
        state.most_accepted = state.most_accepted.max(accepted);
        for nats in newest {
            state.sum += nats;
            state.samples += 1;
            state.greatest = state.greatest.max(nats);
        }
        state.k = match accepted >= state.k {
            true => (2 * state.k).max(1).min(self.rule.k_max),
            false => state.k.max(self.rule.k_min),
        };
    }

    /// Returns the shortest and longest draft length (k_min, k_max) that follow from a request's warm-up. If the
    /// warm-up collected nothing, they are the settings' `k_min` and `k_max`.
    fn bounds(&self, state: &RequestState) -> (u32, u32) {
        let (least, most) = (self.rule.k_min, self.rule.k_max);
        if state.most_accepted == 0 && state.samples == 0 {
            return (least, most);
        }
        let mean = if state.samples > 0 { state.sum / f64::from(state.samples) } else { 0.0 };
        let greatest = if state.greatest > 0.0 { state.greatest } else { 1.0 };
        let k_max = f64::from(state.most_accepted) * (1.0 + 0.5 * mean / greatest);
        let k_max = (k_max.round_ties_even() as u32).clamp(least, most);
        let k_min = ((f64::from(k_max) * 0.1).ceil() as u32).max(least).min(k_max);
        (k_min, k_max)
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.rule.k_max.max(self.rule.initial))
    }

    fn wants(&self) -> Wants {
        Wants::DIVERGENCE
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        for (len, &id) in plan.draft_len.iter_mut().zip(batch.ids) {
            let (least, most) = (self.rule.k_min, self.rule.k_max);
            *len = self.slots.get(id).map_or(self.rule.initial, |place| self.states[place].k.clamp(least, most));
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.step.clear();
        let (mut uncapped_sum, mut uncapped) = (0, 0);
        for (i, (&id, &verified)) in outcome.ids.iter().zip(outcome.verified).enumerate() {
            if verified == 0 {
                continue;
            }
            let (place, new) = self.slots.take(id);
            if new {
                let (places, n) = (self.states.len().max(place + 1), self.rule.history as usize);
                self.states.resize(places, self.fresh());
                self.history.resize(places * n, 0.0);
                self.states[place] = self.fresh();
            }
            let accepted = outcome.accepted[i];
            let positions = verified.min(accepted + 1) as usize;
            let nats = |j: usize| outcome.drafts.divergence(i, j);
            let ring = &mut self.history[place * self.rule.history as usize..][..self.rule.history as usize];
            let state = &mut self.states[place];
            for j in 0..positions {
                ring[state.next as usize] = nats(j);
                state.next = (state.next + 1) % self.rule.history;
                state.filled = (state.filled + 1).min(self.rule.history);
            }
            let mean = (0..positions).map(&nats).sum::<f64>() / positions as f64;
            let mut length = 0;
            match state.bounds {
                // The cap on the batch's draft lengths is the mean length of the requests whose warm-up had ended
                // before this step.
                Some(bounds) => {
                    length = self.length(place, mean, bounds);
                    uncapped_sum += length;
                    uncapped += 1;
                }
                None if state.filled < self.rule.history => {
                    self.warm_up(place, accepted, (0..positions).map(nats));
                }
                None => {}
            }
            self.step.push((place, mean, length));
        }
        let cap = if self.rule.batch_cap && uncapped > 0 { uncapped_sum.div_ceil(uncapped) } else { u32::MAX };
        for s in 0..self.step.len() {
            let (place, mean, mut length) = self.step[s];
            if self.states[place].bounds.is_none() {
                if self.states[place].filled < self.rule.history {
                    continue;
                }
                let bounds = self.bounds(&self.states[place]);
                self.states[place].bounds = Some(bounds);
                length = self.length(place, mean, bounds);
            }
            self.states[place].k = length.min(cap);
        }
    }

    fn request_finished(&mut self, id: RequestId) {
        self.slots.free(id);
    }
}

/// WVIR: the weighted variance of the newest 1/`short_window` of `values`, divided by the weighted variance of all
/// `values`. 0 for fewer than two values, 20 if all of them hardly vary. Both slices end with the newest value;
/// `weights` may be longer.
fn variance_ratio(values: &[f64], weights: &[f64], short_window: u32) -> f64 {
    let n = values.len();
    if n < 2 {
        return 0.0;
    }
    let older = n - (n / short_window as usize).max(1);
    let weights = &weights[weights.len() - n..];
    let short = Moments::of(&values[older..], &weights[older..]);
    let rest = Moments::of(&values[..older], &weights[..older]);
    let long = Moments([0, 1, 2].map(|i| short.0[i] + rest.0[i])).variance();
    if long < 1e-6 { 20.0 } else { short.variance() / long }
}

/// Σ w, Σ w x and Σ w x² over divergences x with weights w, so that each value is read once. For values of about ten
/// nats, a variance computed from these sums is wrong by about 1e-13. This is far below 1e-6, the variance with which
/// it is compared.
struct Moments([f64; 3]);

impl Moments {
    /// Computes Σ w, Σ w x and Σ w x² over the `values` x with their `weights` w. Each sum is split into four
    /// independent parts, so that the processor does not wait for one addition before the next.
    fn of(values: &[f64], weights: &[f64]) -> Moments {
        let mut lanes = [[0.0; 4]; 3];
        let (quads, weight_quads) = (values.chunks_exact(4), weights.chunks_exact(4));
        let tail = quads.remainder().iter().zip(weight_quads.remainder());
        for (lane, (&x, &w)) in tail.enumerate() {
            lanes[0][lane] += w;
            lanes[1][lane] += w * x;
            lanes[2][lane] += w * x * x;
        }
        for (xs, ws) in quads.zip(weight_quads) {
            for lane in 0..4 {
                let (x, w) = (xs[lane], ws[lane]);
                lanes[0][lane] += w;
                lanes[1][lane] += w * x;
                lanes[2][lane] += w * x * x;
            }
        }
        Moments(lanes.map(|sums| sums.iter().sum()))
    }

    /// The weighted variance: Σ w (x − x̄)² / Σ w with x̄ = Σ w x / Σ w.
    fn variance(&self) -> f64 {
        let [total, sum, squares] = self.0;
        (squares / total - (sum / total).powi(2)).max(0.0)
    }
}

#[cfg(test)]
#[path = "dsde_tests.rs"]
mod tests;
