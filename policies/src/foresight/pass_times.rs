//! The pass times of one model as the policy `foresight` estimates them: measured at start-up, and corrected slowly by
//! the times of real steps.

use foretoken_sim::{Coefficients, PassShape};

/// Tokens of context in the pass that is timed at start-up to find the cost of one token of context.
const CONTEXT: u64 = 200_000;
/// Pass times are measured at start-up and corrected by the times of real steps. The correction is a factor from 1 /
/// `MOST` to `MOST`.
const MOST: f64 = 8.0;

/// Estimated pass times of one model, the draft model or the target.
pub(crate) struct PassTimes {
    /// Estimated seconds of a pass of this model over the tokens of one request, by their number, without context.
    pub by_tokens: Vec<f64>,
    /// Estimated seconds that a pass over the same tokens takes longer if they are of more requests, by the number of
    /// requests. Recurrent layers read a state for each request, and some attention kernels have a cost of their own
    /// for each.
    by_requests: Vec<f64>,
    /// Estimated seconds that each token of context adds to a pass of this model.
    pub per_context: f64,
    /// The correction: real passes take this factor times the time that was measured at start-up.
    pub slower: f64,
}

impl PassTimes {
    /// Times passes of at most `tokens` tokens and `requests` requests.
    pub fn measured((tokens, requests): (u32, u32), time: impl Fn(PassShape) -> f64) -> PassTimes {
        let at = |requests, batched, context| time(PassShape { requests, batched, context, pairs: context });
        let mut by_tokens: Vec<f64> = (0..=u64::from(tokens)).map(|n| if n == 0 { 0.0 } else { at(1, n, 0) }).collect();
        smooth(&mut by_tokens[1..]);
        let more = |n: u64| (at(n, n, 0) - at(1, n, 0)).max(0.0);
        let mut by_requests: Vec<f64> = (0..=u64::from(requests)).map(|n| if n == 0 { 0.0 } else { more(n) }).collect();
        smooth(&mut by_requests);
        let per_context = ((at(1, 1, CONTEXT) - at(1, 1, 0)) / CONTEXT as f64).max(0.0);
        PassTimes { by_tokens, by_requests, per_context, slower: 1.0 }
    }

    pub fn linear(most: (u32, u32), line: &Coefficients) -> PassTimes {
        PassTimes::measured(most, |s| line.pass_s(s.context as f64, s.batched as f64))
    }

    /// Seconds of a pass of this model over `batched` tokens of `requests` requests with `context` tokens of context; 0
    /// for a pass without tokens.
    pub fn pass_s(&self, requests: u64, batched: u64, context: f64) -> f64 {
        let at = |table: &[f64], n: u64| table[(n as usize).min(table.len() - 1)];
        match batched {
            0 => 0.0,
            n => {
                let tables_s = at(&self.by_tokens, n) + at(&self.by_requests, requests.min(n));
                self.slower * (tables_s + self.per_context * context)
            }
        }
    }

    /// Corrects the factor `slower` by the time of a real step: multiplies it by (`took_s` / `predicted_s`)^`weight`.
    /// `took_s` is the observed time, and `weight` is from 0 to 1. The ratio is first cut to 0.1 to 10. The factor
    /// stays from 1 / [`MOST`] to [`MOST`]. Does nothing if one of the times is 0.
    pub fn correct(&mut self, took_s: f64, predicted_s: f64, weight: f64) {
        if took_s > 0.0 && predicted_s > 0.0 {
            let ratio = (took_s / predicted_s).clamp(0.1, 10.0);
            self.slower = (self.slower * ratio.powf(weight)).clamp(1.0 / MOST, MOST);
        }
    }
}

/// Makes measured times monotone: more tokens never take less time. Times that never fall stay as they are, also where
/// they are constant and then jump. A fall counts as noise: neighbours are pooled to their mean (isotonic regression),
/// and the means are joined by straight lines.
fn smooth(times: &mut [f64]) {
    // Neighbouring pass times that are replaced by their mean because they fell: (sum of the times, number of times) of
    // each such group.
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for &time in times.iter() {
        let mut last = (time, 1);
        while let Some(&before) = pools.last()
            && before.0 * last.1 as f64 > last.0 * before.1 as f64
        {
            last = (before.0 + last.0, before.1 + last.1);
            pools.pop();
        }
        pools.push(last);
    }
    if pools.len() == times.len() {
        return;
    }
    let mut start = 0;
    let middles: Vec<(f64, f64)> = pools
        .iter()
        .map(|&(sum, n)| {
            let middle = start as f64 + (n as f64 - 1.0) / 2.0;
            start += n;
            (middle, sum / n as f64)
        })
        .collect();
    let mut next = 0;
    for (i, time) in times.iter_mut().enumerate() {
        let at = i as f64;
        while next < middles.len() && middles[next].0 < at {
            next += 1;
        }
        *time = match (next.checked_sub(1).map(|n| middles[n]), middles.get(next)) {
            (Some((x, low)), Some(&(y, high))) => low + (high - low) * (at - x) / (y - x),
            (Some((_, only)), None) | (None, Some(&(_, only))) => only,
            (None, None) => *time,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rising_times_stay_and_noise_is_pooled() {
        let mut stairs = vec![1.0, 1.0, 2.0, 2.0, 2.0, 5.0];
        smooth(&mut stairs);
        assert_eq!(stairs, [1.0, 1.0, 2.0, 2.0, 2.0, 5.0]);
        let luck = foretoken_sim::Luck::new(1, foretoken_sim::Stream::Policy, 0);
        let truth = |n: usize| 8e-3 + 60e-6 * n as f64;
        let mut noisy: Vec<f64> = (0..2000).map(|n| truth(n) * (0.9 + 0.2 * luck.unit(n as u64))).collect();
        smooth(&mut noisy);
        assert!(noisy.windows(2).all(|w| w[0] <= w[1]));
        let worst = (20..1980).map(|n| (noisy[n] / truth(n) - 1.0).abs()).fold(0.0, f64::max);
        assert!(worst < 0.06, "{worst}");
    }

    /// The draft tokens of a request are no requests of their own: a recurrent layer reads one state for all of them.
    #[test]
    fn a_pass_has_requests_and_tokens() {
        let time =
            |s: PassShape| 8e-3 + 60e-6 * s.batched as f64 + 400e-6 * s.requests as f64 + 1e-9 * s.context as f64;
        let model = PassTimes::measured((2048, 64), time);
        for (requests, batched, context) in [(1, 1, 0), (10, 10, 5000), (10, 120, 5000), (64, 2000, 0)] {
            let shape = PassShape { requests, batched, context, pairs: context };
            let (ours, truth) = (model.pass_s(requests, batched, context as f64), time(shape));
            assert!((ours / truth - 1.0).abs() < 1e-9, "{shape:?}: {ours} {truth}");
        }
        assert_eq!(model.pass_s(0, 0, 0.0), 0.0);
    }
}
