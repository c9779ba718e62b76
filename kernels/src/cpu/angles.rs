//! Rotary angles: what queries and keys are turned by.

use crate::model::LlamaShape;

/// Cosines and sines of every position that a model's KV has room for. They are made once: a pass that made its own
/// would take longer at new positions than at those of the pass before, by a tenth for a small draft.
pub(super) struct Angles {
    /// Pairs of dimensions in a head.
    pairs: usize,
    /// Cosines of all pairs and then their sines, position by position.
    table: Vec<f32>,
}

impl Angles {
    /// Of positions below `slots`, and below those that the model knows.
    pub(super) fn new(shape: &LlamaShape, slots: usize) -> Angles {
        let frequencies = frequencies(shape);
        let positions = slots.min(shape.max_positions as usize);
        let mut table = vec![0.0; 2 * frequencies.len() * positions];
        for (position, angles) in table.chunks_exact_mut(2 * frequencies.len()).enumerate() {
            let (cosines, sines) = angles.split_at_mut(frequencies.len());
            for ((cosine, sine), frequency) in cosines.iter_mut().zip(sines).zip(&frequencies) {
                // In f32 as transformers does it: the angle's rounding is part of what checkpoints were trained with.
                let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
                (*cosine, *sine) = (cos as f32, sin as f32);
            }
        }
        Angles { pairs: frequencies.len(), table }
    }

    /// Cosines and sines of each pair's angle at a position.
    pub(super) fn at(&self, position: u32) -> (&[f32], &[f32]) {
        self.table[2 * self.pairs * position as usize..][..2 * self.pairs].split_at(self.pairs)
    }
}

/// `theta^(−2i / head_dim)`, stretched as Llama 3 does it (see [`crate::model::RopeScaling`]).
pub(crate) fn frequencies(shape: &LlamaShape) -> Vec<f32> {
    let one = |i: u32| {
        let frequency = shape.rope_theta.powf(-f64::from(2 * i) / f64::from(shape.head_dim));
        let Some(s) = shape.rope_scaling else { return frequency as f32 };
        let turns = f64::from(s.original_max_position_embeddings) * frequency / std::f64::consts::TAU;
        // How much of the frequency is kept: none where it makes few turns over the first context, all where many.
        let kept = ((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)).clamp(0.0, 1.0);
        (kept * frequency + (1.0 - kept) * frequency / s.factor) as f32
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
