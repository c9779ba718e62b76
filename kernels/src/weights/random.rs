//! Weights out of a seed: timing a model needs its shape, not its knowledge.

use super::{Dtype, TensorData, Weights};
use foretoken_sim::{Luck, Stream};

/// Random weights, the same for a seed and dtype on every device. Matrices have a standard deviation of 0.02, Hugging
/// Face's `initializer_range` for Llama, so that activations stay in the range real ones have; norms' gains are 1.
#[derive(Clone, Copy, Debug)]
pub struct RandomWeights {
    /// Which weights.
    pub seed: u64,
    /// The type they are rounded to.
    pub dtype: Dtype,
}

/// Half the width of a uniform of standard deviation 0.02: 0.02 · √3.
const SCALE: f32 = 0.034_641_016;

impl Weights for RandomWeights {
    fn tensor(&self, name: &str) -> TensorData<'_> {
        if name.ends_with("norm.weight") {
            return TensorData::Ones;
        }
        // Each tensor draws from a sequence of its own, whatever else the model has.
        let luck = name.bytes().fold(Luck::new(self.seed, Stream::Weights, 0), |l, byte| l.narrow(byte.into()));
        TensorData::Random { luck, scale: SCALE, dtype: self.dtype }
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }
}
