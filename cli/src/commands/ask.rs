//! `foretoken ask`: what to draft instead, for the line that starts a server.

use super::answer::answer as tell;
use super::print;
use crate::ask::load::Said;
use crate::ask::served::address;
use crate::ask::{Options, ask};
use crate::cli::format::Format;
use crate::work;
use clap::Args;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_servers::recordings::says::Says;
use foretoken_sim::MAX_SPEC_LEN;
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken ask 'vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64' --gpu h100 --clients 8
  foretoken ask 'vllm serve Qwen/Qwen3-8B' --gpu l40s --method ngram --lengths sharegpt --rate 2 --price 0.9
  foretoken ask deployment.yaml --gpu h200 --log requests.csv --accept marginal=0.8,0.6,0.4 --out mine.toml
  foretoken ask 'http://127.0.0.1:8000 --tensor-parallel-size 2' --gpu h100

The line may be `vllm serve …`, `python -m sglang.launch_server …`, a `docker run …` of either, a file with such a line
or with the YAML of a container, or the address of a running server, with the flags behind it that it does not say.
What is not given is taken from presets, and the answer names it. Numbers are simulated: `observe` and `calibrate`
measure a server.";

#[derive(Debug, Args)]
pub struct AskArgs {
    /// The line that starts the server, in quotes; a file with it; - for standard input; a running server's address
    #[arg(value_name = "LINE|FILE|URL")]
    pub line: String,
    /// The GPU: a preset of `foretoken hardware list`
    #[arg(long)]
    pub gpu: String,
    /// Load: clients, each of which sends a request when its last one ends
    #[arg(long, value_name = "N")]
    pub clients: Option<u32>,
    /// Load: requests a second
    #[arg(long, value_name = "R")]
    pub rate: Option<f64>,
    /// Load and lengths: a log of requests
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Mean tokens of a prompt
    #[arg(long, value_name = "TOKENS")]
    pub input: Option<f64>,
    /// Mean tokens of an answer
    #[arg(long, value_name = "TOKENS")]
    pub output: Option<f64>,
    /// Lengths of a public trace: azure-conv, azure-code, mooncake-conv, sharegpt, spec-bench, …
    #[arg(long, value_name = "MIX")]
    pub lengths: Option<String>,
    /// Accepted drafts: marginal=…, conditional=…, mean-length=L@K, drafted-share=S@K, golden=NAME or profile=FILE
    #[arg(long, value_name = "FORM=VALUES")]
    pub accept: Option<String>,
    /// Price of a GPU for an hour, for the price of a million tokens
    #[arg(long, value_name = "DOLLARS")]
    pub price: Option<f64>,
    /// The model's config.json, its folder, or a preset, in place of the line's name
    #[arg(long, value_name = "FILE|PRESET")]
    pub config: Option<String>,
    /// The drafter's config.json, its folder, or a preset, in place of the line's name
    #[arg(long, value_name = "FILE|PRESET")]
    pub draft: Option<String>,
    /// The method to ask about if the line does not speculate: eagle3, mtp, ngram, …
    #[arg(long)]
    pub method: Option<String>,
    /// Longest draft to try [default: as far as acceptance is known]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SPEC_LEN)))]
    pub longest: Option<u32>,
    /// Clients of the table [default: 1, 2, 4, … as far as some seconds allow]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub batch_sizes: Vec<u32>,
    /// Go on without flags that are not known
    #[arg(long)]
    pub skip_unknown: bool,
    /// Write the experiment that was run
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace the file of --out
    #[arg(long)]
    pub overwrite: bool,
    /// How to print the answer
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Reads the line, simulates the candidates, and prints the answer.
pub fn run(args: &AskArgs) -> Result<()> {
    if let Some(out) = args.out.as_ref().filter(|out| out.exists() && !args.overwrite) {
        return Err(Problem::bad_input(format!("{} exists", out.display())).help("--overwrite replaces it"));
    }
    if args.price.is_some_and(|p| !(p.is_finite() && p > 0.0)) {
        return Err(Problem::bad_input("--price must be above 0").help("for example --price 2.5"));
    }
    if args.batch_sizes.contains(&0) {
        return Err(Problem::bad_input("--batch-sizes: a batch has at least one request").help("for example 1,4,16,64"));
    }
    let options = Options {
        line: args.line.clone(),
        says: address(&args.line).map(says).transpose()?,
        gpu: args.gpu.clone(),
        load: Said {
            clients: args.clients,
            rate: args.rate,
            log: args.log.clone(),
            input: args.input,
            output: args.output,
            lengths: args.lengths.clone(),
            most: None,
        },
        accept: args.accept.clone(),
        config: args.config.clone(),
        draft: args.draft.clone(),
        method: args.method.clone(),
        longest: args.longest,
        batch_sizes: args.batch_sizes.clone(),
        price: args.price,
        skip_unknown: args.skip_unknown,
        out: args.out.clone(),
    };
    let _watch = work().interrupt.watch();
    let answer = ask(&options, work().interrupt.flag())?;
    match args.format {
        Format::Table => tell(&answer.in_words(), |_, _| false),
        Format::Json => {
            print(&(serde_json::to_string_pretty(&answer).map_err(|e| Problem::failed(e.to_string()))? + "\n"))
        }
    }
}

/// What the server at this address says of itself.
#[cfg(feature = "observe")]
fn says(url: &str) -> Result<Says> {
    let client = foretoken_servers::observe::client::Client::new(url, super::observe::work::key(None)?, None)?;
    foretoken_servers::observe::says(&client, work().interrupt.flag())
}

#[cfg(not(feature = "observe"))]
fn says(_: &str) -> Result<Says> {
    Err(crate::cli::built_without("observe"))
}
