//! Replays recorded schedules of vLLM with our scheduler: `vllm-replay FILE…`. `-` is standard input, and files with
//! the ending `.zst` are decompressed. Prints each workload whose replay differs from vLLM's recording, and the number
//! of workloads that agree. The exit code is 1 if a workload differs, and 2 if a file cannot be read.

use foretoken_tests::vllm::{Fixture, replay};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::ExitCode;

fn open(path: &str) -> std::io::Result<Box<dyn BufRead>> {
    Ok(match path {
        "-" => Box::new(BufReader::new(std::io::stdin())),
        path if path.ends_with(".zst") => Box::new(BufReader::new(zstd::Decoder::new(File::open(path)?)?)),
        path => Box::new(BufReader::new(File::open(path)?)),
    })
}

fn run(path: &str) -> Result<bool, String> {
    let mut fixture = Fixture::open(open(path).map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    let (mut same, mut all, mut endings) = (0, 0, BTreeMap::<String, u32>::new());
    while let Some(recorded) = fixture.read().map_err(|e| e.to_string())? {
        all += 1;
        *endings.entry(recorded.ending.clone()).or_default() += 1;
        match replay(&recorded) {
            Ok(()) => same += 1,
            Err(why) => println!("{path}:{}: {:?} {:?}: {why}", recorded.line, recorded.config, recorded.speculation),
        }
    }
    println!("{path}: {same} of {all} workloads are vLLM's, step by step; they ended {endings:?}");
    for (rule, times) in &fixture.fired {
        println!("{times:8} {rule}");
    }
    Ok(same == all && all > 0)
}

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for path in std::env::args().skip(1) {
        match run(&path) {
            Ok(true) => {}
            Ok(false) => code = ExitCode::from(1),
            Err(why) => {
                eprintln!("{path}: {why}");
                return ExitCode::from(2);
            }
        }
    }
    code
}
