//! The choice of a latency model in an experiment, with its settings.

use crate::hardware::bad::{BadLatency, bad};
use crate::hardware::kernel_tables::KernelsSpec;
use crate::hardware::measured::MeasuredSpec;
use crate::hardware::roofline::{Memory, RooflineSpec};
use crate::hardware::staircase::StaircaseSpec;
use foretoken_sim::Linear;
use foretoken_sim::{Coefficients, LatencyModel};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// How the time T of a pass is computed, seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LatencySpec {
    /// A linear cost: `T = α·context + γ·batched + δ`. `context` is the tokens of context that the pass reads,
    /// `batched` the tokens that it runs over.
    Linear(Coefficients),
    /// Measured times at the captured CUDA-graph sizes, to which passes are padded.
    Staircase(StaircaseSpec),
    /// Measured times of passes of some sizes. For other sizes, the time is interpolated.
    Measured(MeasuredSpec),
    /// A roofline: a prediction from a GPU's datasheet and a model's shape.
    Roofline(RooflineSpec),
    /// Measured kernels of an installed package, summed for a model's shape.
    Kernels(KernelsSpec),
}

impl LatencySpec {
    /// Checks the values that serde cannot check.
    pub fn check(&self) -> Result<(), BadLatency> {
        match self {
            LatencySpec::Linear(c) => {
                let all = [("alpha_s", c.alpha_s), ("gamma_s", c.gamma_s), ("delta_s", c.delta_s)];
                match all.into_iter().find(|(_, x)| !(*x >= 0.0 && x.is_finite())) {
                    Some((key, x)) => Err(bad(key, format!("{x} is not a time ≥ 0 s"))),
                    None => Ok(()),
                }
            }
            LatencySpec::Staircase(s) => s.check(),
            LatencySpec::Measured(m) => m.check(),
            LatencySpec::Roofline(r) => r.check(),
            LatencySpec::Kernels(k) => k.check(),
        }
    }

    /// Builds the latency model that computes pass times. Panics on settings that [`check`](LatencySpec::check)
    /// refuses.
    pub fn build(&self) -> Box<dyn LatencyModel> {
        const CHECKED: &str = "the latency model was checked before";
        match self {
            LatencySpec::Linear(c) => Box::new(Linear::new(*c)),
            LatencySpec::Staircase(s) => Box::new(s.build().expect(CHECKED)),
            LatencySpec::Measured(m) => Box::new(m.build().expect(CHECKED)),
            LatencySpec::Roofline(r) => Box::new(r.build().expect(CHECKED)),
            LatencySpec::Kernels(k) => Box::new(k.build().expect(CHECKED)),
        }
    }

    /// The key of this latency model in an experiment.
    pub fn name(&self) -> &'static str {
        match self {
            LatencySpec::Linear(_) => "linear",
            LatencySpec::Staircase(_) => "staircase",
            LatencySpec::Measured(_) => "measured",
            LatencySpec::Roofline(_) => "roofline",
            LatencySpec::Kernels(_) => "kernels",
        }
    }

    /// The GPU and the model that the costs name, as a roofline's settings. `None` for costs that name no model.
    pub fn machine(&self) -> Option<Cow<'_, RooflineSpec>> {
        match self {
            LatencySpec::Roofline(r) => Some(Cow::Borrowed(r)),
            LatencySpec::Kernels(k) => Some(Cow::Owned(k.roofline())),
            _ => None,
        }
    }

    /// Time of a request's way from the client to the scheduler and of its answer's way back, seconds, on servers of
    /// the engine that the costs name. `None` if they name no engine.
    pub fn frontend_s(&self) -> Option<f64> {
        match self {
            LatencySpec::Kernels(k) => Some(k.host().frontend_s),
            _ => None,
        }
    }

    /// The memory that weights and activations leave for KV. `None` for costs that name no model. Also `None` if the
    /// GPU or the model is unknown, or if a number of them is out of its range.
    pub fn memory(&self) -> Option<Memory> {
        self.machine()?.memory().ok()
    }
}

#[cfg(test)]
pub(in crate::hardware) mod tests {
    use super::*;
    use foretoken_sim::{PassShape, Time};

    /// Asserts that no pass with a token is as short as the model's least time.
    pub fn assert_least(model: &dyn LatencyModel) {
        let least = model.least();
        assert!(least > Time::ZERO);
        for (requests, each, context) in [1, 2, 7, 64, 300]
            .into_iter()
            .flat_map(|n| [(n, 1, 0), (n, 1, 40), (n, 6, 900), (n, 700, 0), (n, 1, 70_000)])
        {
            let (batched, context) = (requests * each, requests * context);
            let pairs = requests * each * (each + 1) / 2 + context * each;
            let pass = model.pass(PassShape { requests, batched, context, pairs });
            assert!(
                least <= pass,
                "{requests} requests, {each} tokens each, {context} in KV: {pass:?} under {least:?}"
            );
        }
    }

    #[test]
    fn no_pass_is_shorter_than_the_least() {
        let (steps, curve) = (vec![(1, 3e-3), (8, 2e-3), (64, 9e-3)], vec![(2, 2e-3), (4, 3e-3), (9, 5e-3)]);
        let pairs = vec![(0, 0.0), (1000, 1e-3), (2000, 4e-3)];
        let staircase = StaircaseSpec { steps, alpha_s: 1e-6, tail_gamma_s: 1e-5, tail_delta_s: 1e-3 };
        let measured = MeasuredSpec { batched: curve, pairs, context: vec![(0, 1e-4)], requests: vec![] };
        let mut specs = vec![
            LatencySpec::Linear(Coefficients { alpha_s: 3e-9, gamma_s: 1e-5, delta_s: 6e-3 }),
            LatencySpec::Staircase(staircase),
            LatencySpec::Measured(measured),
        ];
        for model in ["llama-3.1-8b", "deepseek-v3", "gpt-oss-20b"] {
            for floors in [false, true] {
                specs.push(LatencySpec::Roofline(RooflineSpec { floors, ..RooflineSpec::new("h100", model) }));
            }
        }
        specs.iter().for_each(|spec| assert_least(&*spec.build()));
    }
}
