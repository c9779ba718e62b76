//! The setting `kernels`: pass times that are summed from the kernel times of an installed package.

use super::package::{Package, SYSTEMS, TESTED, order};
use super::pass::{KernelPass, Provenance};
use super::sum::sum;
use super::table_set::TableSet;
use super::terms::Setup;
use crate::hardware::bad::{BadLatency, bad};
use crate::hardware::floors::floors;
use crate::hardware::gpus::{GpuChoice, GpuName};
use crate::hardware::hosts::{self, Host};
use crate::hardware::models::ModelChoice;
use crate::hardware::roofline::RooflineSpec;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Pass times that are summed from measured kernels. The kernel times are in the PyPI package aiconfigurator-core,
/// which must be installed or unpacked (`foretoken hardware kernels` says what it has).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelsSpec {
    /// The GPU, a preset whose kernels the package has (`foretoken hardware kernels`).
    pub gpu: GpuName,
    /// The engine whose kernels are taken.
    pub engine: Engine,
    /// The engine's release, such as `0.19.0`. Kernels change between releases: of each table, the newest version that
    /// is not newer is taken. Without one, and by default, it is the version with the most rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The model: the name of a preset (`foretoken models list`), `{ config = "config.json" }`, or a shape (sizes and
    /// bits).
    pub model: ModelChoice,
    /// Number of GPUs over which the model is split by tensor parallelism, at least 1. All-reduces were measured over
    /// 2, 4 and 8 GPUs. Default: 1.
    #[serde(default = "one")]
    pub tensor_parallel: u32,
    /// Expert parallelism: each GPU holds whole experts. If false, each expert is split over all GPUs. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expert_parallel: bool,
    /// Number of data-parallel ranks of the server whose experts are spread over the GPUs of all ranks, or split over
    /// them without `expert_parallel`. Above 1 it needs a fleet of this number of replicas with `fleet.lock_step`.
    /// Default: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub data_parallel: u32,
    /// Bits of a number in the KV cache (vLLM `kv_cache_dtype`), 1 to 32. Default: `bits.kv` of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_bits: Option<f64>,
    /// Whether all matrix products are computed in bf16, even with quantised weights. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weight_only: bool,
    /// Whether weights in fp8 have a scale for each block of 128 x 128 (`weight_block_size` in a `config.json`). Other
    /// kernels multiply them. Default: false, a scale for each matrix or channel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fp8_blocks: bool,
    /// Whether experts in 4 bits run by Marlin kernels (vLLM with `VLLM_MXFP4_USE_MARLIN=1`). On Hopper, prompts are
    /// then half as fast. Default: false, the kernels that the measured release chooses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub marlin: bool,
    /// The folder of the package: an unpacked wheel, its `aiconfigurator_core`, or `systems`. Default: the folder named
    /// by the variable `FORETOKEN_KERNELS`, else the installed package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// Share of each GPU's memory that the server may use (vLLM `gpu_memory_utilization`), in (0, 1].
    #[serde(default = "memory_utilization")]
    pub memory_utilization: f64,
    /// Memory that is kept free for activations on each GPU (assumed), bytes, ≥ 0.
    #[serde(default = "activation_bytes")]
    pub activation_bytes: f64,
}

/// An engine whose kernels were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// vLLM
    Vllm,
    /// SGLang
    Sglang,
    /// TensorRT-LLM
    Trtllm,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.folder())
    }
}

impl Engine {
    fn folder(self) -> &'static str {
        match self {
            Engine::Vllm => "vllm",
            Engine::Sglang => "sglang",
            Engine::Trtllm => "trtllm",
        }
    }
}

fn one() -> u32 {
    1
}
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_one(x: &u32) -> bool {
    *x == one()
}
fn memory_utilization() -> f64 {
    RooflineSpec::new("", "").memory_utilization
}
fn activation_bytes() -> f64 {
    RooflineSpec::new("", "").activation_bytes
}

type Built = Result<Arc<(KernelPass, Provenance)>, BadLatency>;

/// The passes that were summed before, by their settings as JSON. An experiment checks and builds its settings several
/// times, and the tables are read once.
static BUILT: LazyLock<Mutex<HashMap<String, Built>>> = LazyLock::new(Mutex::default);

/// A pass that was summed, with the settings that it was summed for.
#[derive(Serialize, Deserialize)]
struct Stored {
    settings: String,
    pass: KernelPass,
    provenance: Provenance,
}

/// The passes of these settings as JSON, for a results folder: it can be opened where the package is not.
pub fn store<'a>(specs: impl IntoIterator<Item = &'a KernelsSpec>) -> Result<String, BadLatency> {
    let stored = specs.into_iter().map(|spec| {
        let (pass, provenance) = (*spec.summed()?).clone();
        Ok(Stored { settings: spec.key()?, pass, provenance })
    });
    let stored: Vec<Stored> = stored.collect::<Result<_, BadLatency>>()?;
    serde_json::to_string(&stored).map_err(|e| bad("package", e.to_string()))
}

/// Takes the passes that [`store`] wrote, in the place of the package's.
pub fn restore(text: &str) -> Result<(), String> {
    let stored: Vec<Stored> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    built.extend(stored.into_iter().map(|s| (s.settings, Ok(Arc::new((s.pass, s.provenance))))));
    Ok(())
}

impl KernelsSpec {
    /// The roofline of the same GPU and model, which knows the memory and the shape.
    pub fn roofline(&self) -> RooflineSpec {
        RooflineSpec {
            gpu: GpuChoice::Preset(self.gpu.clone()),
            model: self.model.clone(),
            tensor_parallel: self.tensor_parallel,
            expert_parallel: self.expert_parallel,
            data_parallel: self.data_parallel,
            kv_bits: self.kv_bits,
            weight_only: self.weight_only,
            memory_utilization: self.memory_utilization,
            activation_bytes: self.activation_bytes,
            ..RooflineSpec::new("", "")
        }
    }

    /// Checks the values that serde cannot check, and sums the pass.
    pub fn check(&self) -> Result<(), BadLatency> {
        self.summed().map(|_| ())
    }

    pub fn build(&self) -> Result<KernelPass, BadLatency> {
        self.summed().map(|built| built.0.clone())
    }

    /// What the times come from.
    pub fn provenance(&self) -> Result<Provenance, BadLatency> {
        self.summed().map(|built| built.1.clone())
    }

    /// The host of the engine, by measured servers.
    pub fn host(&self) -> &'static Host {
        hosts::of(self.engine.folder())
    }

    fn summed(&self) -> Built {
        let key = self.key()?;
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = built.get(&key) {
            return known.clone();
        }
        let now = self.read();
        built.insert(key, now.clone());
        now
    }

    /// The settings as text. A file of a model is replaced by its shape before a pass is summed.
    fn key(&self) -> Result<String, BadLatency> {
        serde_json::to_string(self).map_err(|e| bad("model", e.to_string()))
    }

    fn read(&self) -> Built {
        let roofline = self.roofline();
        roofline.check()?;
        if let Some(version) = self.version.as_deref().filter(|v| order(v).is_empty()) {
            return Err(bad("version", format!("{version} is no release such as 0.19.0")));
        }
        let GpuName(name) = &self.gpu;
        let (gpu, shape) = (roofline.gpu.gpu()?, roofline.shape()?);
        let system = SYSTEMS.into_iter().find(|(preset, _)| preset == name).map(|(_, system)| system);
        let system = system.ok_or_else(|| {
            let known: Vec<&str> = SYSTEMS.into_iter().map(|(preset, _)| preset).collect();
            bad("gpu", format!("{name} has no measured kernels; there are {}", known.join(", ")))
        })?;
        let package = Package::find(self.package.as_deref()).map_err(|why| bad("package", why))?;
        let tables = TableSet::new(&package, system, self.engine.folder(), self.version.as_deref());
        if package.version.as_deref() != Some(TESTED) {
            tables.note(format!("{}, not the version that was compared with servers", package.title()));
        }
        if name == "gh200" {
            tables.note("the package has no GH200: kernels of an H100, whose bandwidth is 84 % of it".to_owned());
        }
        let floors = floors(&roofline.gpu, &gpu);
        let setup = Setup {
            tensor_parallel: self.tensor_parallel,
            expert_parallel: self.expert_parallel,
            data_parallel: self.data_parallel,
            blocks: self.fp8_blocks,
            marlin: self.marlin,
            gpu: &gpu,
            floors,
        };
        let pass = sum(&tables, &shape, setup).map_err(|why| {
            let key = if package.systems().iter().any(|s| s == system) { "model" } else { "gpu" };
            bad(key, why)
        })?;
        let source = format!("kernels of {} on {system}, {}", self.engine, package.title());
        Ok(Arc::new((pass, Provenance { source, notes: tables.notes() })))
    }
}
