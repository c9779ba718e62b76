//! The error of a setting with which the engine cannot run.

/// A setting with which the engine cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("engine.{key}: {why}")]
pub struct BadConfig {
    /// Name of the setting, below `engine`.
    pub key: &'static str,
    /// What is wrong with the setting, and which value would be accepted.
    pub why: String,
}
