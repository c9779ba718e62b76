//! One file a command.

pub mod bench;
pub mod complete;
pub mod decide;
pub mod doctor;
pub mod explore;
pub mod export;
pub mod live;
pub mod man;
pub mod perfetto;
pub mod policies;
pub mod profile;
pub mod profile_acceptance;
pub mod report;
pub mod run;
pub mod schema;
pub mod settings;
pub mod traces;
pub mod validate;

use crate::problem::{Problem, Result};
use crate::shown;
use std::io::{ErrorKind, Write};

/// Prints results, fit for a terminal. A reader that has gone away (`| head`) is no error; a full disk is.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(shown::escape(text).as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Problem::failed(format!("cannot write to stdout: {e}"))),
        _ => Ok(()),
    }
}
