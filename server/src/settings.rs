//! The settings of a server, apart from its engine's.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The settings of a server, apart from its engine's.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address to listen at.
    pub address: SocketAddr,
    /// The name of the model (vLLM's `--served-model-name`).
    pub model: String,
    /// Most requests that may wait for the engine. A request beyond them is answered with 429.
    pub max_waiting: usize,
    /// How many bytes of text make a token of a prompt.
    pub bytes_per_token: usize,
    /// The file to which a line is written for each step (vLLM's `--enable-logging-iteration-details`).
    pub step_log: Option<PathBuf>,
}
