//! Prepares the profile of a target and a draft: the limits on the shapes to time, and the descriptions of the machine
//! and the models.

use crate::gpu;
use crate::models::{AnyWeights, Model};
use crate::processor;
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::cuda::{Cuda, Tuning};
use foretoken_kernels::device::Device;
use foretoken_kernels::model::LlamaShape;
use foretoken_kernels::weights::{Dtype, TensorData, Weights, tensors};
use foretoken_profiler::{Density, DeviceInfo, ModelInfo, Room, Setup};
use foretoken_run::machine;

/// Profile settings that the caller chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// The largest passes of the engine. Larger passes need not be measured.
    pub limits: Limits,
    /// Whether all shapes of passes in the list of shapes to time (the grid) are measured, or about a quarter of
    /// them.
    pub density: Density,
    pub budget_s: f64,
    /// Seed that decides the order in which pass shapes are measured, and the folds of the cross-validation of the
    /// fits.
    pub seed: u64,
}

/// The largest passes of an engine. If a limit is `None`, the limit of the model or of the kind of device is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most tokens of a request, prompt and output together.
    pub max_model_len: Option<u32>,
    /// Most requests of a pass.
    pub max_num_seqs: Option<u32>,
    /// Most new tokens of a pass.
    pub max_num_batched_tokens: Option<u32>,
}

/// The device that is profiled, as the profile describes it.
pub struct Place {
    /// The device's name, features (such as vector instructions), number of cores, measured speed and driver.
    info: DeviceInfo,
    scale: &'static Scale,
    /// Numbers of tokens for which the device has captured CUDA graphs. Empty for a CPU, and if graphs are off.
    graph_sizes: Vec<u32>,
}

/// The largest passes that are measured on a kind of device.
struct Scale {
    requests: u32,
    batched: u32,
    /// Most bytes that the KV of one model may take.
    kv_bytes: u64,
    /// Least number of tokens of KV to allocate, even if they take more than `kv_bytes`. Fewer are allocated if all
    /// requests at full length need fewer.
    kv_tokens: u64,
}

/// Limits for a CPU, which is assumed to serve at most 64 requests and 512 tokens in a pass.
const CPU_SCALE: Scale = Scale { requests: 64, batched: 512, kv_bytes: 256 << 20, kv_tokens: 2048 };

/// Limits for a GPU, with the passes of large servers. Each model has at most 4 GiB of KV, which leaves memory for the
/// weights of both models.
const GPU_SCALE: Scale = Scale { requests: 256, batched: 4096, kv_bytes: 4 << 30, kv_tokens: 4096 };

impl Place {
    /// Describes the CPU. Measures its speed, which takes some tenths of a second.
    pub fn cpu(device: &Cpu) -> Place {
        let info = DeviceInfo { speed: Some(processor::speed(device)), ..machine::processor(device.threads() as u32) };
        Place { info, scale: &CPU_SCALE, graph_sizes: Vec::new() }
    }

    /// Describes the GPU with number `index`.
    pub fn cuda(index: u32, device: &Cuda) -> Place {
        let tuning = Tuning::from_environment();
        let sizes = if tuning.graphs { tuning.graph_sizes } else { Vec::new() };
        let graph_sizes = sizes.into_iter().filter_map(|size| u32::try_from(size).ok()).collect();
        Place { info: gpu::info(index, device), scale: &GPU_SCALE, graph_sizes }
    }

    /// Makes the settings for measuring the models `target` and `draft` on this device.
    pub fn setup<D: Device>(self, device: &D, target: &Model, draft: &Model, asked: &Asked) -> Setup {
        let room = |model: &Model| {
            let bytes = device.kv_bytes(model.weights.dtype());
            self.scale.room(&model.shape, bytes, asked.limits, self.graph_sizes.clone())
        };
        Setup {
            foretoken: env!("CARGO_PKG_VERSION").to_owned(),
            target: describe(target),
            draft: describe(draft),
            target_room: room(target),
            draft_room: room(draft),
            density: asked.density,
            budget_s: asked.budget_s,
            seed: asked.seed,
            device: self.info,
        }
    }
}

impl Scale {
    /// The limits on the shapes of one model. Where the engine has no limit, the device's limit is used. The limits
    /// depend only on the engine's limits, the model and the kind of device. An interrupted profile therefore continues
    /// with the same shapes.
    fn room(&self, shape: &LlamaShape, bytes_a_number: u64, limits: Limits, graph_sizes: Vec<u32>) -> Room {
        let token = 2 * u64::from(shape.layers) * shape.kv_width() as u64 * bytes_a_number;
        let max_positions = limits.max_model_len.map_or(shape.max_positions, |n| n.min(shape.max_positions));
        let max_requests = limits.max_num_seqs.unwrap_or(self.requests);
        let most = u64::from(max_requests) * u64::from(max_positions);
        Room {
            max_positions,
            kv_tokens: (self.kv_bytes / token).max(self.kv_tokens).min(most),
            max_batched: limits.max_num_batched_tokens.unwrap_or(self.batched),
            max_requests,
            graph_sizes,
        }
    }
}

/// Describes a model: its name, the sizes that decide its speed, and a digest of its weights.
pub fn describe(model: &Model) -> ModelInfo {
    let weights = match &model.weights {
        AnyWeights::Random(random) => format!("random, seed {}", random.seed),
        AnyWeights::Checkpoint(_) => digest(model),
    };
    let dtype = match model.weights.dtype() {
        Dtype::F32 => "f32",
        Dtype::Bf16 => "bf16",
        Dtype::F16 => "f16",
    };
    ModelInfo {
        name: model.name.clone(),
        weights,
        dtype: dtype.to_owned(),
        parameters: tensors(&model.shape).iter().map(|t| t.len() as u64).sum(),
        vocab: model.shape.vocab,
        max_positions: model.shape.max_positions,
    }
}

/// Blake3 digest of the names and bytes of all tensors of a checkpoint, as text.
fn digest(model: &Model) -> String {
    let mut hasher = blake3::Hasher::new();
    for spec in tensors(&model.shape) {
        hasher.update(spec.name.as_bytes());
        if let TensorData::Stored { bytes, .. } = model.weights.tensor(&spec.name) {
            hasher.update(bytes);
        }
    }
    format!("blake3:{}", hasher.finalize().to_hex())
}
