/// Why a `config.json` cannot be used. Shown as `key: why`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct BadConfig {
    /// The key at fault. The keys of the JSON objects around it come first, joined by dots (`text_config.hidden_size`).
    pub key: String,
    /// What is wrong with the key's value, and what would be right.
    pub why: String,
}
