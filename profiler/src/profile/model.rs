//! The part of a profile for one model (the target or the draft): its measured pass times and the costs fitted to them.

use crate::hardware::{LatencySpec, MeasuredSpec, StaircaseSpec};
use crate::shapes::{Kind, Region, Shape};
use foretoken_sim::Coefficients;
use serde::{Deserialize, Serialize};

/// The part of a profile for one model (the target or the draft): its measured pass times and the costs fitted to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelProfile {
    /// Robust coefficient of variation of the times of equal passes: the median over all measured shapes. Simulations
    /// add noise of this size.
    pub noise_cv: f64,
    /// Mean relative difference between two measurements of a shape: between the median times of the first and of the
    /// second half of the shape's visits. No latency model can be expected to have a smaller error.
    pub repeatability: f64,
    /// Name, size and weights of the model.
    pub model: ModelInfo,
    /// The linear cost α, γ, δ, fitted by non-negative least squares on relative errors. Policies decide by this cost.
    pub linear: LinearFit,
    /// The linear cost α, γ, δ, fitted by ordinary least squares on seconds, for standard errors and p-values.
    pub ols: OlsFit,
    /// Errors of the fitted costs on held-out shapes (shapes to which they were not fitted). Each of five fits leaves
    /// out about a fifth of the shapes. The largest shapes are in every fit.
    pub held_out: Errors,
    /// The largest numbers of requests, new tokens, context tokens and query-key pairs in one measured pass.
    pub range: Range,
    /// The latency table that was fitted to the measured passes.
    pub table: MeasuredSpec,
    /// Every measured shape of a pass, with statistics of its times.
    pub measured: Vec<Measurement>,
}

/// The properties of a model that its speed depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelInfo {
    /// Name of the model: the preset's name, or the name of the checkpoint's folder.
    pub name: String,
    /// `random, seed N` for random weights, or `blake3:…`, the digest of the checkpoint's weights.
    pub weights: String,
    /// Number type of the weight matrices on the device, such as `bf16`.
    pub dtype: String,
    pub parameters: u64,
    /// Number of tokens in the vocabulary.
    pub vocab: u32,
    /// Longest context that the model supports, tokens.
    pub max_positions: u32,
}

/// The linear cost of a pass, α·context + γ·batched tokens + δ, with coefficients of at least 0 and their standard
/// errors. A coefficient that would be negative without this bound is 0, and so is its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearFit {
    /// α: seconds per token of context read.
    pub alpha_s: f64,
    /// γ: seconds per batched token.
    pub gamma_s: f64,
    /// δ: seconds per pass.
    pub delta_s: f64,
    /// Standard error of `alpha_s`, seconds.
    pub alpha_se_s: f64,
    /// Standard error of `gamma_s`, seconds.
    pub gamma_se_s: f64,
    /// Standard error of `delta_s`, seconds.
    pub delta_se_s: f64,
    /// Condition number of the equations of the fit, with columns scaled to unit length. A large number means that the
    /// measured shapes hardly separate the effects of context, batched tokens and the constant term.
    pub condition: f64,
    /// Number of measured shapes to which the coefficients were fitted.
    pub shapes: u64,
}

impl LinearFit {
    /// The coefficients α, γ, δ of the linear cost without the statistics.
    pub fn coefficients(&self) -> Coefficients {
        Coefficients { alpha_s: self.alpha_s, gamma_s: self.gamma_s, delta_s: self.delta_s }
    }
}

/// The linear cost of a pass, α·context + γ·batched tokens + δ, fitted by ordinary least squares. The coefficients may
/// be negative.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OlsFit {
    /// α: seconds per token of context read.
    pub alpha_s: f64,
    /// γ: seconds per batched token.
    pub gamma_s: f64,
    /// δ: seconds per pass.
    pub delta_s: f64,
    /// Standard error of `alpha_s`, seconds.
    pub alpha_se_s: f64,
    /// Standard error of `gamma_s`, seconds.
    pub gamma_se_s: f64,
    /// Standard error of `delta_s`, seconds.
    pub delta_se_s: f64,
    /// Two-sided p-value of the hypothesis that `alpha_s` is 0.
    pub alpha_p: f64,
    /// Two-sided p-value of the hypothesis that `gamma_s` is 0.
    pub gamma_p: f64,
    /// Two-sided p-value of the hypothesis that `delta_s` is 0.
    pub delta_p: f64,
    /// R²: share of the variance of the measured pass times that the fit explains.
    pub r2: f64,
}

/// Errors of fitted pass times: mean absolute relative errors on held-out shapes (shapes to which the fit was not
/// fitted).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Errors {
    /// Number of shapes that were held out of a fit and whose times the fit then predicted.
    pub shapes: u64,
    pub linear: ByRegion,
    pub table: ByRegion,
}

/// Mean absolute relative errors of fitted pass times (0.05 is 5 %), overall and by region (kind of passes). The error
/// of a region without held-out shapes is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByRegion {
    /// The mean relative error of pass times over all held-out shapes.
    pub overall: f64,
    /// The mean relative error of the times of passes with one new token per request, and up to 64 tokens in the pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode: Option<f64>,
    /// The mean relative error of the times of passes with several new tokens per request, and up to 64 tokens in the
    /// pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<f64>,
    /// The mean relative error of the times of decode and verification passes with more than 64 tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wide: Option<f64>,
    /// The mean relative error of the times of passes with prompt chunks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill: Option<f64>,
}

impl ByRegion {
    /// The mean relative error of pass times in one region (kind of passes); `None` if no shape of the region was held
    /// out.
    pub fn of(&self, region: Region) -> Option<f64> {
        match region {
            Region::Decode => self.decode,
            Region::Verify => self.verify,
            Region::Wide => self.wide,
            Region::Prefill => self.prefill,
        }
    }
}

/// The largest numbers of requests, new tokens, context tokens and query-key pairs in one pass, over a set of passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Most requests in a pass.
    pub requests: u64,
    /// Most new tokens in a pass.
    pub batched: u64,
    /// Most tokens of context in a pass, summed over its requests. Each request's context counts once. Only in the
    /// result of `Profile::range` is context counted as the chosen latency model counts it.
    pub context: u64,
    /// Most query-key pairs in a pass.
    pub pairs: u64,
}

/// A measured shape of a pass, with statistics of its times. In the file it is an array: `[kind, requests, new tokens,
/// context, seconds, spread, samples, fold]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct Measurement {
    pub shape: Shape,
    /// Mean time of the passes of this shape, without interrupted passes, seconds. The time of a prefill pass includes
    /// the delay that the prompt causes to the next passes of the same model.
    pub seconds: f64,
    /// Robust coefficient of variation of the times of the shape's passes: 1.4826 · median absolute deviation / median.
    pub spread: f64,
    /// Number of timed passes of the shape.
    pub samples: u64,
    /// The cross-validation fold of the shape, from 1. 0 if the shape is in every fit and was never held out.
    pub fold: u8,
}

type Row = (Kind, u32, u32, u32, f64, f64, u64, u8);

impl From<Row> for Measurement {
    fn from((kind, requests, new, context, seconds, spread, samples, fold): Row) -> Self {
        Measurement { shape: Shape { kind, requests, new, context }, seconds, spread, samples, fold }
    }
}

impl From<Measurement> for Row {
    fn from(m: Measurement) -> Self {
        let s = m.shape;
        (s.kind, s.requests, s.new, s.context, m.seconds, m.spread, m.samples, m.fold)
    }
}

impl ModelProfile {
    /// Returns the latency model that `truth` chooses: the fitted table of pass times, the linear fit, or the
    /// staircase.
    pub fn truth(&self, truth: Truth) -> LatencySpec {
        match truth {
            Truth::Table => LatencySpec::Measured(self.table.clone()),
            Truth::Linear => LatencySpec::Linear(self.linear.coefficients()),
            Truth::Staircase => LatencySpec::Staircase(self.staircase()),
        }
    }

    /// Makes a staircase from the fitted table of pass times: the steps are the table's numbers of tokens. A pass is
    /// padded to the next larger step and takes its time; each token of context adds the α of the linear fit. Above the
    /// largest step, the pass time rises like the table's last segment.
    fn staircase(&self) -> StaircaseSpec {
        let steps = self.table.batched.clone();
        let (tail_gamma_s, tail_delta_s) = match steps.as_slice() {
            [.., (x0, t0), (x1, t1)] => {
                let slope = (t1 - t0) / (x1 - x0) as f64;
                // If the line through the table's last two points gives a negative time at 0 tokens, 0 replaces this
                // time, because a staircase has no negative times.
                (slope, (t1 - slope * *x1 as f64).max(0.0))
            }
            [(_, t)] => (0.0, *t),
            [] => (0.0, 0.0),
        };
        StaircaseSpec { steps, alpha_s: self.linear.alpha_s, tail_gamma_s, tail_delta_s }
    }
}

/// Which latency model of a profile gives the true pass times of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Truth {
    /// The measured times, interpolated between the measured sizes.
    #[default]
    Table,
    /// The linear fit to the measured times, with coefficients α, γ and δ.
    Linear,
    /// A staircase: the measured sizes count as captured CUDA-graph sizes, and a pass is padded to the next larger one.
    Staircase,
}
