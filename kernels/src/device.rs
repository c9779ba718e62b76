//! The trait [`Device`]: the operations that a forward pass consists of. The forward pass is written once, in terms of
//! this trait.
//!
//! A device owns the memory (`Matrix`, `Buffer`, `Kv`) and decides the order in which sums are made. It knows nothing
//! of layers, requests or policies.

pub use crate::accept::Choice;

use crate::accept::{self, Accepted, Chain, Tree};
use crate::model::LlamaShape;
use crate::paged::Batch;
use crate::weights::{Dtype, TensorData};
use std::time::Duration;

/// Rows of activations, one per token, to which an RMSNorm is applied before a matrix product reads them; the arguments
/// of [`Device::norm`].
pub struct Normed<'a, D: Device> {
    /// The rows of activations to which the RMSNorm is applied, f32. If `delta` is given, it is first added to these
    /// rows in place.
    pub x: &'a mut D::Buffer,
    /// The output of an attention or MLP block that is not yet added to `x`. `None` if `x` is complete.
    pub delta: Option<&'a D::Buffer>,
    pub gains: &'a D::Vector,
    /// The ε of the RMSNorm, which keeps it from dividing by 0.
    pub eps: f32,
    /// Memory for the rows after the RMSNorm; its contents after the operation are unspecified.
    pub out: &'a mut D::Buffer,
}

/// The operations of a device. A buffer has a fixed width and a number of rows in use. The operation that writes to a
/// buffer sets this number. Unless an operation says otherwise, its output has as many rows as its input, and row `i`
/// of the output depends only on row `i` of the input, on weights and on KV.
pub trait Device: Sized {
    /// A weight matrix, outputs × inputs.
    type Matrix: Send + Sync;
    /// The gains (weights) of an RMSNorm.
    type Vector: Send + Sync;
    /// A matrix of activations, one row of `width` numbers per token.
    type Buffer: Send + Sync;
    /// The paged keys and values of all layers, and the rotary angles.
    type Kv: Send + Sync;
    /// The error with which an operation can fail.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Returns the device's free memory in bytes; `None` if the device cannot say.
    fn available_bytes(&self) -> Option<u64>;

    /// Returns the bytes of one number of a key or value, if the weights are stored as `dtype`.
    fn kv_bytes(&self, dtype: Dtype) -> u64;

    /// Makes one matrix from `parts`, each given as (numbers, number of outputs). The outputs of a part come right
    /// after the outputs of the part before. The matrix is stored as `dtype`, which is f32 or bf16.
    fn matrix(
        &mut self,
        parts: &[(TensorData<'_>, usize)],
        inputs: usize,
        dtype: Dtype,
    ) -> Result<Self::Matrix, Self::Error>;

    /// Makes the gains (weights) of an RMSNorm of width `width`, stored as f32.
    fn vector(&mut self, gains: TensorData<'_>, width: usize) -> Result<Self::Vector, Self::Error>;

    /// Makes a buffer for up to `rows` rows of f32 activations.
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Self::Buffer, Self::Error>;

    /// Makes a buffer for activations that are only inputs of matrix products, attention, SwiGLU and residual sums. A
    /// device may store them as bf16.
    fn narrow_buffer(&mut self, rows: usize, width: usize) -> Result<Self::Buffer, Self::Error> {
        self.buffer(rows, width)
    }

    /// Makes `blocks` blocks of KV for each layer of `shape`, for weights stored as `dtype`.
    fn kv(&mut self, shape: &LlamaShape, dtype: Dtype, blocks: u32) -> Result<Self::Kv, Self::Error>;

    /// Runs a session, that is, many passes with host work between them. A device with threads keeps its threads awake
    /// for the whole session, so that no pass must first wake a thread.
    fn session<R: Send>(&mut self, run: impl FnOnce(&mut Self) -> R + Send) -> R {
        run(self)
    }

    /// Starts a measurement of time on the device's own clock. Does nothing if the device has no clock.
    fn start_timer(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Waits until the device is done, and returns the time since [`start_timer`](Device::start_timer) on the device's
    /// clock. `None` if the device has no clock.
    fn stop_timer(&mut self) -> Result<Option<Duration>, Self::Error> {
        Ok(None)
    }

    /// Runs one pass over one batch: calls `run`, which calls the operations of the pass. A device may prepare data for
    /// all operations of the pass once, or collect the operations and start them together.
    fn pass<R: Send>(&mut self, run: impl FnOnce(&mut Self) -> Result<R, Self::Error> + Send)
    -> Result<R, Self::Error>;

    /// Returns the number of warm-up passes: after this number of equal passes, each further equal pass takes the same
    /// time.
    fn warm_up_passes(&self) -> u32 {
        1
    }

    /// Writes the embedding of each token of the batch to a row of `out`. The embedding of token `t` is row `t` of
    /// `table`.
    fn embed(&mut self, table: &Self::Matrix, batch: &Batch, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Applies RMSNorm to each row: `out = x / sqrt(mean(x²) + eps) · gains`. If `delta` is given, it is first added to
    /// `x` in place.
    fn norm(
        &mut self,
        x: &mut Self::Buffer,
        delta: Option<&Self::Buffer>,
        gains: &Self::Vector,
        eps: f32,
        out: &mut Self::Buffer,
    ) -> Result<(), Self::Error>;

    /// Computes the matrix product `x · weightsᵀ` and writes it to `out`.
    fn matmul(&mut self, x: &Self::Buffer, weights: &Self::Matrix, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Applies RMSNorm to each query head and each key head of each row of `qkv`, in place. The values are not changed.
    /// `query_gains` and `key_gains` are as wide as one head, and all heads share them. `kv` gives the number of heads.
    fn norm_heads(
        &mut self,
        qkv: &mut Self::Buffer,
        kv: &Self::Kv,
        query_gains: &Self::Vector,
        key_gains: &Self::Vector,
        eps: f32,
    ) -> Result<(), Self::Error>;

    /// Rotates the queries and keys of each row by the rotary angles of the row's position. Then writes the row's keys
    /// and values to its KV slot. A row of `qkv` has queries, then keys, then values.
    fn rope_and_store(
        &mut self,
        qkv: &mut Self::Buffer,
        batch: &Batch,
        kv: &mut Self::Kv,
        layer: usize,
    ) -> Result<(), Self::Error>;

    /// Computes the attention of layer `layer`. The queries of each row attend to the tokens that the batch allows for
    /// the row.
    fn attention(
        &mut self,
        qkv: &Self::Buffer,
        batch: &Batch,
        kv: &Self::Kv,
        layer: usize,
        out: &mut Self::Buffer,
    ) -> Result<(), Self::Error>;

    /// Computes `silu(gate) · up`. The first half of a row of `gate_up` has the gates, the second half has `up`.
    fn swiglu(&mut self, gate_up: &Self::Buffer, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Computes the queries, keys and values of a layer: [`Device::norm`] of the input, the matrix product with
    /// `weights`, and [`Device::rope_and_store`]. A device may compute some of these steps at once.
    fn queries_keys_values(
        &mut self,
        input: Normed<'_, Self>,
        weights: &Self::Matrix,
        qkv: &mut Self::Buffer,
        batch: &Batch,
        kv: &mut Self::Kv,
        layer: usize,
    ) -> Result<(), Self::Error> {
        self.norm(input.x, input.delta, input.gains, input.eps, input.out)?;
        self.matmul(input.out, weights, qkv)?;
        self.rope_and_store(qkv, batch, kv, layer)
    }

    /// Computes the first half of an MLP: [`Device::norm`] of the input, the matrix product with `weights`, and
    /// [`Device::swiglu`]. `gate_up` is memory for the product; its contents afterwards are unspecified. A device may
    /// compute some of these steps at once.
    fn gated(
        &mut self,
        input: Normed<'_, Self>,
        weights: &Self::Matrix,
        gate_up: &mut Self::Buffer,
        out: &mut Self::Buffer,
    ) -> Result<(), Self::Error> {
        self.norm(input.x, input.delta, input.gains, input.eps, input.out)?;
        self.matmul(input.out, weights, gate_up)?;
        self.swiglu(gate_up, out)
    }

    /// Computes `x · weightsᵀ`. Returns true if the device has added the product to `sum`. If it returns false, the
    /// product is in `delta`, and the caller passes `delta` to the next [`Device::norm`], which adds it to the sum.
    fn matmul_and_add(
        &mut self,
        x: &Self::Buffer,
        weights: &Self::Matrix,
        delta: &mut Self::Buffer,
        _sum: &mut Self::Buffer,
    ) -> Result<bool, Self::Error> {
        self.matmul(x, weights, delta)?;
        Ok(false)
    }

    /// Copies row `rows[i]` of `x` to row `i` of `out`, which has as many rows as `rows`.
    fn gather(&mut self, x: &Self::Buffer, rows: &[u32], out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Copies keys and values of tokens within the KV pools of all layers. `moves` are pairs of KV slots (from, to),
    /// copied in this order; a slot is a token's place in the KV pool. The copies move the KV of the accepted path of a
    /// draft tree to the path's place in the context.
    fn move_kv(&mut self, kv: &mut Self::Kv, moves: &[(u32, u32)]) -> Result<(), Self::Error>;

    /// Copies all numbers of the rows in use of `x` to `out` on the host.
    fn download(&mut self, x: &Self::Buffer, out: &mut Vec<f32>) -> Result<(), Self::Error>;

    /// Computes the softmax of `logits / temperature` over each row and writes it to `out`.
    fn softmax(&mut self, logits: &Self::Buffer, temperature: f32, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Copies row `i` of `x` to row `rows[i]` of `out`. After the call, all allocated rows of `out` are in use.
    fn scatter(&mut self, x: &Self::Buffer, rows: &[u32], out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Draws a token from each row of `probabilities`. `uniforms` has one uniform random number in [0, 1) for each row.
    /// Writes the tokens and their probabilities to `out`. See [`crate::accept::sample`].
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

    /// Writes the entropy in nats of each of the first `rows` rows of `probabilities` to `out`.
    fn entropy(&mut self, probabilities: &Self::Buffer, rows: usize, out: &mut Vec<f64>) -> Result<(), Self::Error> {
        let mut all = Vec::new();
        self.download(probabilities, &mut all)?;
        out.clear();
        out.extend(all.chunks_exact(all.len() / rows.max(1)).map(accept::entropy));
        Ok(())
    }

    /// Computes KL(target ‖ draft) in nats for each of `pairs` and writes the results to `out`. A pair is (row of the
    /// target's probabilities, row of the draft model's probabilities). A row has `width` probabilities.
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

    /// Writes the `k` most likely tokens of each row with their probabilities to `out`, the most likely first. Of two
    /// equal logits, the smaller token comes first.
    fn top_k(&mut self, logits: &Self::Buffer, k: usize, out: &mut Vec<Choice>) -> Result<(), Self::Error>;

    /// Verifies trees of draft tokens greedily: a drafted token is accepted if its ancestors are accepted and it is the
    /// target's most likely token in `logits`. See [`crate::accept::greedy`].
    fn accept_greedy(
        &mut self,
        logits: &Self::Buffer,
        trees: &[Tree<'_>],
        out: &mut Vec<Accepted>,
    ) -> Result<(), Self::Error>;

    /// Verifies chains of draft tokens by rejection sampling with the probabilities of `target` and `draft`. See
    /// [`crate::accept::reject`].
    fn accept_sampled(
        &mut self,
        target: &Self::Buffer,
        draft: &Self::Buffer,
        chains: &[Chain<'_>],
        out: &mut Vec<Accepted>,
    ) -> Result<(), Self::Error>;
}
