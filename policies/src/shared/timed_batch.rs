//! The batch over which a policy times passes before serving starts. Normally it consists of made-up requests with the
//! same context. The command `foretoken decide` asks for a decision on one given batch; then that batch is timed.

use crate::definition::PolicyContext;
use crate::shared::profile::{PassTimes, uniform_pass};
use foretoken_sim::{ContextReads, Drafting, PassShape};

/// The batch whose passes a policy times before serving starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimedBatch<'a> {
    /// The batch is made up of requests with `context` KV tokens each. A target pass has one request for each of its
    /// tokens, but at most `most` requests. For draft passes the caller gives the number of requests.
    MadeUp {
        /// Most requests of a timed target pass: the engine's `max_num_seqs`, or fewer if the policy times smaller
        /// batches.
        most: u32,
        /// KV tokens of each made-up request.
        context: u64,
    },
    /// The batch about which the command `foretoken decide` asks: the contexts of its requests, in KV tokens. All its
    /// requests are in every pass, whatever the number of tokens. Requests that are added as padding have no context.
    Given(&'a [u32]),
}

impl<'a> TimedBatch<'a> {
    /// The batch about which the command `foretoken decide` asks, if there is one, else made-up requests with `context`
    /// KV tokens each.
    pub(crate) fn of(policy: &PolicyContext<'a>, context: u32) -> TimedBatch<'a> {
        match policy.told {
            Some(told) => TimedBatch::Given(told.contexts),
            None => TimedBatch::MadeUp { most: policy.max_num_seqs, context: context.into() },
        }
    }

    /// The size of a target pass over `tokens` new tokens, spread evenly over the requests of the batch.
    pub(crate) fn target_pass(self, tokens: u32, reads: ContextReads) -> PassShape {
        match self {
            TimedBatch::MadeUp { most, context } => spread_pass(tokens, most, context, reads),
            TimedBatch::Given(contexts) => {
                let (n, tokens) = (contexts.len() as u64, u64::from(tokens));
                let (each, longer) = (tokens / n, (tokens % n) as usize);
                let sum: u64 = contexts.iter().map(|&c| u64::from(c)).sum();
                let positions: u64 = contexts
                    .iter()
                    .enumerate()
                    .map(|(i, &c)| {
                        let own = (each + u64::from(i < longer)).max(1);
                        own * u64::from(c) + own * (own - 1) / 2
                    })
                    .sum();
                let context = if reads == ContextReads::Once { sum } else { positions };
                PassShape { requests: n, batched: tokens, context, pairs: positions + tokens }
            }
        }
    }

    /// Seconds in which the draft model makes `len` tokens for each of `requests` requests; `requests` includes
    /// padding.
    pub(crate) fn drafting_s(self, profile: &dyn PassTimes, drafting: Drafting, requests: u32, len: u32) -> f64 {
        // Seconds of the draft pass that makes `each` tokens per request, after earlier passes made `drafted` tokens
        // per request.
        let pass = |each: u32, drafted: u32| {
            let (each, drafted, rows) = (u64::from(each), u64::from(drafted), u64::from(requests));
            profile.draft_s(match self {
                TimedBatch::MadeUp { context, .. } => uniform_pass(rows, each, context + drafted, ContextReads::Once),
                TimedBatch::Given(contexts) => {
                    let context = contexts.iter().map(|&c| u64::from(c) + drafted).sum();
                    let pairs = |&c: &u32| uniform_pass(1, each, u64::from(c) + drafted, ContextReads::Once).pairs;
                    PassShape { requests: rows, batched: rows * each, context, pairs: contexts.iter().map(pairs).sum() }
                }
            })
        };
        match drafting {
            Drafting::Parallel => pass(len, 0),
            Drafting::Autoregressive => (0..len).map(|j| pass(1, j)).sum(),
        }
    }
}

/// A target pass over `tokens` new tokens. They are spread evenly over at most `most_requests` requests, at least one
/// token each. Each request has `context` KV tokens.
fn spread_pass(tokens: u32, most_requests: u32, context: u64, reads: ContextReads) -> PassShape {
    let requests = u64::from(tokens.min(most_requests).max(1));
    let (each, longer) = (u64::from(tokens) / requests, u64::from(tokens) % requests);
    let (some, others) =
        (uniform_pass(longer, each + 1, context, reads), uniform_pass(requests - longer, each, context, reads));
    PassShape {
        requests,
        batched: some.batched + others.batched,
        context: some.context + others.context,
        pairs: some.pairs + others.pairs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::BELIEF;

    #[test]
    fn tokens_spread_over_requests() {
        let pass = spread_pass(10, 4, 100, ContextReads::Once);
        assert_eq!((pass.batched, pass.context), (10, 400));
        // The pass has 10 new tokens for four requests with 100 tokens of context: two requests get 3 tokens, two get
        // 2.
        let positions = 2 * (100 + 101 + 102) + 2 * (100 + 101);
        assert_eq!(spread_pass(10, 4, 100, ContextReads::PerPosition).context, positions);
        assert_eq!((pass.pairs, spread_pass(3, 4, 100, ContextReads::Once).context), (positions + 10, 300));
    }

    #[test]
    fn a_given_batch_is_in_every_pass() {
        let batch = TimedBatch::Given(&[100, 7]);
        for tokens in [1, 2, 8] {
            let pass = batch.target_pass(tokens, ContextReads::Once);
            assert_eq!((pass.batched, pass.context), (tokens.into(), 107));
        }
        // The pass has 5 tokens: the request with a context of 100 gets three, the request with a context of 7 gets
        // two.
        let pass = batch.target_pass(5, ContextReads::PerPosition);
        assert_eq!((pass.context, pass.pairs), (100 + 101 + 102 + 7 + 8, 318 + 5));
    }

    #[test]
    fn drafting_follows_section_12() {
        // Three draft passes over requests that are padded to four rows of the batch. The contexts grow by one token
        // per request and pass.
        let per_pass = |context: f64| 0.5e-3 + 2e-6 * 4.0 + 1e-9 * context;
        let expected = per_pass(107.0) + per_pass(109.0) + per_pass(111.0);
        let given = TimedBatch::Given(&[100, 7]);
        assert!((given.drafting_s(&BELIEF, Drafting::Autoregressive, 4, 3) - expected).abs() < 1e-15);
        let block = given.drafting_s(&BELIEF, Drafting::Parallel, 2, 3);
        assert!((block - (0.5e-3 + 2e-6 * 6.0 + 1e-9 * 107.0)).abs() < 1e-15);
        let made_up = TimedBatch::MadeUp { most: 8, context: 50 };
        let expected = (0.5e-3 + 2e-6 * 2.0 + 1e-9 * 100.0) + (0.5e-3 + 2e-6 * 2.0 + 1e-9 * 102.0);
        assert!((made_up.drafting_s(&BELIEF, Drafting::Autoregressive, 2, 2) - expected).abs() < 1e-15);
    }
}
