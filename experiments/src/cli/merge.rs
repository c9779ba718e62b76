//! The arguments of `merge`.

use super::check_settings::CheckSettings;
use super::format::Format;
use clap::Args;
use std::path::PathBuf;

pub const MERGE_EXAMPLES: &str = "Examples:
  foretoken merge results/shared --list
  foretoken merge results/shared

Shards are made by `foretoken run EXPERIMENT --shard I/N -o results/shared`, on as many machines as see that folder (docs/sweeps.md). What comes of
them is byte for byte what one machine makes, but for the time it took.";

#[derive(Debug, Args)]
pub struct MergeArgs {
    /// The folder that the shards share
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Only say how far the shards are
    #[arg(long)]
    pub list: bool,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Threads [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Write no figures and no page
    #[arg(long)]
    pub no_figures: bool,
    /// Try the run again without its settings, and name those that did nothing
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub check_settings: CheckSettings,
}
