//! What a device can do. The forward pass is written once over this trait.
//!
//! A device owns where things lie (`Matrix`, `Buffer`, `Kv`) and in which order sums are made; it knows nothing of
//! layers, requests or policies.

pub use crate::accept::Choice;

use crate::accept::{self, Accepted, Chain, Tree};
use crate::model::LlamaShape;
use crate::paged::Batch;
use crate::weights::{Dtype, TensorData};
use std::time::Duration;

/// A device's kernels. A buffer has a fixed width and as many rows as what was last written to it; every operation
/// gives its output as many rows as its input has. Row `i` of an output depends on nothing but row `i` of the input,
/// weights and KV.
pub trait Device: Sized {
    /// A weight matrix, outputs × inputs.
    type Matrix: Send + Sync;
    /// The gains of a norm.
    type Vector: Send + Sync;
    /// Activations, rows × width.
    type Buffer: Send + Sync;
    /// The paged keys and values of all layers, and what rotary positions turn by.
    type Kv: Send + Sync;
    /// What can go wrong while it runs.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Bytes of memory it has left, where it can tell.
    fn available_bytes(&self) -> Option<u64>;

    /// Bytes of one number of KV beside weights that are kept as `dtype`.
    fn kv_bytes(&self, dtype: Dtype) -> u64;

    /// The matrix that has the `parts` below each other: (numbers, outputs). Kept as `dtype`, f32 or bf16.
    fn matrix(
        &mut self,
        parts: &[(TensorData<'_>, usize)],
        inputs: usize,
        dtype: Dtype,
    ) -> Result<Self::Matrix, Self::Error>;

    /// The gains of a norm of this width, kept as f32.
    fn vector(&mut self, gains: TensorData<'_>, width: usize) -> Result<Self::Vector, Self::Error>;

    /// Activations of up to `rows` rows, f32.
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Self::Buffer, Self::Error>;

    /// Activations that nothing but products, attention, gated units and sums of blocks are made of; a device may keep
    /// them as bf16.
    fn narrow_buffer(&mut self, rows: usize, width: usize) -> Result<Self::Buffer, Self::Error> {
        self.buffer(rows, width)
    }

    /// `blocks` blocks of KV for each layer of `shape`, beside weights that are kept as `dtype`.
    fn kv(&mut self, shape: &LlamaShape, dtype: Dtype, blocks: u32) -> Result<Self::Kv, Self::Error>;

    /// Runs a session: many passes, with host work between them. A device that runs passes on threads of its own runs all
    /// of it there, so that no pass begins by waking one.
    fn session<R: Send>(&mut self, run: impl FnOnce(&mut Self) -> R + Send) -> R {
        run(self)
    }

    /// Starts to measure by the device's own clock, if it has one.
    fn start_timer(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// What the device spent since [`start_timer`](Device::start_timer), waiting for it to be done. `None` where nothing but
    /// the host's clock can tell.
    fn stop_timer(&mut self) -> Result<Option<Duration>, Self::Error> {
        Ok(None)
    }

    /// Runs one pass over one batch, so that a device can set up once what all its operations need, or collect them and
    /// start them together.
    fn pass<R: Send>(&mut self, run: impl FnOnce(&mut Self) -> Result<R, Self::Error> + Send)
    -> Result<R, Self::Error>;

    /// The rows of `table` of the batch's tokens.
    fn embed(&mut self, table: &Self::Matrix, batch: &Batch, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// RMSNorm: `x / sqrt(mean(x²) + eps) · gains`, after `delta`, where there is one, is added to `x` for good.
    fn norm(
        &mut self,
        x: &mut Self::Buffer,
        delta: Option<&Self::Buffer>,
        gains: &Self::Vector,
        eps: f32,
        out: &mut Self::Buffer,
    ) -> Result<(), Self::Error>;

    /// `x · weightsᵀ`.
    fn matmul(&mut self, x: &Self::Buffer, weights: &Self::Matrix, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// RMSNorm of each row's query heads and key heads by themselves, in place: the queries' gains and the keys' are one
    /// head wide, and every head shares them. Values stay. `kv` knows how many heads there are.
    fn norm_heads(
        &mut self,
        qkv: &mut Self::Buffer,
        kv: &Self::Kv,
        query_gains: &Self::Vector,
        key_gains: &Self::Vector,
        eps: f32,
    ) -> Result<(), Self::Error>;

    /// Turns the queries and keys of each row (queries, then keys, then values) to the row's position, and writes keys
    /// and values to the row's slot.
    fn rope_and_store(
        &mut self,
        qkv: &mut Self::Buffer,
        batch: &Batch,
        kv: &mut Self::Kv,
        layer: usize,
    ) -> Result<(), Self::Error>;

    /// Attention of each row's queries over what the row sees.
    fn attention(
        &mut self,
        qkv: &Self::Buffer,
        batch: &Batch,
        kv: &Self::Kv,
        layer: usize,
        out: &mut Self::Buffer,
    ) -> Result<(), Self::Error>;

    /// `silu(gate) · up`, where `gate_up` has the gates in the first half of a row.
    fn swiglu(&mut self, gate_up: &Self::Buffer, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// The chosen rows, in order.
    fn gather(&mut self, x: &Self::Buffer, rows: &[u32], out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Copies keys and values of all layers from the first slot to the second, pair by pair: how the accepted path of a
    /// tree becomes context.
    fn move_kv(&mut self, kv: &mut Self::Kv, moves: &[(u32, u32)]) -> Result<(), Self::Error>;

    /// All numbers of the rows in use, on the host.
    fn download(&mut self, x: &Self::Buffer, out: &mut Vec<f32>) -> Result<(), Self::Error>;

    /// Softmax of `logits / temperature` over each row.
    fn softmax(&mut self, logits: &Self::Buffer, temperature: f32, out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Copies row `i` of `x` to row `rows[i]` of `out`, of which all rows it was made for are then in use.
    fn scatter(&mut self, x: &Self::Buffer, rows: &[u32], out: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// A token drawn from each row of probabilities with its uniform in [0, 1), and its probability. See
    /// [`crate::accept::sample`].
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

    /// The entropy, in nats, of each row of probabilities.
    fn entropy(&mut self, probabilities: &Self::Buffer, rows: usize, out: &mut Vec<f64>) -> Result<(), Self::Error> {
        let mut all = Vec::new();
        self.download(probabilities, &mut all)?;
        out.clear();
        out.extend(all.chunks_exact(all.len() / rows.max(1)).map(accept::entropy));
        Ok(())
    }

    /// KL(target ‖ draft), in nats, of pairs of rows of the two.
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

    /// The `k` likeliest tokens of each row, likeliest first, of equal ones the smaller token first.
    fn top_k(&mut self, logits: &Self::Buffer, k: usize, out: &mut Vec<Choice>) -> Result<(), Self::Error>;

    /// Which drafted tokens are what `logits` would have chosen greedily. See [`crate::accept::greedy`].
    fn accept_greedy(
        &mut self,
        logits: &Self::Buffer,
        trees: &[Tree<'_>],
        out: &mut Vec<Accepted>,
    ) -> Result<(), Self::Error>;

    /// Which drafted tokens rejection sampling keeps, given both models' probabilities. See [`crate::accept::reject`].
    fn accept_sampled(
        &mut self,
        target: &Self::Buffer,
        draft: &Self::Buffer,
        chains: &[Chain<'_>],
        out: &mut Vec<Accepted>,
    ) -> Result<(), Self::Error>;
}
