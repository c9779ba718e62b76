//! The machine's processor, and the number of threads to start.

use crate::spec::problem::{Problem, Result};
use foretoken_profiler::DeviceInfo;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Describes the machine's processor, for a profile of pass times. `threads` is the number of threads in use.
pub fn processor(threads: u32) -> DeviceInfo {
    DeviceInfo {
        kind: "cpu".to_owned(),
        name: name().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        features: features(),
        cores: cores(),
        threads,
        speed: None,
        driver: None,
    }
}

/// Number of cores that this process may use.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// The most threads that the program starts at a time, also if the user or the number of cores asks for more.
const MOST_THREADS: usize = 1024;

/// Number of threads to start: `wanted` if the user gave it, else the number of cores. It is from 1 to 1024, and not
/// more than `pieces`, the number of pieces of work.
pub fn threads(wanted: Option<usize>, pieces: usize) -> usize {
    wanted.unwrap_or_else(|| cores() as usize).min(pieces).clamp(1, MOST_THREADS)
}

/// Starts a pool of [`threads`] threads.
pub fn pool(wanted: Option<usize>, pieces: usize) -> Result<ThreadPool> {
    let pool = ThreadPoolBuilder::new().num_threads(threads(wanted, pieces)).build();
    pool.map_err(|e| Problem::failed(format!("cannot start threads: {e}")))
}

/// The processor's name on Linux. `None` on other systems, on which reading the name would need a library.
fn name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Names of the vector instructions that the processor has. Foretoken's engine on the CPU chooses its kernels by these
/// names. Empty on processors other than x86-64.
#[cfg(target_arch = "x86_64")]
fn features() -> Vec<String> {
    let all = [
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("fma", std::arch::is_x86_feature_detected!("fma")),
        ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
        ("avx512bf16", std::arch::is_x86_feature_detected!("avx512bf16")),
    ];
    all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<String> {
    Vec::new()
}
