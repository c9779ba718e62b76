//! The error for bad settings of a latency model.

/// A setting from which no model can be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct BadLatency {
    /// The setting, below the model's name.
    pub key: String,
    /// What is wrong and what would be right.
    pub why: String,
}

pub(crate) fn bad(key: &str, why: impl Into<String>) -> BadLatency {
    BadLatency { key: key.into(), why: why.into() }
}

/// The error for an unknown preset, with the names of the known ones.
pub(crate) fn unknown(key: &str, name: &str, known: impl Iterator<Item = &'static str>) -> BadLatency {
    bad(key, format!("no preset \"{name}\"; there are {}", known.collect::<Vec<_>>().join(", ")))
}
