//! Copies the weights of a model to the GPU.

use super::arguments::*;
use super::device::Cuda;
use super::error::CudaError;
use super::memory::{Matrix, stride};
use crate::cpu::number;
use crate::weights::{Dtype, TensorData};
use half::bf16;
use rayon::prelude::*;

/// Most bytes of bf16 weights that the host converts at a time before it copies them to the device. The host always
/// converts at least one row.
const PIECE: usize = 64 << 20;

impl Cuda {
    /// Writes the weights `data` to the rows `first..first + outputs` of a matrix. A row has the weights of one output.
    pub(super) fn put(
        &mut self,
        matrix: &Matrix,
        data: TensorData<'_>,
        first: usize,
        outputs: usize,
    ) -> Result<(), CudaError> {
        let (inputs, stride) = (matrix.inputs, stride(matrix.inputs));
        let at = matrix.memory.address + 2 * (first * stride) as u64;
        match data {
            TensorData::Random { luck, scale, .. } => {
                // The device draws the random weights as f32 and always rounds them to bf16; the type in `data` is
                // ignored. With the type f32, this is the only rounding. With any other type, `data` asks for rounding
                // to bf16, and a second rounding to bf16 would change nothing.
                let arguments = RandomWeightsArgs {
                    out: Out::at(at),
                    base: luck.base(),
                    scale,
                    rows: outputs as u32,
                    width: inputs as u32,
                    stride: stride as u32,
                };
                let blocks = (outputs * inputs).div_ceil(256).min(8192);
                self.now(|program| program.launch(&RANDOM_WEIGHTS, [blocks, 1, 1], [256, 1], 0, &arguments))
            }
            TensorData::Stored { dtype: Dtype::Bf16, bytes } if inputs == stride => {
                self.backend.upload(at, &bytes[..2 * outputs * inputs])
            }
            _ => {
                let rows_at_once = (PIECE / (2 * stride)).max(1);
                for from in (0..outputs).step_by(rows_at_once) {
                    let rows = rows_at_once.min(outputs - from);
                    let mut piece = vec![0u8; 2 * rows * stride];
                    piece.par_chunks_exact_mut(2 * stride).enumerate().for_each(|(row, out)| {
                        for (i, out) in out.chunks_exact_mut(2).take(inputs).enumerate() {
                            let x = bf16::from_f32(number(data, (from + row) * inputs + i));
                            out.copy_from_slice(&x.to_le_bytes());
                        }
                    });
                    self.backend.upload(at + 2 * (from * stride) as u64, &piece)?;
                }
                Ok(())
            }
        }
    }
}
