//! What a decision between draft passes or before verification costs: a round trip between GPU and host.

/// Learns the time of a decision: the slope of the seconds that draft passes took above their estimate, over the number
/// of decisions in the step. The estimate may be wrong by the same time in each step, which is the intercept.
#[derive(Default)]
pub(crate) struct Trips {
    /// Weighted sums over past steps: 1, decisions, seconds, decisions², decisions · seconds.
    sums: [f64; 5],
}

impl Trips {
    /// When a step is added, the weights of earlier steps are multiplied by this factor.
    const KEEP: f64 = 0.99;

    /// Adds a step with `decisions` decisions, whose passes took `seconds` more than estimated.
    pub fn add(&mut self, decisions: f64, seconds: f64) {
        let one = [1.0, decisions, seconds, decisions * decisions, decisions * seconds];
        self.sums.iter_mut().zip(one).for_each(|(sum, now)| *sum = Self::KEEP * *sum + now);
    }

    /// Seconds of a decision; at least 0. An intercept of 0 weighs as one step, so that it is 0 where all steps have as
    /// many decisions.
    pub fn each_s(&self) -> f64 {
        let [n, x, y, xx, xy] = self.sums;
        let spread = (n + 1.0) * xx - x * x;
        if spread > 0.0 { (((n + 1.0) * xy - x * y) / spread).max(0.0) } else { 0.0 }
    }
}
