//! Opens a GPU by its number. The error says why the GPU cannot be used.

use foretoken_kernels::cuda::{Cuda, CudaError};
use foretoken_kernels::{CudaDevice, doctor};
use foretoken_profiler::DeviceInfo;
use foretoken_run::spec::problem::{Exit, Problem, Result};

pub fn open(index: u32) -> Result<Cuda> {
    let missing = |what: String| {
        Problem::new(Exit::NoHardware, format!("cuda:{index} cannot be used: {what}"))
            .help("`foretoken doctor` says what this machine has; --device cpu works on any")
    };
    if known(index).is_none() {
        return Err(missing(match doctor().driver {
            Ok(None) => "there is no CUDA driver on this machine".to_owned(),
            Ok(Some(driver)) => format!("the driver has {} GPUs", driver.devices.len()),
            Err(why) => why,
        }));
    }
    Cuda::new(index as usize).map_err(|e| match e {
        CudaError::Missing(_) | CudaError::NoDevice { .. } | CudaError::TooOld { .. } => missing(e.to_string()),
        _ => Problem::failed(format!("cuda:{index}: {e}")),
    })
}

/// Describes the GPU with number `index` for a profile: its name, its compute capability, and the number of the host's
/// cores.
pub fn info(index: u32, cuda: &Cuda) -> DeviceInfo {
    let capability = known(index).map(|d| d.compute_capability);
    DeviceInfo {
        kind: format!("cuda:{index}"),
        name: cuda.name(),
        features: capability.map(|(major, minor)| format!("compute {major}.{minor}")).into_iter().collect(),
        cores: foretoken_run::machine::cores(),
        threads: 1,
        speed: None,
        driver: None,
    }
}

fn known(index: u32) -> Option<CudaDevice> {
    let driver = doctor().driver.ok().flatten()?;
    driver.devices.into_iter().find(|d| d.ordinal == index)
}
