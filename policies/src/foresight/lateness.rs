//! The price of lateness: what a second of a step costs beyond the price of time, if requests have a TPOT bound.
//!
//! A request keeps its bound if its decode time is at most bound × tokens. A second brings it 1/bound tokens closer to
//! being late. This matters most for a request that is about as fast as its bound: one that is far ahead keeps its
//! bound anyway, and one that is far behind misses it anyway. So a second costs a · Σ w/bound tokens more, with the
//! setting `lateness` as a, and a [`weight`] w for each request of the batch.
//!
//! The tokens of requests that are close to their bound get no higher value. Such requests are mostly requests whose
//! draft tokens are rejected. A shorter step helps them more than further draft tokens.

use crate::foresight::settings::Foresight;
use crate::shared::slots::Slots;
use foretoken_sim::{BatchView, RequestId, Time};

/// The average time per token of a new request starts as if the request had already made this number of tokens, each in
/// exactly its TPOT bound.
const PRIOR_TOKENS: f64 = 4.0;

/// The price of lateness gives each request a weight. The weight is 1 if the time per token is the TPOT bound, and
/// exp(−1/2) if it is above or below the bound by this share of the bound.
const WIDTH: f64 = 0.5;

/// The weight of a request in the price of lateness (what a second costs more because requests may miss their TPOT
/// bound). `ratio` is its time per token divided by its TPOT bound. The weight is 1 at the bound and falls to 0 on both
/// sides.
fn weight(ratio: f64) -> f64 {
    let off = (ratio - 1.0) / WIDTH;
    (-0.5 * off * off).exp()
}

/// The step in which a request was first seen to decode: when the step began, and how many output tokens the request
/// had.
#[derive(Clone, Copy, Debug)]
struct Start {
    at: Time,
    emitted: u32,
}

/// Computes the price of lateness: what a second costs more because requests are close to their TPOT bound. It uses the
/// times at which the requests began to decode.
pub(crate) struct Lateness {
    /// The setting `lateness`: the factor on the price of lateness (what a second costs more because requests may miss
    /// their TPOT bound); 0 for none.
    factor: f64,
    slots: Slots,
    /// For each request that has not ended: the step in which it began to decode. The index is the request's slot,
    /// which it keeps until it ends.
    starts: Vec<Start>,
}

impl Lateness {
    pub fn new(params: &Foresight) -> Lateness {
        Lateness { factor: params.lateness, slots: Slots::default(), starts: Vec::new() }
    }

    /// The price of lateness in this step: what a second costs in addition to the price of time, in tokens.
    pub fn price(&mut self, batch: &BatchView) -> f64 {
        if self.factor == 0.0 {
            return 0.0;
        }
        let bounded = (0..batch.len()).filter(|&i| batch.slo_tpot_s[i].is_finite());
        let sum: f64 = bounded.map(|i| weight(self.ratio(batch, i)) / batch.slo_tpot_s[i]).sum();
        self.factor * sum
    }

    /// The mean time per token of the batch's `i`-th request so far, divided by its TPOT bound.
    fn ratio(&mut self, batch: &BatchView, i: usize) -> f64 {
        let (slot, new) = self.slots.take(batch.ids[i]);
        let now = Start { at: batch.now, emitted: batch.emitted[i] };
        if slot == self.starts.len() {
            self.starts.push(now);
        } else if new {
            self.starts[slot] = now;
        }
        let start = self.starts[slot];
        let in_time = (now.at - start.at).as_s() / batch.slo_tpot_s[i];
        (in_time + PRIOR_TOKENS) / (f64::from(now.emitted - start.emitted) + PRIOR_TOKENS)
    }

    /// Removes the stored start of decoding of request `id`, which has ended.
    pub fn forget(&mut self, id: RequestId) {
        self.slots.free(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Batch;

    fn lateness(factor: f64) -> Lateness {
        Lateness::new(&Foresight { lateness: factor, ..Foresight::default() })
    }

    #[test]
    fn requests_near_their_bound_make_time_dear() {
        let price = |seconds: f64, tokens: u32| {
            let mut late = lateness(2.0);
            let mut batch = Batch::new(&[100], &[8]);
            batch.slo_tpot_s = vec![0.01];
            let at_first = late.price(&batch.view());
            assert!(
                (at_first - 200.0).abs() < 1e-9,
                "a new request counts as exactly as fast as its bound: {at_first}"
            );
            batch.emitted = vec![batch.emitted[0] + tokens];
            let started = batch.view().now.as_s();
            late.price(&BatchView { now: Time::from_s(started + seconds), ..batch.view() })
        };
        let near = price(1.0, 100);
        assert!((near - 200.0).abs() < 1e-9, "{near}");
        for (seconds, tokens) in [(1.0, 1000), (1.0, 20)] {
            let far = price(seconds, tokens);
            assert!(far < 0.3 * near, "{far}: {tokens} tokens in {seconds} s");
        }
    }

    #[test]
    fn without_bounds_or_factor_time_costs_no_more() {
        let mut batch = Batch::new(&[100], &[8]);
        assert_eq!(lateness(2.0).price(&batch.view()), 0.0, "no bound");
        batch.slo_tpot_s = vec![0.01];
        assert_eq!(lateness(0.0).price(&batch.view()), 0.0, "no factor");
    }
}
