//! The arguments of commands around experiments: pages, timelines, and what shells and editors want.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

pub const EXPLORE_EXAMPLES: &str = "Examples:
  foretoken explore
  foretoken explore -o pages
  foretoken explore --profile profile.toml";

#[derive(Debug, Args)]
pub struct ExploreArgs {
    /// A profile to explore beside the presets: of `foretoken profile` or of `foretoken calibrate`
    #[arg(long, value_name = "FILE.toml")]
    pub profile: Option<PathBuf>,
    /// Folder for the page
    #[arg(short, long, value_name = "DIR", default_value = "results/explorer")]
    pub output: PathBuf,
}

pub const PERFETTO_EXAMPLES: &str = "The run must have kept its steps: --set output.steps=true

Examples:
  foretoken export perfetto results/small -o timeline.json
  foretoken export perfetto results/small --policy adaspec --seed 2 -o timeline.json.gz
  foretoken export perfetto results/small --from 10 --to 20 -o timeline.json";

#[derive(Debug, Args)]
pub struct ExportPerfettoArgs {
    /// The results folder
    pub dir: PathBuf,
    /// Label of the policy [default: the first]
    #[arg(long, value_name = "LABEL")]
    pub policy: Option<String>,
    /// The seed [default: the first]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// A value of a swept setting [default: the first]
    #[arg(long, value_name = "PATH=VALUE")]
    pub sweep: Vec<String>,
    /// Start of the window, seconds on the run's clock
    #[arg(long, value_name = "S")]
    pub from: Option<f64>,
    /// End of the window, seconds [default: after 20,000 steps]
    #[arg(long, value_name = "S")]
    pub to: Option<f64>,
    /// The file; compressed when its name ends in .gz [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

pub const SETTINGS_EXAMPLES: &str = "Examples:
  foretoken settings
  foretoken settings engine
  foretoken settings acceptance.source
  foretoken settings hardware.target.roofline.gpu";

pub const SCHEMA_EXAMPLES: &str = "Examples:
  foretoken schema > experiment.schema.json

Editors that know TOML (taplo: Even Better TOML, Zed, Neovim) check a file and complete its keys after this first line:
  #:schema experiment.schema.json";

pub const COMPLETIONS_EXAMPLES: &str = "Examples:
  foretoken completions bash > ~/.local/share/bash-completion/completions/foretoken
  foretoken completions zsh > ~/.zfunc/_foretoken
  foretoken completions fish > ~/.config/fish/completions/foretoken.fish";

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

pub const MAN_EXAMPLES: &str = "Examples:
  foretoken man -o man
  foretoken man -o ~/.local/share/man/man1";

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder for the pages, one a command
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
}
