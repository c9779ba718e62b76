//! Products of few rows, together with the operations before and after them. Each launch of a kernel costs a pass of one
//! request about two microseconds, so fewer kernels make it faster.

use super::arguments::*;
use super::device::Cuda;
use super::error::CudaError;
use super::memory::{Buffer, Kv, Matrix, stride};
use crate::device::{Device, Normed};
use crate::paged::Batch;

/// Most rows of a product that these kernels can compute.
pub(super) const MOST_FEW_ROWS: usize = 8;

/// Widest row that a kernel norms in its shared memory.
pub(super) const MOST_NORMED_WIDTH: usize = 16_384;

/// The arguments of a product of `rows` rows, which are not normed.
fn arguments(x: &Buffer, weights: &Matrix, out: &Buffer, rows: usize) -> FewArgs {
    FewArgs {
        x: In::at(x.memory.address),
        weights: In::at(weights.memory.address),
        gains: In::at(0),
        out: Out::at(out.memory.address),
        rows: rows as u32,
        inputs: weights.inputs as u32,
        outputs: out.width as u32,
        x_stride: x.stride(),
        weight_stride: stride(weights.inputs) as u32,
        out_stride: out.stride(),
        form: form::NARROW,
        eps: 0.0,
    }
}

impl Cuda {
    /// True if the kernels of this file compute products of `rows` rows.
    pub(super) fn has_few_rows(&self, rows: usize) -> bool {
        (1..=self.tuning.few_rows.min(MOST_FEW_ROWS)).contains(&rows)
    }

    /// Computes `x · weightsᵀ` and writes it to `out`, or adds it.
    pub(super) fn multiply_few(
        &mut self,
        x: &Buffer,
        weights: &Matrix,
        out: &mut Buffer,
        form: u32,
    ) -> Result<(), CudaError> {
        assert!(!x.wide, "a narrow buffer is needed, not f32");
        let arguments = FewArgs { form, ..arguments(x, weights, out, self.padded(x.rows)) };
        let grid = [out.width.div_ceil(16), 1, 1];
        self.now(|program| program.launch(&MATMUL_FEW, grid, [256, 1], few_memory(0), &arguments))
    }

    /// The arguments of a product of few rows that are normed first, and the width of the row that the kernel norms. A
    /// single row is normed by the kernel, if it is not too wide. Several rows are normed now; the width is then 0.
    fn few_normed(
        &mut self,
        input: Normed<'_, Cuda>,
        weights: &Matrix,
        out: &Buffer,
    ) -> Result<(FewArgs, usize), CudaError> {
        let rows = self.padded(input.x.rows);
        if rows == 1 && input.delta.is_none() && weights.inputs <= MOST_NORMED_WIDTH {
            let x: &Buffer = input.x;
            assert!(x.wide, "f32 is needed, not a narrow buffer");
            let gains = In::at(input.gains.memory.address);
            return Ok((FewArgs { gains, eps: input.eps, ..arguments(x, weights, out, 1) }, weights.inputs));
        }
        self.norm(input.x, input.delta, input.gains, input.eps, input.out)?;
        Ok((arguments(input.out, weights, out, rows), 0))
    }

    /// [`Device::gated`] of few rows.
    pub(super) fn gated_few(
        &mut self,
        input: Normed<'_, Cuda>,
        weights: &Matrix,
        out: &mut Buffer,
    ) -> Result<(), CudaError> {
        assert_eq!(
            (input.x.width, 2 * out.width),
            (weights.inputs, weights.outputs),
            "inputs and outputs of a product"
        );
        out.set_rows(input.x.rows);
        let (arguments, normed) = self.few_normed(input, weights, out)?;
        let kernel = if normed > 0 { &GATED_ONE } else { &GATED_FEW };
        let grid = [out.width.div_ceil(8), 1, 1];
        self.now(|program| program.launch(kernel, grid, [256, 1], few_memory(normed), &arguments))
    }

    /// [`Device::queries_keys_values`] of few rows, for heads that are as wide as the rows of the KV.
    pub(super) fn qkv_few(
        &mut self,
        input: Normed<'_, Cuda>,
        weights: &Matrix,
        qkv: &mut Buffer,
        batch: &Batch,
        (kv, layer): (&Kv, usize),
    ) -> Result<(), CudaError> {
        assert_eq!((input.x.width, qkv.width), (weights.inputs, weights.outputs), "inputs and outputs of a product");
        assert_eq!((input.x.rows, kv.head_dim), (batch.rows(), kv.dim), "rows of the batch, and whole rows of KV");
        qkv.set_rows(input.x.rows);
        let sent = self.send(batch);
        let (few, normed) = self.few_normed(input, weights, qkv)?;
        let (keys, values) = kv.layer(layer);
        let arguments = QkvArgs {
            few,
            keys: Out::at(keys),
            values: Out::at(values),
            slots: In::at(sent.slots),
            positions: In::at(sent.positions),
            frequencies: In::at(kv.frequencies.address),
            heads: kv.heads as u32,
            kv_heads: kv.kv_heads as u32,
            head_dim: kv.head_dim as u32,
            _even: 0,
        };
        let kernel = if normed > 0 { &QKV_ONE } else { &QKV_FEW };
        let grid = [qkv.width / 16, 1, 1];
        self.now(|program| program.launch(kernel, grid, [256, 1], few_memory(normed), &arguments))
    }
}
