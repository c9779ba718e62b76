//! Weights: which tensors a shape needs, and where they come from, a Hugging Face folder or a seed.

mod checkpoint;
mod manifest;
mod random;
mod shipped;

pub use checkpoint::{BadCheckpoint, Checkpoint};
pub use manifest::{TensorSpec, tensors};
pub use random::RandomWeights;

use foretoken_sim::Luck;

/// The type of stored numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// 32-bit IEEE.
    F32,
    /// The upper half of an f32.
    Bf16,
    /// 16-bit IEEE.
    F16,
}

impl Dtype {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::Bf16 | Dtype::F16 => 2,
        }
    }
}

/// The numbers of one tensor, row by row, not yet on a device.
#[derive(Clone, Copy, Debug)]
pub enum TensorData<'a> {
    /// Little-endian numbers, as safetensors stores them.
    Stored {
        /// Their type.
        dtype: Dtype,
        /// The numbers.
        bytes: &'a [u8],
    },
    /// Number `i` is `scale` times a uniform in [−1, 1) drawn at position `i`; a device makes them in place.
    Random {
        /// The draws.
        luck: Luck,
        /// Half the width of the distribution.
        scale: f32,
        /// The type they are rounded to.
        dtype: Dtype,
    },
    /// All ones: the gains of a random model's norms.
    Ones,
}

/// Where a model's tensors come from.
pub trait Weights {
    /// The numbers of this tensor, which is one of [`tensors`]' for the shape the source was made for.
    fn tensor(&self, name: &str) -> TensorData<'_>;

    /// The type its matrices are kept in: bf16 only if every one is stored so, since f16 has digits bf16 has not.
    fn dtype(&self) -> Dtype;
}

impl<W: Weights + ?Sized> Weights for &W {
    fn tensor(&self, name: &str) -> TensorData<'_> {
        (**self).tensor(name)
    }

    fn dtype(&self) -> Dtype {
        (**self).dtype()
    }
}
