//! What can go wrong on a GPU.

/// A GPU that cannot be used, or failed while it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// A library is not on this machine.
    #[error("{0} cannot be loaded; `foretoken doctor` says what is missing and how to get it")]
    Missing(&'static str),
    /// There is no GPU of this number.
    #[error("there is no GPU {ordinal}: the driver has {count}")]
    NoDevice {
        /// The number asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The GPU is too old.
    #[error("GPU {ordinal} ({name}) has compute capability {}.{}; the kernels need 8.0 or newer", capability.0, capability.1)]
    TooOld {
        /// Its number.
        ordinal: usize,
        /// Its name.
        name: String,
        /// What it has.
        capability: (u32, u32),
    },
    /// An allocation failed.
    #[error("out of GPU memory: {asked} MiB were asked for, {free} MiB of {total} MiB are free")]
    OutOfMemory {
        /// MiB asked for.
        asked: u64,
        /// MiB free.
        free: u64,
        /// MiB there are.
        total: u64,
    },
    /// The kernels do not compile here.
    #[error("the kernels do not compile: {why}\n{log}")]
    Compiler {
        /// The compiler's error.
        why: String,
        /// Its words.
        log: String,
    },
    /// The driver or cuBLASLt failed.
    #[error("{what}: {why}")]
    Failed {
        /// What was being done.
        what: &'static str,
        /// The library's words.
        why: String,
    },
    /// A shape the kernels have no room for.
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
