//! `foretoken completions`: what makes a shell complete commands and options.

use super::print;
use crate::cli::{Cli, CompletionsArgs};
use crate::problem::Result;
use clap::CommandFactory;

/// Prints a shell's script.
pub fn run(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "foretoken", &mut script);
    print(&String::from_utf8_lossy(&script))
}
