//! A checkpoint that a device stores as f32, weights and KV, so that the device rounds nothing to bf16 and its results
//! can be compared closely with another implementation's.

use foretoken_kernels::weights::{Checkpoint, Dtype, TensorData, Weights};

pub struct Widened<'a>(pub &'a Checkpoint);

impl Weights for Widened<'_> {
    fn tensor(&self, name: &str) -> TensorData<'_> {
        self.0.tensor(name)
    }

    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
}
