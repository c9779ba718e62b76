//! Reads the tapes of a cell's pieces. Returns those that count, and notes problems with the rest.

use super::runs::Standing;
use super::standing::PieceReport;
use super::tapes::{PartOf, Recording, Tapes};
use crate::serve::tape::{End, Tape};
use foretoken_spec::problem::{Problem, Result};

/// (the tapes of each piece that counts, with the piece's index; how much there is of each tape that is not whole).
pub type Counted = (Vec<(usize, Vec<Tape>)>, Vec<PartOf>);

/// Reads the tapes cell by cell. It reads every tape, so that all damage is reported.
pub struct Gather<'a> {
    /// Notes about tapes, for the user.
    pub notes: Vec<String>,
    tapes: &'a Tapes<'a>,
    /// The tape without an end that was found before, if any.
    unended: Option<String>,
}

impl<'a> Gather<'a> {
    /// A reader of these tapes.
    pub fn from(tapes: &'a Tapes<'a>) -> Gather<'a> {
        Gather { notes: Vec::new(), tapes, unended: None }
    }

    /// Reads the tapes of a cell's pieces.
    pub fn of(&mut self, pieces: &[PieceReport]) -> Result<Counted> {
        let (mut all, mut parts) = (Vec::new(), Vec::new());
        for (n, piece) in pieces.iter().enumerate() {
            let counts = piece.standing == Standing::Counts;
            let mut tapes = Vec::new();
            for name in &piece.tapes {
                let Some(tape) = self.read(name)? else { continue };
                match PartOf::of(name, &tape) {
                    Some(part) if counts => parts.push(part),
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
                all.push((n, tapes));
            }
        }
        Ok((all, parts))
    }

    /// Reads a tape. `None`, with a note, if it has nothing of a run.
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
