//! Measures how fast this crate's kernels run on a GPU, and the GPU's own copy bandwidth and matmul rate, in the same
//! run.
//!
//! `gpu-check [FILE.json [NAME ...]]` writes each measurement to the file as soon as the measurement is done. Default
//! file: `gpu-check.json`. The names choose the measurements; without names, the program makes all measurements. A
//! later run with the same file makes only the missing measurements; it does not repeat a failed measurement. A run
//! ends within 8 minutes.
//!
//! Exit codes: 3, a measurement missed its required value or the time was over; 4, there is no usable GPU or a CUDA
//! library is missing; 1, another error.

mod measure;

use foretoken_kernels::cuda::{Cuda, CudaError, Tuning};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// After this time since the program's start, no further measurement begins.
const LAST_START: Duration = Duration::from_secs(400);

/// The time that the host needs to start a decode pass should be at most this number of microseconds.
const MOST_HOST_US: f64 = 50.0;

type Measurement = fn(&mut Cuda) -> Result<Value, CudaError>;

/// Returns the measurements in the order in which they run, each as (name in the file, settings of the device,
/// function).
fn measurements() -> Vec<(&'static str, Tuning, Measurement)> {
    let usual = Tuning::default();
    let independent = Tuning { dependent_launches: false, ..usual.clone() };
    let library = Tuning { few_rows: 0, ..usual.clone() };
    let eager = Tuning { graphs: false, ..usual.clone() };
    vec![
        ("copy", usual.clone(), measure::copy),
        ("matmul-peak", usual.clone(), measure::matmul_peak),
        ("decode", usual.clone(), measure::decode),
        ("prefill", usual.clone(), measure::prefill),
        ("attention", usual.clone(), measure::attention),
        ("decode-without-dependent-launches", independent, measure::decode),
        ("decode-by-cublaslt", library, measure::decode),
        ("decode-without-graphs", eager, measure::decode),
        ("verify", usual, measure::verify),
    ]
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(why) => {
            eprintln!("{why}");
            let missing = why.downcast_ref::<CudaError>().is_some_and(|e| {
                matches!(e, CudaError::Missing(_) | CudaError::NoDevice { .. } | CudaError::TooOld { .. })
            });
            ExitCode::from(if missing { 4 } else { 1 })
        }
    }
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let start = Instant::now();
    let file = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "gpu-check.json".into()));
    let chosen: Vec<String> = std::env::args().skip(2).collect();
    let mut done: Map<String, Value> = match std::fs::read(&file) {
        Ok(bytes) => serde_json::from_slice(&bytes)?,
        Err(_) => Map::new(),
    };
    let gpu = Cuda::tuned(0, Tuning::default())?.name();
    if let Some(other) = done.get("gpu").filter(|other| **other != json!(gpu)) {
        return Err(format!("{} is of {other}, this is {gpu}: name another file", file.display()).into());
    }
    done.insert("gpu".into(), json!(gpu));
    for (name, tuning, measure) in measurements() {
        if done.contains_key(name) || !(chosen.is_empty() || chosen.iter().any(|chosen| chosen == name)) {
            continue;
        }
        if start.elapsed() > LAST_START {
            eprintln!("time is over; run again to go on with {name}");
            return Ok(false);
        }
        let began = Instant::now();
        // Each measurement opens its own device, so that no memory of an earlier measurement stays in use.
        let result = Cuda::tuned(0, tuning).and_then(|mut cuda| measure(&mut cuda));
        // A failed measurement is also written to the file. The run goes on, because later measurements may succeed.
        let result = result.unwrap_or_else(|why| json!({ "error": why.to_string() }));
        println!("{name} ({:.1} s): {result}", began.elapsed().as_secs_f64());
        done.insert(name.into(), result);
        let unfinished = file.with_extension("tmp");
        std::fs::write(&unfinished, serde_json::to_vec_pretty(&done)?)?;
        std::fs::rename(&unfinished, &file)?;
    }
    Ok(verdicts(&done))
}

/// Prints each required value beside the measured value. Returns true if all required values were reached. `done` has
/// the results of the measurements by name.
fn verdicts(done: &Map<String, Value>) -> bool {
    let number = |name: &str, key: &str| done.get(name).and_then(|v| v[key].as_f64()).unwrap_or(f64::NAN);
    let (copy, peak) = (number("copy", "bytes_per_s"), number("matmul-peak", "flops"));
    let targets = [
        ("vicuna-7b decode at batch 1, weights read, of copy bandwidth", number("decode", "bytes_per_s") / copy, 0.85),
        ("vicuna-7b prefill of 4096 tokens, of the matmul peak", number("prefill", "flops") / peak, 0.65),
        ("decode attention at 16k context, of copy bandwidth", number("attention", "bytes_per_s") / copy, 0.75),
    ];
    let mut all = true;
    for (what, reached, target) in targets {
        // A missing measurement has the value NaN. This comparison with NaN is false, so the required value counts as
        // missed.
        let good = reached >= target;
        all &= good;
        println!(
            "{} {:5.1} % (target {:.0} %): {what}",
            if good { "reached" } else { "MISSED " },
            100.0 * reached,
            100.0 * target
        );
    }
    let host = 1e6 * number("decode", "host_seconds");
    let good = host <= MOST_HOST_US;
    let mark = if good { "reached" } else { "MISSED " };
    println!("{mark} {host:5.1} us (target {MOST_HOST_US:.0} us): the host's time to start a decode pass");
    all && good
}
