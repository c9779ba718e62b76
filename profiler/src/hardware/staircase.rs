//! The latency model `staircase`. Engines pad passes to the sizes of captured CUDA graphs, so a pass takes the time of
//! the next captured size. Above the largest size, the time is linear in the tokens, and may jump at this size
//! (docs/model.md 0.9, 6.2).

use crate::hardware::bad::{BadLatency, bad};
use foretoken_sim::Time;
use foretoken_sim::{LatencyModel, PassShape};
use serde::{Deserialize, Serialize};

/// Pass times at captured CUDA-graph sizes. A pass takes the time of the smallest size that holds its tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StaircaseSpec {
    /// Points `[batched tokens, seconds]`, one for each captured CUDA-graph size, at least one. Sizes must rise. A time
    /// that is shorter than the time of a smaller size is raised to that time.
    pub steps: Vec<(u64, f64)>,
    /// Seconds for each token of context that a pass reads, added to the time at every size, ≥ 0.
    pub alpha_s: f64,
    /// Seconds for each batched token of a pass above the largest captured size, ≥ 0.
    pub tail_gamma_s: f64,
    /// Constant seconds of a pass above the largest captured size, ≥ 0.
    pub tail_delta_s: f64,
}

impl StaircaseSpec {
    /// Checks the values that serde cannot check.
    pub fn check(&self) -> Result<(), BadLatency> {
        if self.steps.is_empty() {
            return Err(bad("steps", "needs at least one [tokens, seconds]"));
        }
        if let Some(pair) = self.steps.windows(2).find(|p| p[1].0 <= p[0].0) {
            return Err(bad("steps", format!("sizes must rise, but {} follows {}", pair[1].0, pair[0].0)));
        }
        let times = self.steps.iter().map(|s| ("steps", s.1));
        let others =
            [("alpha_s", self.alpha_s), ("tail_gamma_s", self.tail_gamma_s), ("tail_delta_s", self.tail_delta_s)];
        match times.chain(others).find(|(_, x)| !(*x >= 0.0 && x.is_finite())) {
            Some((key, x)) => Err(bad(key, format!("{x} is not a time ≥ 0 s"))),
            None => Ok(()),
        }
    }

    /// Builds the latency model that pads passes to the captured sizes.
    pub fn build(&self) -> Result<Staircase, BadLatency> {
        self.check()?;
        let mut highest = 0.0f64;
        let steps = self.steps.iter().map(|&(tokens, seconds)| {
            highest = highest.max(seconds);
            (tokens, Time::from_s(highest))
        });
        Ok(Staircase {
            steps: steps.collect(),
            alpha: Time::from_s(self.alpha_s),
            tail_gamma: Time::from_s(self.tail_gamma_s),
            tail_delta: Time::from_s(self.tail_delta_s),
        })
    }
}

/// The latency model of a staircase, ready to compute the time of a pass. Its times are whole picoseconds.
#[derive(Clone, Debug)]
pub struct Staircase {
    steps: Vec<(u64, Time)>,
    alpha: Time,
    tail_gamma: Time,
    tail_delta: Time,
}

impl LatencyModel for Staircase {
    fn pass(&self, shape: PassShape) -> Time {
        let at = self.steps.partition_point(|&(tokens, _)| tokens < shape.batched);
        let tokens = match self.steps.get(at) {
            Some(&(_, time)) => time,
            None => self.tail_gamma * shape.batched + self.tail_delta,
        };
        tokens + self.alpha * shape.context
    }

    fn least(&self) -> Time {
        // The tail may lie below the steps.
        let tail = |size: u64| self.tail_gamma * size + self.tail_delta;
        let (first, last) = (self.steps[0].1, self.steps[self.steps.len() - 1].0);
        first.min(tail(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_padded_up_and_the_tail_jumps() {
        let spec = StaircaseSpec {
            steps: vec![(1, 10e-3), (2, 10.5e-3), (4, 10.4e-3), (8, 12e-3)],
            alpha_s: 1e-6,
            tail_gamma_s: 1e-3,
            tail_delta_s: 7e-3,
        };
        let m = spec.build().unwrap();
        let ms = |batched, context| m.pass(PassShape { requests: 1, batched, context, pairs: 0 }).as_s() * 1e3;
        assert_eq!((ms(1, 0), ms(2, 0), ms(3, 0), ms(4, 0)), (10.0, 10.5, 10.5, 10.5));
        assert_eq!((ms(5, 0), ms(8, 100), ms(9, 0)), (12.0, 12.1, 16.0));
    }

    #[test]
    fn a_table_must_rise() {
        let spec = |steps| StaircaseSpec { steps, alpha_s: 0.0, tail_gamma_s: 0.0, tail_delta_s: 0.0 };
        assert!(spec(vec![]).check().is_err());
        assert!(spec(vec![(4, 1.0), (4, 1.0)]).check().is_err());
        assert!(spec(vec![(4, f64::NAN)]).check().is_err());
    }
}
