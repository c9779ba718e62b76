//! Replays recorded schedules of SGLang with our engine: `sglang-replay FILE…`, `.jsonl` or `.jsonl.zst`. Prints the
//! first workload of each family whose replay differs, and the counts by family. The exit code is 1 if one differs, and
//! 2 if a file cannot be read.

use foretoken_tests::sglang::replay_all;
use std::fs::File;
use std::io::{BufReader, Read};
use std::process::ExitCode;

fn open(path: &str) -> std::io::Result<Box<dyn Read>> {
    Ok(match path.ends_with(".zst") {
        true => Box::new(zstd::Decoder::new(File::open(path)?)?),
        false => Box::new(File::open(path)?),
    })
}

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for path in std::env::args().skip(1) {
        match open(&path).and_then(|file| replay_all(BufReader::new(file))) {
            Ok(families) => {
                for (family, counts) in &families {
                    println!("{family:20} {counts}");
                    counts.first.iter().for_each(|why| println!("  {why}"));
                }
                let (equal, differ) = families.values().fold((0, 0), |sum, f| (sum.0 + f.equal, sum.1 + f.differ));
                println!("{path}: {equal} equal, {differ} differ");
                if differ > 0 {
                    code = ExitCode::from(1);
                }
            }
            Err(why) => {
                eprintln!("{path}: {why}");
                return ExitCode::from(2);
            }
        }
    }
    code
}
