//! The settings of a roofline, the cost model from a GPU's datasheet and a model's shape.

use super::experts_read;
use super::memory::Memory;
use crate::hardware::bad::{BadLatency, bad};
use crate::hardware::gpus::{Gpu, GpuChoice};
use crate::hardware::models::{Experts, FlopsByBits, ModelChoice, ModelShape};
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
    /// Number of data-parallel ranks of the server whose experts are spread over the GPUs of all ranks, or split over
    /// them without `expert_parallel`. Each rank has `tensor_parallel` GPUs with all other weights, and its own memory
    /// for KV. Above 1 it needs `floors`, and a fleet of this number of replicas with `fleet.lock_step`. Default: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub data_parallel: u32,
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
    /// shares, and a layer and a pass take constant times beside them. Default: true.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
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
    /// Factor on all times of the passes, in (0, 1000]: 1.1 if passes of your server take a tenth longer than the
    /// roofline says.
    #[serde(default = "unchanged", skip_serializing_if = "is_unchanged")]
    pub time_factor: f64,
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

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_true(x: &bool) -> bool {
    *x
}

fn unchanged() -> f64 {
    1.0
}
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_unchanged(x: &f64) -> bool {
    *x == unchanged()
}

fn one() -> u32 {
    1
}
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_one(x: &u32) -> bool {
    *x == one()
}
fn yes() -> bool {
    true
}
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
            data_parallel: one(),
            experts: None,
            expert_reuse: 0.0,
            experts_read: Vec::new(),
            kv_bits: None,
            weight_only: false,
            floors: yes(),
            bandwidth_efficiency: None,
            compute_efficiency: None,
            parallel_efficiency: None,
            pass_overhead_s: None,
            layer_overhead_s: None,
            all_reduce_s: None,
            time_factor: unchanged(),
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
    pub fn check(&self) -> Result<(), BadLatency> {
        let (gpu, shape) = (self.gpu.gpu()?, self.shape()?);
        peaks(&gpu, &shape.work().token_flops)?;
        if self.tensor_parallel == 0 {
            return Err(bad("tensor_parallel", "must be at least 1"));
        }
        match self.data_parallel {
            1 => {}
            0 => return Err(bad("data_parallel", "must be at least 1")),
            _ if !self.floors => {
                return Err(bad(
                    "floors",
                    "passes of data-parallel ranks are known with floors only: leave floors out",
                ));
            }
            _ if shape.work().kernels.experts.is_empty() => {
                let why = format!("{} has no experts that ranks could share", shape.name);
                return Err(bad("data_parallel", format!("{why}: leave it out, replicas of it run apart")));
            }
            _ => {}
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
        if !(self.time_factor > 0.0 && self.time_factor <= 1000.0) {
            return Err(bad("time_factor", format!("{} is not a factor in (0, 1000]", self.time_factor)));
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

    /// The memory for KV that weights and activations leave on all GPUs of a data-parallel rank together. A rank has
    /// its part of the experts, and all other weights.
    pub fn memory(&self) -> Result<Memory, BadLatency> {
        let (gpu, work) = (self.gpu.gpu()?, self.shape()?.work());
        let n = f64::from(self.tensor_parallel);
        let room = n * (gpu.memory_bytes * self.memory_utilization - self.activation_bytes);
        let experts: f64 = work.blocks.iter().filter(|b| b.total > 1.0).map(|b| b.total * b.bytes).sum();
        let elsewhere = experts * (1.0 - 1.0 / f64::from(self.data_parallel));
        Ok(Memory::new(&work, room - (work.weight_bytes - elsewhere), n))
    }
}

pub(super) const BANDWIDTH: f64 = 0.8;
pub(super) const COMPUTE: f64 = 0.6;
pub(super) const PARALLEL: f64 = 0.9;
pub(super) const PASS_S: f64 = 300e-6;
pub(super) const LAYER_S: f64 = 10e-6;
pub(super) const ALL_REDUCE_S: f64 = 10e-6;

/// (the GPU's peak in fp8, its peak in fp4), FLOP/s. If the GPU has no peak in a precision, the result is infinite if
/// the model does not compute in this precision, else it is an error.
pub(super) fn peaks(gpu: &Gpu, flops: &FlopsByBits) -> Result<[f64; 2], BadLatency> {
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
