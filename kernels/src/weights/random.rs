//! Random weights from a seed: timing a model needs its shape, not its knowledge.

use super::{Dtype, TensorData, Weights};
use foretoken_sim::{Luck, Stream};

/// Random weights, equal on every device for the same seed and dtype. Matrices have a standard deviation of 0.02,
/// Hugging Face's `initializer_range` for Llama, so that activations have a realistic range. The gains of norms are 1.
#[derive(Clone, Copy, Debug)]
pub struct RandomWeights {
    /// Seed of the weights.
    pub seed: u64,
    /// The type to which they are rounded.
    pub dtype: Dtype,
}

/// Half the width of a uniform of standard deviation 0.02: 0.02 · √3.
const SCALE: f32 = 0.034_641_016;

impl Weights for RandomWeights {
    fn tensor(&self, name: &str) -> TensorData<'_> {
        if name.ends_with("norm.weight") {
            return TensorData::Ones;
        }
        // Each tensor draws from its own sequence, whatever other tensors the model has.
        let luck = name.bytes().fold(Luck::new(self.seed, Stream::Weights, 0), |l, byte| l.narrow(byte.into()));
        TensorData::Random { luck, scale: SCALE, dtype: self.dtype }
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }
}
