//! Three operations of a layer: the matrix product; the rotation of queries and keys, which also writes keys and values
//! to the KV; and attention.

use super::arguments::*;
use super::batch::STRETCH;
use super::device::Cuda;
use super::error::CudaError;
use super::memory::{Buffer, Kv, Matrix, stride};
use super::program::{Matmul, MatmulShape};
use crate::paged::Batch;

impl Cuda {
    /// Computes `x · weightsᵀ`. If `x` has at most [`Tuning::few_rows`](super::Tuning) rows, a kernel of this crate
    /// computes the product, otherwise cuBLASLt.
    pub(super) fn multiply(&mut self, x: &Buffer, weights: &Matrix, out: &mut Buffer) -> Result<(), CudaError> {
        assert_eq!((x.width, out.width), (weights.inputs, weights.outputs), "inputs and outputs of a product");
        out.set_rows(x.rows);
        let rows = self.padded(x.rows);
        if rows == 0 {
            return Ok(());
        }
        if self.has_few_rows(rows) {
            return self.multiply_few(x, weights, out, if out.wide { form::WIDE } else { form::NARROW });
        }
        let shape = MatmulShape {
            rows: rows as u32,
            inputs: weights.inputs as u32,
            outputs: weights.outputs as u32,
            x_stride: x.stride(),
            weight_stride: stride(weights.inputs) as u32,
            out_stride: out.stride(),
            wide: out.wide,
        };
        let product = Matmul { x: x.narrow(), weights: weights.memory.address, out: out.memory.address, shape };
        self.now(|program| program.matmul(&product))
    }

    /// Rotates queries and keys by the rotary angles of their positions, and writes keys and values to the KV slots of
    /// their tokens.
    pub(super) fn rotate(
        &mut self,
        qkv: &mut Buffer,
        batch: &Batch,
        kv: &mut Kv,
        layer: usize,
    ) -> Result<(), CudaError> {
        assert_eq!(qkv.rows, batch.rows(), "rows of the batch");
        let sent = self.send(batch);
        let (keys, values) = kv.layer(layer);
        let arguments = RopeStoreArgs {
            qkv: Out::at(qkv.narrow()),
            keys: Out::at(keys),
            values: Out::at(values),
            slots: In::at(sent.slots),
            positions: In::at(sent.positions),
            frequencies: In::at(kv.frequencies.address),
            stride: qkv.stride(),
            heads: kv.heads as u32,
            kv_heads: kv.kv_heads as u32,
            head_dim: kv.head_dim as u32,
            dim: kv.dim as u32,
            _even: 0,
        };
        let half = kv.head_dim / 2;
        let threads_a_head = if half.is_multiple_of(8) { half / 8 } else { half };
        let grid = [((kv.heads + 2 * kv.kv_heads) * threads_a_head).div_ceil(256), sent.padded, 1];
        self.now(|program| program.launch(&ROPE_STORE, grid, [256, 1], 0, &arguments))
    }

    /// Computes attention. Requests with few queries use split attention, which divides their context among thread
    /// blocks. Requests with many queries use tiled attention.
    pub(super) fn attend(
        &mut self,
        qkv: &Buffer,
        batch: &Batch,
        kv: &Kv,
        layer: usize,
        out: &mut Buffer,
    ) -> Result<(), CudaError> {
        assert_eq!((qkv.rows, out.width), (batch.rows(), kv.heads * kv.head_dim), "rows and width of the batch");
        out.set_rows(qkv.rows);
        let mut sent = self.send(batch);
        let tiles = sent.tiles(batch, kv, &self.tuning, self.in_pass, &mut self.arena);
        let (keys, values) = kv.layer(layer);
        let arguments = |tiles_at: u64| AttendArgs {
            qkv: In::at(qkv.narrow()),
            keys: In::at(keys),
            values: In::at(values),
            out: Out::at(out.narrow()),
            tiles: In::at(tiles_at),
            prefixes: In::at(sent.prefixes),
            bits_at: In::at(sent.bits_at),
            bits: In::at(sent.bits),
            words: In::at(tiles.words),
            parts: Out::at(kv.parts.address),
            done: Out::at(kv.done.address),
            qkv_stride: qkv.stride(),
            out_stride: out.stride(),
            kv_heads: kv.kv_heads as u32,
            group: kv.group() as u32,
            head_dim: kv.head_dim as u32,
            stretch: STRETCH as u32,
            // The kernels compute 2^x in place of e^x, so scores are multiplied by log₂ e.
            scale: std::f32::consts::LOG2_E / (kv.head_dim as f32).sqrt(),
            _even: 0,
        };
        let (few, many) = (arguments(tiles.few), arguments(tiles.many));
        let (split, tile) = match kv.dim {
            64 => (&ATTEND_SPLIT_64, &ATTEND_TILE_64),
            _ => (&ATTEND_SPLIT_128, &ATTEND_TILE_128),
        };
        self.sent = Some(sent);
        self.now(|program| {
            let heads = kv.kv_heads;
            program.launch(split, [tiles.few_count, heads, tiles.stretches], [128, 1], split_memory(kv.dim), &few);
            program.launch(tile, [tiles.many_count, heads, 1], [128, 1], tile_memory(kv.dim), &many);
        })
    }
}
