//! `foretoken bench`: times the simulation of an experiment. It times the engine alone, one run at a time, in this
//! process. The result is the median time over the repeats; the spread of the repeats shows how reliable the median is.

use super::print;
use crate::cli::format::Format;
use crate::shipped;
use clap::Args;
use foretoken_report::{plain_table, table_lines};
use foretoken_run::bench::{Timed, time};
use foretoken_run::spec::problem::Result;
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken bench
  foretoken bench experiments/bench-poisson-fixed4.toml --repeat 21
  foretoken bench --repeat 3 --format json";

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The experiment [default: the built-in experiments/bench-poisson.toml: 10,000 equal requests without speculation]
    pub file: Option<PathBuf>,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// How to print the times
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Number of times that each policy's simulation is timed
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..))]
    pub repeat: u16,
}

/// Times the simulation of each policy and prints the times.
pub fn run(args: &BenchArgs) -> Result<()> {
    let plan = match &args.file {
        Some(file) => shipped::load(file, &args.sets)?,
        None => shipped::yardstick(&args.sets)?,
    };
    let timed = time(&plan, args.repeat)?;
    let (repeats, seed) = (args.repeat, plan.seeds[0]);
    print(&match args.format {
        Format::Json => {
            let json = serde_json::json!({ "name": plan.name, "runs": repeats, "seed": seed, "policies": timed });
            format!("{json:#}\n")
        }
        Format::Table => {
            format!("{}: median of {repeats} runs, seed {seed}, engine alone\n{}", plan.name, table(&timed))
        }
    })
}

fn table(timed: &[Timed]) -> String {
    let header = ["sweep", "policy", "request-steps", "ms", "min", "max", "ns a request-step", "M request-steps/s"];
    let rows = timed.iter().map(|t| {
        [
            t.sweep.clone(),
            t.policy.clone(),
            t.request_steps.to_string(),
            format!("{:.3}", t.median_s * 1e3),
            format!("{:.3}", t.min_s * 1e3),
            format!("{:.3}", t.max_s * 1e3),
            // If all outputs have one token, there are no decode steps and no time per step.
            per(t.median_s * 1e9, t.request_steps as f64).map_or("-".into(), |ns| format!("{ns:.2}")),
            per(t.request_steps as f64, t.median_s * 1e6).map_or("-".into(), |speed| format!("{speed:.1}")),
        ]
    });
    table_lines(&plain_table(header, rows, 2..))
}

fn per(amount: f64, unit: f64) -> Option<f64> {
    (unit > 0.0).then(|| amount / unit)
}
