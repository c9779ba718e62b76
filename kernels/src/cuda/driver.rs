//! Facts about the CUDA driver and its devices.
//!
//! cudarc panics if it calls a library that is missing. The functions of this file must therefore check first that a
//! library can be loaded.

use cudarc::driver::sys::{CUdevice_attribute, cuDriverGetVersion};
use cudarc::driver::{CudaContext, DriverError, result};
use cudarc::{cublaslt, driver, nvrtc};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Newest CUDA version that the driver runs, (major, minor).
    pub cuda_version: (u32, u32),
    /// The GPUs of this machine, in the driver's order.
    pub devices: Vec<Device>,
}

/// Facts about one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The driver's index of the GPU.
    pub ordinal: u32,
    pub name: String,
    /// The GPU's compute capability, (major, minor).
    pub compute_capability: (u32, u32),
    pub multiprocessors: u32,
    /// Bytes of the GPU's memory, used or free.
    pub memory_bytes: u64,
    /// Bytes of the GPU's memory that no process uses.
    pub free_bytes: u64,
}

/// True if libcuda, the driver's library, can be loaded.
#[expect(unsafe_code, reason = "cudarc marks the question unsafe because answering it loads the library")]
pub(crate) fn has_driver() -> bool {
    // SAFETY: the call loads the library, which runs the library's initialisers. Any process may run them.
    unsafe { driver::sys::is_culib_present() }
}

/// True if NVRTC, the run-time compiler of kernels, can be loaded.
#[expect(unsafe_code, reason = "cudarc marks the question unsafe because answering it loads the library")]
pub(crate) fn has_nvrtc() -> bool {
    // SAFETY: the call loads NVRTC, which runs its initialisers. Any process may run them.
    unsafe { nvrtc::sys::is_culib_present() }
}

/// True if cuBLASLt, which computes large matrix products, can be loaded.
#[expect(unsafe_code, reason = "cudarc marks the question unsafe because answering it loads the library")]
pub(crate) fn has_cublaslt() -> bool {
    // SAFETY: the call loads cuBLASLt, which runs its initialisers. Any process may run them.
    unsafe { cublaslt::sys::is_culib_present() }
}

/// Reads the driver's version and its devices. Returns `Ok(None)` if there is no driver. The function makes a context
/// on each device for a moment.
pub(crate) fn driver() -> Result<Option<Driver>, String> {
    if !has_driver() {
        return Ok(None);
    }
    let driver = || {
        result::init()?;
        let count = CudaContext::device_count()?.max(0) as u32;
        let devices = (0..count).map(device).collect::<Result<_, _>>()?;
        Ok(Driver { cuda_version: version()?, devices })
    };
    driver().map(Some).map_err(|e: DriverError| e.to_string())
}

#[expect(unsafe_code, reason = "cudarc has no safe call for the driver's version")]
fn version() -> Result<(u32, u32), DriverError> {
    let mut version = 0;
    // SAFETY: the call writes one integer to a variable that outlives it. The driver was found before.
    unsafe { cuDriverGetVersion(&raw mut version) }.result()?;
    // The driver returns its version as 1000·major + 10·minor (CUDA driver API, "Version Management").
    let version = u32::try_from(version).unwrap_or(0);
    Ok((version / 1000, version % 1000 / 10))
}

fn device(ordinal: u32) -> Result<Device, DriverError> {
    let context = CudaContext::new(ordinal as usize)?;
    let (major, minor) = context.compute_capability()?;
    let (free, _) = context.mem_get_info()?;
    let multiprocessors = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    Ok(Device {
        ordinal,
        name: context.name()?,
        compute_capability: (major.max(0) as u32, minor.max(0) as u32),
        multiprocessors: multiprocessors.max(0) as u32,
        memory_bytes: context.total_mem()? as u64,
        free_bytes: free as u64,
    })
}
