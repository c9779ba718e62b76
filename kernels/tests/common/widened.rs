//! A checkpoint whose numbers and KV a device keeps as f32: the same model without rounding of its own, so that it can
//! be compared with another implementation digit by digit.

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
