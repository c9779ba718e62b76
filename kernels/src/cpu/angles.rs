//! Rotary position embeddings (RoPE): the angles by which queries and keys are rotated.

use crate::model::LlamaShape;

/// Cosines and sines of the rotary angles of every position in the KV, computed once. When each pass computed the
/// angles of its new positions instead, a pass of a small draft model took 10 % longer.
pub(super) struct Angles {
    /// Number of pairs of dimensions that are rotated together in a head: half of `head_dim`.
    pairs: usize,
    /// The cosines and sines of all positions, position by position: first the cosines of all pairs of dimensions, then
    /// the sines of all pairs.
    table: Vec<f32>,
}

impl Angles {
    /// Computes the rotary angles of the positions below the model's `max_positions` and below `slots`, the number of
    /// tokens that the KV pool can hold.
    pub(super) fn new(shape: &LlamaShape, slots: usize) -> Angles {
        let frequencies = frequencies(shape);
        let positions = slots.min(shape.max_positions as usize);
        let mut table = vec![0.0; 2 * frequencies.len() * positions];
        for (position, angles) in table.chunks_exact_mut(2 * frequencies.len()).enumerate() {
            let (cosines, sines) = angles.split_at_mut(frequencies.len());
            for ((cosine, sine), frequency) in cosines.iter_mut().zip(sines).zip(&frequencies) {
                // The angle is rounded to f32, as Hugging Face transformers does, because checkpoints were trained with
                // that rounding.
                let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
                (*cosine, *sine) = (cos as f32, sin as f32);
            }
        }
        Angles { pairs: frequencies.len(), table }
    }

    /// Returns (cosines, sines) of the rotary angles at `position`, one number per pair of dimensions.
    pub(super) fn at(&self, position: u32) -> (&[f32], &[f32]) {
        self.table[2 * self.pairs * position as usize..][..2 * self.pairs].split_at(self.pairs)
    }
}

/// The rotary frequencies of a head, in radians per position. The frequency of pair `i` is `theta^(−2i / head_dim)`. If
/// the model uses Llama 3's scaling (see [`crate::model::RopeScaling`]), the frequencies are scaled.
pub(crate) fn frequencies(shape: &LlamaShape) -> Vec<f32> {
    let one = |i: u32| {
        let frequency = shape.rope_theta.powf(-f64::from(2 * i) / f64::from(shape.head_dim));
        let Some(s) = shape.rope_scaling else { return frequency as f32 };
        let turns = f64::from(s.original_max_position_embeddings) * frequency / std::f64::consts::TAU;
        // Weight of the unscaled frequency in the blend of the unscaled and the scaled frequency. The weight is 0 if
        // the angle makes few turns over the original context length, and 1 if the angle makes many turns.
        let unscaled = ((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)).clamp(0.0, 1.0);
        (unscaled * frequency + (1.0 - unscaled) * frequency / s.factor) as f32
    };
    (0..shape.head_dim / 2).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::preset;
    use itertools::Itertools;

    #[test]
    fn long_wavelengths_are_slowed_and_short_ones_kept() {
        let shape = preset("llama-3.2-1b").unwrap();
        let plain = frequencies(&LlamaShape { rope_scaling: None, ..shape.clone() });
        let scaled = frequencies(&shape);
        assert_eq!((plain[0], scaled[0]), (1.0, 1.0));
        assert_eq!(scaled[31], plain[31] / 32.0);
        assert!(plain.iter().zip_eq(&scaled).all(|(p, s)| (p / 32.1..=*p).contains(s)));
    }
}
