//! The pieces of a cell. A piece is a live run and its repeat, between probes of the machine's speed. A report says
//! which pieces count (those finished at a steady machine speed), how fast the machine was during each piece, and which
//! tapes are incomplete.

use crate::compare::format::percent;
use foretoken_report::signed_percent;
use serde::{Deserialize, Serialize};

/// Whether the numbers of a validation include a piece, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The numbers of the validation include the piece. It was finished, and its probes agree or there are none.
    Counts,
    /// The numbers of the validation do not include the piece. Its probes show that the machine changed its speed
    /// during the piece.
    Changed,
    /// The numbers of the validation do not include the piece, because it was not finished.
    Unended,
}

/// The report of one piece: a live run and its repeat, between probes of the machine's speed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PieceReport {
    pub tapes: Vec<String>,
    /// Whether the validation's numbers include the piece, or why not.
    pub standing: Standing,
    /// The largest relative difference between the times of one pass in the piece's probes. Absent if a probe is
    /// missing.
    pub spread: Option<f64>,
    /// How much slower than usual the machine was: pass time in the piece's probes / median pass time in all probes of
    /// the validation − 1. Below 0, the machine was faster. Absent without probes.
    pub drift: Option<f64>,
}

/// How much slower than usual the machine was in its fastest and in its slowest piece. Usual is the median time of a
/// pass in all probes of the validation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpeedRange {
    /// How much slower than usual the machine was in the piece in which it was fastest: pass time / median pass time of
    /// the whole validation − 1, usually negative.
    pub smallest: f64,
    /// How much slower than usual the machine was in the piece in which it was slowest: pass time / median pass time of
    /// the whole validation − 1.
    pub largest: f64,
}

impl SpeedRange {
    /// The range of the machine's speed over `pieces`; `None` if the speed was not measured in any piece.
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
        write!(f, "from {} to {} of the typical probe", signed_percent(self.smallest), signed_percent(self.largest))
    }
}

/// A cell of which no piece was finished at a steady machine speed, so that it has no numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Undecided {
    pub policy: String,
    /// The load as text, such as `closed loop of 4` (clients) or `0.8 of its service rate`.
    pub load: String,
    /// The load as a share of the policy's service rate; absent if the load was not set as such a share.
    pub share: Option<f64>,
    pub pieces: Vec<PieceReport>,
}

impl Undecided {
    /// A text that says why the cell has no numbers: why none of its pieces was finished at a steady machine speed.
    pub fn why(&self) -> String {
        let n = self.pieces.len();
        match self.pieces.iter().any(|p| p.standing == Standing::Changed) {
            true => format!("not decided: the machine changed its speed in all {n} pieces"),
            false => "not decided: no piece of it was ended".to_owned(),
        }
    }
}

/// A text that says how many pieces the validation's numbers include, which pieces they leave out, and how fast the
/// machine was; `None` if the machine's speed was not measured.
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
    /// File name of the live run's tape (log).
    pub tape: String,
    /// Number of requests that ended within the recorded part of the run.
    pub ended: u64,
    pub requests: u64,
    /// Length of the recorded part of the live run, seconds.
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
