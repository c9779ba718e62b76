//! The trait [`Device`]: the operations of which a forward pass consists. The forward pass is written once over it.
//!
//! A device owns the memory (`Matrix`, `Buffer`, `Kv`) and decides the order in which sums are made. It knows nothing
//! of layers, requests or policies.

pub use crate::accept::Choice;

use crate::accept::{self, Accepted, Chain, Tree};
use crate::model::LlamaShape;
use crate::paged::Batch;
use crate::weights::{Dtype, TensorData};
use std::time::Duration;

/// The operations of a device. A buffer has a fixed width, and a number of rows in use, which the operation that writes
/// to it sets. Unless stated otherwise, an output has the number of rows of the input, and row `i` of the output
/// depends only on row `i` of the input, on weights and on KV.
pub trait Device: Sized {
    /// A weight matrix, outputs × inputs.
    type Matrix: Send + Sync;
    /// The gains (weights) of a norm.
    type Vector: Send + Sync;
    /// A matrix of activations, rows × width.
    type Buffer: Send + Sync;
    /// The paged keys and values of all layers, and the rotary angles.
    type Kv: Send + Sync;
    /// The error with which an operation can fail.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Bytes of free memory; `None` if the device does not know.
    fn available_bytes(&self) -> Option<u64>;

    /// Bytes per number of a key or value, if the weights are stored as `dtype`.
    fn kv_bytes(&self, dtype: Dtype) -> u64;

    /// Makes one matrix from `parts`, each (numbers, number of outputs); the outputs of the parts follow each other.
    /// The matrix is stored as `dtype`, f32 or bf16.
    fn matrix(
        &mut self,
        parts: &[(TensorData<'_>, usize)],
        inputs: usize,
        dtype: Dtype,
    ) -> Result<Self::Matrix, Self::Error>;

    /// Makes the gains of a norm of width `width`, stored as f32.
    fn vector(&mut self, gains: TensorData<'_>, width: usize) -> Result<Self::Vector, Self::Error>;

    /// Makes a buffer for up to `rows` rows of f32 activations.
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Self::Buffer, Self::Error>;

    /// Makes a buffer for activations that only matrix products, attention, SwiGLU and residual sums read. A device may
    /// store it as bf16.
    fn narrow_buffer(&mut self, rows: usize, width: usize) -> Result<Self::Buffer, Self::Error> {
        self.buffer(rows, width)
    }

    /// Makes `blocks` blocks of KV for each layer of `shape`, for weights stored as `dtype`.
    fn kv(&mut self, shape: &LlamaShape, dtype: Dtype, blocks: u32) -> Result<Self::Kv, Self::Error>;

    /// Runs a session: many passes with host work between them. A device with threads keeps them awake for the whole
    /// session, so that no pass begins by waking a thread.
    fn session<R: Send>(&mut self, run: impl FnOnce(&mut Self) -> R + Send) -> R {
        run(self)
    }

    /// Starts a measurement by the device's own clock, if it has one.
    fn start_timer(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Waits for the device and returns the time since [`start_timer`](Device::start_timer) by the device's clock.
    /// `None` if the device has no clock.
    fn stop_timer(&mut self) -> Result<Option<Duration>, Self::Error> {
        Ok(None)
    }

    /// Runs one pass over one batch: `run` calls its operations. A device can prepare once what all of them need, or
    /// collect them and start them together.
    fn pass<R: Send>(&mut self, run: impl FnOnce(&mut Self) -> Result<R, Self::Error> + Send)
    -> Result<R, Self::Error>;

    /// Writes the embedding of each token of the batch, its row of `table`, to `out`.
    fn embed(&mut self, table: &Self::Matrix, batch: &Batch, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// RMSNorm of each row: `out = x / sqrt(mean(x²) + eps) · gains`. First adds `delta`, if given, to `x` in place.
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

    /// RMSNorm of each query head and each key head of a row, in place; values stay as they are. The gains of queries
    /// and of keys are one head wide, and all heads share them. `kv` gives the number of heads.
    fn norm_heads(
        &mut self,
        qkv: &mut Self::Buffer,
        kv: &Self::Kv,
        query_gains: &Self::Vector,
        key_gains: &Self::Vector,
        eps: f32,
    ) -> Result<(), Self::Error>;

    /// Rotates the queries and keys of each row by the rotary angles of the row's position, and writes its keys and
    /// values to its KV slot. A row of `qkv` has queries, then keys, then values.
    fn rope_and_store(
        &mut self,
        qkv: &mut Self::Buffer,
        batch: &Batch,
        kv: &mut Self::Kv,
        layer: usize,
    ) -> Result<(), Self::Error>;

    /// Attention of layer `layer`: of each row's queries over the tokens that the row may attend to.
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

    /// Copies row `rows[i]` of `x` to row `i` of `out`, which has as many rows as `rows`.
    fn gather(&mut self, x: &Self::Buffer, rows: &[u32], out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Copies keys and values of all layers from the first slot of each pair to the second, in the order of the pairs.
    /// This moves the accepted path of a tree to its place in the context.
    fn move_kv(&mut self, kv: &mut Self::Kv, moves: &[(u32, u32)]) -> Result<(), Self::Error>;

    /// Copies all numbers of the rows in use to the host.
    fn download(&mut self, x: &Self::Buffer, out: &mut Vec<f32>) -> Result<(), Self::Error>;

    /// Softmax of `logits / temperature` over each row.
    fn softmax(&mut self, logits: &Self::Buffer, temperature: f32, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Copies row `i` of `x` to row `rows[i]` of `out`. All allocated rows of `out` are then in use.
    fn scatter(&mut self, x: &Self::Buffer, rows: &[u32], out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Draws a token from each row of probabilities with the row's uniform random number in [0, 1); there are as many
    /// numbers as rows. Returns the tokens and their probabilities in `out`. See [`crate::accept::sample`].
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

    /// The `k` most likely tokens of each row with their probabilities, in falling order; of equal logits the smaller
    /// token comes first.
    fn top_k(&mut self, logits: &Self::Buffer, k: usize, out: &mut Vec<Choice>) -> Result<(), Self::Error>;

    /// Accepts the drafted tokens that are the most likely ones by `logits`. See [`crate::accept::greedy`].
    fn accept_greedy(
        &mut self,
        logits: &Self::Buffer,
        trees: &[Tree<'_>],
        out: &mut Vec<Accepted>,
    ) -> Result<(), Self::Error>;

    /// Accepts drafted tokens by rejection sampling, given both models' probabilities. See [`crate::accept::reject`].
    fn accept_sampled(
        &mut self,
        target: &Self::Buffer,
        draft: &Self::Buffer,
        chains: &[Chain<'_>],
        out: &mut Vec<Accepted>,
    ) -> Result<(), Self::Error>;
}
