//! Floors of kernels: the measured least time of each kind of kernel on a GPU, and the measured shares of the
//! datasheet's bandwidth and arithmetic that it reaches beyond its floor. `experiments/validation/silicon/floors.py`
//! fits the numbers to published times of kernels.

use crate::hardware::gpus::{Gpu, GpuChoice, GpuName, GpuPreset, gpu};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Number of small kernels of a layer: two norms, the rotation of queries and keys, the writing of KV, the activation
/// function or the choice of experts, and a scaling before a product or the joining of attention's parts.
pub const SMALL_KERNELS: f64 = 6.0;

/// Small kernels of a layer in a pass that only writes keys and values: a norm, a rotation and the write to the cache.
pub const WRITE_KERNELS: f64 = 3.0;

/// Time of a pass outside its layers (assumed), seconds: the launch of a CUDA graph and some small kernels that sample.
pub const PASS_S: f64 = 20e-6;

const TEXT: &str = include_str!("../../floors.json");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The measurements that the numbers are fitted to, with version and licence.
    source: String,
    measured: Vec<Floors>,
    /// For presets whose kernels were not measured: the measured GPU that is most like them.
    relatives: BTreeMap<String, String>,
}

static TABLE: LazyLock<Table> =
    LazyLock::new(|| serde_json::from_str(TEXT).unwrap_or_else(|e| panic!("floors.json is a table of floors: {e}")));

/// The floors and shares of the kernels of one GPU. `misfit` is the median relative error of a fit. `from` names the
/// GPU of a fit whose kernels were not measured on this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floors {
    /// The measured GPU, a preset.
    pub gpu: String,
    pub products: ByPrecision<KernelFit>,
    pub experts: ByPrecision<KernelFit>,
    /// Attention of one layer.
    pub attention: AttentionFit,
    /// The recurrence of one layer.
    pub recurrent: KernelFit,
    /// An all-reduce. Its `bandwidth` is a share of the link's.
    pub all_reduce: KernelFit,
    /// A small kernel, such as a norm.
    pub small: KernelFit,
}

/// One value for each precision in which a kernel computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByPrecision<T> {
    /// Weights and activations of more than 8 bits.
    pub bf16: T,
    /// Activations of more than 4 and up to 8 bits.
    pub fp8: T,
    /// Activations of up to 4 bits.
    pub fp4: T,
    /// Weights of up to 8 bits, which are multiplied in bf16.
    pub weight_only: T,
}

impl Floors {
    /// The parts whose kernels were measured on another GPU, such as `experts in fp8 (h100)`.
    pub fn borrowed(&self) -> Vec<String> {
        let kinds = |what: &'static str, k: &'_ ByPrecision<KernelFit>| {
            let named = [("bf16", &k.bf16), ("fp8", &k.fp8), ("fp4", &k.fp4), ("weight-only", &k.weight_only)];
            named.map(|(kind, fit)| (format!("{what} in {kind}"), fit.from.clone()))
        };
        let others = [
            ("attention", &self.attention.from),
            ("recurrences", &self.recurrent.from),
            ("all-reduces", &self.all_reduce.from),
            ("small kernels", &self.small.from),
        ];
        let others = others.map(|(what, from)| (what.to_owned(), from.clone()));
        let all = kinds("products", &self.products).into_iter().chain(kinds("experts", &self.experts)).chain(others);
        all.filter_map(|(what, from)| Some(format!("{what} ({})", from?))).collect()
    }
}

impl<T> ByPrecision<T> {
    /// The value for weights of `bits` bits and activations of `activations` bits.
    pub fn of(&self, bits: f64, activations: f64) -> &T {
        match (bits, activations) {
            (_, a) if a <= 4.0 => &self.fp4,
            (_, a) if a <= 8.0 => &self.fp8,
            (b, _) if b <= 8.5 => &self.weight_only,
            _ => &self.bf16,
        }
    }
}

/// The time of a kernel: a floor, and the times of moving and of computing at shares of the datasheet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelFit {
    /// Time of the smallest kernel, seconds.
    pub floor_s: f64,
    pub bandwidth: f64,
    /// Share of the peak arithmetic in the kernel's precision.
    #[serde(default = "one")]
    pub flops: f64,
    /// Share of the bandwidth at which experts read and write a token's numbers.
    #[serde(default = "one")]
    pub token_bandwidth: f64,
    /// How the times of moving and of computing join.
    #[serde(default)]
    pub join: Join,
    /// Median relative error of the fit.
    pub misfit: f64,
    /// The GPU whose kernels were measured, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// How a kernel's times of moving and of computing join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Join {
    /// The root of the sum of their squares: they overlap where one is longer.
    #[default]
    Root,
    Sum,
}

impl Join {
    /// The time of a kernel that moves for `moved` and computes for `computed` seconds.
    pub fn seconds(self, moved: f64, computed: f64) -> f64 {
        match self {
            // Not `hypot`, whose last digit differs between machines.
            Join::Root => (moved * moved + computed * computed).sqrt(),
            Join::Sum => moved + computed,
        }
    }
}

/// The time of attention of one layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionFit {
    /// Time of the smallest kernel, seconds.
    pub floor_s: f64,
    pub request_s: f64,
    /// Share of the bandwidth at which KV is read.
    pub bandwidth: f64,
    /// Share of the bandwidth at which queries, new keys and values, and outputs are moved.
    pub token_bandwidth: f64,
    /// Share of the bf16 peak at which query-key pairs are computed.
    pub flops: f64,
    /// Median relative error of the fit to decodes.
    pub misfit: f64,
    /// Median relative error of the fit to prompts.
    pub prompt_misfit: f64,
    /// The GPU whose kernels were measured, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

fn one() -> f64 {
    1.0
}

/// The floors of the GPU, or of its nearest measured relative. For a GPU that `floors.json` does not name, this is the
/// measured GPU that computes in the same precisions and whose bandwidth is the nearest.
pub fn floors(choice: &GpuChoice, gpu: &Gpu) -> &'static Floors {
    let of = |name: &str| TABLE.measured.iter().find(|floors| floors.gpu == name);
    let named = match choice {
        GpuChoice::Preset(GpuName(name)) => of(TABLE.relatives.get(name).unwrap_or(name)),
        GpuChoice::Numbers(_) => None,
    };
    let found = named.or_else(|| nearest(gpu).and_then(|preset| of(&preset.name)));
    found.unwrap_or_else(|| panic!("the measured GPUs of floors.json are presets"))
}

fn nearest(own: &Gpu) -> Option<&'static GpuPreset> {
    let precisions = |gpu: &Gpu| (gpu.fp8_flops.is_some(), gpu.fp4_flops.is_some());
    let distance = |preset: &&GpuPreset| (preset.gpu.bandwidth_bytes_s / own.bandwidth_bytes_s).ln().abs();
    let measured = TABLE.measured.iter().filter_map(|floors| gpu(&floors.gpu));
    let alike = measured.filter(|preset| precisions(&preset.gpu) == precisions(own));
    // A GPU with a rare choice of precisions takes the nearest of all.
    let all = || TABLE.measured.iter().filter_map(|floors| gpu(&floors.gpu));
    alike
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
        .or_else(|| all().min_by(|a, b| distance(a).total_cmp(&distance(b))))
}

pub fn measured() -> &'static [Floors] {
    &TABLE.measured
}

/// The measurements that the floors are fitted to, with version and licence.
pub fn source() -> &'static str {
    &TABLE.source
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::gpus::gpus;

    #[test]
    fn relatives_are_presets_that_were_not_measured() {
        let measured = |name: &str| TABLE.measured.iter().any(|floors| floors.gpu == name);
        for (name, relative) in &TABLE.relatives {
            assert!(gpu(name).is_some() && !measured(name) && measured(relative), "{name}: {relative}");
        }
        for preset in gpus().iter().filter(|preset| measured(&preset.name)) {
            assert_eq!(floors(&GpuChoice::preset(&preset.name), &preset.gpu).gpu, preset.name);
        }
    }

    /// Floors are times of one kernel, and no kernel moves or computes much more than the datasheet allows.
    #[test]
    fn fits_are_physical() {
        for floors in &TABLE.measured {
            let kinds =
                |k: &ByPrecision<KernelFit>| [k.bf16.clone(), k.fp8.clone(), k.fp4.clone(), k.weight_only.clone()];
            let products = kinds(&floors.products).into_iter().map(|fit| (fit, 2e-5));
            let experts = kinds(&floors.experts).into_iter().map(|fit| (fit, 1.5e-4));
            let others = [&floors.recurrent, &floors.all_reduce, &floors.small].map(|fit| (fit.clone(), 3e-5));
            for (fit, longest) in products.chain(experts).chain(others) {
                assert!((1e-6..longest).contains(&fit.floor_s), "{}: {fit:?}", floors.gpu);
                assert!(fit.bandwidth > 0.0 && fit.bandwidth <= 1.3, "{}: {fit:?}", floors.gpu);
                assert!(fit.flops > 0.0 && fit.flops <= 1.0, "{}: {fit:?}", floors.gpu);
            }
            let a = &floors.attention;
            assert!((5e-6..3e-5).contains(&a.floor_s) && a.request_s < 1e-6, "{}: {a:?}", floors.gpu);
        }
    }

    #[test]
    fn what_is_borrowed_is_named() {
        let borrowed = |name: &str| floors(&GpuChoice::preset(name), &gpu(name).unwrap().gpu).borrowed().join(", ");
        assert!(borrowed("h200").contains("products in weight-only (bf16 on h200)"), "{}", borrowed("h200"));
        assert!(borrowed("a100-80g").contains("small kernels (h100)"), "{}", borrowed("a100-80g"));
        assert!(!borrowed("b200").contains("experts"), "{}", borrowed("b200"));
    }

    #[test]
    fn a_gpu_by_its_numbers_takes_the_relative_with_its_precisions() {
        let numbers = |name: &str| crate::hardware::gpus::gpu(name).unwrap().gpu;
        let of = |gpu: Gpu| floors(&GpuChoice::Numbers(gpu), &gpu).gpu.as_str();
        assert_eq!(
            [of(numbers("t4")), of(numbers("l4")), of(numbers("rtx-5090"))],
            ["a100-80g", "l40s", "rtx-pro-6000"]
        );
    }
}
