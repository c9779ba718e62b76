/// A `config.json` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct BadConfig {
    /// The key at fault, as the file nests it (`text_config.hidden_size`).
    pub key: String,
    /// What is wrong and what would be right.
    pub why: String,
}
