//! The settings of a roofline, the cost model from a GPU's datasheet and a model's shape.

use super::attention_times::AttentionTimes;
use super::context_pass::ContextPass;
use super::experts_read::{self, ExpertsRead};
use super::kernel_times::{ExpertTimes, KernelTimes};
use super::memory::Memory;
use super::pass::{BlockTimes, CommonTimes, Form, Roofline};
use crate::bad::{BadLatency, bad};
use crate::floors::{self, KernelFit, SMALL_KERNELS, WRITE_KERNELS, floors};
use crate::gpus::{Gpu, GpuChoice};
use crate::models::{Experts, FlopsByBits, ModelChoice, ModelShape, Work};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A roofline: pass times from a GPU's datasheet and a model's shape. Its efficiencies and overheads are assumptions; a
/// measured profile (`foretoken profile`) needs none of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RooflineSpec {
    /// The GPU: the name of a preset (`foretoken hardware list`), or the numbers of its datasheet.
    pub gpu: GpuChoice,
    /// The model: the name of a preset (`foretoken models list`), `{ config = "config.json" }`, or a shape (sizes and
    /// bits).
    pub model: ModelChoice,
    /// Number of GPUs over which the model is split by tensor parallelism, at least 1. Default: 1.
    #[serde(default = "one")]
    pub tensor_parallel: u32,
    /// Expert parallelism: each GPU holds whole experts, and tokens are sent to their experts and back. If false, each
    /// expert is split over all GPUs, and its outputs are all-reduced. It acts with `tensor_parallel` above 1. Default:
    /// false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expert_parallel: bool,
    /// Numbers of experts that replace the model's numbers, for example to try a mixture of experts in place of a dense
    /// block. Absent: the model's experts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<Experts>,
    /// How much the tokens of a pass share experts: the share of a token's experts, [0, 1], that earlier tokens of the
    /// pass have already read, beyond the share that independent choices give. Default (assumed): 0, tokens choose
    /// independently. Counted for neighbouring tokens of GLM-4.7-Flash: 0.21 (mlx-lm PR #1485). It must be 0 if
    /// `experts_read` is given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub expert_reuse: f64,
    /// Number of distinct experts of a layer that a pass reads, as counted: points `[tokens of the pass, experts]` by
    /// rising tokens, the first point at 1 token. Between two points the number lies on the straight line; above the
    /// last point it stays at the last number. Empty: the number is computed from the model's experts and
    /// `expert_reuse`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experts_read: Vec<(u32, f64)>,
    /// Bits of a number in the KV cache (vLLM `kv_cache_dtype`), 1 to 32. Default: `bits.kv` of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_bits: Option<f64>,
    /// Whether all matrix products are computed in bf16, even with quantised weights (as in vLLM's Marlin kernels). A
    /// GPU without a peak in the model's precision needs this setting. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weight_only: bool,
    /// Whether each kind of kernel takes at least its measured floor, and reaches its own measured share of bandwidth
    /// and arithmetic (`floors.json`; `foretoken hardware show` prints them). If false, all kernels reach the same
    /// shares, and a layer and a pass take constant times beside them. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub floors: bool,
    /// Share of the datasheet's memory bandwidth that all kernels reach, in (0, 1]. Default: with `floors`, the
    /// measured share of each kind of kernel; else 0.8 (assumed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_efficiency: Option<f64>,
    /// Share of the datasheet's peak arithmetic that all kernels reach, in (0, 1]. Default: with `floors`, the measured
    /// share of each kind of kernel; else 0.6 (assumed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_efficiency: Option<f64>,
    /// Speed of n GPUs as a share of n times the speed of one GPU, all-reduces not counted, in (0, 1]. It acts with
    /// `tensor_parallel` above 1. Default: with `floors`, 1, because the floors of smaller kernels slow the group; else
    /// 0.9 (assumed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_efficiency: Option<f64>,
    /// Constant time of a pass outside its layers, such as sampling and graph launch, seconds, ≥ 0. Default (assumed):
    /// with `floors`, 20 µs of the GPU's time, because the host's time is `engine.step_overhead_s` and `engine.host`;
    /// else 300 µs, in which some time of the host is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass_overhead_s: Option<f64>,
    /// Constant time of each layer beside its products and memory reads, such as small kernels and gaps between
    /// kernels, seconds, ≥ 0. Default: with `floors`, six small kernels of the measured floor; else 10 µs (assumed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_overhead_s: Option<f64>,
    /// Latency of one all-reduce, or of one exchange of tokens with experts, between GPUs, seconds, ≥ 0. Default: with
    /// `floors`, the measured floor; else 10 µs (assumed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_reduce_s: Option<f64>,
    /// Share of each GPU's memory that the server may use (vLLM `gpu_memory_utilization`), in (0, 1].
    #[serde(default = "memory_utilization")]
    pub memory_utilization: f64,
    /// Memory that is kept free for activations on each GPU (assumed), bytes, ≥ 0.
    #[serde(default = "activation_bytes")]
    pub activation_bytes: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

fn one() -> u32 {
    1
}
/// Shares and times of a roofline without floors, where the settings do not give them. All are assumed.
const BANDWIDTH: f64 = 0.8;
const COMPUTE: f64 = 0.6;
const PARALLEL: f64 = 0.9;
const PASS_S: f64 = 300e-6;
const LAYER_S: f64 = 10e-6;
const ALL_REDUCE_S: f64 = 10e-6;

fn memory_utilization() -> f64 {
    0.9
}
fn activation_bytes() -> f64 {
    2e9
}

impl RooflineSpec {
    /// A roofline of a preset model on one preset GPU, with every assumption at its default.
    pub fn new(gpu: &str, model: &str) -> RooflineSpec {
        RooflineSpec {
            gpu: GpuChoice::preset(gpu),
            model: ModelChoice::preset(model),
            tensor_parallel: one(),
            expert_parallel: false,
            experts: None,
            expert_reuse: 0.0,
            experts_read: Vec::new(),
            kv_bits: None,
            weight_only: false,
            floors: false,
            bandwidth_efficiency: None,
            compute_efficiency: None,
            parallel_efficiency: None,
            pass_overhead_s: None,
            layer_overhead_s: None,
            all_reduce_s: None,
            memory_utilization: memory_utilization(),
            activation_bytes: activation_bytes(),
        }
    }

    /// The shares and times that a roofline without floors assumes, by their keys.
    pub fn assumed() -> BTreeMap<&'static str, f64> {
        BTreeMap::from([
            ("bandwidth_efficiency", BANDWIDTH),
            ("compute_efficiency", COMPUTE),
            ("parallel_efficiency", PARALLEL),
            ("pass_overhead_s", PASS_S),
            ("layer_overhead_s", LAYER_S),
            ("all_reduce_s", ALL_REDUCE_S),
        ])
    }

    /// The model's shape, changed by the settings `experts`, `kv_bits` and `weight_only`.
    ///
    /// # Errors
    /// There is no such preset, or a number of the shape is out of its range.
    pub fn shape(&self) -> Result<ModelShape, BadLatency> {
        let mut shape = self.model.shape()?.into_owned();
        if let Some(experts) = self.experts {
            shape = shape.with_experts(experts);
        }
        shape.bits.kv = self.kv_bits.unwrap_or(shape.bits.kv);
        if self.weight_only {
            let bits = &mut shape.bits;
            (bits.activations, bits.dense_activations, bits.expert_activations) = (16.0, None, 16.0);
        }
        Ok(shape)
    }

    /// Checks the values that serde cannot check.
    ///
    /// # Errors
    /// The name of the GPU or the model is unknown, or a number of the GPU, the model or these settings is out of its
    /// range. The model computes in a precision for which the GPU has no peak. `experts_read` and `expert_reuse` are
    /// both given. The error names the setting.
    pub fn check(&self) -> Result<(), BadLatency> {
        let (gpu, shape) = (self.gpu.gpu()?, self.shape()?);
        peaks(&gpu, &shape.work().token_flops)?;
        if self.tensor_parallel == 0 {
            return Err(bad("tensor_parallel", "must be at least 1"));
        }
        if let Some(e) = self.experts
            && !(1..=e.total).contains(&e.active)
        {
            return Err(bad("experts", format!("{} of {} experts cannot be active", e.active, e.total)));
        }
        if !(0.0..=1.0).contains(&self.expert_reuse) {
            return Err(bad("expert_reuse", format!("{} is not a share in [0, 1]", self.expert_reuse)));
        }
        experts_read::check(&self.experts_read, &shape)?;
        if !self.experts_read.is_empty() && self.expert_reuse != 0.0 {
            return Err(bad(
                "expert_reuse",
                "the counts of experts_read have the reuse already: leave one of them out",
            ));
        }
        if let Some(bits) = self.kv_bits.filter(|bits| !(1.0..=32.0).contains(bits)) {
            return Err(bad("kv_bits", format!("{bits} is not a number of bits from 1 to 32")));
        }
        let shares = [
            ("bandwidth_efficiency", self.bandwidth_efficiency),
            ("compute_efficiency", self.compute_efficiency),
            ("parallel_efficiency", self.parallel_efficiency),
            ("memory_utilization", Some(self.memory_utilization)),
        ];
        let shares = shares.into_iter().filter_map(|(key, x)| Some((key, x?)));
        if let Some((key, x)) = shares.into_iter().find(|(_, x)| !(*x > 0.0 && *x <= 1.0)) {
            return Err(bad(key, format!("{x} is not a share in (0, 1]")));
        }
        let amounts = [
            ("pass_overhead_s", self.pass_overhead_s),
            ("layer_overhead_s", self.layer_overhead_s),
            ("all_reduce_s", self.all_reduce_s),
            ("activation_bytes", Some(self.activation_bytes)),
        ];
        match amounts.into_iter().filter_map(|(key, x)| Some((key, x?))).find(|(_, x)| !(*x >= 0.0 && x.is_finite())) {
            Some((key, x)) => Err(bad(key, format!("{x} is not a number ≥ 0"))),
            None => Ok(()),
        }
    }

    /// The memory for KV that weights and activations leave on all GPUs together.
    ///
    /// # Errors
    /// The name of the GPU or the model is unknown, or a number of the GPU or the model is out of its range.
    pub fn memory(&self) -> Result<Memory, BadLatency> {
        let (gpu, work) = (self.gpu.gpu()?, self.shape()?.work());
        let n = f64::from(self.tensor_parallel);
        let room = n * (gpu.memory_bytes * self.memory_utilization - self.activation_bytes);
        Ok(Memory {
            kv_bytes_token: work.kv_bytes_token(n),
            kv_bytes: room - work.weight_bytes,
            // Tensor parallelism splits recurrent states over the GPUs. Each GPU holds all of a window, whose layers
            // have one KV head.
            state_bytes: work.state_bytes,
            request_bytes: n * work.request_bytes,
        })
    }

    /// Builds the latency model: computes all numbers of the roofline that do not depend on the pass.
    ///
    /// # Errors
    /// The errors of [`check`](RooflineSpec::check).
    pub fn build(&self) -> Result<Roofline, BadLatency> {
        self.check()?;
        let (gpu, shape) = (self.gpu.gpu()?, self.shape()?);
        let work = shape.work();
        let form = match self.floors {
            true => Form::Kernels(self.kernel_times(&gpu, &work)?),
            false => Form::Common(self.common_times(&gpu, &work)?),
        };
        Ok(Roofline { form, context: self.context_pass(&gpu, &shape, &work)? })
    }

    /// The times of a pass that only writes keys and values. With floors, each layer has a product and the small
    /// kernels of a norm, a rotation and a write to the cache, and the joining matrix is one more product.
    fn context_pass(&self, gpu: &Gpu, shape: &ModelShape, work: &Work) -> Result<ContextPass, BadLatency> {
        let (bytes, flops) = shape.context_work();
        let n = f64::from(self.tensor_parallel);
        let alone = self.tensor_parallel == 1;
        let [fp8, fp4] = peaks(gpu, &flops)?;
        let (fixed_s, bandwidth_share, flops_share, parallel) = match self.floors {
            true => {
                let fits = floors(&self.gpu, gpu);
                let fit = fits.products.of(shape.bits.weights, shape.bits.activations);
                let layer_s = self.layer_overhead_s.unwrap_or(WRITE_KERNELS * fits.small.floor_s);
                let fixed_s = work.layers * (layer_s + fit.floor_s) + fit.floor_s;
                (fixed_s, fit.bandwidth, fit.flops, self.parallel_efficiency.unwrap_or(1.0))
            }
            false => {
                let fixed_s = work.layers * self.layer_overhead_s.unwrap_or(LAYER_S);
                (fixed_s, BANDWIDTH, COMPUTE, self.parallel_efficiency.unwrap_or(PARALLEL))
            }
        };
        let speedup = if alone { 1.0 } else { n * parallel };
        let compute = speedup * self.compute_efficiency.unwrap_or(flops_share);
        let seconds = |work: f64, peak: f64| if work == 0.0 { 0.0 } else { work / (peak * compute) };
        Ok(ContextPass {
            fixed_s,
            bytes_s: bytes / (gpu.bandwidth_bytes_s * speedup * self.bandwidth_efficiency.unwrap_or(bandwidth_share)),
            token_flops_s: seconds(flops.bf16, gpu.bf16_flops) + seconds(flops.fp8, fp8) + seconds(flops.fp4, fp4),
        })
    }

    /// The times of kernels of which all reach the same shares of bandwidth and arithmetic.
    fn common_times(&self, gpu: &Gpu, work: &Work) -> Result<CommonTimes, BadLatency> {
        let n = f64::from(self.tensor_parallel);
        let alone = self.tensor_parallel == 1;
        let speedup = if alone { 1.0 } else { n * self.parallel_efficiency.unwrap_or(PARALLEL) };
        let bandwidth = gpu.bandwidth_bytes_s * self.bandwidth_efficiency.unwrap_or(BANDWIDTH) * speedup;
        let flops = |peak: f64| peak * self.compute_efficiency.unwrap_or(COMPUTE) * speedup;
        let bf16 = flops(gpu.bf16_flops);
        let [fp8, fp4] = peaks(gpu, &work.token_flops)?.map(flops);
        let flops_s = |f: &FlopsByBits| f.bf16 / bf16 + f.fp8 / fp8 + f.fp4 / fp4;
        let (messages, token_bytes) = self.messages(work);
        let layers_s = work.layers * self.layer_overhead_s.unwrap_or(LAYER_S);
        let messages_s = messages * self.all_reduce_s.unwrap_or(ALL_REDUCE_S);
        Ok(CommonTimes {
            fixed_s: self.pass_overhead_s.unwrap_or(PASS_S) + layers_s + messages_s,
            always_bytes_s: work.always_bytes / bandwidth,
            blocks: work.blocks.iter().map(|blocks| BlockTimes::new(blocks, bandwidth)).collect(),
            token_flops_s: flops_s(&work.token_flops),
            head_bytes_s: work.head_bytes / bandwidth,
            head_flops_s: work.head_flops / bf16,
            attention: work
                .attention
                .iter()
                .map(|a| AttentionTimes::new(a, (n / a.split).max(1.0), bandwidth, bf16))
                .collect(),
            // The state of each request is read and written in a pass, hence the factor 2.
            state_bytes_s: 2.0 * work.state_bytes / bandwidth,
            link_token_s: token_bytes / gpu.link_bytes_s,
            expert_reuse: self.expert_reuse,
            experts_read: ExpertsRead::new(&self.experts_read),
        })
    }

    /// The times of kernels with their measured floors and shares.
    fn kernel_times(&self, gpu: &Gpu, work: &Work) -> Result<KernelTimes, BadLatency> {
        let (fits, kernels) = (floors(&self.gpu, gpu), &work.kernels);
        let n = f64::from(self.tensor_parallel);
        let speed = if self.tensor_parallel == 1 { 1.0 } else { self.parallel_efficiency.unwrap_or(1.0) };
        let bandwidth = |share: f64| gpu.bandwidth_bytes_s * speed * self.bandwidth_efficiency.unwrap_or(share);
        let [fp8, fp4] = peaks(gpu, &work.token_flops)?;
        let flops = |activations: f64, share: f64| {
            let peak = match activations {
                a if a <= 4.0 => fp4,
                a if a <= 8.0 => fp8,
                _ => gpu.bf16_flops,
            };
            peak * speed * self.compute_efficiency.unwrap_or(share)
        };
        let (messages, link_bytes) = self.messages(work);
        let small = bandwidth(fits.small.bandwidth);
        let layer_s = self.layer_overhead_s.unwrap_or(SMALL_KERNELS * fits.small.floor_s);
        let mut times = KernelTimes {
            fixed_s: self.pass_overhead_s.unwrap_or(floors::PASS_S)
                + work.layers * layer_s
                + messages * self.all_reduce_s.unwrap_or(fits.all_reduce.floor_s)
                + kernels.attentions * fits.attention.floor_s
                + kernels.recurrences * fits.recurrent.floor_s,
            products: Vec::new(),
            experts: Vec::new(),
            attention: work
                .attention
                .iter()
                .map(|a| {
                    let copies = (n / a.split).max(1.0);
                    let flops = n * flops(16.0, fits.attention.flops);
                    AttentionTimes::new(a, copies, n * bandwidth(fits.attention.bandwidth), flops)
                })
                .collect(),
            request_s: kernels.attentions * fits.attention.request_s
                + 2.0 * work.state_bytes / n / bandwidth(fits.recurrent.bandwidth),
            token_s: kernels.attention_token_bytes / n / bandwidth(fits.attention.token_bandwidth)
                + (kernels.norm_bytes + kernels.activation_bytes / n) / small
                + link_bytes / (gpu.link_bytes_s * fits.all_reduce.bandwidth),
            expert_reuse: self.expert_reuse,
            experts_read: ExpertsRead::new(&self.experts_read),
        };
        for p in &kernels.products {
            let fit = fits.products.of(p.bits, p.activations);
            let gpus = if p.split { n } else { 1.0 };
            times.fixed_s += p.count * fit.floor_s;
            times.add_products(
                fit.join,
                p.parameters / gpus * p.bits / 8.0 / bandwidth(fit.bandwidth),
                2.0 * p.parameters / gpus / flops(p.activations, fit.flops),
            );
        }
        for e in &kernels.experts {
            let fit: &KernelFit = fits.experts.of(e.bits, e.activations);
            times.fixed_s += e.layers * fit.floor_s;
            // Each expert that a token uses reads and writes its numbers of 16 bits. Split over GPUs, each does so; if
            // experts are spread, each GPU has a part of them.
            let spread = if self.expert_parallel { n } else { 1.0 };
            let numbers = 4.0 * e.active * e.layers * work.expert_width / spread;
            times.token_s += numbers / bandwidth(fit.token_bandwidth);
            times.experts.push(ExpertTimes {
                total: e.total,
                miss: 1.0 - e.active / e.total,
                moved_s: e.parameters / n * e.bits / 8.0 / bandwidth(fit.bandwidth),
                computed_s: 2.0 * e.active * e.parameters / n / flops(e.activations, fit.flops),
                join: fit.join,
            });
        }
        Ok(times)
    }

    /// For a tensor-parallel group of GPUs: (number of collective operations of a pass, bytes that a pass moves over
    /// each link for one token). (0, 0) for one GPU.
    ///
    /// A ring all-reduce moves 2(n − 1)/n of the activations over each link. A layer has two all-reduces. With expert
    /// parallelism, the second all-reduce of a layer with experts is replaced by two exchanges, which send tokens to
    /// their experts and back. Each GPU sends 1/n of the tokens, each token goes to its active experts, and (n − 1)/n
    /// of the experts are on other GPUs.
    fn messages(&self, work: &Work) -> (f64, f64) {
        if self.tensor_parallel == 1 {
            return (0.0, 0.0);
        }
        let n = f64::from(self.tensor_parallel);
        let reduce_bytes = 2.0 * (n - 1.0) / n * work.hidden * 2.0;
        let sparse = if self.expert_parallel { work.sparse_layers } else { 0.0 };
        let exchange_bytes = 2.0 * (n - 1.0) / n * work.expert_width * 2.0 * work.active_experts / n;
        let (reduces, exchanges) = (2.0 * work.layers - sparse, 2.0 * sparse);
        (reduces + exchanges, reduces * reduce_bytes + sparse * exchange_bytes)
    }
}

/// (the GPU's peak in fp8, its peak in fp4), FLOP/s. If the GPU has no peak in a precision, the result is infinite if
/// the model does not compute in this precision, else it is an error.
fn peaks(gpu: &Gpu, flops: &FlopsByBits) -> Result<[f64; 2], BadLatency> {
    let peak = |name: &str, work: f64, peak: Option<f64>| match peak {
        Some(peak) => Ok(peak),
        None if work == 0.0 => Ok(f64::INFINITY),
        None => {
            let why = format!("has no peak in {name}, in which the model computes");
            Err(bad("gpu", format!("{why}; weight_only = true multiplies in bf16, as engines do on such a GPU")))
        }
    };
    Ok([peak("fp8", flops.fp8, gpu.fp8_flops)?, peak("fp4", flops.fp4, gpu.fp4_flops)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::PassShape;

    fn spec(gpu: &str, model: &str) -> RooflineSpec {
        RooflineSpec::new(gpu, model)
    }

    const ONE: PassShape = PassShape { requests: 1, batched: 1, context: 0, pairs: 1 };

    #[test]
    fn a_decode_is_bound_by_weights_and_a_prefill_by_compute() {
        let m = spec("a100-80g", "vicuna-7b").build().unwrap();
        // A pass of this 7B model reads 13.2 GB of layers and output head (not the embedding) at 80 % of 2,039 GB/s.
        // The overheads are 0.62 ms.
        let moved = 2.0 * (6.738e9 - 32_000.0 * 4096.0) / (2039e9 * 0.8);
        assert!((m.pass_s(ONE) - (moved + 620e-6)).abs() < 1e-5, "{}", m.pass_s(ONE));
        let long = PassShape { requests: 1, batched: 2048, context: 0, pairs: 2048 * 2049 / 2 };
        let computed = 2.0 * 6.6e9 * 2048.0 / (312e12 * 0.6);
        assert!((m.pass_s(long) / computed - 1.0).abs() < 0.05, "{} against {computed}", m.pass_s(long));
    }

    #[test]
    fn experts_are_read_as_they_are_visited() {
        let m = spec("a100-80g", "mixtral-8x7b").build().unwrap();
        let at = |n: u64| m.pass_s(PassShape { requests: 1, batched: n, context: 0, pairs: 0 });
        // A pass with one token reads 2 of a layer's 8 experts; a pass with many tokens reads all 8.
        let Form::Common(times) = &m.form else { panic!("floors are not asked for") };
        let expert = times.blocks[0].bytes_s;
        assert!(((at(64) - at(1)) / expert - 6.0).abs() < 0.01);
    }

    #[test]
    fn four_gpus_are_faster_but_not_four_times() {
        let alone = spec("a100-80g", "vicuna-33b").build().unwrap().pass_s(ONE);
        let four = RooflineSpec { tensor_parallel: 4, ..spec("a100-80g", "vicuna-33b") }.build().unwrap().pass_s(ONE);
        assert!(four < alone / 2.0 && four > alone / 4.0, "{four} against {alone}");
    }

    fn floored(gpu: &str, model: &str, tensor_parallel: u32) -> RooflineSpec {
        RooflineSpec { floors: true, tensor_parallel, ..spec(gpu, model) }
    }

    /// A second way to compute: the kernels of a step of Llama-3.1-8B one by one, as a model of four products a layer.
    #[test]
    fn a_pass_with_floors_is_the_sum_of_its_kernels() {
        let fits = floors(&GpuChoice::preset("h100"), &crate::gpus::gpu("h100").unwrap().gpu);
        let (product, attention) = (&fits.products.bf16, &fits.attention);
        let bandwidth = 3.35e12;
        let (tokens, context) = (16.0, 1024.0);
        let time = |inputs: f64, outputs: f64| {
            let moved = inputs * outputs * 2.0 / (bandwidth * product.bandwidth);
            let computed = 2.0 * tokens * inputs * outputs / (989e12 * product.flops);
            product.floor_s + moved.hypot(computed)
        };
        let products = time(4096.0, 6144.0) + time(4096.0, 4096.0) + time(4096.0, 28672.0) + time(14336.0, 4096.0);
        let read = tokens * (context + 1.0) * 4096.0 / (bandwidth * attention.bandwidth);
        let pairs = 4.0 * 32.0 * 128.0 * tokens * (context + 1.0) / (989e12 * attention.flops);
        let numbers = tokens * 2.0 * 40.0 * 128.0 * 2.0 / (bandwidth * attention.token_bandwidth);
        let attended = attention.floor_s + attention.request_s * tokens + read.hypot(pairs) + numbers;
        let small = 2.0 * (8.0 * 4096.0 + 3.0 * 14336.0) * tokens / (bandwidth * fits.small.bandwidth);
        let layer = products + attended + small + SMALL_KERNELS * fits.small.floor_s;
        let whole = 32.0 * layer + time(4096.0, 128_256.0) + floors::PASS_S;
        let shape = PassShape { requests: 16, batched: 16, context: 16 * 1024, pairs: 16 * 1025 };
        let built = floored("h100", "llama-3.1-8b", 1).build().unwrap().pass_s(shape);
        assert!((built / whole - 1.0).abs() < 1e-9, "{built} against {whole}");
    }

    /// Measured on an H200 with this repository's kernels (`experiments/validation/h200`): 0.093 ms, where constant
    /// overheads give 0.343 ms.
    #[test]
    fn the_pass_of_a_small_draft_is_nearly_all_floors() {
        let with = floored("h200", "vicuna-68m", 1).build().unwrap().pass_s(ONE);
        let without = spec("h200", "vicuna-68m").build().unwrap().pass_s(ONE);
        assert!((0.093e-3..0.15e-3).contains(&with), "{with}");
        assert!(without > 2.0 * with, "{without} against {with}");
    }

    /// The products of a group become smaller, but their floors do not: eight GPUs are far from eight times as fast.
    #[test]
    fn floors_slow_a_large_group() {
        let at = |gpus: u32| floored("h100", "llama-3.3-70b", gpus).build().unwrap().pass_s(ONE);
        let [one, eight] = [at(1), at(8)];
        assert!(eight > one / 6.0 && eight < one / 3.0, "{one} and {eight}");
    }

    #[test]
    fn shares_that_are_given_take_the_place_of_measured_ones() {
        let at = |s: RooflineSpec| s.build().unwrap().pass_s(ONE);
        let own = floored("h100", "llama-3.1-8b", 2);
        let slower = RooflineSpec { bandwidth_efficiency: Some(0.4), ..own.clone() };
        assert!(at(slower) > 1.5 * at(own.clone()));
        let links = RooflineSpec { all_reduce_s: Some(1e-4), ..own.clone() };
        let floor = floors(&own.gpu, &own.gpu.gpu().unwrap()).all_reduce.floor_s;
        assert!((at(links) - at(own) - 64.0 * (1e-4 - floor)).abs() < 1e-9);
    }

    #[test]
    fn memory_is_what_the_weights_leave() {
        let blocks = spec("a100-80g", "vicuna-7b").memory().unwrap().kv_blocks(16);
        // The expected number of KV blocks is (80 GiB · 0.9 − 2 GB of activations − 13.5 GB of weights) / 8 MiB.
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
        let negative = RooflineSpec { pass_overhead_s: Some(-1.0), ..spec("h100", "vicuna-7b") };
        assert!(fault(negative).starts_with("pass_overhead_s"));
    }
}
