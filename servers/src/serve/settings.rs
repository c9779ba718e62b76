//! The settings of a simulated server, except the settings of its engine.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The settings of a simulated server, except the settings of its engine: address, model name, limits, log.
#[derive(Clone, Debug)]
pub struct Settings {
    pub address: SocketAddr,
    /// The name of the model that the server offers (vLLM's `--served-model-name`).
    pub model: String,
    /// Most requests that may wait for the engine. If this number of requests is waiting, a further request is refused
    /// with HTTP status 429.
    pub max_waiting: usize,
    /// The model's `tokenizer.json`; `None` if the text of prompts is counted by its bytes.
    pub tokenizer: Option<PathBuf>,
    /// Number of bytes of a prompt's text that count as one token without a tokenizer.
    pub bytes_per_token: usize,
    /// The file to which the server writes a log line for each step (vLLM's `--enable-logging-iteration-details`);
    /// `None` for no step log.
    pub step_log: Option<PathBuf>,
}
