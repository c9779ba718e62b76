//! Random weights from a seed. They are good enough to time a model, because pass times depend on a model's shape and
//! not on its weights.

use super::{Dtype, TensorData, Weights};
use foretoken_sim::{Luck, Stream};

/// Random weights of a model. The same seed and dtype give the same weights on every device. Matrices have a standard
/// deviation of 0.02 (Hugging Face's `initializer_range` for Llama), so that activations have a realistic range. The
/// gains of norms are 1.
#[derive(Clone, Copy, Debug)]
pub struct RandomWeights {
    pub seed: u64,
    /// The type to which the weights are rounded; see [`TensorData::Random`].
    pub dtype: Dtype,
}

/// Half the width of a uniform distribution with standard deviation 0.02: 0.02 · √3.
const SCALE: f32 = 0.034_641_016;

impl Weights for RandomWeights {
    fn tensor(&self, name: &str) -> TensorData<'_> {
        if name.ends_with("norm.weight") {
            return TensorData::Ones;
        }
        // The random sequence of a tensor depends only on the seed and the tensor's name, not on the other tensors of
        // the model.
        let luck = name.bytes().fold(Luck::new(self.seed, Stream::Weights, 0), |l, byte| l.narrow(byte.into()));
        TensorData::Random { luck, scale: SCALE, dtype: self.dtype }
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }
}
