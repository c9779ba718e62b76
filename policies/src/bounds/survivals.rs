//! The survival of every draft token of a batch: the probability that the token and all before it are accepted. It
//! depends on what a bound (a policy that shows how well a server could do at best) knows.

use crate::bounds::knows::Knowledge;
use crate::bounds::posterior::Posteriors;
use foretoken_sim::{BatchView, RequestId, StepOutcome, Truth};

/// For the newest batch that [`look`](Survivals::look) was called with: each draft token's survival, that is, the
/// probability that it is accepted together with all before it. Also what past steps say about each request's
/// acceptance rate.
#[derive(Default)]
pub(crate) struct Survivals {
    posteriors: Posteriors,
    /// The most draft tokens that any request may have in a step.
    longest: usize,
    /// For each request of the batch and each depth: the survival of the draft token (the probability that it and all
    /// before it are accepted); `longest` entries a request.
    survival: Vec<f64>,
    /// For each request of the batch: the most draft tokens that the policy considers. This is the request's limit;
    /// with [`Knowledge::Lengths`] the draft tokens also end before the request's last output token.
    most: Vec<u32>,
}

impl Survivals {
    /// Computes, for each draft token of the batch, the probability that it is accepted together with all before it,
    /// for at most `longest` draft tokens a request.
    pub fn look(&mut self, batch: &BatchView, truth: &Truth, longest: u32, knowledge: Knowledge) {
        let hidden = truth.hidden.expect("the event clock knows its requests");
        let law = hidden.law().expect("the experiment was checked for a law");
        self.longest = longest as usize;
        self.survival.clear();
        self.survival.resize(batch.len() * self.longest, 0.0);
        self.most.clear();
        for (i, &id) in batch.ids.iter().enumerate() {
            let mut most = batch.limit[i].min(longest);
            if knowledge >= Knowledge::Lengths {
                // A request's last output token is the target's own, so a draft token for it would be of no use.
                most = most.min(hidden.request(id).output_len.saturating_sub(batch.emitted[i] + 1));
            }
            // Tokens beyond a request's limit on draft tokens are not drafted, so the policy may not use their
            // confidences as evidence.
            let row = &mut self.survival[i * self.longest..][..most as usize];
            let confidences = knowledge >= Knowledge::Confidences;
            self.posteriors.survival(hidden, law, id, batch.emitted[i], confidences, row);
            self.most.push(most);
        }
    }

    /// The greatest draft length, in tokens, that the policy considers for request `i` of the batch.
    pub fn most(&self, i: usize) -> u32 {
        self.most[i]
    }

    /// The probability that the draft token of request `i` at `depth` (from 1) is accepted together with all before it.
    pub fn at(&self, i: usize, depth: u32) -> f64 {
        self.survival[i * self.longest + depth as usize - 1]
    }

    /// Stores the chosen draft lengths, so that the policy can learn from the outcomes of these draft tokens.
    pub fn proposed(&mut self, batch: &BatchView, draft_len: &[u32]) {
        for ((&id, &start), &len) in batch.ids.iter().zip(batch.emitted).zip(draft_len) {
            self.posteriors.propose(id, start, len);
        }
    }

    /// Stores the outcomes of a step. They change the survivals (probabilities of acceptance) that the next call of
    /// `look` computes.
    pub fn observe(&mut self, outcome: &StepOutcome) {
        self.posteriors.observe(outcome);
    }

    /// Removes what the policy has concluded about the acceptance rate of request `id`, which has ended.
    pub fn end(&mut self, id: RequestId) {
        self.posteriors.end(id);
    }
}
