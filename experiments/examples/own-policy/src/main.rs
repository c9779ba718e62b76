//! A policy that Foretoken does not have, in a binary of its own: it registers the policy and is `foretoken` from
//! then on, so that experiments can name it, `policies list` lists it, and reports show it.

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
