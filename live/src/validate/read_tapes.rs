//! Reads tapes for a comparison. A tape may be complete, partial because its run was killed, or damaged.
//!
//! A tape without an end comes from a process that was killed, or from a file that was cut later. The manifest tells
//! which: it lists a tape, with its digest, as soon as the run has ended. A listed tape must be complete.

use crate::serve::tape::{End, Tape, TapeEnding, TapeError, read_intact, read_tape};
use foretoken_run::cells::TAPES;
use foretoken_run::cells::{AGAIN, Manifest, digest};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_servers::compare::live_runs::{PartialRun, PieceReport, Standing};
use foretoken_sim::Outcome;
use foretoken_traces::intact::frames::Cut;
use std::path::Path;

pub struct Tapes<'a> {
    pub folder: &'a Path,
    /// The folder's manifest, which lists the finished files with their digests.
    pub manifest: &'a Manifest,
    /// True: a damaged tape is read up to the damage. False: a damaged tape is an error.
    pub intact: bool,
}

pub enum Recording {
    /// The tape, complete or partial.
    Of(Box<Tape>),
    /// The file has nothing of the run itself, for example only its warm-up. The text says why.
    Nothing(&'static str),
}

const AGAIN_LIVE: &str = "make it again with `foretoken live` or `foretoken validate`";
const RUN_AGAIN: &str = "run it again, or compare what lies before the damage with --intact";

impl Tapes<'_> {
    /// Reads the tape `name`. If the manifest lists the tape, the tape must be complete. If the manifest does not list
    /// the tape and says that not all runs ended, the tape may be missing or end where the run was killed.
    pub fn read(&self, name: &str) -> Result<Recording> {
        let full = format!("{TAPES}/{name}");
        let (path, listed) = (self.folder.join(&full), self.manifest.files.get(&full));
        let bad = |what: String, help: &str| Problem::bad_input(format!("{}: {what}", path.display())).help(help);
        if !path.exists() && listed.is_none() && !self.manifest.complete {
            return Ok(Recording::Nothing("its run was not begun"));
        }
        let tape = if self.intact { read_intact(&path) } else { read_tape(&path) };
        // The process may have been killed after it made the file and before it wrote the first part of the file.
        if matches!(tape, Err(TapeError::NoHead(_))) && listed.is_none() && !self.manifest.complete {
            return Ok(Recording::Nothing("its run was killed before anything was recorded"));
        }
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

    /// True if the manifest lists the tape, which means that its run had ended.
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

/// Says how much of its run a partial tape has, and why it is partial. `None` for a complete run.
fn partial(name: &str, tape: &Tape) -> Option<PartialRun> {
    let why = match &tape.end {
        End::Tail(tail) => match &tail.ending {
            TapeEnding::Done => return None,
            TapeEnding::Interrupted => "it was interrupted".to_owned(),
            TapeEnding::Failed(why) => format!("the device failed: {why}"),
        },
        End::Cut(cut) => format!("it was killed or cut: {}", ends(cut)),
        End::Damaged(damage) => damage.to_string(),
    };
    let outcomes = tape.records().requests.outcome;
    let ended = outcomes.iter().filter(|o| **o != Outcome::InFlight).count() as u64;
    let (requests, seconds) = (outcomes.len() as u64, tape.last().as_s());
    Some(PartialRun { tape: name.to_owned(), ended, requests, seconds, why })
}

/// The tapes of a piece that counts in the comparison. A piece counts if it is finished and its probes show a steady
/// machine. If there are no probes, every piece counts.
pub struct PieceTapes {
    /// Index of the piece in its cell.
    pub index: usize,
    /// The tapes of the live run and of its repeat. Tapes without a step are left out.
    pub tapes: Vec<Tape>,
}

/// The tapes of a cell. A piece has no tapes here if the comparison leaves it out.
pub struct CellTapes {
    /// The pieces that count in the comparison and have at least one tape with a step.
    pub pieces: Vec<PieceTapes>,
    /// For each partial tape: how much of the run the tape has. Only for pieces that the comparison uses.
    pub parts: Vec<PartialRun>,
}

/// Reads tapes, one cell after the other. The reader also reads the tapes of pieces that the comparison leaves out, so
/// that all damage is reported.
pub struct TapeReader<'a> {
    /// Notes about tapes for the user, such as tapes without a step.
    pub notes: Vec<String>,
    tapes: &'a Tapes<'a>,
    /// The name of the first tape without an end, if there is one. A killed process leaves at most one such tape.
    unended: Option<String>,
}

impl<'a> TapeReader<'a> {
    pub fn new(tapes: &'a Tapes<'a>) -> TapeReader<'a> {
        TapeReader { notes: Vec::new(), tapes, unended: None }
    }

    /// Reads the tapes of all pieces of one policy at one load. Returns the tapes of the pieces that count in the
    /// comparison, and says which of these tapes are partial. Tapes without a step are left out with a note. Partial
    /// tapes of pieces that do not count only get a note.
    pub fn read_cell(&mut self, pieces: &[PieceReport]) -> Result<CellTapes> {
        let mut cell = CellTapes { pieces: Vec::new(), parts: Vec::new() };
        for (index, piece) in pieces.iter().enumerate() {
            let counts = piece.standing == Standing::Counts;
            let mut tapes = Vec::new();
            for name in &piece.tapes {
                let Some(tape) = self.read(name)? else { continue };
                match partial(name, &tape) {
                    Some(part) if counts => cell.parts.push(part),
                    Some(part) => self.notes.push(part.to_string()),
                    None => {}
                }
                match tape.steps.is_empty() {
                    true => self.notes.push(format!("{name}: it holds no step and was left out")),
                    false if counts => tapes.push(tape),
                    false => {}
                }
            }
            if !tapes.is_empty() {
                cell.pieces.push(PieceTapes { index, tapes });
            }
        }
        Ok(cell)
    }

    /// Reads a tape. If the file has nothing of a run, adds a note and returns `None`.
    fn read(&mut self, name: &str) -> Result<Option<Tape>> {
        let tape = match self.tapes.read(name)? {
            Recording::Of(tape) => *tape,
            Recording::Nothing(why) => {
                self.notes.push(format!("{name}: {why}"));
                return Ok(None);
            }
        };
        let unfinished = matches!(tape.end, End::Cut(_)) && !self.tapes.finished(name) && !self.tapes.intact;
        if unfinished && let Some(other) = self.unended.replace(name.to_owned()) {
            let message = format!("{other} and {name} have no end, and a run that is killed leaves one so");
            return Err(Problem::bad_input(message)
                .help("one of them was cut since: run it again, or compare what is there with --intact"));
        }
        Ok(Some(tape))
    }
}
