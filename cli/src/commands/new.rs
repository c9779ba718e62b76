//! `foretoken new`: a first experiment, from a few answers.

use crate::ask::load::Said;
use crate::ask::{Options, prepare, text};
use crate::shipped;
use clap::Args;
use foretoken_policies::PolicySpec;
use foretoken_report::Staged;
use foretoken_run::load::with_defaults;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_servers::calibrate::recommend::Now;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken new mine.toml --gpu h100 --model llama-3.1-8b --clients 16
  foretoken new other.toml --gpu l40s --model Qwen/Qwen3-8B --method ngram --rate 2 --lengths sharegpt
  foretoken new vllm-logging.json --copy vllm-logging

On a terminal, --gpu and --model are asked for. What else is not given is assumed as `ask` assumes it. The experiment
compares plain decoding, fixed lengths and two adaptive policies; every other command takes it.";

#[derive(Debug, Args)]
pub struct NewArgs {
    /// The file to write
    pub file: PathBuf,
    /// The GPU: a preset of `foretoken hardware list`
    #[arg(long)]
    pub gpu: Option<String>,
    /// The model: a preset, a published name, or a config.json
    #[arg(long)]
    pub model: Option<String>,
    /// GPUs over which the model is split
    #[arg(long, default_value_t = 1)]
    pub tensor_parallel: u32,
    /// How it drafts: eagle3, mtp, ngram, … [default: what presets have for the model]
    #[arg(long)]
    pub method: Option<String>,
    /// The drafter: a preset, or a config.json
    #[arg(long)]
    pub draft: Option<String>,
    /// Load: clients, each of which sends a request when its last one ends
    #[arg(long, value_name = "N")]
    pub clients: Option<u32>,
    /// Load: requests a second
    #[arg(long, value_name = "R")]
    pub rate: Option<f64>,
    /// Lengths of a public trace: azure-conv, azure-code, mooncake-conv, sharegpt, spec-bench, …
    #[arg(long, value_name = "MIX")]
    pub lengths: Option<String>,
    /// Write a copy of a shipped file instead: quickstart, observe-text, vllm-logging, …
    #[arg(long, value_name = "NAME", conflicts_with_all = [
        "gpu", "model", "tensor_parallel", "method", "draft", "clients", "rate", "lengths",
    ])]
    pub copy: Option<String>,
    /// Replace the file
    #[arg(long)]
    pub overwrite: bool,
}

/// Writes the experiment, and says what it assumes and what comes next.
pub fn run(args: &NewArgs) -> Result<()> {
    let file = args.file.display();
    if args.file.exists() && !args.overwrite {
        return Err(Problem::bad_input(format!("{file} exists")).help("--overwrite replaces it"));
    }
    if let Some(name) = &args.copy {
        write(args, shipped::text_of(name)?)?;
        eprintln!("wrote {file}");
        return Ok(());
    }
    let gpu = given(args.gpu.as_deref(), "--gpu", "Which GPU (h100, h200, b200, l40s, …)?")?;
    let model = given(args.model.as_deref(), "--model", "Which model (llama-3.1-8b, Qwen/Qwen3-32B, …)?")?;
    let prepared = prepare(&Options {
        line: format!("vllm serve MODEL --tensor-parallel-size {}", args.tensor_parallel),
        gpu,
        config: Some(model),
        load: Said { clients: args.clients, rate: args.rate, lengths: args.lengths.clone(), ..Said::default() },
        method: args.method.clone(),
        draft: args.draft.clone(),
        ..Options::default()
    })?;
    let fixed = [0, 1, 3, 5].into_iter().filter(|k| *k <= prepared.longest).map(|k| Now::fixed(k, "").spec);
    let adaptive = ["smartspec", "foresight"].into_iter().filter_map(with_defaults);
    let policies: Vec<PolicySpec> = fixed.chain(adaptive).collect();
    let head = format!("A first experiment: foretoken run {file}. `foretoken settings` has all keys.");
    let text = text(&head, &prepared.table, &policies)?.replace("name = \"ask\"", "name = \"first\"");
    write(args, &text)?;
    let assumed: Vec<&str> =
        prepared.assumed.iter().chain(prepared.bands.iter().map(|b| &b.0)).map(String::as_str).collect();
    eprintln!("assumed: {}", assumed.join("; "));
    eprintln!("wrote {file}; next: foretoken run {file}");
    Ok(())
}

fn write(args: &NewArgs, text: &str) -> Result<()> {
    Staged::write_all_to(&args.file, text.as_bytes())
        .map_err(|e| Problem::failed(format!("cannot write {}: {e}", args.file.display())))
}

/// The value of an option, or what the user answers on a terminal.
fn given(value: Option<&str>, option: &str, question: &str) -> Result<String> {
    let missing = || Problem::bad_input(format!("{option} is missing")).help(question.to_owned());
    if let Some(value) = value {
        return Ok(value.to_owned());
    }
    let stdin = std::io::stdin();
    if !(stdin.is_terminal() && std::io::stderr().is_terminal()) {
        return Err(missing());
    }
    let _ = write!(std::io::stderr(), "{question} ");
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).map_err(|e| Problem::failed(e.to_string()))?;
    match answer.trim() {
        "" => Err(missing()),
        answer => Ok(answer.to_owned()),
    }
}
