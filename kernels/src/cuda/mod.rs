//! NVIDIA GPUs.
pub mod arguments;
pub mod compile;
mod driver;
mod error;
pub use driver::{Device, Driver};
pub(crate) use driver::{driver, has_driver, has_nvrtc};
pub use error::CudaError;
