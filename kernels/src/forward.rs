//! A Llama model on a device, and its forward pass. The same forward pass handles prompts, prefill chunks, decodes and
//! verification: these differ only in the batch.

use crate::device::{Device, Normed};
use crate::model::{LlamaShape, MemoryNeeded, TooLittleMemory};
use crate::paged::Batch;
use crate::weights::{Dtype, TensorData, Weights, tensors};

/// Why a model could not be loaded onto a device.
#[derive(Debug, thiserror::Error)]
pub enum LoadError<E: std::error::Error + 'static> {
    /// The model does not fit into the device's memory.
    #[error(transparent)]
    Memory(#[from] TooLittleMemory),
    #[error(transparent)]
    Device(E),
}

/// The largest passes and the KV pool for which a model gets memory when it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of KV blocks of [`BLOCK_SIZE`](crate::paged::BLOCK_SIZE) tokens.
    pub kv_blocks: u32,
    /// Most new tokens in a pass.
    pub max_rows: usize,
    /// Most tokens of a pass for which logits are computed.
    pub max_logit_rows: usize,
}

struct Layer<D: Device> {
    attention_norm: D::Vector,
    qkv: D::Matrix,
    /// Gains of the RMSNorms of queries and keys, if the model's shape has them.
    qk_norm: Option<[D::Vector; 2]>,
    attention_out: D::Matrix,
    mlp_norm: D::Vector,
    gate_up: D::Matrix,
    down: D::Matrix,
}

/// Takes the next `N` tensors from `next`. Each tensor comes as (tensor, its number of outputs).
fn take<'w, const N: usize>(next: &mut impl Iterator<Item = (TensorData<'w>, usize)>) -> [(TensorData<'w>, usize); N] {
    std::array::from_fn(|_| next.next().expect("`tensors` lists one for each use"))
}

impl<D: Device> Layer<D> {
    fn load<'w>(
        device: &mut D,
        shape: &LlamaShape,
        dtype: Dtype,
        next: &mut impl Iterator<Item = (TensorData<'w>, usize)>,
    ) -> Result<Layer<D>, D::Error> {
        let hidden = shape.hidden as usize;
        let [(attention_norm, _)] = take(next);
        let qkv = take::<3>(next);
        let qk_norm = shape.qk_norm.then(|| take::<2>(next));
        let attention_out = take::<1>(next);
        let [(mlp_norm, _)] = take(next);
        let gate_up = take::<2>(next);
        let down = take::<1>(next);
        Ok(Layer {
            attention_norm: device.vector(attention_norm, hidden)?,
            qkv: device.matrix(&qkv, hidden, dtype)?,
            qk_norm: match qk_norm {
                Some([(queries, dim), (keys, _)]) => Some([device.vector(queries, dim)?, device.vector(keys, dim)?]),
                None => None,
            },
            attention_out: device.matrix(&attention_out, shape.q_width(), dtype)?,
            mlp_norm: device.vector(mlp_norm, hidden)?,
            gate_up: device.matrix(&gate_up, hidden, dtype)?,
            down: device.matrix(&down, shape.intermediate as usize, dtype)?,
        })
    }
}

/// The activations of a pass. Their memory is allocated once, for the largest pass.
struct Activations<D: Device> {
    hidden: D::Buffer,
    normed: D::Buffer,
    qkv: D::Buffer,
    attended: D::Buffer,
    gate_up: D::Buffer,
    inner: D::Buffer,
    /// The output of an attention or MLP block. It is then added to the residual stream `hidden`.
    delta: D::Buffer,
    chosen: D::Buffer,
    chosen_normed: D::Buffer,
    chosen_delta: D::Buffer,
    logits: D::Buffer,
}

/// A model on a device, with its weights, KV and activations.
pub struct Llama<D: Device> {
    shape: LlamaShape,
    limits: Limits,
    weight_bytes: u64,
    embedding: D::Matrix,
    layers: Vec<Layer<D>>,
    norm: D::Vector,
    /// The LM head. `None` if the model uses the embedding as its LM head (tied weights).
    head: Option<D::Matrix>,
    kv: D::Kv,
    activations: Activations<D>,
}

impl<D: Device> Llama<D> {
    /// Loads a model onto the device. `weights` must be for this `shape`.
    pub fn load(
        device: &mut D,
        shape: &LlamaShape,
        weights: &impl Weights,
        limits: Limits,
    ) -> Result<Llama<D>, LoadError<D::Error>> {
        let needed = Llama::<D>::memory_needed(device, shape, weights.dtype(), limits);
        if let Some(available) = device.available_bytes() {
            needed.fits(available)?;
        }
        Llama::build(device, shape, weights, limits, needed.weights).map_err(LoadError::Device)
    }

    /// Computes the bytes that [`Llama::load`] allocates for a model of this shape and weight type with these limits.
    pub fn memory_needed(device: &D, shape: &LlamaShape, dtype: Dtype, limits: Limits) -> MemoryNeeded {
        let Limits { kv_blocks, max_rows, max_logit_rows } = limits;
        MemoryNeeded::of(shape, dtype, device.kv_bytes(dtype), kv_blocks, max_rows, max_logit_rows)
    }

    fn build(
        device: &mut D,
        shape: &LlamaShape,
        weights: &impl Weights,
        limits: Limits,
        weight_bytes: u64,
    ) -> Result<Llama<D>, D::Error> {
        let (hidden, inner, dtype) = (shape.hidden as usize, shape.intermediate as usize, weights.dtype());
        // `tensors` lists the tensors of the model in a fixed order. This function and `Layer::load` take them from the
        // iterator in this order.
        let specs = tensors(shape);
        let mut next = specs.iter().map(|spec| (weights.tensor(&spec.name), spec.shape[0]));
        let embedding = device.matrix(&take::<1>(&mut next), hidden, dtype)?;
        let layer = |_| Layer::load(device, shape, dtype, &mut next);
        let layers = (0..shape.layers).map(layer).collect::<Result<_, _>>()?;
        let [(gains, _)] = take(&mut next);
        let norm = device.vector(gains, hidden)?;
        let head = if shape.tied { None } else { Some(device.matrix(&take::<1>(&mut next), hidden, dtype)?) };
        let (rows, chosen) = (limits.max_rows, limits.max_logit_rows);
        let activations = Activations {
            hidden: device.buffer(rows, hidden)?,
            normed: device.narrow_buffer(rows, hidden)?,
            qkv: device.narrow_buffer(rows, shape.q_width() + 2 * shape.kv_width())?,
            attended: device.narrow_buffer(rows, shape.q_width())?,
            gate_up: device.narrow_buffer(rows, 2 * inner)?,
            inner: device.narrow_buffer(rows, inner)?,
            delta: device.narrow_buffer(rows, hidden)?,
            chosen: device.buffer(chosen, hidden)?,
            chosen_normed: device.narrow_buffer(chosen, hidden)?,
            chosen_delta: device.narrow_buffer(chosen, hidden)?,
            logits: device.buffer(chosen, shape.vocab as usize)?,
        };
        let kv = device.kv(shape, dtype, limits.kv_blocks)?;
        Ok(Llama { shape: shape.clone(), limits, weight_bytes, embedding, layers, norm, head, kv, activations })
    }

    pub fn shape(&self) -> &LlamaShape {
        &self.shape
    }

    /// Returns the limits with which the model was loaded.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// Returns the logits of the last pass, one row for each entry of the batch's `logit_rows`.
    pub fn logits(&self) -> &D::Buffer {
        &self.activations.logits
    }

    /// Copies keys and values of tokens within the KV pools of all layers. `moves` are pairs of KV slots (from, to),
    /// copied in this order; a slot is a token's place in the KV pool. The copies move the KV of the accepted path of a
    /// draft tree to the path's place in the context.
    pub fn move_kv(&mut self, device: &mut D, moves: &[(u32, u32)]) -> Result<(), D::Error> {
        device.move_kv(&mut self.kv, moves)
    }

    /// Runs one forward pass. It writes the keys and values of all tokens of the batch, and computes the logits of the
    /// batch's `logit_rows`.
    ///
    pub fn forward(&mut self, device: &mut D, batch: &Batch) -> Result<(), D::Error> {
        self.check(batch);
        device.pass(|device| self.run(device, batch))
    }

    fn check(&self, batch: &Batch) {
        let (limits, shape) = (&self.limits, &self.shape);
        let (rows, chosen) = (batch.rows(), batch.logit_rows.len());
        assert!(rows > 0 && rows <= limits.max_rows, "{rows} rows of at most {}", limits.max_rows);
        assert!(chosen <= limits.max_logit_rows, "{chosen} rows of logits of at most {}", limits.max_logit_rows);
        let within = |name: &str, all: &[u32], end: u32| {
            let most = all.iter().max().copied().unwrap_or(0);
            assert!(most < end, "{name} {most} of {end}");
        };
        within("token", &batch.tokens, shape.vocab);
        within("position", &batch.positions, shape.max_positions);
        within("block", &batch.tables, limits.kv_blocks);
    }

    fn run(&mut self, device: &mut D, batch: &Batch) -> Result<(), D::Error> {
        let Llama { shape, embedding, layers, norm, head, kv, activations: a, .. } = self;
        let eps = shape.rms_norm_eps;
        device.embed(embedding, batch, &mut a.hidden)?;
        // True while `a.delta` has the output of a block that is not yet added to `a.hidden`.
        let mut pending = false;
        for (i, layer) in layers.iter().enumerate() {
            let delta = pending.then_some(&a.delta);
            let gains = &layer.attention_norm;
            match &layer.qk_norm {
                None => {
                    let input = Normed { x: &mut a.hidden, delta, gains, eps, out: &mut a.normed };
                    device.queries_keys_values(input, &layer.qkv, &mut a.qkv, batch, kv, i)?;
                }
                Some([queries, keys]) => {
                    device.norm(&mut a.hidden, delta, gains, eps, &mut a.normed)?;
                    device.matmul(&a.normed, &layer.qkv, &mut a.qkv)?;
                    device.norm_heads(&mut a.qkv, kv, queries, keys, eps)?;
                    device.rope_and_store(&mut a.qkv, batch, kv, i)?;
                }
            }
            device.attention(&a.qkv, batch, kv, i, &mut a.attended)?;
            pending = !device.matmul_and_add(&a.attended, &layer.attention_out, &mut a.delta, &mut a.hidden)?;
            let delta = pending.then_some(&a.delta);
            let input = Normed { x: &mut a.hidden, delta, gains: &layer.mlp_norm, eps, out: &mut a.normed };
            device.gated(input, &layer.gate_up, &mut a.gate_up, &mut a.inner)?;
            pending = !device.matmul_and_add(&a.inner, &layer.down, &mut a.delta, &mut a.hidden)?;
        }
        device.gather(&a.hidden, &batch.logit_rows, &mut a.chosen)?;
        if pending {
            device.gather(&a.delta, &batch.logit_rows, &mut a.chosen_delta)?;
        }
        let delta = pending.then_some(&a.chosen_delta);
        device.norm(&mut a.chosen, delta, norm, eps, &mut a.chosen_normed)?;
        device.matmul(&a.chosen_normed, head.as_ref().unwrap_or(embedding), &mut a.logits)
    }
}
