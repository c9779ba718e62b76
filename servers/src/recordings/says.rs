//! What a server says of itself when it is asked, outside of a run.

use crate::recordings::recording::Sample;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The answers of a server about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Says {
    /// Its version; `None` if it does not answer `/version`.
    #[serde(default)]
    pub version: Option<String>,
    /// The first model of `/v1/models`.
    pub model: Value,
    /// `/server_info`: SGLang's arguments, or vLLM's configuration (with VLLM_SERVER_DEV_MODE=1).
    #[serde(default)]
    pub info: Option<Value>,
    /// The counters and gauges of `/metrics`; empty if the server has none.
    #[serde(default)]
    pub samples: Vec<Sample>,
}
