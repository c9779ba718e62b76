//! `measured-cost-depth`: the draft length with the most expected tokens per measured time of a step. The policy learns
//! acceptance rates and times while serving. Now and then other lengths are tried for a few steps.
//!
//! Source: jundot/omlx `_DepthController`, `omlx/patches/mlx_lm_mtp/batch_generator.py` (v0.5.4rc1 and later; PRs
//! #3352, #3412). score(d) = (1 + p₁ + p₁p₂ + …) / t(d), where p_j is the acceptance rate of the j-th draft token and
//! t(d) is the time of a step with d draft tokens. omlx's depth 0, which switches drafting off, is left out, because
//! its constants were not found.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{BatchView, Candidate, DraftLimits, DraftPlan, Explanation, SpecPolicy, Speculation, StepOutcome};
use serde::{Deserialize, Serialize};

/// `START_RATE` is the acceptance rate of a position among a request's draft tokens before the first draft token at
/// this position was verified. `RATE_WEIGHT` is the weight of the newest token in the average of the position.
const START_RATE: f64 = 0.6;
const RATE_WEIGHT: f64 = 0.08;
/// Time constant of the moving average of a step's time: a step that takes this number of milliseconds gets the weight
/// 1 − 1/e.
const MEMORY_MS: f64 = 400.0;
/// A step (drafting and verification) that takes more than `OUTLIER` times the average time of its draft length enters
/// the average with `OUTLIER_WEIGHT` of its usual weight.
const OUTLIER: f64 = 2.0;
const OUTLIER_WEIGHT: f64 = 0.25;
/// Assumed milliseconds, where measurements are missing. `PRIOR_BASE_MS` is the time of a step without draft tokens,
/// until a step of any draft length was measured. `PRIOR_ROW_MS` is the time that each draft token adds, until the
/// slowest of the measured lengths has more draft tokens than the fastest.
const PRIOR_BASE_MS: f64 = 30.0;
const PRIOR_ROW_MS: f64 = 7.0;
/// The policy changes to another draft length if the other length's score (expected tokens per millisecond) is better
/// by more than this share.
const MARGIN: f64 = 0.03;
/// A probe is a run of `PROBE_ROUNDS` steps with another draft length. The rival is the best other length. Probes of
/// the rival take at most the share `PROBE_SHARE` of the time. The rival is probed only if its score is lower than the
/// present length's score by at most the share `RIVAL_BEHIND`.
const PROBE_ROUNDS: u32 = 4;
const PROBE_SHARE: f64 = 0.15;
const RIVAL_BEHIND: f64 = 0.15;
/// Least milliseconds between two probes (a few steps with another draft length) of the best rival, and between two
/// probes of the length that was measured longest ago.
const RIVAL_EVERY_MS: f64 = 1000.0;
const STALEST_EVERY_MS: f64 = 5000.0;

/// Settings of the policy `measured-cost-depth`, which takes the draft length with the most expected tokens per
/// measured time. The constants are omlx's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MeasuredCostDepth {
    /// Most draft tokens of a request in a step, 1 to 32.
    pub max_depth: u32,
}

impl Default for MeasuredCostDepth {
    fn default() -> Self {
        MeasuredCostDepth { max_depth: 6 }
    }
}

impl Definition for MeasuredCostDepth {
    fn about(&self) -> About {
        About {
            summary: "the length with the most expected tokens per measured time of a round, with probes of other \
                      lengths",
            source: "jundot/omlx _DepthController, omlx/patches/mlx_lm_mtp/batch_generator.py (v0.5.4rc1 and later)",
            sees: "accepted counts and times of past steps",
            differences: "known from a port, not from omlx itself. Parking (depth 0) is left out: its constants were \
                          not found, and the longest draft is an example. The warm-up tries each length for one \
                          round. omlx serves a few requests; here the batch has one length, a round's time is that \
                          of drafting and the target pass whatever the batch, and the length of a round is what most \
                          was drafted of it. The wall clock is the sum of those times",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("max_depth", self.max_depth))
    }

    fn check(&self) -> Result<(), BadParameter> {
        Check("measured-cost-depth").length("max_depth", self.max_depth)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(DepthController::new(self.max_depth.min(context.max_draft_len))))
    }
}

/// What was measured of the steps with one draft length.
#[derive(Clone, Copy, Default)]
struct Measured {
    /// Average milliseconds of a step with this draft length; `None` before the first such step.
    ms: Option<f64>,
    /// When the last step with this draft length ended, in milliseconds of the policy's clock (the sum of all steps'
    /// times).
    at_ms: f64,
}

/// `measured-cost-depth` in a run: what it has learnt of each draft length. Vectors have an entry per length, from 1.
struct DepthController {
    longest: usize,
    /// For each position among a request's draft tokens of a step: the acceptance rate, given that all tokens before it
    /// are accepted.
    rate: Vec<f64>,
    measured: Vec<Measured>,
    clock_ms: f64,
    current: usize,
    /// Draft length of the next warm-up step. The warm-up goes from the longest length down to 1; 0 means that it is
    /// over.
    warmup: usize,
    /// The draft length that is probed (tried for a few steps), and the number of steps left of the probe.
    probe: Option<(usize, u32)>,
    /// The policy's clock (sum of all steps' times), in milliseconds, when a probe of the best other draft length was
    /// last due, and when a probe of the length measured longest ago was last due. At first both are the end of the
    /// warm-up.
    rival_at_ms: f64,
    stalest_at_ms: f64,
}

impl DepthController {
    fn new(longest: u32) -> DepthController {
        let longest = longest as usize;
        DepthController {
            longest,
            rate: vec![START_RATE; longest],
            measured: vec![Measured::default(); longest],
            clock_ms: 0.0,
            current: longest,
            warmup: longest,
            probe: None,
            rival_at_ms: 0.0,
            stalest_at_ms: 0.0,
        }
    }

    fn length(&self) -> usize {
        match self.probe {
            _ if self.warmup > 0 => self.warmup,
            Some((depth, _)) => depth,
            None => self.current,
        }
    }

    /// Milliseconds of a step with draft length `depth`. If this length was not measured, the time lies on the line
    /// through the fastest and the slowest measured length. The line has the slope `PRIOR_ROW_MS` if only one length
    /// was measured, or if the slowest length is the shorter one. Before any measurement, the time is `PRIOR_BASE_MS` +
    /// `PRIOR_ROW_MS` · `depth`.
    fn ms(&self, depth: usize) -> f64 {
        if let Some(ms) = self.measured[depth - 1].ms {
            return ms;
        }
        let known = || (1..).zip(&self.measured).filter_map(|(d, m)| m.ms.map(|ms| (d as f64, ms)));
        let (Some(cheap), Some(dear)) =
            (known().min_by(|a, b| a.1.total_cmp(&b.1)), known().max_by(|a, b| a.1.total_cmp(&b.1)))
        else {
            return PRIOR_BASE_MS + PRIOR_ROW_MS * depth as f64;
        };
        let slope = if dear.0 > cheap.0 { (dear.1 - cheap.1) / (dear.0 - cheap.0) } else { PRIOR_ROW_MS };
        // The line through measured times may fall to 0 at short lengths. No step is taken to be faster than a tenth of
        // the fastest measured step.
        (cheap.1 + slope * (depth as f64 - cheap.0)).max(0.1 * cheap.1)
    }

    /// The score of draft length `depth`: a request's expected tokens per millisecond.
    fn score(&self, depth: usize) -> f64 {
        let (mut reached, mut tokens) = (1.0, 1.0);
        for rate in &self.rate[..depth] {
            reached *= rate;
            tokens += reached;
        }
        tokens / self.ms(depth)
    }

    /// The draft length other than `depth` with the best score (expected tokens per millisecond), the shorter on a tie;
    /// `None` if there is no other.
    fn best_rival(&self, depth: usize) -> Option<usize> {
        let others = (1..=self.longest).filter(|&d| d != depth);
        others.max_by(|&a, &b| self.score(a).total_cmp(&self.score(b)).then(b.cmp(&a)))
    }

    /// Adds one step with draft length `depth`, which took `ms` milliseconds, to the average of this length and to the
    /// policy's clock (the sum of all steps' times). Counts the step for the warm-up or for the probe (a few steps with
    /// another length). If neither of the two goes on, decides about the next length.
    fn round(&mut self, depth: usize, ms: f64) {
        self.clock_ms += ms;
        let clock_ms = self.clock_ms;
        let measured = &mut self.measured[depth - 1];
        measured.at_ms = clock_ms;
        measured.ms = Some(match measured.ms {
            None => ms,
            Some(was) => {
                let weight = 1.0 - (-ms / MEMORY_MS).exp();
                let weight = if ms > OUTLIER * was { OUTLIER_WEIGHT * weight } else { weight };
                was + weight * (ms - was)
            }
        });
        if self.warmup > 0 {
            // A step of the warm-up counts also if the engine cut its draft length, so that the warm-up ends.
            self.warmup -= 1;
            if self.warmup > 0 {
                return;
            }
            (self.rival_at_ms, self.stalest_at_ms) = (clock_ms, clock_ms);
        }
        if let Some((probed, left)) = self.probe {
            self.probe = (left > 1).then_some((probed, left - 1));
        }
        if self.probe.is_none() {
            self.decide();
        }
    }

    /// Changes to the best other draft length (the rival) if its score (expected tokens per millisecond) is better by
    /// more than [`MARGIN`]. Otherwise starts a probe, a few steps with another length, if one is due. The length
    /// measured longest ago is probed, or the rival if its score is close.
    fn decide(&mut self) {
        let Some(rival) = self.best_rival(self.current) else { return };
        if self.score(rival) > self.score(self.current) * (1.0 + MARGIN) {
            self.current = rival;
            return;
        }
        let rival_every = RIVAL_EVERY_MS.max(f64::from(PROBE_ROUNDS) * self.ms(self.current) / PROBE_SHARE);
        let stalest_every = STALEST_EVERY_MS.max(2.0 * rival_every);
        if self.clock_ms - self.stalest_at_ms >= stalest_every {
            self.stalest_at_ms = self.clock_ms;
            let others = (1..=self.longest).filter(|&d| d != self.current);
            let measured_at = |d: usize| self.measured[d - 1].at_ms;
            let stalest = others.min_by(|&a, &b| measured_at(a).total_cmp(&measured_at(b)));
            self.probe = stalest.map(|depth| (depth, PROBE_ROUNDS));
        } else if self.clock_ms - self.rival_at_ms >= rival_every {
            self.rival_at_ms = self.clock_ms;
            let close = self.score(rival) >= self.score(self.current) * (1.0 - RIVAL_BEHIND);
            self.probe = close.then_some((rival, PROBE_ROUNDS));
        }
    }
}

impl SpecPolicy for DepthController {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(if self.longest == 0 { 0 } else { self.length() as u32 }).up_to(self.longest as u32)
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.limits().depth);
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        for (&accepted, &verified) in outcome.accepted.iter().zip(outcome.verified) {
            // At positions up to and including the first rejected draft token, it is known whether the draft token was
            // right.
            for (position, rate) in self.rate.iter_mut().enumerate().take(verified.min(accepted + 1) as usize) {
                let hit = if position < accepted as usize { 1.0 } else { 0.0 };
                *rate += RATE_WEIGHT * (hit - *rate);
            }
        }
        let depth = outcome.drafted.iter().copied().max().unwrap_or(0) as usize;
        if (1..=self.longest).contains(&depth) {
            self.round(depth, 1e3 * (outcome.draft_time.as_s() + outcome.verify_time.as_s()));
        }
    }

    fn explain(&mut self) -> Explanation {
        let one = |depth: usize| Candidate { what: format!("{depth} draft tokens"), estimate: 1e3 * self.score(depth) };
        Explanation {
            estimate: (self.longest > 0).then(|| 1e3 * self.score(self.length())),
            candidates: (1..=self.longest).map(one).collect(),
        }
    }
}

#[cfg(test)]
#[path = "measured_cost_depth_tests.rs"]
mod tests;
