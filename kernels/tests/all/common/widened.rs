//! A checkpoint whose weights a device stores as f32. The device then also stores KV as f32 and rounds nothing to bf16,
//! so its results can be compared closely with another implementation's results.

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
