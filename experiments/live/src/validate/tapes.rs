//! Recordings read for a comparison: whole, a part because the run was killed, or damaged, and how much of a run a part is.
//!
//! A recording ends within a frame because its writer was killed or because it was cut later. The folder knows: it enters a
//! recording in its manifest when the run has ended, and from then on every byte of it must be there.

use crate::serve::tape::{End, Tape, TapeEnding, TapeError, read_intact, read_tape};
use foretoken_intact::frames::Cut;
use foretoken_run::cells::TAPES;
use foretoken_run::cells::{AGAIN, Manifest, digest};
use foretoken_sim::Outcome;
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Where recordings are read from.
pub struct Tapes<'a> {
    /// The folder of the runs.
    pub folder: &'a Path,
    /// What it has finished.
    pub manifest: &'a Manifest,
    /// Take what is before the damage of a recording that is damaged, instead of refusing it?
    pub intact: bool,
}

/// What there is of a recording.
pub enum Recording {
    /// The recording, of the whole run or of a part.
    Of(Box<Tape>),
    /// Nothing of the run, and why.
    Nothing(&'static str),
}

const AGAIN_LIVE: &str = "make it again with `foretoken live` or `foretoken validate`";
const RUN_AGAIN: &str = "run it again, or compare what lies before the damage with --intact";

impl Tapes<'_> {
    /// A recording. One that its run had finished must be whole; another one may end where the run was killed.
    pub fn read(&self, name: &str) -> Result<Recording> {
        let full = format!("{TAPES}/{name}");
        let (path, listed) = (self.folder.join(&full), self.manifest.files.get(&full));
        let bad = |what: String, help: &str| Problem::bad_input(format!("{}: {what}", path.display())).help(help);
        if !path.exists() && listed.is_none() && !self.manifest.complete {
            return Ok(Recording::Nothing("its run was not begun"));
        }
        let tape = if self.intact { read_intact(&path) } else { read_tape(&path) };
        let tape = tape.map_err(|e| match &e {
            TapeError::Damaged(damage) if damage.frame > 0 => bad(e.to_string(), RUN_AGAIN),
            TapeError::Io(io) if io.kind() == std::io::ErrorKind::NotFound => bad("it is missing".into(), AGAIN),
            _ => bad(e.to_string(), AGAIN_LIVE),
        })?;
        match (&tape.end, listed) {
            (_, None) if self.manifest.complete => {
                Err(bad("it is none of the recordings that the manifest lists".into(), AGAIN))
            }
            (_, None) if tape.head.warming_up => Ok(Recording::Nothing("its run was killed while warming up")),
            (End::Cut(cut), Some(_)) if !self.intact => {
                let what = "the recording is damaged: its run had ended, and it was cut since";
                Err(bad(format!("{what}: {}", ends(cut)), RUN_AGAIN))
            }
            (End::Tail(_), Some(expected)) => {
                let found = digest(&path).map_err(|e| bad(e.to_string(), AGAIN))?;
                let what = "the recording is whole, and not the one of this run: its blake3 is";
                match found == *expected {
                    true => Ok(Recording::Of(Box::new(tape))),
                    false => Err(bad(format!("{what} {found}, in the manifest {expected}"), AGAIN)),
                }
            }
            _ => Ok(Recording::Of(Box::new(tape))),
        }
    }

    /// Had its run ended?
    pub fn finished(&self, name: &str) -> bool {
        self.manifest.has(&format!("{TAPES}/{name}"))
    }
}

fn ends(cut: &Cut) -> String {
    match cut.there {
        0 => format!("it ends behind frame {}, at byte {}, without an end", cut.frame.saturating_sub(1), cut.offset),
        _ => cut.to_string(),
    }
}

/// How much of a live run there is, where that is not all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartOf {
    /// The recording.
    pub tape: String,
    /// Requests that have ended in it.
    pub ended: u64,
    /// Requests of the run.
    pub requests: u64,
    /// How much of the run it tells of, seconds.
    pub seconds: f64,
    /// Why there is no more.
    pub why: String,
}

impl PartOf {
    /// `None` for a whole run.
    pub fn of(name: &str, tape: &Tape) -> Option<PartOf> {
        let why = match &tape.end {
            End::Tail(tail) => match &tail.ending {
                TapeEnding::Done => return None,
                TapeEnding::Interrupted => "it was interrupted".to_owned(),
                TapeEnding::Failed(why) => format!("the device failed: {why}"),
            },
            End::Cut(cut) => format!("it was killed or cut: {}", ends(cut)),
            End::Damaged(damage) => damage.to_string(),
        };
        let outcomes = tape.told().records.outcome;
        let ended = outcomes.iter().filter(|o| **o != Outcome::InFlight).count() as u64;
        let (requests, seconds) = (outcomes.len() as u64, tape.last().as_s());
        Some(PartOf { tape: name.to_owned(), ended, requests, seconds, why })
    }
}

impl std::fmt::Display for PartOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PartOf { tape, ended, requests, seconds, why } = self;
        write!(f, "{ended} of {requests} requests ended in the {seconds:.2} s that {tape} holds ({why})")
    }
}
