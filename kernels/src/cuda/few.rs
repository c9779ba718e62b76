//! Matrix products of few rows, computed together with the operation that follows the product: the rotation of queries
//! and keys, the gates of an MLP, or the residual sum. These kernels do not compute the RMSNorm before the product,
//! because each thread block would repeat it: on an H200 this made a pass of Vicuna-7B over one request 4 % slower.

use super::arguments::*;
use super::device::Cuda;
use super::error::CudaError;
use super::memory::{Buffer, Kv, Matrix, stride};
use super::tuning::MOST_FEW_ROWS;
use crate::device::{Device, Normed};
use crate::paged::Batch;

/// Makes the arguments of a kernel that multiplies the first `rows` rows of `x` with `weights`.
fn arguments(x: &Buffer, weights: &Matrix, out: &Buffer, rows: usize) -> FewArgs {
    FewArgs {
        x: In::at(x.narrow()),
        weights: In::at(weights.memory.address),
        out: Out::at(out.memory.address),
        rows: rows as u32,
        inputs: weights.inputs as u32,
        outputs: out.width as u32,
        x_stride: x.stride(),
        weight_stride: stride(weights.inputs) as u32,
        out_stride: out.stride(),
        form: form::NARROW,
        _even: 0,
    }
}

impl Cuda {
    /// True if the kernels for few rows can compute a product of `rows` rows. If false, cuBLASLt must compute it.
    pub(super) fn has_few_rows(&self, rows: usize) -> bool {
        (1..=self.tuning.few_rows.min(MOST_FEW_ROWS)).contains(&rows)
    }

    /// Computes `x · weightsᵀ` with the kernels for few rows. Writes the product to `out`, or adds it to the numbers in
    /// `out`.
    pub(super) fn multiply_few(
        &mut self,
        x: &Buffer,
        weights: &Matrix,
        out: &mut Buffer,
        form: u32,
    ) -> Result<(), CudaError> {
        let arguments = FewArgs { form, ..arguments(x, weights, out, self.padded(x.rows)) };
        let grid = [out.width.div_ceil(16), 1, 1];
        self.now(|program| program.launch(&MATMUL_FEW, grid, [256, 1], FEW_MEMORY, &arguments))
    }

    /// Computes [`Device::gated`], the first half of an MLP, with the kernels for few rows.
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
        self.norm(input.x, input.delta, input.gains, input.eps, input.out)?;
        let arguments = arguments(input.out, weights, out, self.padded(out.rows));
        let grid = [out.width.div_ceil(8), 1, 1];
        self.now(|program| program.launch(&GATED_FEW, grid, [256, 1], FEW_MEMORY, &arguments))
    }

    /// Computes [`Device::queries_keys_values`] with the kernels for few rows. `head_dim` must be equal to the width of
    /// a row of the KV.
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
        self.norm(input.x, input.delta, input.gains, input.eps, input.out)?;
        let (keys, values) = kv.layer(layer);
        let arguments = QkvArgs {
            few: arguments(input.out, weights, qkv, self.padded(qkv.rows)),
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
        let grid = [qkv.width / 16, 1, 1];
        self.now(|program| program.launch(&QKV_FEW, grid, [256, 1], FEW_MEMORY, &arguments))
    }
}
