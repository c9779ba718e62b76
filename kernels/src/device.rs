//! The operations of a device. The forward pass is written once over this trait.
//!
//! A device owns the memory (`Matrix`, `Buffer`, `Kv`) and the order in which sums are made. It knows nothing of
//! layers, requests or policies.

pub use crate::accept::Choice;

use crate::accept::{self, Accepted, Chain, Tree};
use crate::model::LlamaShape;
use crate::paged::Batch;
use crate::weights::{Dtype, TensorData};
use std::time::Duration;

/// The kernels of a device. A buffer has a fixed width and the number of rows of its last output. Every operation gives
/// its output the number of rows of its input. Row `i` of an output depends only on row `i` of the input, on weights
/// and on KV.
pub trait Device: Sized {
    /// A weight matrix, outputs × inputs.
    type Matrix: Send + Sync;
    /// The gains of a norm.
    type Vector: Send + Sync;
    /// Activations, rows × width.
    type Buffer: Send + Sync;
    /// The paged keys and values of all layers, and the rotary angles.
    type Kv: Send + Sync;
    /// The errors of running operations.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Bytes of free memory; `None` if the device cannot tell.
    fn available_bytes(&self) -> Option<u64>;

    /// Bytes of one number of KV, with weights kept as `dtype`.
    fn kv_bytes(&self, dtype: Dtype) -> u64;

    /// Makes the matrix that has the `parts` below each other: (numbers, outputs). It is kept as `dtype`, f32 or bf16.
    fn matrix(
        &mut self,
        parts: &[(TensorData<'_>, usize)],
        inputs: usize,
        dtype: Dtype,
    ) -> Result<Self::Matrix, Self::Error>;

    /// Makes the gains of a norm of width `width`, kept as f32.
    fn vector(&mut self, gains: TensorData<'_>, width: usize) -> Result<Self::Vector, Self::Error>;

    /// Makes activations of up to `rows` rows, f32.
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Self::Buffer, Self::Error>;

    /// Makes activations that only products, attention, gated units and sums of blocks read; a device may keep them as
    /// bf16.
    fn narrow_buffer(&mut self, rows: usize, width: usize) -> Result<Self::Buffer, Self::Error> {
        self.buffer(rows, width)
    }

    /// Makes `blocks` blocks of KV for each layer of `shape`, for weights kept as `dtype`.
    fn kv(&mut self, shape: &LlamaShape, dtype: Dtype, blocks: u32) -> Result<Self::Kv, Self::Error>;

    /// Runs a session: many passes with host work between them. A device with its own threads runs the whole session on
    /// them, so that no pass begins by waking a thread.
    fn session<R: Send>(&mut self, run: impl FnOnce(&mut Self) -> R + Send) -> R {
        run(self)
    }

    /// Starts a measurement by the device's own clock, if it has one.
    fn start_timer(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Waits for the device and returns its time since [`start_timer`](Device::start_timer). `None` if there is only
    /// the host's clock.
    fn stop_timer(&mut self) -> Result<Option<Duration>, Self::Error> {
        Ok(None)
    }

    /// Runs one pass over one batch. A device can thus set up once what all its operations need, or collect them and
    /// start them together.
    fn pass<R: Send>(&mut self, run: impl FnOnce(&mut Self) -> Result<R, Self::Error> + Send)
    -> Result<R, Self::Error>;

    /// Writes the rows of `table` that belong to the batch's tokens.
    fn embed(&mut self, table: &Self::Matrix, batch: &Batch, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// RMSNorm: `x / sqrt(mean(x²) + eps) · gains`. First adds `delta`, if given, to `x` in place.
    fn norm(
        &mut self,
        x: &mut Self::Buffer,
        delta: Option<&Self::Buffer>,
        gains: &Self::Vector,
        eps: f32,
        out: &mut Self::Buffer,
    ) -> Result<(), Self::Error>;

    /// Computes `x · weightsᵀ`.
    fn matmul(&mut self, x: &Self::Buffer, weights: &Self::Matrix, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// RMSNorm of each query head and each key head of a row, in place. The gains of queries and of keys are one head
    /// wide, and all heads share them. Values stay. `kv` gives the number of heads.
    fn norm_heads(
        &mut self,
        qkv: &mut Self::Buffer,
        kv: &Self::Kv,
        query_gains: &Self::Vector,
        key_gains: &Self::Vector,
        eps: f32,
    ) -> Result<(), Self::Error>;

    /// Rotates the queries and keys of each row (queries, then keys, then values) to the row's position, and writes
    /// keys and values to the row's slot.
    fn rope_and_store(
        &mut self,
        qkv: &mut Self::Buffer,
        batch: &Batch,
        kv: &mut Self::Kv,
        layer: usize,
    ) -> Result<(), Self::Error>;

    /// Attention of each row's queries over the tokens that the row sees.
    fn attention(
        &mut self,
        qkv: &Self::Buffer,
        batch: &Batch,
        kv: &Self::Kv,
        layer: usize,
        out: &mut Self::Buffer,
    ) -> Result<(), Self::Error>;

    /// Computes `silu(gate) · up`; the first half of a row of `gate_up` has the gates.
    fn swiglu(&mut self, gate_up: &Self::Buffer, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Copies the chosen rows, in order.
    fn gather(&mut self, x: &Self::Buffer, rows: &[u32], out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Copies keys and values of all layers from the first slot of each pair to the second, pair by pair. This makes
    /// the accepted path of a tree part of the context.
    fn move_kv(&mut self, kv: &mut Self::Kv, moves: &[(u32, u32)]) -> Result<(), Self::Error>;

    /// Copies all numbers of the rows in use to the host.
    fn download(&mut self, x: &Self::Buffer, out: &mut Vec<f32>) -> Result<(), Self::Error>;

    /// Softmax of `logits / temperature` over each row.
    fn softmax(&mut self, logits: &Self::Buffer, temperature: f32, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Copies row `i` of `x` to row `rows[i]` of `out`. All allocated rows of `out` are then in use.
    fn scatter(&mut self, x: &Self::Buffer, rows: &[u32], out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Draws a token from each row of probabilities with the row's uniform in [0, 1). Writes the token and its
    /// probability. See [`crate::accept::sample`].
    fn sample(
        &mut self,
        probabilities: &Self::Buffer,
        uniforms: &[f64],
        out: &mut Vec<Choice>,
    ) -> Result<(), Self::Error> {
        let mut all = Vec::new();
        self.download(probabilities, &mut all)?;
        let rows = all.chunks_exact(all.len() / uniforms.len().max(1));
        out.clear();
        out.extend(rows.zip(uniforms).map(|(row, &u)| accept::sampled(row, u)));
        Ok(())
    }

    /// The entropy, in nats, of each of the first `rows` rows of probabilities.
    fn entropy(&mut self, probabilities: &Self::Buffer, rows: usize, out: &mut Vec<f64>) -> Result<(), Self::Error> {
        let mut all = Vec::new();
        self.download(probabilities, &mut all)?;
        out.clear();
        out.extend(all.chunks_exact(all.len() / rows.max(1)).map(accept::entropy));
        Ok(())
    }

    /// KL(target ‖ draft), in nats, for pairs of a target row and a draft row.
    fn divergence(
        &mut self,
        (target, draft): (&Self::Buffer, &Self::Buffer),
        width: usize,
        pairs: &[(u32, u32)],
        out: &mut Vec<f64>,
    ) -> Result<(), Self::Error> {
        let (mut p, mut q) = (Vec::new(), Vec::new());
        self.download(target, &mut p)?;
        self.download(draft, &mut q)?;
        let row = |all: &[f32], at: u32| all[at as usize * width..][..width].to_vec();
        out.clear();
        out.extend(pairs.iter().map(|&(t, d)| accept::divergence(&row(&p, t), &row(&q, d))));
        Ok(())
    }

    /// The `k` most likely tokens of each row, in falling order; of equal logits the smaller token comes first.
    fn top_k(&mut self, logits: &Self::Buffer, k: usize, out: &mut Vec<Choice>) -> Result<(), Self::Error>;

    /// Keeps the drafted tokens that `logits` chooses greedily. See [`crate::accept::greedy`].
    fn accept_greedy(
        &mut self,
        logits: &Self::Buffer,
        trees: &[Tree<'_>],
        out: &mut Vec<Accepted>,
    ) -> Result<(), Self::Error>;

    /// Keeps drafted tokens by rejection sampling, given both models' probabilities. See [`crate::accept::reject`].
    fn accept_sampled(
        &mut self,
        target: &Self::Buffer,
        draft: &Self::Buffer,
        chains: &[Chain<'_>],
        out: &mut Vec<Accepted>,
    ) -> Result<(), Self::Error>;
}
