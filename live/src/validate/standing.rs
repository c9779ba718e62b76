//! The pieces of a cell: which of them count, and the machine's speed during them.

use super::drift::{Drift, drift};
use super::probe::spread;
use super::runs::{RunEntry, Runs, Standing};
use serde::{Deserialize, Serialize};

/// The report of one piece.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PieceReport {
    /// Names of the piece's tapes.
    pub tapes: Vec<String>,
    /// Whether the piece is part of the validation's numbers, or why not.
    pub standing: Standing,
    /// Relative difference between its probes; absent if not all of them were made.
    pub spread: Option<f64>,
    /// Relative change of pass times against the typical probe of the whole run; absent without probes.
    pub drift: Option<f64>,
}

/// A cell without a piece that counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Undecided {
    /// The policy's label.
    pub policy: String,
    /// The load as text.
    pub load: String,
    /// The load as a share of the policy's own service rate, if it was set so.
    pub share: Option<f64>,
    /// The cell's pieces.
    pub pieces: Vec<PieceReport>,
}

/// Reports the pieces of a cell by the rule. `typical` is the typical probe of the run.
pub fn of(runs: &Runs, entry: &RunEntry, steady: f64, typical: &[f64]) -> Vec<PieceReport> {
    let report = |piece: &super::runs::Piece| PieceReport {
        tapes: piece.tapes.clone(),
        standing: runs.standing(piece, steady),
        spread: spread(&piece.probes),
        drift: drift(&piece.probes, typical),
    };
    entry.pieces.iter().map(report).collect()
}

/// Returns the number of pieces that count.
pub fn counted(pieces: &[PieceReport]) -> usize {
    pieces.iter().filter(|p| p.standing == Standing::Counts).count()
}

/// The range of the machine's speed over these pieces.
pub fn range<'a>(pieces: impl IntoIterator<Item = &'a PieceReport>) -> Option<Drift> {
    Drift::over(pieces.into_iter().filter_map(|p| p.drift))
}

/// The pieces of a cell as text; `None` if nothing was probed.
pub fn words(pieces: &[PieceReport]) -> Option<String> {
    let range = range(pieces)?;
    let percent = |x: f64| format!("{:.1} %", x * 100.0);
    let changed = |(n, p): (usize, &PieceReport)| match p.standing {
        Standing::Counts => None,
        Standing::Changed => Some(format!("number {}, whose probes are {} apart", n + 1, percent(p.spread?))),
        Standing::Unended => Some(format!("number {}, which was not ended", n + 1)),
    };
    let out: Vec<String> = pieces.iter().enumerate().filter_map(changed).collect();
    let left = if out.is_empty() { String::new() } else { format!("; left out: {}", out.join(", ")) };
    let Drift { smallest, largest } = range;
    Some(format!(
        "{} of {} pieces count{left}; passes from {:+.1} % to {:+.1} % of the typical probe",
        counted(pieces),
        pieces.len(),
        smallest * 100.0,
        largest * 100.0
    ))
}

impl Undecided {
    /// The reason why nothing is decided, as text.
    pub fn why(&self) -> String {
        let n = self.pieces.len();
        match self.pieces.iter().any(|p| p.standing == Standing::Changed) {
            true => format!("not decided: the machine changed its speed in all {n} pieces"),
            false => "not decided: no piece of it was ended".to_owned(),
        }
    }
}
