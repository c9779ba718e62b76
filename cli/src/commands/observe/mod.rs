//! The arguments of `foretoken observe`.

#[cfg(feature = "observe")]
pub mod work;

use crate::cli::format::Format;
use clap::Args;
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken observe http://127.0.0.1:8000 observe-text --step-log server.log -o results/k3
  foretoken observe http://127.0.0.1:8000 observe-text --set 'policies=[{ autoregressive = {} }]' -o results/k0
  foretoken observe https://gateway.example/v1 experiment.toml --ca authority.pem --set observe.send=text

What is asked, and how, is the experiment's: its workload and its [observe] table; `policies` names what the server does.
A vLLM server says most with --enable-logging-iteration-details (its output to a file,
VLLM_LOGGING_CONFIG_PATH=vllm-logging.json; `foretoken new vllm-logging.json --copy vllm-logging` writes this file),
--per-request-spec-decode-metrics detailed (where it drafts), --enable-per-request-metrics and --no-async-scheduling.
FORETOKEN_API_KEY: the bearer token, where the server wants one.";

#[derive(Debug, Args)]
pub struct ObserveArgs {
    /// Address of the server, with or without /v1
    pub url: String,
    /// The experiment: its workload is sent, its policy is the one that the server runs
    pub file: PathBuf,
    /// Replace or add a value of the experiment; the new value may be a sweep
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// The server's log file, from which the times of its steps are read
    #[arg(long, value_name = "FILE")]
    pub step_log: Option<PathBuf>,
    /// The environment variable that holds the bearer token [default: FORETOKEN_API_KEY, where it is set]
    #[arg(long, value_name = "NAME")]
    pub api_key_env: Option<String>,
    /// PEM file of certificates to trust in addition to the system's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Folder for the results [default: results/observed-<name>-<digest>]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Continue the unfinished runs in the output folder
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// Replace the results in the output folder
    #[arg(long)]
    pub overwrite: bool,
    /// How to print the comparison of the policies
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write no figures
    #[arg(long)]
    pub no_figures: bool,
}
