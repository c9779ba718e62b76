//! The error for bad settings of a latency model.

/// A setting from which no latency model can be built. Shown as `key: why`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct BadLatency {
    /// The path of the setting, relative to the table of the latency model, for example `gpu.bf16_flops` or
    /// `tensor_parallel`.
    pub key: String,
    /// What is wrong with the value, and what would be right.
    pub why: String,
}

pub(crate) fn bad(key: &str, why: impl Into<String>) -> BadLatency {
    BadLatency { key: key.into(), why: why.into() }
}

/// The error for an unknown preset `name` at the setting `key`. It lists the names of the known presets.
pub(crate) fn unknown(key: &str, name: &str, known: impl Iterator<Item = &'static str>) -> BadLatency {
    bad(key, format!("no preset \"{name}\"; there are {}", known.collect::<Vec<_>>().join(", ")))
}
