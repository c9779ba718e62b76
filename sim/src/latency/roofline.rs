//! `roofline`: predicts a pass on hardware that was not measured, from a GPU's datasheet and a model's shape.
//!
//! A pass is a sequence of kernels. Its time is a sum over kinds of kernels of the slower of computing and moving data:
//! - feed-forward and projections: weights once a pass, 2 FLOP a weight and token;
//! - attention: KV of the context once, 4 FLOP a layer, head dimension and query-key pair;
//! - the output head: its weights; every batched token samples, which overstates prefill by the head's share, 2 to 5 %.
//!
//! A fixed overhead a pass and a layer is added. With `tensor_parallel` bandwidth and peak are multiplied, and each
//! layer all-reduces twice. With several experts a pass reads the weights of the expected number of distinct experts
//! for its token count.

use super::bad::{BadLatency, bad, unknown};
use super::hardware::{GPUS, Gpu, gpu};
use super::models::{Experts, MODELS, Model, model};
use super::{LatencyModel, PassShape};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// The settings of a roofline. Efficiencies and overheads are assumptions; measure a profile to replace them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RooflineSpec {
    /// GPU preset.
    #[schemars(extend("enum" = GPUS.map(|gpu| gpu.name)))]
    pub gpu: String,
    /// Model preset.
    #[schemars(extend("enum" = MODELS.map(|model| model.name)))]
    pub model: String,
    /// Number of GPUs over which the model is split.
    #[serde(default = "one")]
    pub tensor_parallel: u32,
    /// Experts instead of the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<Experts>,
    /// Share of the datasheet's bandwidth that is reached (assumed).
    #[serde(default = "bandwidth_efficiency")]
    pub bandwidth_efficiency: f64,
    /// Share of the datasheet's peak that is reached (assumed).
    #[serde(default = "compute_efficiency")]
    pub compute_efficiency: f64,
    /// Share of n-fold speed that n GPUs reach, before the all-reduces (assumed).
    #[serde(default = "parallel_efficiency")]
    pub parallel_efficiency: f64,
    /// Time of a pass outside its layers: sampling, graph launch (assumed), seconds.
    #[serde(default = "pass_overhead_s")]
    pub pass_overhead_s: f64,
    /// Time of a layer that neither computes nor moves weights (assumed), seconds.
    #[serde(default = "layer_overhead_s")]
    pub layer_overhead_s: f64,
    /// Latency of one all-reduce (assumed), seconds.
    #[serde(default = "all_reduce_s")]
    pub all_reduce_s: f64,
    /// Share of device memory the server may use (vLLM `gpu_memory_utilization`).
    #[serde(default = "memory_utilization")]
    pub memory_utilization: f64,
    /// Memory kept for activations on each GPU (assumed), bytes.
    #[serde(default = "activation_bytes")]
    pub activation_bytes: f64,
}

fn one() -> u32 {
    1
}
fn bandwidth_efficiency() -> f64 {
    0.8
}
fn compute_efficiency() -> f64 {
    0.6
}
fn parallel_efficiency() -> f64 {
    0.9
}
fn pass_overhead_s() -> f64 {
    300e-6
}
fn layer_overhead_s() -> f64 {
    10e-6
}
fn all_reduce_s() -> f64 {
    10e-6
}
fn memory_utilization() -> f64 {
    0.9
}
fn activation_bytes() -> f64 {
    2e9
}

/// The memory of the devices, with respect to KV.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Bytes of KV for one token.
    pub kv_bytes_token: f64,
    /// Bytes left for KV beside weights and activations.
    pub kv_bytes: f64,
}

impl Memory {
    /// Number of KV blocks of `block_size` tokens that fit; 0 if the weights do not fit.
    pub fn kv_blocks(&self, block_size: u32) -> u32 {
        (self.kv_bytes / (self.kv_bytes_token * f64::from(block_size))).max(0.0) as u32
    }
}

impl RooflineSpec {
    /// A preset model on one preset GPU, with every assumption at its default.
    pub fn new(gpu: &str, model: &str) -> RooflineSpec {
        RooflineSpec {
            gpu: gpu.into(),
            model: model.into(),
            tensor_parallel: one(),
            experts: None,
            bandwidth_efficiency: bandwidth_efficiency(),
            compute_efficiency: compute_efficiency(),
            parallel_efficiency: parallel_efficiency(),
            pass_overhead_s: pass_overhead_s(),
            layer_overhead_s: layer_overhead_s(),
            all_reduce_s: all_reduce_s(),
            memory_utilization: memory_utilization(),
            activation_bytes: activation_bytes(),
        }
    }

    /// The named presets; the error names a preset that does not exist.
    fn presets(&self) -> Result<(&'static Gpu, &'static Model), BadLatency> {
        let gpu = gpu(&self.gpu).ok_or_else(|| unknown("gpu", &self.gpu, GPUS.iter().map(|g| g.name)))?;
        let model = model(&self.model).ok_or_else(|| unknown("model", &self.model, MODELS.iter().map(|m| m.name)))?;
        Ok((gpu, model))
    }

    /// Checks the values that serde cannot check.
    pub fn check(&self) -> Result<(), BadLatency> {
        self.presets()?;
        if self.tensor_parallel == 0 {
            return Err(bad("tensor_parallel", "must be at least 1"));
        }
        if let Some(e) = self.experts
            && !(1..=e.total).contains(&e.active)
        {
            return Err(bad("experts", format!("{} of {} experts cannot be active", e.active, e.total)));
        }
        let shares = [
            ("bandwidth_efficiency", self.bandwidth_efficiency),
            ("compute_efficiency", self.compute_efficiency),
            ("parallel_efficiency", self.parallel_efficiency),
            ("memory_utilization", self.memory_utilization),
        ];
        if let Some((key, x)) = shares.into_iter().find(|(_, x)| !(*x > 0.0 && *x <= 1.0)) {
            return Err(bad(key, format!("{x} is not a share in (0, 1]")));
        }
        let amounts = [
            ("pass_overhead_s", self.pass_overhead_s),
            ("layer_overhead_s", self.layer_overhead_s),
            ("all_reduce_s", self.all_reduce_s),
            ("activation_bytes", self.activation_bytes),
        ];
        match amounts.into_iter().find(|(_, x)| !(*x >= 0.0 && x.is_finite())) {
            Some((key, x)) => Err(bad(key, format!("{x} is not a number ≥ 0"))),
            None => Ok(()),
        }
    }

    /// Number of copies of each KV head: with more GPUs than KV heads, several GPUs hold the same head.
    fn kv_copies(&self, model: &Model) -> f64 {
        (f64::from(self.tensor_parallel) / f64::from(model.kv_heads)).max(1.0)
    }

    /// The memory that is left for KV.
    pub fn memory(&self) -> Result<Memory, BadLatency> {
        let (gpu, model) = self.presets()?;
        let n = f64::from(self.tensor_parallel);
        let room = n * (gpu.memory * self.memory_utilization - self.activation_bytes);
        let model = Model { experts: self.experts.or(model.experts), ..*model };
        let kv_bytes_token = model.kv_bytes_token() * self.kv_copies(&model);
        Ok(Memory { kv_bytes_token, kv_bytes: room - model.weight_bytes() })
    }

    /// Builds the latency model: computes everything that does not depend on the pass.
    pub fn build(&self) -> Result<Roofline, BadLatency> {
        self.check()?;
        let (gpu, m) = self.presets()?;
        let n = f64::from(self.tensor_parallel);
        let speedup = if self.tensor_parallel == 1 { 1.0 } else { n * self.parallel_efficiency };
        let bandwidth = gpu.bandwidth * self.bandwidth_efficiency * speedup;
        let flops = gpu.peak_flops * self.compute_efficiency * speedup;
        let layers = f64::from(m.layers);
        let experts = self.experts.or(m.experts).unwrap_or(Experts { total: 1, active: 1 });
        let active = f64::from(experts.active);
        // A ring all-reduce moves 2(n−1)/n of the activations over each link; there are two a layer.
        let reduce_bytes = 2.0 * (n - 1.0) / n * f64::from(m.hidden) * 2.0;
        let reduces = if self.tensor_parallel == 1 { 0.0 } else { 2.0 * layers };
        Ok(Roofline {
            fixed_s: self.pass_overhead_s + layers * self.layer_overhead_s + reduces * self.all_reduce_s,
            shared_bytes_s: 2.0 * layers * m.attention_parameters() / bandwidth,
            expert_bytes_s: 2.0 * layers * m.expert_parameters() / bandwidth,
            token_flops_s: 2.0 * layers * (m.attention_parameters() + active * m.expert_parameters()) / flops,
            head_bytes_s: 2.0 * m.head_parameters() / bandwidth,
            head_flops_s: 2.0 * m.head_parameters() / flops,
            kv_bytes_s: m.kv_bytes_token() * self.kv_copies(m) / bandwidth,
            pair_flops_s: 4.0 * layers * f64::from(m.heads) * f64::from(m.head_dim) / flops,
            reduce_token_s: reduces * reduce_bytes / gpu.link,
            experts: f64::from(experts.total),
            miss: 1.0 - active / f64::from(experts.total),
        })
    }
}

/// The built roofline model: seconds per unit of each kind of work.
#[derive(Clone, Copy, Debug)]
pub struct Roofline {
    fixed_s: f64,
    shared_bytes_s: f64,
    expert_bytes_s: f64,
    token_flops_s: f64,
    head_bytes_s: f64,
    head_flops_s: f64,
    kv_bytes_s: f64,
    pair_flops_s: f64,
    reduce_token_s: f64,
    experts: f64,
    /// Probability that a token does not use a given expert.
    miss: f64,
}

impl Roofline {
    /// Time of a pass, seconds.
    pub fn pass_s(&self, shape: PassShape) -> f64 {
        let (tokens, context, pairs) = (shape.batched as f64, shape.context as f64, shape.pairs as f64);
        // Expected number of distinct experts if each token chooses its experts independently.
        let visited = if self.experts > 1.0 { self.experts * (1.0 - self.miss.powf(tokens)) } else { 1.0 };
        let weights = (self.shared_bytes_s + visited * self.expert_bytes_s).max(self.token_flops_s * tokens);
        let attention = (self.kv_bytes_s * (context + tokens)).max(self.pair_flops_s * pairs);
        let head = self.head_bytes_s.max(self.head_flops_s * tokens);
        self.fixed_s + weights + attention + head + self.reduce_token_s * tokens
    }
}

impl LatencyModel for Roofline {
    fn pass(&self, shape: PassShape) -> Time {
        Time::from_s(self.pass_s(shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(gpu: &str, model: &str) -> RooflineSpec {
        RooflineSpec::new(gpu, model)
    }

    const ONE: PassShape = PassShape { batched: 1, context: 0, pairs: 1 };

    #[test]
    fn a_decode_is_bound_by_weights_and_a_prefill_by_compute() {
        let m = spec("a100-80g", "vicuna-7b").build().unwrap();
        // 13.2 GB of layers and head (the embedding is not read) at 80 % of 2,039 GB/s, and 0.62 ms of overheads.
        let moved = 2.0 * (6.738e9 - 32_000.0 * 4096.0) / (2039e9 * 0.8);
        assert!((m.pass_s(ONE) - (moved + 620e-6)).abs() < 1e-5, "{}", m.pass_s(ONE));
        let long = PassShape { batched: 2048, context: 0, pairs: 2048 * 2049 / 2 };
        let computed = 2.0 * 6.6e9 * 2048.0 / (312e12 * 0.6);
        assert!((m.pass_s(long) / computed - 1.0).abs() < 0.05, "{} against {computed}", m.pass_s(long));
    }

    #[test]
    fn experts_are_read_as_they_are_visited() {
        let m = spec("a100-80g", "mixtral-8x7b").build().unwrap();
        let at = |n: u64| m.pass_s(PassShape { batched: n, context: 0, pairs: 0 });
        // One token reads 2 of 8 experts; many tokens read all 8.
        let expert = m.expert_bytes_s;
        assert!(((at(64) - at(1)) / expert - 6.0).abs() < 0.01);
    }

    #[test]
    fn four_gpus_are_faster_but_not_four_times() {
        let alone = spec("a100-80g", "vicuna-33b").build().unwrap().pass_s(ONE);
        let four = RooflineSpec { tensor_parallel: 4, ..spec("a100-80g", "vicuna-33b") }.build().unwrap().pass_s(ONE);
        assert!(four < alone / 2.0 && four > alone / 4.0, "{four} against {alone}");
    }

    #[test]
    fn memory_is_what_the_weights_leave() {
        let blocks = spec("a100-80g", "vicuna-7b").memory().unwrap().kv_blocks(16);
        // (80 GiB · 0.9 − 2 GB − 13.5 GB) / 8 MiB a block.
        assert!((7300..7450).contains(&blocks), "{blocks}");
        assert_eq!(spec("l40", "llama-2-70b").memory().unwrap().kv_blocks(16), 0);
        let experts = Some(Experts { total: 8, active: 2 });
        let eight = RooflineSpec { experts, ..spec("a100-80g", "mistral-7b") };
        assert_eq!(eight.memory().unwrap().kv_blocks(16), 0, "eight experts' weights do not fit");
    }

    #[test]
    fn bad_settings_name_their_key() {
        let fault = |s: RooflineSpec| s.check().unwrap_err().to_string();
        assert!(fault(spec("a100", "vicuna-7b")).contains("a100-40g"));
        assert!(fault(spec("h100", "vicuna7b")).contains("vicuna-7b"));
        let negative = RooflineSpec { pass_overhead_s: -1.0, ..spec("h100", "vicuna-7b") };
        assert!(fault(negative).starts_with("pass_overhead_s"));
    }
}
