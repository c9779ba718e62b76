//! The settings of a server, except the settings of its engine.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The settings of a server, except the settings of its engine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address to listen at.
    pub address: SocketAddr,
    /// The name of the model (vLLM's `--served-model-name`).
    pub model: String,
    /// Most requests that may wait for the engine. If as many requests wait already, a further request is answered with
    /// 429.
    pub max_waiting: usize,
    /// Number of bytes of a prompt's text that count as one token.
    pub bytes_per_token: usize,
    /// The file to which a line is written for each step (vLLM's `--enable-logging-iteration-details`).
    pub step_log: Option<PathBuf>,
}
