//! The weights of a model: the list of tensors that a shape needs, and the source of their numbers (a Hugging Face
//! folder, a file of this crate, or a seed).

mod checkpoint;
mod manifest;
mod random;

pub use checkpoint::{BadCheckpoint, Checkpoint};
pub use manifest::{TensorSpec, tensors};
pub use random::RandomWeights;

use foretoken_sim::Luck;

/// The number type in which a weight is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// 32-bit IEEE float.
    F32,
    /// bfloat16: the upper 16 bits of an f32.
    Bf16,
    /// 16-bit IEEE float.
    F16,
}

impl Dtype {
    /// Bytes that one number of this type takes.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::Bf16 | Dtype::F16 => 2,
        }
    }
}

/// The source of the numbers of one tensor (row-major): bytes stored on the host, or random numbers that the device
/// draws itself.
#[derive(Clone, Copy, Debug)]
pub enum TensorData<'a> {
    /// Little-endian numbers, as safetensors stores them.
    Stored {
        /// The type of the stored numbers.
        dtype: Dtype,
        bytes: &'a [u8],
    },
    /// Random numbers that the device draws. Number `i` is `scale` times a uniform random number in [−1, 1), which is
    /// draw `i` of `luck`.
    Random {
        /// The sequence of random draws; draw `i` gives number `i`.
        luck: Luck,
        /// Largest absolute value of the numbers.
        scale: f32,
        /// If this is f32, the numbers are not rounded. With any other type, they are rounded to bf16.
        dtype: Dtype,
    },
    /// All numbers are 1: the gains of a random model's norms.
    Ones,
}

/// A source of the numbers of a model's tensors.
pub trait Weights {
    /// Returns the numbers of the tensor `name`, which must be one of the model's [`tensors`].
    fn tensor(&self, name: &str) -> TensorData<'_>;

    /// Returns the type in which a device stores the matrices. The type is bf16 if all matrices of the source are bf16,
    /// else f32, because bf16 cannot represent all numbers of f16 and f32.
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
