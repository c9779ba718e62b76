//! The program `foretoken`: runs the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    foretoken::main()
}
