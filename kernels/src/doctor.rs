//! The command `doctor`: reports what this machine has for running models (processor, memory, GPUs, CUDA libraries) and
//! what is missing. It changes nothing.

use crate::cpu::speed::Speed;
use crate::cpu::{Level, speed};
use crate::cuda::{self, Driver};
use std::fmt;

/// What `doctor` found out about this machine: processor, memory, CUDA driver and libraries.
#[derive(Clone, Debug, PartialEq)]
pub struct DoctorReport {
    /// Number of CPU cores that this process may use.
    pub cpu_cores: usize,
    /// The name under which the processor is sold, if the system reports it.
    pub processor: Option<String>,
    /// The level of vector instructions that the CPU device uses, as its printed name.
    pub instructions: &'static str,
    /// The measured speed of one core with the vector instructions that `instructions` names.
    pub speed: Speed,
    /// Memory of the machine in bytes: (total, available to new programs). `None` if the system does not report it.
    pub memory: Option<(u64, u64)>,
    /// The CUDA driver. `Ok(None)` if its library cannot be loaded. `Err` with the driver's error message if the
    /// library is loaded but fails.
    pub driver: Result<Option<Driver>, String>,
    /// The version (major, minor) of NVRTC, which compiles the kernels; `None` if NVRTC cannot be loaded.
    pub nvrtc: Option<(i32, i32)>,
    /// True if cuBLASLt, which computes large matrix products, can be loaded.
    pub cublaslt: bool,
}

/// Inspects this machine. The function never fails or panics: the report lists the parts that are missing.
pub fn doctor() -> DoctorReport {
    DoctorReport {
        cpu_cores: std::thread::available_parallelism().map_or(1, usize::from),
        processor: speed::processor().name,
        instructions: Level::best().name(),
        speed: Speed::measure(Level::best()),
        memory: memory(),
        driver: cuda::driver(),
        nvrtc: cuda::compile::version().ok(),
        cublaslt: cuda::has_cublaslt(),
    }
}

/// Reads the machine's memory in bytes: (total, available to new programs).
fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some((kib("MemTotal:")? * 1024, kib("MemAvailable:")? * 1024))
}

/// Oldest compute capability that the kernels support. It is the first with matrix units that multiply bf16.
const OLDEST: (u32, u32) = (8, 0);

impl DoctorReport {
    /// The reasons why the GPU with the number `ordinal` cannot run models, most of them with a remedy. The list is
    /// empty if the GPU can run models. If `ordinal` is `None`, the reasons are about all GPUs of this machine, and
    /// the list is empty if at least one GPU can run models.
    pub fn missing(&self, ordinal: Option<u32>) -> Vec<String> {
        let mut missing = Vec::new();
        match &self.driver {
            Ok(None) => missing.push("no CUDA driver (libcuda): install NVIDIA's driver for your GPU".to_owned()),
            Err(why) => missing.push(format!("the CUDA driver does not answer ({why}): is a GPU there, and allowed?")),
            Ok(Some(driver)) => {
                let here = |ordinal: &u32| driver.devices.iter().any(|gpu| gpu.ordinal == *ordinal);
                match ordinal {
                    Some(n) if !here(&n) => {
                        missing.push(format!("no GPU {n}: the driver has {}, counted from 0", driver.devices.len()));
                    }
                    None if driver.devices.is_empty() => missing.push("no GPU".to_owned()),
                    _ => {}
                }
                let mut asked = driver.devices.iter().filter(|gpu| ordinal.is_none_or(|n| gpu.ordinal == n)).peekable();
                if asked.peek().is_some() && asked.all(|gpu| gpu.compute_capability < OLDEST) {
                    missing.push("a GPU of compute capability 8.0 or newer (Ampere)".to_owned());
                }
            }
        }
        let toolkit = "install the CUDA toolkit, or from PyPI";
        if self.nvrtc.is_none() {
            missing.push(format!(
                "no NVRTC (libnvrtc): {toolkit} nvidia-cuda-nvrtc, and name its folder in LD_LIBRARY_PATH"
            ));
        }
        if !self.cublaslt {
            missing.push(format!(
                "no cuBLASLt (libcublasLt): {toolkit} nvidia-cublas, and name its folder in LD_LIBRARY_PATH"
            ));
        }
        missing
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = if self.cpu_cores == 1 { "core" } else { "cores" };
        let processor = self.processor.as_ref().map_or(String::new(), |name| format!(" of {name}"));
        writeln!(f, "CPU          {} {cores}{processor}, {} instructions", self.cpu_cores, self.instructions)?;
        writeln!(f, "Speed        {}", self.speed)?;
        writeln!(f, "             {}", self.speed.compared())?;
        match self.memory {
            Some((all, free)) => writeln!(f, "Memory       {:.1} GiB, {:.1} GiB of it free", gib(all), gib(free))?,
            None => writeln!(f, "Memory       the system does not say")?,
        }
        match &self.driver {
            Ok(None) => writeln!(f, "CUDA driver  not found (no libcuda)")?,
            Err(why) => writeln!(f, "CUDA driver  found, but it does not answer: {why}")?,
            Ok(Some(driver)) => write_driver(f, driver)?,
        }
        match self.nvrtc {
            Some((major, minor)) => writeln!(f, "NVRTC        {major}.{minor}")?,
            None => writeln!(f, "NVRTC        not found (no libnvrtc)")?,
        }
        writeln!(f, "cuBLASLt     {}", if self.cublaslt { "found" } else { "not found (no libcublasLt)" })?;
        writeln!(f)?;
        writeln!(f, "Simulating             yes")?;
        writeln!(f, "Live on the CPU        yes")?;
        let missing = self.missing(None);
        writeln!(f, "Live on a GPU          {}", if missing.is_empty() { "yes" } else { "no" })?;
        missing.iter().try_for_each(|what| writeln!(f, "  {what}"))?;
        writeln!(f, "Compiling GPU kernels  {}", if self.nvrtc.is_some() { "yes" } else { "no" })
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
        let (all, free) = (gib(gpu.memory_bytes), gib(gpu.free_bytes));
        let (ordinal, name, sms) = (gpu.ordinal, &gpu.name, gpu.multiprocessors);
        writeln!(
            f,
            "GPU {ordinal:<8} {name}, compute {major}.{minor}, {sms} multiprocessors, {all:.1} GiB, {free:.1} GiB of it free"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CudaDevice as Device;

    /// The test's checks hold on every machine, with or without a GPU.
    #[test]
    fn two_reports_of_this_machine_agree_and_do_not_panic() {
        let report = doctor();
        assert!(report.cpu_cores >= 1);
        assert!(report.memory.is_none_or(|(all, free)| free <= all));
        assert_eq!(matches!(report.driver, Ok(None)), !cuda::has_driver());
        assert!(!report.missing(None).is_empty() || cuda::has_driver());
        let again = doctor();
        assert_eq!((report.cpu_cores, report.nvrtc), (again.cpu_cores, again.nvrtc));
    }

    fn report(driver: Result<Option<Driver>, String>, libraries: bool) -> DoctorReport {
        let nvrtc = libraries.then_some((13, 0));
        let memory = Some((8 << 30, 3 << 29));
        let (_, speed) = Speed::reference();
        let speed = Speed { flops: 2.0 * speed.flops, ..speed };
        let (processor, instructions) = (Some("Example CPU".to_owned()), "AVX-512");
        DoctorReport { cpu_cores: 2, processor, instructions, speed, memory, driver, nvrtc, cublaslt: libraries }
    }

    #[test]
    fn the_report_says_what_a_machine_without_cuda_can_do() {
        let text = report(Ok(None), false).to_string();
        assert_eq!(
            text,
            "CPU          2 cores of Example CPU, AVX-512 instructions\n\
             Speed        3.24 GHz, 207 GFLOP/s a core, L1 204 GB/s, L2 103 GB/s, L3 60 GB/s, memory 25 GB/s\n             \
                          2.00 times the multiply-adds and 1.00 times the memory bandwidth of an AMD EPYC of the third generation \
             (Zen 3) at 3.24 GHz, AVX2\n\
             Memory       8.0 GiB, 1.5 GiB of it free\n\
             CUDA driver  not found (no libcuda)\n\
             NVRTC        not found (no libnvrtc)\n\
             cuBLASLt     not found (no libcublasLt)\n\
             \n\
             Simulating             yes\n\
             Live on the CPU        yes\n\
             Live on a GPU          no\n  \
               no CUDA driver (libcuda): install NVIDIA's driver for your GPU\n  \
               no NVRTC (libnvrtc): install the CUDA toolkit, or from PyPI nvidia-cuda-nvrtc, and name its folder in \
             LD_LIBRARY_PATH\n  \
               no cuBLASLt (libcublasLt): install the CUDA toolkit, or from PyPI nvidia-cublas, and name its folder in \
             LD_LIBRARY_PATH\n\
             Compiling GPU kernels  no\n"
        );
    }

    #[test]
    fn a_gpu_is_described_and_needs_libraries_to_be_used() {
        let gpu = Device {
            ordinal: 0,
            name: "Example GPU".into(),
            compute_capability: (9, 0),
            multiprocessors: 132,
            memory_bytes: 80 << 30,
            free_bytes: 79 << 30,
        };
        let old = Device { ordinal: 1, compute_capability: (7, 5), ..gpu.clone() };
        let driver = Driver { cuda_version: (13, 1), devices: vec![gpu, old] };
        let with = report(Ok(Some(driver.clone())), true);
        assert_eq!(with.missing(None), Vec::<String>::new());
        assert_eq!(with.missing(Some(0)), Vec::<String>::new());
        assert!(with.missing(Some(1))[0].contains("8.0 or newer"));
        assert!(with.missing(Some(2))[0].contains("no GPU 2: the driver has 2"));
        let text = with.to_string();
        assert!(text.contains("CUDA driver  runs CUDA 13.1 and older\n"));
        assert!(
            text.contains(
                "GPU 0        Example GPU, compute 9.0, 132 multiprocessors, 80.0 GiB, 79.0 GiB of it free\n"
            )
        );
        assert!(text.contains("Live on a GPU          yes\n"));
        assert_eq!(report(Ok(Some(driver)), false).missing(Some(0)).len(), 2);
        let broken = report(Err("CUDA_ERROR_NO_DEVICE".into()), true);
        assert!(broken.missing(None)[0].contains("CUDA_ERROR_NO_DEVICE"));
        let empty = Driver { cuda_version: (13, 1), devices: vec![] };
        assert_eq!(report(Ok(Some(empty)), true).missing(None), ["no GPU"]);
    }
}
