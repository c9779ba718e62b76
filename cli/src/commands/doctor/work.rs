//! `foretoken doctor`: prints on which devices of this machine models can run.

use super::DoctorArgs;
use crate::cli::format::Format;
use crate::commands::print;
use foretoken_kernels::DoctorReport;
use foretoken_run::spec::problem::{Exit, Problem, Result};
use serde_json::{Value, json};

/// Prints which devices models can run on. A simulation needs none of them. Fails if the device that `--need` names is
/// missing.
pub fn run(args: &DoctorArgs) -> Result<()> {
    // A name that is no device is refused before the devices are searched.
    let needed = args.need.as_deref().map(parse).transpose()?;
    let report = foretoken_kernels::doctor();
    match args.format {
        Format::Table => print(&report.to_string())?,
        Format::Json => print(&format!("{:#}\n", to_json(&report)))?,
    }
    let Some(Device::Cuda(ordinal)) = needed else { return Ok(()) };
    let missing = report.missing(ordinal);
    if missing.is_empty() {
        return Ok(());
    }
    let asked = args.need.as_deref().unwrap_or_default();
    Err(Problem::new(Exit::NoHardware, format!("this machine cannot run models on `{asked}`")).help(missing.join("\n")))
}

/// A device that `--need` can name.
#[derive(Debug, PartialEq)]
enum Device {
    Cpu,
    /// The GPU with this number; `None` means any GPU.
    Cuda(Option<u32>),
}

fn parse(name: &str) -> Result<Device> {
    match name.split_once(':') {
        None if name == "cpu" => Some(Device::Cpu),
        None if name == "cuda" => Some(Device::Cuda(None)),
        Some(("cuda", ordinal)) => ordinal.parse().ok().map(|n| Device::Cuda(Some(n))),
        _ => None,
    }
    .ok_or_else(|| {
        Problem::bad_input(format!("`{name}` is not a device"))
            .help("a device is `cpu`, `cuda` (any GPU) or `cuda:N` (GPU N, counted from 0)")
    })
}

fn to_json(report: &DoctorReport) -> Value {
    let gpus = match &report.driver {
        Ok(Some(driver)) => driver.devices.as_slice(),
        _ => &[],
    };
    let gpus: Vec<Value> = gpus
        .iter()
        .map(|gpu| {
            json!({
                "device": format!("cuda:{}", gpu.ordinal),
                "name": gpu.name,
                "compute_capability": format!("{}.{}", gpu.compute_capability.0, gpu.compute_capability.1),
                "multiprocessors": gpu.multiprocessors,
                "memory_bytes": gpu.memory_bytes,
                "free_bytes": gpu.free_bytes,
                "missing": report.missing(Some(gpu.ordinal)),
            })
        })
        .collect();
    let version = |major, minor| format!("{major}.{minor}");
    json!({
        "cpu": {
            "cores": report.cpu_cores,
            "name": report.processor,
            "instructions": report.instructions,
            "speed": report.speed,
            "compared": report.speed.compared(),
        },
        "memory": report.memory.map(|(all, free)| json!({ "bytes": all, "free_bytes": free })),
        "cuda_driver": match &report.driver {
            Ok(driver) => json!({
                "found": driver.is_some(),
                "runs_cuda": driver.as_ref().map(|d| version(d.cuda_version.0 as i32, d.cuda_version.1 as i32)),
            }),
            Err(why) => json!({ "found": true, "error": why }),
        },
        "gpus": gpus,
        "nvrtc": report.nvrtc.map(|(major, minor)| version(major, minor)),
        "cublaslt": report.cublaslt,
        "can": {
            "simulate": true,
            "live_on_cpu": true,
            "live_on_gpu": report.missing(None).is_empty(),
            "compile_gpu_kernels": report.nvrtc.is_some(),
        },
        "missing_for_gpu": report.missing(None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_elsewhere() {
        assert_eq!(parse("cpu").unwrap(), Device::Cpu);
        assert_eq!(parse("cuda").unwrap(), Device::Cuda(None));
        assert_eq!(parse("cuda:3").unwrap(), Device::Cuda(Some(3)));
        for wrong in ["gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0", ""] {
            assert_eq!(parse(wrong).unwrap_err().exit, Exit::BadInput, "{wrong}");
        }
    }
}
