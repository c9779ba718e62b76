//! Example of a program that adds its own policy to Foretoken: it registers the policy and then runs the command line.
//! Experiments can name the policy, `policies list` lists it, and reports show it.

mod calm_or_busy;

use calm_or_busy::CalmOrBusy;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = foretoken_policies::register("calm-or-busy", CalmOrBusy::default()) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    foretoken::main()
}
