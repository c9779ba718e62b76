//! `foretoken completions`: prints a script with which a shell completes commands and options.

use super::print;
use clap::Args;
use clap_complete::Shell;
use foretoken_run::spec::problem::Result;

pub const EXAMPLES: &str = "Examples:
  foretoken completions bash > ~/.local/share/bash-completion/completions/foretoken
  foretoken completions zsh > ~/.zfunc/_foretoken
  foretoken completions fish > ~/.config/fish/completions/foretoken.fish";

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell for which the script is printed
    pub shell: Shell,
}

/// Prints a script with which the shell completes foretoken's commands and options.
pub fn run(args: &CompletionsArgs, mut program: clap::Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "foretoken", &mut script);
    print(&String::from_utf8_lossy(&script))
}
