//! `foretoken completions`: a script with which a shell completes commands and options.

use super::print;
use crate::cli::{Cli, CompletionsArgs};
use clap::CommandFactory;
use foretoken_spec::problem::Result;

/// Prints a shell's script.
pub fn run(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "foretoken", &mut script);
    print(&String::from_utf8_lossy(&script))
}
