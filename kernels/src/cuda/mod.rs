//! The CUDA device. Weights, activations and KV are bf16; sums and the residual stream are f32.
//!
//! [`Cuda`] turns operations into commands ([`program`]). A [`backend`] carries out the commands: a GPU, or an
//! emulation in tests. The commands of a pass are collected first. If they equal the commands of an earlier pass, they
//! are replayed as one CUDA graph. Numbers of rows are padded to a few sizes, so that the commands of two passes are
//! often equal. Data that differs from pass to pass is copied to the device before the commands run ([`arena`],
//! [`batch`]).
//!
//! The code compiles without a GPU, a driver or a CUDA toolkit. To run it, the driver, NVRTC and cuBLASLt are needed.

mod arena;
pub mod arguments;
pub mod backend;
mod batch;
mod blas;
mod choosing;
pub mod compile;
mod device;
mod driver;
mod error;
mod event;
mod few;
mod gpu;
mod layers;
mod memory;
mod operations;
mod passes;
pub mod program;
mod tuning;
mod weights;

pub use device::Cuda;
#[cfg(test)]
pub(crate) use driver::has_driver;
pub use driver::{Device, Driver};
pub(crate) use driver::{driver, has_cublaslt};
pub use error::CudaError;
pub use memory::{Buffer, Kv, Matrix, Vector};
pub use tuning::Tuning;
