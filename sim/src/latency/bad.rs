//! What is wrong with a latency model's settings.

/// A setting no model can be built from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct BadLatency {
    /// The setting, below the model's name.
    pub key: String,
    /// What is wrong and what would be right.
    pub why: String,
}

pub(super) fn bad(key: &str, why: impl Into<String>) -> BadLatency {
    BadLatency { key: key.into(), why: why.into() }
}

/// An unknown preset, with the ones there are.
pub(super) fn unknown(key: &str, name: &str, known: impl Iterator<Item = &'static str>) -> BadLatency {
    bad(key, format!("no preset \"{name}\"; there are {}", known.collect::<Vec<_>>().join(", ")))
}
