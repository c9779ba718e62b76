//! `foretoken schema`: the JSON schema of experiments, for editors.

use super::print;
use clap::Args;
use foretoken_run::spec::problem::Result;

pub const EXAMPLES: &str = "Examples:
  foretoken schema > experiment.schema.json

Editors that know TOML (taplo: Even Better TOML, Zed, Neovim) check a file and complete its keys after this first line:
  #:schema experiment.schema.json";

#[derive(Debug, Args)]
pub struct SchemaArgs {}

/// Prints the JSON schema of experiments.
pub fn run(_: &SchemaArgs) -> Result<()> {
    print(&foretoken_run::spec::schema::text())
}
