//! What a profile of a pair is measured on: which shapes there is room for, and what tells this machine and these models from others.

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

/// What of a profile whoever asks for it decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Passes that an engine never runs need not be measured.
    pub limits: Limits,
    /// How close the shapes lie.
    pub density: Density,
    /// Time for it, seconds.
    pub budget_s: f64,
    /// The seed of the order of visits.
    pub seed: u64,
}

/// The largest passes of an engine; absent: what its device may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of a request.
    pub max_model_len: Option<u32>,
    /// Requests of a pass.
    pub max_num_seqs: Option<u32>,
    /// New tokens of a pass.
    pub max_num_batched_tokens: Option<u32>,
}

/// A device that is profiled.
pub struct Place {
    /// What the profile says of it.
    info: DeviceInfo,
    scale: &'static Scale,
    /// Sizes at which it has captured graphs.
    graph_sizes: Vec<u32>,
}

/// How large passes of a kind of device are measured.
struct Scale {
    requests: u32,
    batched: u32,
    /// Of one model.
    kv_bytes: u64,
    /// At least so many tokens of KV, whatever they take.
    kv_tokens: u64,
}

/// Beyond 64 requests or chunks of 512 tokens a CPU is no server.
const CPU_SCALE: Scale = Scale { requests: 64, batched: 512, kv_bytes: 256 << 20, kv_tokens: 2048 };

/// Large servers' passes; KV of 4 GiB a model leaves room for the weights of both on any GPU that has some.
const GPU_SCALE: Scale = Scale { requests: 256, batched: 4096, kv_bytes: 4 << 30, kv_tokens: 4096 };

impl Place {
    /// The processor.
    pub fn cpu(device: &Cpu) -> Place {
        let info = DeviceInfo { speed: Some(processor::speed(device)), ..machine::processor(device.threads() as u32) };
        Place { info, scale: &CPU_SCALE, graph_sizes: Vec::new() }
    }

    /// The GPU of this number.
    pub fn cuda(index: u32, device: &Cuda) -> Place {
        let tuning = Tuning::from_environment();
        let sizes = if tuning.graphs { tuning.graph_sizes } else { Vec::new() };
        let graph_sizes = sizes.into_iter().filter_map(|size| u32::try_from(size).ok()).collect();
        Place { info: gpu::info(index, device), scale: &GPU_SCALE, graph_sizes }
    }

    /// The measuring of a pair on it.
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
    /// The shapes there is room for, within the engine's limits. It depends on nothing but these, the model and the kind of
    /// device, so that an interrupted measuring finds the same.
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

/// What of a model decides its speed, and what tells it from another.
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

/// Of every tensor's name and bytes.
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
