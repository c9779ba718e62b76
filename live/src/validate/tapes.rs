//! Reads tapes for a comparison. A tape is whole, partial because the run was killed, or damaged.
//!
//! A tape ends within a frame because its process was killed or because the file was cut later. The folder can tell: it
//! enters a tape in its manifest when the run has ended, and from then on every byte must be there.

use crate::serve::tape::{End, Tape, TapeEnding, TapeError, read_intact, read_tape};
use foretoken_intact::frames::Cut;
use foretoken_run::cells::TAPES;
use foretoken_run::cells::{AGAIN, Manifest, digest};
use foretoken_sim::Outcome;
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The place of the tapes.
pub struct Tapes<'a> {
    /// The folder of the runs.
    pub folder: &'a Path,
    /// The manifest, with the finished files.
    pub manifest: &'a Manifest,
    /// Reads a damaged tape up to the damage, instead of refusing it.
    pub intact: bool,
}

/// The result of reading a tape.
pub enum Recording {
    /// The tape, whole or partial.
    Of(Box<Tape>),
    /// Nothing of the run, with the reason.
    Nothing(&'static str),
}

const AGAIN_LIVE: &str = "make it again with `foretoken live` or `foretoken validate`";
const RUN_AGAIN: &str = "run it again, or compare what lies before the damage with --intact";

impl Tapes<'_> {
    /// Reads a tape. If its run had finished, it must be whole; otherwise it may end where the run was killed.
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

    /// True if the tape's run had ended.
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

/// How much there is of a partial live run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartOf {
    /// The tape's name.
    pub tape: String,
    /// Number of requests that have ended.
    pub ended: u64,
    /// Number of requests of the run.
    pub requests: u64,
    /// Seconds of the run in the tape.
    pub seconds: f64,
    /// The reason why it is partial.
    pub why: String,
}

impl PartOf {
    /// The part of the run in `tape`; `None` for a whole run.
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
