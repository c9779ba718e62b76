//! Fuzzes the readers of reports by servers: recordings (logs of a load that was sent to a server) and vLLM's step
//! logs.

use crate::framed::repaired;
use crate::said;
use foretoken_servers::recordings::findings::findings;
use foretoken_servers::recordings::recording::{KIND, parse_recording};
use foretoken_servers::recordings::run::ObservedRun;
use foretoken_servers::recordings::step_log::LoggedStep;
use std::path::Path;

/// Reads a recording of a server's run twice: first the bytes as they are, then with repaired checksums. The answers,
/// steps and metrics that are derived from the recording must have finite numbers. The findings (notes on the run for
/// the user) are derived, too, but not checked.
pub fn recording(data: &[u8]) {
    read(data);
    read(&repaired(KIND, data));
}

fn read(bytes: &[u8]) {
    const FILE: &str = "run.obs";
    match parse_recording(Path::new(FILE), bytes) {
        Err(error) => said::unread(&error, FILE),
        Ok(recording) => {
            let run = ObservedRun::of(&recording);
            said::finite(&(&run.answers, &run.steps, &run.metrics));
            drop(findings(&recording, &run));
        }
    }
}

/// Reads each line of `data` as a line of vLLM's step log. All numbers of an accepted line must be finite.
pub fn step_log(data: &[u8]) {
    let Some(text) = said::text(data) else { return };
    for line in text.lines() {
        match LoggedStep::read(line) {
            Err(error) => said::message(&error),
            Ok(step) => said::finite(&step),
        }
    }
}
