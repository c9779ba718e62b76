//! The errors of the CUDA device.

/// A GPU cannot be used, or failed while it was used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// A library of CUDA (driver, NVRTC or cuBLASLt) is missing on this machine.
    #[error("{0} cannot be loaded; `foretoken doctor` says what is missing and how to get it")]
    Missing(&'static str),
    /// There is no GPU with the given number.
    #[error("there is no GPU {ordinal}: the driver has {count}")]
    NoDevice {
        /// The GPU number that was given.
        ordinal: usize,
        /// The number of GPUs that the driver has.
        count: usize,
    },
    /// The GPU's compute capability is below 8.0.
    #[error("GPU {ordinal} ({name}) has compute capability {}.{}; the kernels need 8.0 or newer", capability.0, capability.1)]
    TooOld {
        /// The GPU's number.
        ordinal: usize,
        name: String,
        /// The GPU's compute capability, (major, minor).
        capability: (u32, u32),
    },
    /// An allocation of device memory failed.
    #[error("out of GPU memory: {asked} MiB were asked for, {free} MiB of {total} MiB are free")]
    OutOfMemory {
        /// MiB of device memory that were requested.
        asked: u64,
        /// MiB of device memory that are free.
        free: u64,
        /// MiB of device memory, used or free.
        total: u64,
    },
    /// The CUDA kernels do not compile on this machine.
    #[error("the kernels do not compile: {why}\n{log}")]
    Compiler { why: String, log: String },
    /// The driver or cuBLASLt failed.
    #[error("{what}: {why}")]
    Failed {
        /// The action of the driver or of cuBLASLt that failed.
        what: &'static str,
        /// The error of the driver or of cuBLASLt.
        why: String,
    },
    /// The CUDA kernels do not support a shape or a size; the text says which.
    #[error("{0}")]
    Unsupported(String),
}

impl CudaError {
    pub(super) fn compiler(why: &impl std::fmt::Display, log: &str) -> CudaError {
        CudaError::Compiler { why: why.to_string(), log: log.into() }
    }

    pub(super) fn failed(what: &'static str) -> impl Fn(cudarc::driver::DriverError) -> CudaError {
        move |e| CudaError::Failed { what, why: e.to_string() }
    }
}
