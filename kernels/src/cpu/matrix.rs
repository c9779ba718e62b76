//! Weight matrices, packed when they are loaded.
//!
//! The weights of sixteen outputs form a panel. A panel stores the sixteen weights of one input, then the sixteen
//! weights of the next input. A kernel reads a panel from its beginning to its end and makes sixteen sums at a time,
//! one per output, so that no sum over lanes is needed at the end. The last panel is padded with zeros to sixteen
//! outputs, and an odd number of inputs is padded to an even number.

use super::lanes::LANES;
use super::pages::Pages;
use super::pairs::{Bf16Pairs, F32Pairs, Pairs};
use super::team::Team;
use crate::weights::{Dtype, TensorData};
use half::{bf16, f16};
use std::sync::Mutex;

/// A packed matrix of weights, outputs × inputs.
pub struct Matrix {
    pub(super) outputs: usize,
    pub(super) panels: Panels,
}

/// The weights of a matrix as f32 or as bf16, one panel (sixteen outputs) after the other. A panel has
/// `inputs.div_ceil(2)` pairs; each pair holds the weights of two neighbouring inputs.
pub(super) enum Panels {
    F32(Pages<F32Pairs>),
    Bf16(Pages<Bf16Pairs>),
}

impl Matrix {
    /// Packs the tensors of `parts`, each given as (tensor, its number of outputs), into one matrix. The outputs of a
    /// part come right after the outputs of the part before.
    pub(super) fn new(team: &mut Team, parts: &[(TensorData<'_>, usize)], inputs: usize, dtype: Dtype) -> Matrix {
        let outputs = parts.iter().map(|p| p.1).sum();
        let panels = match dtype {
            Dtype::Bf16 => Panels::Bf16(packed(team, parts, inputs)),
            Dtype::F32 | Dtype::F16 => Panels::F32(packed(team, parts, inputs)),
        };
        Matrix { outputs, panels }
    }

    /// Writes the weights of one output of the matrix to `out` as f32.
    pub(super) fn row(&self, output: usize, out: &mut [f32]) {
        match &self.panels {
            Panels::F32(pairs) => row(pairs, output, out),
            Panels::Bf16(pairs) => row(pairs, output, out),
        }
    }
}

fn row<P: Pairs>(pairs: &[P], output: usize, out: &mut [f32]) {
    let depth = out.len().div_ceil(2);
    let panel = &pairs[output / LANES * depth..][..depth];
    for (two, pairs) in out.chunks_mut(2).zip(panel) {
        for (group, x) in two.iter_mut().enumerate() {
            *x = pairs.get(group, output % LANES);
        }
    }
}

fn packed<P: Pairs>(team: &mut Team, parts: &[(TensorData<'_>, usize)], inputs: usize) -> Pages<P> {
    let rows = parts.iter().flat_map(|&(data, rows)| (0..rows).map(move |row| (data, row))).collect::<Vec<_>>();
    let depth = inputs.div_ceil(2);
    let mut pairs = Pages::<P>::zeros(rows.len().div_ceil(LANES) * depth);
    // Each panel (the weights of sixteen outputs) is locked once, by the task that fills it.
    let panels: Vec<Mutex<&mut [P]>> = pairs.chunks_mut(depth).map(Mutex::new).collect();
    team.share(panels.len(), rows.len() * inputs, |i| {
        let mut panel = panels[i].lock().expect("a panel has one task");
        for (lane, &(data, row)) in rows[i * LANES..].iter().take(LANES).enumerate() {
            let weight = |input: usize| if input < inputs { number(data, row * inputs + input) } else { 0.0 };
            for (i, pairs) in panel.iter_mut().enumerate() {
                pairs.set(lane, [weight(2 * i), weight(2 * i + 1)]);
            }
        }
    });
    drop(panels);
    pairs
}

/// Returns element `i` of the tensor `data`, as f32.
pub(crate) fn number(data: TensorData<'_>, i: usize) -> f32 {
    match data {
        TensorData::Stored { dtype: Dtype::F32, bytes } => {
            f32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("four bytes"))
        }
        TensorData::Stored { dtype: Dtype::Bf16, bytes } => {
            bf16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).into()
        }
        TensorData::Stored { dtype: Dtype::F16, bytes } => f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).into(),
        TensorData::Random { luck, scale, dtype } => {
            let x = scale * (2.0 * luck.unit(i as u64) - 1.0) as f32;
            if dtype == Dtype::F32 { x } else { bf16::from_f32(x).into() }
        }
        TensorData::Ones => 1.0,
    }
}
