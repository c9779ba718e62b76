//! Weights: the tensors that a shape needs, and their source, a Hugging Face folder or a seed.

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
    /// 32-bit IEEE float.
    F32,
    /// The upper half of an f32.
    Bf16,
    /// 16-bit IEEE float.
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
        /// The type of the stored numbers.
        dtype: Dtype,
        /// The numbers.
        bytes: &'a [u8],
    },
    /// Number `i` is `scale` times a uniform in [−1, 1) drawn at position `i`; a device makes them in place.
    Random {
        /// The random draws.
        luck: Luck,
        /// Half the width of the distribution.
        scale: f32,
        /// The type to which they are rounded.
        dtype: Dtype,
    },
    /// All ones: the gains of a random model's norms.
    Ones,
}

/// A source of a model's tensors.
pub trait Weights {
    /// The numbers of the tensor `name`, one of [`tensors`] for the shape of this source.
    fn tensor(&self, name: &str) -> TensorData<'_>;

    /// The type in which matrices are kept: bf16 only if all are stored as bf16, because f16 has digits that bf16
    /// lacks.
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
