//! The peaks of a GPU in the precisions in which a model computes.

use crate::hardware::bad::{BadLatency, bad};
use crate::hardware::gpus::Gpu;
use crate::hardware::models::FlopsByBits;

/// (the GPU's peak in fp8, its peak in fp4), FLOP/s. If the GPU has no peak in a precision, the result is infinite if
/// the model does not compute in this precision, else it is an error.
pub(super) fn peaks(gpu: &Gpu, flops: &FlopsByBits) -> Result<[f64; 2], BadLatency> {
    let peak = |name: &str, work: f64, peak: Option<f64>| match peak {
        Some(peak) => Ok(peak),
        None if work == 0.0 => Ok(f64::INFINITY),
        None => {
            let why = format!("has no peak in {name}, in which the model computes");
            Err(bad("gpu", format!("{why}; weight_only = true multiplies in bf16, as engines do on such a GPU")))
        }
    };
    Ok([peak("fp8", flops.fp8, gpu.fp8_flops)?, peak("fp4", flops.fp4, gpu.fp4_flops)?])
}
