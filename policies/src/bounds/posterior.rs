//! The survival of draft tokens, for a bound (a policy that shows how well a server could do at best). The bound knows
//! the acceptance law and what a server has observed. Survival is the probability that a token and all before it are
//! accepted.
//!
//! A request's own acceptance rate is unknown: it is one of several hypotheses. Each output position has a bit, which
//! is true if a draft token at that position would be right. Under one hypothesis the bits are a Markov chain
//! ([`Law`]). A round (a request's draft tokens of one step) shows the bits of its accepted draft tokens, all true, and
//! one false bit if a draft token was rejected. The filter updates the weight of each hypothesis and, for each
//! hypothesis, the probability that the newest bit is true. This is exact for a chain with a hidden constant rate. The
//! confidences of drafted tokens are evidence as well, before and after the first rejected token.

use crate::shared::slots::Slots;
use foretoken_sim::acceptance::{Hidden, Law, RequestTruth};
use foretoken_sim::{MAX_SPEC_LEN, RequestId, StepOutcome};
use std::collections::VecDeque;

/// Number of depths for which survival (the probability that a draft token and all before it are accepted) is stored:
/// the most draft tokens of a request in a step.
const DEPTHS: usize = MAX_SPEC_LEN as usize;

/// For each request that has not ended, what a bound (a policy that shows how well a server could do at best) has
/// concluded about its acceptance rate from the steps so far.
#[derive(Default)]
pub(crate) struct Posteriors {
    slots: Slots,
    requests: Vec<Posterior>,
    /// Buffers for the request whose survival (the probability that a draft token and all before it are accepted) is
    /// being computed.
    scratch: Scratch,
}

/// What the policy has concluded about one request's acceptance rate and its newest token.
#[derive(Default)]
struct Posterior {
    /// Probability of each hypothesis about the request's acceptance rate.
    weights: Vec<f64>,
    /// For each hypothesis about the acceptance rate: the probability that a draft token at the output position
    /// `position` would be right.
    last_right: Vec<f64>,
    /// Output position of the newest token that the observed steps have emitted; 0 before the request's first step with
    /// an outcome.
    position: u32,
    /// The request's steps for which the policy has chosen a draft length and has not observed the outcome yet, each as
    /// (output position of the first draft token, number of draft tokens).
    proposed: VecDeque<(u32, u32)>,
    /// Outcomes of the request's steps that were observed and have not updated the weights of the hypotheses yet.
    observed: VecDeque<Round>,
}

/// The outcome of one request's round (its draft tokens of one step): the output position of the first draft token, and
/// how many tokens were drafted, verified and accepted.
#[derive(Clone, Copy)]
struct Round {
    start: u32,
    drafted: u32,
    verified: u32,
    accepted: u32,
}

#[derive(Default)]
struct Scratch {
    /// Copies of `weights` and `last_right` of the request's [`Posterior`], one value for each hypothesis about the
    /// acceptance rate. `last_right` is moved on to the output position before the present step's draft tokens.
    weights: Vec<f64>,
    last_right: Vec<f64>,
}

impl Posteriors {
    /// Stores the outcomes of a step's requests. The next call of [`survival`](Posteriors::survival) for a request uses
    /// its outcome.
    pub fn observe(&mut self, outcome: &StepOutcome) {
        for (i, &id) in outcome.ids.iter().enumerate() {
            let Some(slot) = self.slots.get(id) else { continue };
            let (drafted, verified, accepted) = (outcome.drafted[i], outcome.verified[i], outcome.accepted[i]);
            let posterior = &mut self.requests[slot];
            // A proposal that is older than the outcome and has another number of draft tokens got no outcome, because
            // its request was preempted. It is dropped.
            while let Some((start, len)) = posterior.proposed.pop_front() {
                if len == drafted {
                    posterior.observed.push_back(Round { start, drafted, verified, accepted });
                    break;
                }
            }
        }
    }

    /// Removes what the policy has concluded about request `id`, which has ended.
    pub fn end(&mut self, id: RequestId) {
        self.slots.free(id);
    }

    /// Stores that the step proposed a round (a request's draft tokens of one step): `len` tokens from output position
    /// `start`.
    pub fn propose(&mut self, id: RequestId, start: u32, len: u32) {
        if let Some(slot) = self.slots.get(id) {
            self.requests[slot].proposed.push_back((start, len));
        }
    }

    /// Writes into `out` the probability that each of the first `out.len()` draft tokens of the step, from output
    /// position `start`, is accepted together with all tokens before it. If `confidences` is true, the bound also knows
    /// the confidences of all these tokens. First, the outcomes that [`observe`](Posteriors::observe) stored since the
    /// last call update what the bound has concluded about the request.
    pub fn survival(
        &mut self,
        hidden: Hidden,
        law: &dyn Law,
        id: RequestId,
        start: u32,
        confidences: bool,
        out: &mut [f64],
    ) {
        let request = hidden.request(id);
        let (slot, new) = self.slots.take(id);
        if self.requests.len() <= slot {
            self.requests.resize_with(slot + 1, Posterior::default);
        }
        let posterior = &mut self.requests[slot];
        if new {
            posterior.begin(law, request);
        }
        while let Some(round) = posterior.observed.pop_front() {
            posterior.take_in(law, hidden, (id, request), round);
        }
        let now = &mut self.scratch;
        now.weights.clone_from(&posterior.weights);
        now.last_right.clone_from(&posterior.last_right);
        for position in posterior.position + 1..start {
            pass_unknown(law, request, position, &mut now.last_right);
        }
        let evidence = |depth: usize| match confidences {
            true => law.evidence(hidden.confidence(id, start, depth as u32), depth as u32),
            false => None,
        };
        let mut seen = [None; DEPTHS];
        (0..out.len()).for_each(|depth| seen[depth] = evidence(depth));
        survival_given(law, request, start, now, &seen[..out.len()], out);
    }
}

impl Posterior {
    fn begin(&mut self, law: &dyn Law, request: RequestTruth) {
        law.prior(request, &mut self.weights);
        // The token at position 0 comes from the prefill, and no position precedes it. A draft token there counts as
        // right with the probability that the Markov chain of right and wrong draft tokens has in the long run.
        let stationary = |h: usize| {
            let [wrong, right] = [false, true].map(|before| law.right_after(request, h, 0, 0, before));
            wrong / (1.0 - right + wrong).max(1e-12)
        };
        self.last_right.clear();
        self.last_right.extend((0..self.weights.len()).map(stationary));
        self.position = 0;
        self.proposed.clear();
        self.observed.clear();
    }

    /// Updates the weights of the hypotheses and `last_right` with the outcome of a round (the draft tokens of the
    /// request `id` in one step). `last_right` has, for each hypothesis, the probability that a draft token at the
    /// newest position is right.
    fn take_in(&mut self, law: &dyn Law, hidden: Hidden, (id, request): (RequestId, RequestTruth), round: Round) {
        for position in self.position + 1..round.start {
            pass_unknown(law, request, position, &mut self.last_right);
        }
        let mut seen = [None; DEPTHS];
        for depth in 0..round.drafted {
            seen[depth as usize] = law.evidence(hidden.confidence(id, round.start, depth), depth);
        }
        let rejected = round.accepted < round.verified;
        let mut total = 0.0;
        for (h, (weight, last)) in self.weights.iter_mut().zip(&mut self.last_right).enumerate() {
            let mut chain = Chain::new(law, request, h, round.start, *last);
            for _ in 0..round.accepted {
                *weight *= chain.next();
                chain.was(true);
            }
            // The position after the accepted tokens holds the target's own token. A draft token there is known to be
            // wrong if one was rejected there. Else it is unknown whether a draft token would be right.
            let mut right = chain.next();
            if round.accepted == 0 {
                // Prompt lookup may propose no token at this position. That counts as a wrong token.
                right = given_proposal(law, right, hidden.proposes(id, round.start));
            }
            if rejected {
                *weight *= 1.0 - right;
            }
            *last = if rejected { 0.0 } else { right };
            // Only the confidences of the first `decided` draft tokens are evidence about the request's acceptance
            // rate. After a rejected draft token all later ones count as wrong. Without a rejection, draft tokens that
            // were not verified may be right or wrong.
            let decided = if rejected { round.drafted } else { round.accepted };
            for depth in 0..decided {
                if let Some(z) = seen[depth as usize] {
                    *weight *= density(law, request, h, round.start, depth, z, depth < round.accepted);
                }
            }
            total += *weight;
        }
        if total > 0.0 {
            self.weights.iter_mut().for_each(|weight| *weight /= total);
        } else {
            law.prior(request, &mut self.weights);
        }
        self.position = round.start + round.accepted;
    }
}

/// The probability that the first draft token of a request in a step is right, once it is known whether prompt lookup
/// `proposes` a token there. `right` is the probability without this knowledge. Returns 0 if prompt lookup proposes no
/// token.
fn given_proposal(law: &dyn Law, right: f64, proposes: bool) -> f64 {
    match proposes {
        true => right / (right + (1.0 - right) * law.proposes_if_wrong()).max(1e-300),
        false => 0.0,
    }
}

/// For a position without a draft token: moves the probabilities `last_right` on to the output position `position`. It
/// is not observed whether a draft token there would be right.
fn pass_unknown(law: &dyn Law, request: RequestTruth, position: u32, last_right: &mut [f64]) {
    for (h, last) in last_right.iter_mut().enumerate() {
        *last = Chain::new(law, request, h, position, *last).next();
    }
}

/// Walks over the output positions of a request's draft tokens of one step under one hypothesis about the acceptance
/// rate. Gives the probability that a draft token is right at each.
struct Chain<'a> {
    law: &'a dyn Law,
    request: RequestTruth,
    hypothesis: usize,
    start: u32,
    depth: u32,
    /// Probability that a draft token at the output position before the present one is right; 0 or 1 if this is known.
    before: f64,
}

impl<'a> Chain<'a> {
    fn new(law: &'a dyn Law, request: RequestTruth, hypothesis: usize, start: u32, before: f64) -> Chain<'a> {
        Chain { law, request, hypothesis, start, depth: 0, before }
    }

    /// The probability that a draft token at the output position where the walk stands is right.
    fn next(&self) -> f64 {
        let right =
            |before| self.law.right_after(self.request, self.hypothesis, self.start + self.depth, self.depth, before);
        match self.before {
            1.0 => right(true),
            0.0 => right(false),
            p => p * right(true) + (1.0 - p) * right(false),
        }
    }

    /// Moves on to the next output position. `right` says whether the draft token at the present position is right.
    fn was(&mut self, right: bool) {
        self.before = f64::from(u8::from(right));
        self.depth += 1;
    }
}

/// The probability density of `z` under the hypothesis `h` about the acceptance rate, for a draft token that is right
/// or wrong (`right`). `z` is the evidence that the token's confidence gives, in log-odds. A factor that all hypotheses
/// share is left out.
fn density(law: &dyn Law, request: RequestTruth, h: usize, start: u32, depth: u32, z: f64, right: bool) -> f64 {
    let (mean, sd) = law.evidence_spread(request, h, start + depth, depth);
    let rate = law.confidence_rate(request, h, start + depth, depth).clamp(1e-9, 1.0 - 1e-9);
    let prior = (-(z - mean) * (z - mean) / (2.0 * sd * sd)).exp().max(1e-300);
    let sure = 1.0 / (1.0 + (-z).exp());
    prior * if right { sure / rate } else { (1.0 - sure) / (1.0 - rate) }
}

/// Writes into `out` the survival of a request's draft tokens of one step (the probability that a token and all before
/// it are accepted). `seen`: the evidence of each token's confidence, `None` where it is unknown.
fn survival_given(
    law: &dyn Law,
    request: RequestTruth,
    start: u32,
    now: &Scratch,
    seen: &[Option<f64>],
    out: &mut [f64],
) {
    let len = out.len();
    out.fill(0.0);
    if len == 0 {
        return;
    }
    let mut total = 0.0;
    // For each number of accepted draft tokens: the probability that exactly this number is accepted, not yet divided
    // by the sum of all.
    let mut ends = [0.0; DEPTHS + 1];
    let informed = seen.iter().any(Option::is_some);
    for (h, &weight) in now.weights.iter().enumerate() {
        if weight <= 0.0 {
            continue;
        }
        let mut chain = Chain::new(law, request, h, start, now.last_right[h]);
        // For each depth: the relative density of the evidence of the draft token's confidence if the token is wrong,
        // and if it is right; 1 without evidence.
        let mut wrong = [1.0; DEPTHS];
        let mut right = [1.0; DEPTHS];
        if informed {
            for depth in 0..len {
                if let Some(z) = seen[depth] {
                    let at = |right| density(law, request, h, start, depth as u32, z, right);
                    (wrong[depth], right[depth]) = (at(false), at(true));
                }
            }
        }
        // For each number r of accepted draft tokens: the density of the evidence (of confidences) of all tokens from
        // the first wrong one on. All these tokens count as wrong.
        let mut behind = [1.0; DEPTHS + 1];
        for depth in (0..len).rev() {
            behind[depth] = behind[depth + 1] * wrong[depth];
        }
        let mut reach = weight;
        for depth in 0..len {
            let mut next = chain.next();
            if depth == 0 {
                next = given_proposal(law, next, true);
            }
            ends[depth] += reach * (1.0 - next) * behind[depth];
            reach *= next * right[depth];
            chain.was(true);
        }
        ends[len] += reach;
    }
    total += ends[..=len].iter().sum::<f64>();
    let mut tail = ends[len];
    for depth in (0..len).rev() {
        out[depth] = if total > 0.0 { tail / total } else { 0.0 };
        tail += ends[depth];
    }
}

#[cfg(test)]
#[path = "posterior_tests.rs"]
mod tests;
