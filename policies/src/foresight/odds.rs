//! The chance that a draft token is accepted if all tokens before it are. It comes from the token's confidence by a
//! curve that is learnt while serving, or from the depth alone.

use crate::foresight::memo::Memo;
use crate::vllm::acceptance_estimator::AcceptanceEstimator;
use foretoken_sim::{Drafts, StepOutcome};

/// Number of steps between refits of the curve from confidence to chance.
const REFIT_INTERVAL: u32 = 8;
/// How far a refit moves the curve's slope or an intercept at most. Without a limit the curve can jump to a chance of 0
/// for all tokens, and tokens with no chance are not verified, so that it never learns again.
const MOST_STEP: f32 = 1.0;
/// The prior chance of a token at depth 1, and its prior gain. Until a step with drafts is observed, it is the expected
/// chance at every depth.
const START: f64 = 0.6;
/// Weight, in tokens, of the prior in the average of a depth. The prior chance is the expected chance at the depth
/// before. A fixed prior could be too low, and would then keep the policy from depths that it has never tried.
const START_WEIGHT: f64 = 10.0;
/// Factor on the weights of earlier steps when a step is added.
const KEEP: f64 = 0.999;
/// As [`KEEP`], for the gains of tokens (worth minus cost of verification), which change with the price of time.
const KEEP_GAINS: f64 = 0.98;

/// Estimates the chance that draft tokens are accepted.
pub(crate) struct Odds {
    calibrate: bool,
    confidences: bool,
    curve: AcceptanceEstimator,
    /// Estimates of the curve for the tokens of the last steps.
    memo: Memo,
    /// By depth from 1: weighted sum of the chances of drafted tokens, and sum of their weights. Without confidences:
    /// number of accepted tokens, and number of tokens whose outcome was seen.
    by_depth: Vec<(f64, f64)>,
    /// By depth from 1: the chance expected of a token that is not drafted yet.
    expected: Vec<f64>,
    /// By depth from 1: the gain of a token that is not drafted yet, as (weighted sum, weight, expectation). The gain
    /// is the token's worth minus the cost of its verification, in tokens. It is never below 0, because a token that
    /// does not pay is not verified.
    gains: Vec<(f64, f64, f64)>,
}

impl Odds {
    /// Estimates for drafts of at most `longest` tokens.
    pub fn new(longest: u32, calibrate: bool, confidences: bool) -> Odds {
        Odds {
            calibrate,
            confidences,
            curve: AcceptanceEstimator::new(longest, REFIT_INTERVAL).with_steps_up_to(MOST_STEP),
            memo: Memo::new(longest),
            by_depth: vec![(0.0, 0.0); longest as usize + 1],
            expected: vec![START; longest as usize + 1],
            gains: vec![(0.0, 0.0, 1.0); longest as usize + 1],
        }
    }

    /// Begins a step of `n` requests.
    pub fn begin(&mut self, n: usize) {
        self.memo.begin(n);
    }

    /// The chance of the token of request `i` at `depth` (from 1), in the step that began last.
    pub fn chance(&mut self, drafts: &Drafts, i: usize, depth: u32) -> f64 {
        let at = depth as usize - 1;
        match (self.confidences, self.calibrate) {
            (false, _) => self.at_depth(depth),
            (true, true) => {
                let q = drafts.confidence(i, at);
                let estimate = self.curve.estimate(q, at);
                self.memo.note(i, at, q, estimate);
                estimate.chance()
            }
            (true, false) => drafts.confidence(i, at),
        }
    }

    /// The chance expected of a token at `depth` (from 1) that is not drafted yet.
    pub fn at_depth(&self, depth: u32) -> f64 {
        self.expected[depth as usize]
    }

    /// The expected gain of a token at `depth` (from 1) that is not drafted yet: its worth minus the cost of its
    /// verification, in tokens.
    pub fn gain_at(&self, depth: u32) -> f64 {
        self.gains[depth as usize].2
    }

    /// Learns the gains of a step's tokens at `depth` (from 1). `sum` is their sum over the `n` requests with a token
    /// at this depth.
    pub fn gained(&mut self, depth: u32, sum: f64, n: f64) {
        let at = depth as usize;
        let before = if at == 1 { START } else { self.gains[at - 1].2 * self.expected[at] };
        let (gain, weight, expected) = &mut self.gains[at];
        (*gain, *weight) = (*gain * KEEP_GAINS + sum, *weight * KEEP_GAINS + n);
        *expected = (*gain + START_WEIGHT * before) / (*weight + START_WEIGHT);
    }

    /// Learns from the outcome of a step: the chances by depth and, if confidences are calibrated, the curve. A step
    /// without drafts changes nothing.
    pub fn observe(&mut self, outcome: &StepOutcome) {
        if outcome.drafted.iter().all(|&d| d == 0) {
            return;
        }
        self.by_depth.iter_mut().for_each(|(sum, n)| (*sum, *n) = (*sum * KEEP, *n * KEEP));
        let drafts = outcome.drafts;
        for i in 0..outcome.ids.len() {
            if self.confidences {
                // All drafted tokens count, verified or not, because the verified ones were selected for a high chance.
                // A token is weighted by the chance that all before it are right, because confidences after a wrong
                // token say nothing.
                let mut reach = 1.0;
                for depth in 1..=outcome.drafted[i] {
                    let at = depth as usize - 1;
                    let q = drafts.confidence(i, at);
                    let chance = match self.calibrate {
                        true => self.memo.find(i, at, q).unwrap_or_else(|| self.curve.estimate(q, at)).chance(),
                        false => q,
                    };
                    let (sum, n) = &mut self.by_depth[depth as usize];
                    (*sum, *n) = (*sum + reach * chance, *n + reach);
                    reach *= chance;
                }
            } else {
                let accepted = outcome.accepted[i];
                for depth in 1..=outcome.verified[i].min(accepted + 1) {
                    let (sum, n) = &mut self.by_depth[depth as usize];
                    (*sum, *n) = (*sum + f64::from(u8::from(depth <= accepted)), *n + 1.0);
                }
            }
        }
        for depth in 1..self.by_depth.len() {
            let (sum, n) = self.by_depth[depth];
            let before = if depth == 1 { START } else { self.expected[depth - 1] };
            self.expected[depth] = (sum + START_WEIGHT * before) / (n + START_WEIGHT);
        }
        if self.confidences && self.calibrate {
            let before = self.curve.refits();
            self.curve.observe_known(outcome, |i, at| self.memo.find(i, at, drafts.confidence(i, at)));
            if self.curve.refits() > before {
                self.memo.forget();
            }
        }
    }
}
