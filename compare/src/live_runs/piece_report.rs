//! The pieces of a cell. A piece is a live run and its repeat, between probes of the machine's speed. A report says
//! which pieces count, how fast the machine was during each piece, and which tapes (logs of live runs) are incomplete.

use crate::format::{percent, signed};
use serde::{Deserialize, Serialize};

/// Whether a piece (a live run and its repeat) counts for the numbers of a validation, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The piece counts: it was finished, and its probes agree or nothing is probed.
    Counts,
    /// The piece does not count: its probes show that the machine changed its speed during the piece.
    Changed,
    /// The piece does not count: it was not finished.
    Unended,
}

/// The report of one piece: a live run and its repeat, between probes of the machine's speed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PieceReport {
    /// File names of the tapes of the piece's live runs.
    pub tapes: Vec<String>,
    /// Whether the piece counts for the validation's numbers, or why not.
    pub standing: Standing,
    /// The largest relative difference between the pass times that the piece's probes measured. Absent if a probe is
    /// missing.
    pub spread: Option<f64>,
    /// Pass time in the piece's probes / pass time in the typical probe of the validation − 1. Above 0, the machine was
    /// slower than usual. Absent without probes.
    pub drift: Option<f64>,
}

/// The range of the machine's speed over several pieces, in shares of the typical pass time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpeedRange {
    /// The `drift` of the piece in which the machine was fastest.
    pub smallest: f64,
    /// The `drift` of the piece in which the machine was slowest.
    pub largest: f64,
}

impl SpeedRange {
    /// The range over `pieces`; `None` if no piece was probed.
    pub fn over<'a>(pieces: impl IntoIterator<Item = &'a PieceReport>) -> Option<SpeedRange> {
        let drifts = pieces.into_iter().filter_map(|p| p.drift);
        drifts.fold(None, |range: Option<SpeedRange>, d| {
            let SpeedRange { smallest, largest } = range.unwrap_or(SpeedRange { smallest: d, largest: d });
            Some(SpeedRange { smallest: smallest.min(d), largest: largest.max(d) })
        })
    }
}

impl std::fmt::Display for SpeedRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "from {} to {} of the typical probe", signed(self.smallest), signed(self.largest))
    }
}

/// A cell (a policy at a load) without a piece that counts; a piece is a live run and its repeat.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Undecided {
    /// The policy's label.
    pub policy: String,
    /// The load as text.
    pub load: String,
    /// The load as a share of the policy's service rate; absent if the load was not set as such a share.
    pub share: Option<f64>,
    /// All pieces of the cell.
    pub pieces: Vec<PieceReport>,
}

impl Undecided {
    /// A text that says why no number of the cell is decided.
    pub fn why(&self) -> String {
        let n = self.pieces.len();
        match self.pieces.iter().any(|p| p.standing == Standing::Changed) {
            true => format!("not decided: the machine changed its speed in all {n} pieces"),
            false => "not decided: no piece of it was ended".to_owned(),
        }
    }
}

/// A text that says how many pieces count, which pieces do not count, and how fast the machine was; `None` if nothing
/// was probed.
pub fn words(pieces: &[PieceReport]) -> Option<String> {
    let range = SpeedRange::over(pieces)?;
    let left_out = |(n, p): (usize, &PieceReport)| match p.standing {
        Standing::Counts => None,
        Standing::Changed => Some(format!("number {}, whose probes are {} apart", n + 1, percent(p.spread?))),
        Standing::Unended => Some(format!("number {}, which was not ended", n + 1)),
    };
    let out: Vec<String> = pieces.iter().enumerate().filter_map(left_out).collect();
    let left = if out.is_empty() { String::new() } else { format!("; left out: {}", out.join(", ")) };
    let counted = pieces.iter().filter(|p| p.standing == Standing::Counts).count();
    Some(format!("{counted} of {} pieces count{left}; passes {range}", pieces.len()))
}

/// How much of a live run its tape (log) has, if the tape is incomplete.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartialRun {
    /// File name of the run's tape.
    pub tape: String,
    /// Number of requests that ended within the tape.
    pub ended: u64,
    /// Number of requests of the whole run.
    pub requests: u64,
    /// Length of the recorded part of the run, seconds.
    pub seconds: f64,
    /// The reason why the tape is incomplete.
    pub why: String,
}

impl std::fmt::Display for PartialRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PartialRun { tape, ended, requests, seconds, why } = self;
        write!(f, "{ended} of {requests} requests ended in the {seconds:.2} s that {tape} holds ({why})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_from_the_shortest_to_the_longest() {
        let piece = |drift| PieceReport { tapes: vec![], standing: Standing::Counts, spread: None, drift };
        let range = SpeedRange::over(&[0.02, -0.01, 0.005].map(|d| piece(Some(d)))).unwrap();
        assert_eq!((range.smallest, range.largest), (-0.01, 0.02));
        assert_eq!(SpeedRange::over(&[piece(None)]), None);
    }
}
