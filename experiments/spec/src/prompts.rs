//! What requests ask, where something real is asked: of a device (`[live]`) or of a server (`[observe]`).

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What requests ask.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Prompts {
    /// The shipped generator's text, its families in turn, of the workload's lengths. One byte is one token.
    #[default]
    Families,
    /// Random token ids of the workload's lengths.
    Random,
    /// One JSON object a line with a `prompt`, in turn. Each has its own length; the workload's is not used.
    Jsonl {
        /// The file.
        path: PathBuf,
    },
}

impl Prompts {
    /// The file that they are read from.
    pub fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Prompts::Jsonl { path } => Some(path),
            Prompts::Families | Prompts::Random => None,
        }
    }
}
