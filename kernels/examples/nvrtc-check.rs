//! Compiles every kernel for the supported GPU generations, on a machine without a GPU, and prints the registers and
//! memory that the kernels use.
//!
//! Exit code 4: the NVRTC library is not installed; 1: a kernel does not compile, or spills registers.

use foretoken_kernels::cuda::arguments::KERNELS;
use foretoken_kernels::cuda::compile::{compile, version};
use std::process::ExitCode;
use std::time::Instant;

const CAPABILITIES: [(u32, u32); 3] = [(8, 0), (9, 0), (10, 0)];

fn main() -> ExitCode {
    let (major, minor) = match version() {
        Ok(version) => version,
        Err(why) => {
            eprintln!("{why}. From PyPI: nvidia-cuda-nvrtc, with its folder in LD_LIBRARY_PATH");
            return ExitCode::from(4);
        }
    };
    let mut good = true;
    let timed = |capability| {
        let start = Instant::now();
        (compile(capability), start.elapsed().as_secs_f64())
    };
    let all = std::thread::scope(|scope| {
        let threads = CAPABILITIES.map(|capability| scope.spawn(move || timed(capability)));
        threads.map(|thread| thread.join().expect("compiling does not panic"))
    });
    for (capability, (result, seconds)) in CAPABILITIES.into_iter().zip(all) {
        match result {
            Ok(compiled) => {
                println!(
                    "sm_{}{}: {} KiB of machine code by NVRTC {major}.{minor} in {seconds:.1} s",
                    capability.0,
                    capability.1,
                    compiled.cubin.len() / 1024
                );
                good &= report(&compiled.log);
            }
            Err(why) => {
                println!("sm_{}{}: {why}", capability.0, capability.1);
                good = false;
            }
        }
    }
    ExitCode::from(u8::from(!good))
}

/// Prints a line for each kernel: the resources that the kernel uses according to the assembler's `log`. Returns false
/// if a kernel spills registers, or if the log does not mention a kernel.
fn report(log: &str) -> bool {
    let lines: Vec<&str> = log.lines().collect();
    let mut good = true;
    for name in KERNELS {
        let Some(at) = lines.iter().position(|l| l.contains(&format!("'{name}'"))) else {
            println!("  {name:<18} the assembler does not speak of it");
            good = false;
            continue;
        };
        let of_kernel = lines[at..].iter().skip(1).take_while(|l| !l.contains("Compiling entry"));
        let facts = of_kernel.filter(|l| l.contains("spill") || l.contains("Used"));
        let facts: Vec<&str> =
            facts.map(|l| l.trim_start_matches(|c: char| !c.is_ascii_digit() && c != 'U').trim()).collect();
        good &= facts.iter().any(|l| l.contains(" 0 bytes spill stores"));
        println!("  {name:<18} {}", facts.join("; "));
    }
    good
}
