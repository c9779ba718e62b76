//! The chance that a draft token is accepted if all tokens before it are accepted. The chance comes from the token's
//! confidence, by a curve that is learnt while serving. Without confidences it comes from the token's depth alone.

use crate::foresight::memo::Memo;
use crate::foresight::options::Options;
use crate::vllm::acceptance_estimator::AcceptanceEstimator;
use foretoken_sim::{Drafts, StepOutcome};

/// Number of steps between two fits of the curve from a token's confidence to its chance of acceptance.
const REFIT_INTERVAL: u32 = 8;
/// The curve gives a token's chance of acceptance from its confidence. One refit moves its slope and intercepts by at
/// most this amount. Without a limit the curve can jump to a chance of 0 for all tokens. Then no token is verified, and
/// the curve never learns again.
const MOST_STEP: f32 = 1.0;
/// The chance of acceptance that is expected at every depth until a step with draft tokens is observed. Later it is the
/// prior at depth 1.
const START: f64 = 0.6;
/// The average chance of acceptance at a depth starts from a prior, the expected chance at the depth before. This is
/// the prior's weight, in tokens. A fixed prior could be too low. It would then keep the policy from depths that it has
/// never tried.
pub(crate) const START_WEIGHT: f64 = 10.0;
/// The average chance of acceptance at each depth is over past steps. When a step is added, the weights of earlier
/// steps are multiplied by this factor.
const KEEP: f64 = 0.999;
/// Estimates the chance that a draft token is accepted if all tokens before it are, from its confidence or its depth.
pub(crate) struct Odds {
    calibrate: bool,
    confidences: bool,
    curve: AcceptanceEstimator,
    /// For the draft tokens of the last steps: the chance of acceptance that the curve (from confidence to chance) gave
    /// them.
    memo: Memo,
    /// For each depth from 1: (weighted sum of the drafted tokens' chances of acceptance, sum of their weights).
    /// Without confidences: (number of accepted draft tokens, number of draft tokens whose outcome was seen), where
    /// older steps weigh less.
    by_depth: Vec<(f64, f64)>,
    /// For each depth from 1: the chance that a draft token at this depth is accepted if all tokens before it are. It
    /// is the chance expected before the token is drafted.
    expected: Vec<f64>,
    /// The distribution of the chances of drafted tokens, by depth.
    options: Options,
}

impl Odds {
    /// The estimates before the first step, for at most `longest` draft tokens a request. With `calibrate` a curve from
    /// a token's confidence to its chance of acceptance is learnt. Without `confidences` chances of acceptance depend
    /// on a token's depth alone.
    pub fn new(longest: u32, calibrate: bool, confidences: bool) -> Odds {
        Odds {
            calibrate,
            confidences,
            curve: AcceptanceEstimator::new(longest, REFIT_INTERVAL).with_steps_up_to(MOST_STEP),
            memo: Memo::new(longest),
            by_depth: vec![(0.0, 0.0); longest as usize + 1],
            expected: vec![START; longest as usize + 1],
            options: Options::new(longest, START),
        }
    }

    /// Begins a step of `n` requests. No draft token of this step has an estimated chance of acceptance yet.
    pub fn begin(&mut self, n: usize) {
        self.memo.begin(n);
    }

    /// The chance that the draft token of request `i` at `depth` (from 1) is accepted if all tokens before it are. The
    /// token belongs to the step that began last.
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

    /// The chance that a draft token at `depth` (from 1) is accepted if all tokens before it are, as expected before
    /// the token is drafted.
    pub fn at_depth(&self, depth: u32) -> f64 {
        self.expected[depth as usize]
    }

    /// What a token at `depth` (from 1) that is not drafted yet is expected to give, in tokens, if all before it are
    /// accepted with probability `reach` and its verification costs `price` tokens. With `may_drop` a token that does
    /// not pay is dropped before it is verified; without, it is verified and may give less than nothing.
    #[inline]
    pub fn worth_at(&self, depth: u32, reach: f64, price: f64, may_drop: bool) -> f64 {
        match (may_drop, self.confidences) {
            (false, _) => reach * self.at_depth(depth) - price,
            // All tokens of a depth look alike.
            (true, false) => (reach * self.at_depth(depth) - price).max(0.0),
            (true, true) if reach > 0.0 => reach * self.options.above(depth, price / reach),
            (true, true) => 0.0,
        }
    }

    /// What a token at `depth` (from 1) is expected to give before anything is drafted, in tokens, if all before it are
    /// accepted with probability `reach`, its own chance included, its verification costs `price` tokens, and it is
    /// dropped before verification if it does not pay.
    #[inline]
    pub fn worth_ahead(&self, depth: u32, reach: f64, price: f64) -> f64 {
        if self.confidences { self.options.survival_above(depth, price) } else { (reach - price).max(0.0) }
    }

    /// Learns from the outcome of a step: the chance of acceptance at each depth and, if confidences are calibrated,
    /// the curve from confidence to chance. A step without draft tokens changes nothing.
    pub fn observe(&mut self, outcome: &StepOutcome) {
        if outcome.drafted.iter().all(|&d| d == 0) {
            return;
        }
        self.by_depth.iter_mut().for_each(|(sum, n)| (*sum, *n) = (*sum * KEEP, *n * KEEP));
        if self.confidences {
            self.options.fade(KEEP);
        }
        let drafts = outcome.drafts;
        for i in 0..outcome.ids.len() {
            if self.confidences {
                // All drafted tokens count, verified or not, because the verified ones were selected for a high chance
                // of acceptance. A token is weighted by the chance that all before it are right, because confidences
                // after a wrong token say nothing.
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
                    self.options.add(depth, chance, reach);
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
        if self.confidences {
            self.options.settle(START);
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
