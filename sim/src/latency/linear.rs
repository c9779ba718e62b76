//! `linear`: `T = α·context + γ·batched + δ`, the pass time of the SmartSpec paper (section 5.2) and the AdaSpec paper
//! (section 4.2). `context` is the number of KV tokens that the pass reads, `batched` the number of tokens that it
//! processes.

use super::{Coefficients, LatencyModel, PassShape};
use crate::time::Time;

/// The linear model with coefficients rounded once to whole picoseconds, so that times are exact integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    alpha: Time,
    gamma: Time,
    delta: Time,
}

impl Linear {
    /// Rounds each coefficient to the nearest picosecond.
    pub fn new(c: Coefficients) -> Linear {
        Linear { alpha: Time::from_s(c.alpha_s), gamma: Time::from_s(c.gamma_s), delta: Time::from_s(c.delta_s) }
    }
}

impl LatencyModel for Linear {
    #[inline]
    fn pass(&self, shape: PassShape) -> Time {
        self.alpha * shape.context + self.gamma * shape.batched + self.delta
    }

    fn least(&self) -> Time {
        self.gamma + self.delta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_yardsticks_step_is_exact() {
        let m = Linear::new(Coefficients { alpha_s: 0.3e-6, gamma_s: 55e-6, delta_s: 11e-3 });
        let t = m.pass(PassShape { requests: 1, batched: 20, context: 10_000, pairs: 0 });
        assert_eq!(t, Time(300_000 * 10_000 + 55_000_000 * 20 + 11_000_000_000));
    }
}
