//! `measured-two-arm`: runs one of two draft lengths, the held one. Now and then it tries the other for a window of
//! steps, and then holds the length that emitted more tokens per second.
//!
//! Source: lablup/mlxcel PR #1295 (2026-08-22), `BlockThroughputController`. It decides by measured time, which
//! includes costs that accepted counts do not show.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, MAX_SPEC_LEN, SpecPolicy, Speculation, StepOutcome};
use serde::{Deserialize, Serialize};

/// Number of windows (a set number of steps each) for which a newly adopted draft length is held before the other
/// length is tried again. Each lost trial in a row multiplies this number by four, up to `LONGEST_WAIT`. The first
/// trial of a run comes after one window.
const WAIT: u32 = 4;
const LONGEST_WAIT: u32 = 64;

/// Settings of the policy `measured-two-arm`, which tries two draft lengths and holds the one with more tokens per
/// second. The user sets the two lengths; the defaults of the other settings are mlxcel's values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MeasuredTwoArm {
    /// Draft tokens per request and step at the start, 1 to 32.
    pub configured: u32,
    /// The other draft length, in tokens, which is tried against `configured`, 1 to 32.
    pub requested: u32,
    /// Number of steps (drafting and verification) at the start of a run that are not measured.
    pub warmup_rounds: u32,
    /// Number of steps in a window over which tokens per second are measured, at least 1.
    pub window_rounds: u32,
    /// The other draft length replaces the present one if its measured window has more tokens a second by more than
    /// this share, ≥ 0.
    pub margin: f64,
    /// Number of steps of a trial of the other draft length before the trial may end early.
    pub abort_after: u32,
    /// A trial of the other draft length ends early if it has fewer tokens a second than the present one by more than
    /// this share, [0, 1].
    pub abort_behind: f64,
}

impl Default for MeasuredTwoArm {
    fn default() -> Self {
        MeasuredTwoArm {
            configured: 2,
            requested: 4,
            warmup_rounds: 8,
            window_rounds: 32,
            margin: 0.02,
            abort_after: 4,
            abort_behind: 0.35,
        }
    }
}

impl Definition for MeasuredTwoArm {
    fn about(&self) -> About {
        About {
            summary: "holds one of two lengths and tries the other for a window now and then, by measured tokens a \
                      second",
            source: "lablup/mlxcel PR #1295 (2026-08-22), BlockThroughputController",
            sees: "emitted tokens and time of past steps",
            differences: "the two lengths are the user's: 2 and 4 are an example. mlxcel serves one request at a \
                          time and leaves out rounds that the end of the output cuts short; here the batch has one \
                          length, and a round counts where everybody drafted all of it. A round's time is that of \
                          drafting and the target pass, prompts that ride along included",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        let key = if self.configured > self.requested { "configured" } else { "requested" };
        Some((key, self.configured.max(self.requested)))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("measured-two-arm");
        check.length("configured", self.configured)?;
        check.length("requested", self.requested)?;
        check.that("requested", self.requested != self.configured, || {
            format!("both lengths are {} (of at most {MAX_SPEC_LEN}); use fixed", self.requested)
        })?;
        check.that("window_rounds", self.window_rounds > 0, || "must be at least 1 round".into())?;
        check.that("margin", self.margin >= 0.0 && self.margin.is_finite(), || {
            format!("{} is not a share of 0 or more", self.margin)
        })?;
        check.share("abort_behind", self.abort_behind)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Arms::new(*self, context.max_draft_len)))
    }
}

/// Tokens and seconds, summed over the steps (drafting and verification) of a window in which one draft length is
/// measured.
#[derive(Clone, Copy, Default)]
struct Window {
    rounds: u32,
    tokens: u64,
    seconds: f64,
}

impl Window {
    fn rate(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }
}

/// The policy `measured-two-arm` while the engine runs: its settings, and what it keeps from step to step.
struct Arms {
    params: MeasuredTwoArm,
    lengths: [u32; 2],
    /// Index in `lengths` of the held draft length, which runs while the other length is not tried.
    held: usize,
    /// True while the draft length that is not held is tried (a challenge).
    challenge: bool,
    warmup: u32,
    window: Window,
    /// Tokens per second of the last window of steps with the held draft length.
    held_rate: f64,
    /// Number of windows of steps with the held draft length since the last challenge, that is, since the other length
    /// was last tried (`windows`), and the number after which the next challenge starts (`wait`).
    windows: u32,
    wait: u32,
    /// Number of challenges in a row in which the other draft length was tried and did not win.
    losses: u32,
}

impl Arms {
    fn new(params: MeasuredTwoArm, longest: u32) -> Arms {
        Arms {
            lengths: [params.configured.min(longest), params.requested.min(longest)],
            held: 0,
            challenge: false,
            warmup: params.warmup_rounds,
            window: Window::default(),
            held_rate: 0.0,
            windows: 0,
            wait: 1,
            losses: 0,
            params,
        }
    }

    fn length(&self) -> u32 {
        self.lengths[self.held ^ usize::from(self.challenge)]
    }

    /// Adds one step with the present draft length; a step of the warm-up is only counted, not measured. Ends full
    /// windows of steps, and starts and ends challenges, that is, windows in which the other length is tried.
    fn round(&mut self, tokens: u64, seconds: f64) {
        if self.warmup > 0 {
            self.warmup -= 1;
            return;
        }
        self.window.rounds += 1;
        self.window.tokens += tokens;
        self.window.seconds += seconds;
        let (full, rate) = (self.window.rounds >= self.params.window_rounds, self.window.rate());
        match self.challenge {
            false if full => {
                self.held_rate = rate;
                self.windows += 1;
                self.challenge = self.windows >= self.wait;
                self.window = Window::default();
            }
            true if full && rate > self.held_rate * (1.0 + self.params.margin) => {
                self.held ^= 1;
                self.held_rate = rate;
                self.losses = 0;
                self.end_challenge();
            }
            true => {
                let behind = rate < self.held_rate * (1.0 - self.params.abort_behind);
                if full || (behind && self.window.rounds >= self.params.abort_after) {
                    self.losses = self.losses.saturating_add(1);
                    self.end_challenge();
                }
            }
            false => {}
        }
    }

    /// Ends a challenge, in which the other draft length was tried. The held length then runs for 4 windows of steps if
    /// it has just won the challenge, for 16 if one challenge was lost, and for 64 if two or more were lost in a row.
    fn end_challenge(&mut self) {
        self.challenge = false;
        self.window = Window::default();
        self.windows = 0;
        self.wait = 4u32.saturating_pow(self.losses).saturating_mul(WAIT).min(LONGEST_WAIT);
    }
}

impl SpecPolicy for Arms {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.length()).up_to(self.lengths[0].max(self.lengths[1]))
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.length());
    }

    /// Counts a step only if every request drafted the present length. Steps in which a request drafted fewer tokens,
    /// and late outcomes of steps with the other length, are left out.
    fn observe(&mut self, outcome: &StepOutcome) {
        let length = self.length();
        if !outcome.drafted.is_empty() && outcome.drafted.iter().all(|&drafted| drafted == length) {
            let accepted: u64 = outcome.accepted.iter().map(|&a| u64::from(a)).sum();
            let seconds = outcome.draft_time.as_s() + outcome.verify_time.as_s();
            self.round(accepted + outcome.accepted.len() as u64, seconds);
        }
    }
}

#[cfg(test)]
#[path = "measured_two_arm_tests.rs"]
mod tests;
