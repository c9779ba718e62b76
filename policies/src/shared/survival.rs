//! Survival: the probability that a draft token and all before it are accepted. Engines decide two things by it: how
//! many draft tokens of a batch to verify, and which.
//!
//! Survival never rises from one draft token of a request to the next. Ties go to the smaller position. So of each
//! request, the tokens among the likeliest ones of a batch are always its first draft tokens. This module is shared by
//! `vllm-adaptive`, `dspark`, `tetris` and `verify-budget` (docs/model.md 6 and 7.1).

use crate::shared::weighed::Weighed;

/// The draft tokens of a batch, to be ranked by survival (the probability that a token and all before it are accepted).
/// Keeps its buffer between steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankedTokens {
    /// One sort key for each draft token: inverted survival (the probability that it and all before it are accepted),
    /// then position, then request. The token most likely to survive has the smallest key.
    keys: Vec<u128>,
}

impl RankedTokens {
    /// Empties the list of draft tokens to be ranked, for a new step.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }

    /// Adds the draft tokens of the request at batch index `request`, given their [`survivals`]. Leaves out the first
    /// token whose survival (the probability that a token and all before it are accepted) is below `least`, and all
    /// tokens after it.
    #[inline]
    pub(crate) fn push_draft(&mut self, request: usize, survivals: impl Iterator<Item = f64>, least: f64) {
        for (position, survival) in survivals.enumerate() {
            if survival < least {
                return;
            }
            // Survivals are probabilities and so not negative. Their bit patterns, read as integers, have the same
            // order as the survivals, so inverted bit patterns sort the likeliest token first.
            self.keys.push((u128::from(!survival.to_bits()) << 64) | ((position as u128) << 32) | request as u128);
        }
    }

    /// Writes into `verify_len`, for each request, the number of its tokens among the `budget` draft tokens most likely
    /// to survive in the batch. Ties go to the smaller position, then to the smaller request.
    pub(crate) fn allocate(&mut self, budget: usize, verify_len: &mut [u32]) {
        verify_len.fill(0);
        let kept = match budget < self.keys.len() {
            true => {
                self.keys.select_nth_unstable(budget);
                &self.keys[..budget]
            }
            false => &self.keys[..],
        };
        for &key in kept {
            verify_len[key as u32 as usize] += 1;
        }
    }

    /// The survivals of the batch's draft tokens (the probability that a token and all before it are accepted), in
    /// falling order.
    pub(crate) fn descending(&mut self) -> impl Iterator<Item = f64> + '_ {
        self.keys.sort_unstable();
        self.keys.iter().map(|&key| f64::from_bits(!((key >> 64) as u64)))
    }
}

/// The survival of each draft token of a request: the probability that it and all before it are accepted. `confidences`
/// are the probabilities of each token to be accepted if all before it are.
#[inline]
pub(crate) fn survivals(confidences: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    confidences.scan(1.0, |survival, confidence| {
        *survival *= confidence;
        Some(*survival)
    })
}

/// The number of draft tokens to verify that [`best_budget`] found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Budget {
    /// Number of draft tokens of the batch to verify in the step.
    pub tokens: usize,
    /// Expected tokens per second of the batch if this number of draft tokens is verified, by the policy's own cost
    /// tables.
    pub rate: f64,
}

/// Tries each number b of draft tokens to verify, from 0 up, and returns the b with the greatest `rate(expected tokens,
/// b)`; the smallest b wins a tie. The expected tokens are the sum of the b greatest survivals (probabilities of
/// acceptance) plus `sure`, the tokens that come without draft tokens. Each b and its rate are recorded in `weighed`,
/// the list of compared candidates.
pub(crate) fn best_budget(
    sure: f64,
    descending: impl Iterator<Item = f64>,
    rate: impl Fn(f64, usize) -> f64,
    weighed: &mut Weighed,
) -> Budget {
    // Survivals are summed before `sure` is added, as in the engines, because near ties depend on the last bit.
    let mut survive = 0.0;
    let mut best = Budget { tokens: 0, rate: f64::NEG_INFINITY };
    for (b, survival) in std::iter::once(0.0).chain(descending).enumerate() {
        survive += survival;
        let rate = rate(sure + survive, b);
        if rate > best.rate {
            best = Budget { tokens: b, rate };
        }
        weighed.note(rate, || format!("{b} draft tokens verified"));
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use itertools::Itertools;
    use proptest::prelude::*;

    /// Ranked draft tokens of a batch. `confidence` has one row per request with the confidences of its draft tokens.
    fn slots(confidence: &[Vec<f64>]) -> RankedTokens {
        let mut slots = RankedTokens::default();
        for (i, row) in confidence.iter().enumerate() {
            slots.push_draft(i, survivals(row.iter().copied()), 0.0);
        }
        slots
    }

    /// The two requests of the example in docs/model.md 10 (adaptive verification). The expected numbers of tokens to
    /// verify and of tokens per second were calculated by hand from the rule of docs/model.md 6.
    #[test]
    fn the_reference_vectors() {
        let confidence = [vec![0.9, 0.8, 0.5], vec![0.6, 0.5, 0.4]];
        let mut slots = slots(&confidence);
        let sorted: Vec<f64> = slots.descending().collect();
        for (ours, expected) in sorted.iter().zip_eq([0.9, 0.72, 0.6, 0.36, 0.3, 0.12]) {
            assert!((ours - expected).abs() < 1e-12, "{ours} for {expected}");
        }
        let cases = [
            (16.0, 2, vec![2, 0], [0.1667, 0.2417, 0.3017, 0.2344, 0.2544, 0.2711, 0.2778]),
            (14.0, 6, vec![3, 3], [0.1667, 0.2417, 0.3017, 0.2637, 0.2863, 0.305, 0.3125]),
        ];
        for (dear, tokens, lens, rates) in cases {
            let verify = |total: usize| if total <= 4 { 10.0 } else { dear };
            let mut weighed = Weighed::default();
            weighed.explain(None);
            let rate = |expected: f64, b: usize| expected / (2.0 + verify(2 + b));
            let best = best_budget(2.0, sorted.iter().copied(), rate, &mut weighed);
            assert_eq!(best.tokens, tokens);
            for (candidate, rate) in weighed.explain(None).candidates.iter().zip_eq(rates) {
                assert!((candidate.estimate - rate).abs() < 5.1e-5, "{candidate:?} for {rate}");
            }
            let mut verify_len = vec![9; 2];
            slots.allocate(best.tokens, &mut verify_len);
            assert_eq!(verify_len, lens);
        }
    }

    proptest! {
        /// `allocate` selects the tokens that come first if all draft tokens of the batch are sorted by survival (the
        /// probability that a token and all before it are accepted). The selected tokens of a request are its first
        /// draft tokens. No choice of first draft tokens within the budget has a greater total survival.
        #[test]
        fn allocation_is_the_top_of_all(
            rows in prop::collection::vec(prop::collection::vec(prop_oneof![Just(1.0), Just(0.5), 0.0f64..=1.0], 0..5), 1..5),
            budget in 0usize..20,
        ) {
            let mut ours = vec![0; rows.len()];
            slots(&rows).allocate(budget, &mut ours);
            let survival = |i: usize, n: u32| rows[i][..n as usize].iter().product::<f64>();
            let mut all: Vec<(f64, usize, usize)> = Vec::new();
            for (i, row) in rows.iter().enumerate() {
                all.extend((0..row.len()).map(|j| (survival(i, j as u32 + 1), j, i)));
            }
            all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
            let mut theirs = vec![0; rows.len()];
            for &(_, j, i) in all.iter().take(budget) {
                prop_assert_eq!(theirs[i], j as u32, "a prefix");
                theirs[i] += 1;
            }
            prop_assert_eq!(&ours, &theirs);
            let total = |lens: &[u32]| lens.iter().enumerate().map(|(i, &n)| (1..=n).map(|m| survival(i, m)).sum::<f64>()).sum::<f64>();
            let most = total(&ours);
            let mut lens = vec![0u32; rows.len()];
            // Tries all choices of how many draft tokens of each request are verified.
            while let Some(i) = (0..lens.len()).find(|&i| (lens[i] as usize) < rows[i].len()) {
                lens[i] += 1;
                lens[..i].fill(0);
                if lens.iter().sum::<u32>() as usize <= budget {
                    prop_assert!(total(&lens) <= most + 1e-12, "{lens:?} beats {ours:?}");
                }
            }
        }
    }
}
