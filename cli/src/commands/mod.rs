//! The commands, one file each.

pub mod acceptance;
mod answer;
pub mod ask;
pub mod calibrate;
#[cfg(feature = "live")]
mod calibrate_live;
pub mod capacity;
pub mod complete;
pub mod decide;
pub mod doctor;
pub mod explore;
pub mod export;
pub mod fleet;
pub mod hardware;
pub mod ladder;
pub mod live;
pub mod man;
pub mod merge;
pub mod models;
pub mod new;
pub mod observe;
pub mod open;
pub mod policies;
pub mod profile;
pub mod profile_acceptance;
pub mod recommend;
pub mod report;
pub mod run;
pub mod schema;
pub mod serve;
pub mod settings;
pub mod traces;
pub mod validate;
pub mod validate_observed;

use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::shown;
use std::io::{ErrorKind, Write};

/// Prints results to stdout, with control characters escaped. If the reader closes the pipe (`| head`), this is no
/// error; a full disk is an error.
pub fn print(text: &str) -> Result<()> {
    write(&shown::escape(text))
}

fn write(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Problem::failed(format!("cannot write to stdout: {e}"))),
        _ => Ok(()),
    }
}
