//! `doctor`: what this machine can do, in words for its owner. It looks and reports; it changes nothing.

use crate::cuda::{self, Driver};
use std::fmt;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorReport {
    /// CPU cores this process may use.
    pub cpu_cores: usize,
    /// The CUDA driver, `None` when its library cannot be loaded; an error in the driver's words when it can but fails.
    pub driver: Result<Option<Driver>, String>,
    /// Can NVRTC be loaded, so that kernels can be compiled here?
    pub nvrtc: bool,
}

/// Looks at this machine. Never fails and never panics: what is missing is part of the report.
pub fn doctor() -> DoctorReport {
    DoctorReport {
        cpu_cores: std::thread::available_parallelism().map_or(1, usize::from),
        driver: cuda::driver(),
        nvrtc: cuda::has_nvrtc(),
    }
}

impl DoctorReport {
    /// Could kernels run here: a driver with a device, and a compiler for them?
    pub fn can_run_kernels(&self) -> bool {
        let devices = matches!(&self.driver, Ok(Some(driver)) if !driver.devices.is_empty());
        devices && self.nvrtc
    }
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "CPU          {} core{}", self.cpu_cores, if self.cpu_cores == 1 { "" } else { "s" })?;
        match &self.driver {
            Ok(None) => writeln!(f, "CUDA driver  not found (no libcuda)")?,
            Err(why) => writeln!(f, "CUDA driver  found, but it does not answer: {why}")?,
            Ok(Some(driver)) => write_driver(f, driver)?,
        }
        let nvrtc = if self.nvrtc { "found" } else { "not found (no libnvrtc)" };
        writeln!(f, "NVRTC        {nvrtc}")?;
        let kernels = if self.can_run_kernels() { "has what kernels need" } else { "cannot run kernels" };
        writeln!(f, "This machine {kernels}. Simulation needs none of it.")
    }
}

fn write_driver(f: &mut fmt::Formatter<'_>, driver: &Driver) -> fmt::Result {
    let (major, minor) = driver.cuda_version;
    writeln!(f, "CUDA driver  runs CUDA {major}.{minor} and older")?;
    if driver.devices.is_empty() {
        writeln!(f, "GPU          none")?;
    }
    for gpu in &driver.devices {
        let (major, minor) = gpu.compute_capability;
        let gib = gpu.memory_bytes as f64 / (1u64 << 30) as f64;
        let (ordinal, name, sms) = (gpu.ordinal, &gpu.name, gpu.multiprocessors);
        writeln!(f, "GPU {ordinal:<8} {name}, compute {major}.{minor}, {sms} multiprocessors, {gib:.1} GiB")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CudaDevice as Device;

    /// Must hold on any machine, with or without a GPU.
    #[test]
    fn looking_never_panics_and_agrees_with_itself() {
        let report = doctor();
        assert!(report.cpu_cores >= 1);
        assert_eq!(report, doctor());
        assert_eq!(matches!(report.driver, Ok(None)), !cuda::has_driver());
        assert!(!report.can_run_kernels() || cuda::has_driver());
    }

    fn report(driver: Result<Option<Driver>, String>, nvrtc: bool) -> DoctorReport {
        DoctorReport { cpu_cores: 2, driver, nvrtc }
    }

    #[test]
    fn a_machine_without_cuda_is_told_that_it_can_simulate() {
        let text = report(Ok(None), false).to_string();
        assert_eq!(
            text,
            "CPU          2 cores\n\
             CUDA driver  not found (no libcuda)\n\
             NVRTC        not found (no libnvrtc)\n\
             This machine cannot run kernels. Simulation needs none of it.\n"
        );
    }

    #[test]
    fn a_device_is_described_and_needs_a_compiler_to_be_used() {
        let gpu = Device {
            ordinal: 0,
            name: "Example GPU".into(),
            compute_capability: (9, 0),
            multiprocessors: 132,
            memory_bytes: 80 << 30,
        };
        let driver = Driver { cuda_version: (13, 1), devices: vec![gpu] };
        let with = report(Ok(Some(driver.clone())), true);
        assert!(with.can_run_kernels());
        assert!(with.to_string().contains("CUDA driver  runs CUDA 13.1 and older\n"));
        assert!(with.to_string().contains("GPU 0        Example GPU, compute 9.0, 132 multiprocessors, 80.0 GiB\n"));
        assert!(!report(Ok(Some(driver)), false).can_run_kernels());
        let broken = report(Err("CUDA_ERROR_NO_DEVICE".into()), true);
        assert!(!broken.can_run_kernels() && broken.to_string().contains("CUDA_ERROR_NO_DEVICE"));
    }
}
