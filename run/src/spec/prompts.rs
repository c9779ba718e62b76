//! The prompts of real requests, which are sent to a device (`[live]`) or to a server (`[observe]`).

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where the prompts of the requests come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Prompts {
    /// Text from the shipped generator, in the workload's prompt lengths. Requests take turns between the kinds of text
    /// (families), such as dialogue and arithmetic. One byte is one token.
    #[default]
    Families,
    /// Random token ids, in the workload's prompt lengths.
    Random,
    /// A file with one JSON object a line, each with a `prompt`. Requests take the prompts in turn. The file decides
    /// the prompt lengths, not the workload.
    Jsonl {
        /// Path of the file with the prompts.
        path: PathBuf,
    },
}

impl Prompts {
    /// The path of the file from which prompts are read; `None` if they are not read from a file.
    pub fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Prompts::Jsonl { path } => Some(path),
            Prompts::Families | Prompts::Random => None,
        }
    }
}
