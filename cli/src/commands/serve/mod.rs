//! The arguments of `foretoken serve`.

#[cfg(feature = "observe")]
pub mod work;

use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken serve experiments/serve.toml
  foretoken serve experiments/serve.toml --set 'policies=[{ fixed = { k = 3 } }]' --step-log server.log
  foretoken serve experiment.toml --host 0.0.0.0 --port 8080 --max-waiting 64

The server has /v1/completions, /v1/chat/completions, /v1/models, /metrics, /version and /health, as vLLM has them. It runs no model: a token is
a letter, and it comes when the simulated engine has it. An answer ends at max_tokens or by itself, with the lengths of
the experiment's workload; ignore_eos asks for max_tokens. Text is counted by --tokenizer, or by --bytes-per-token;
token ids are counted as they are. Ctrl-C ends the server.";

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The experiment; it must have one policy, which the server runs
    pub file: PathBuf,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Address to listen at; 0.0.0.0 for all addresses of the machine
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// The port to listen at; 0 for a free one
    #[arg(long, value_name = "PORT", default_value_t = 8000)]
    pub port: u16,
    /// The name of the model in requests and answers [default: the target's name in the experiment]
    #[arg(long, value_name = "NAME")]
    pub served_model_name: Option<String>,
    /// Most requests that may wait for the engine; further requests are answered with 429
    #[arg(long, value_name = "REQUESTS", default_value_t = 1024)]
    pub max_waiting: usize,
    /// The model's tokenizer.json: prompts count in its tokens, and /tokenize and /detokenize answer
    #[arg(long, value_name = "FILE", conflicts_with = "bytes_per_token")]
    pub tokenizer: Option<PathBuf>,
    /// Bytes of a prompt's text that count as one token
    #[arg(long, value_name = "BYTES", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub bytes_per_token: u16,
    /// Write a line for each step to this file, as vLLM does with --enable-logging-iteration-details
    #[arg(long, value_name = "FILE")]
    pub step_log: Option<PathBuf>,
}
