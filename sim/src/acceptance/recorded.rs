//! `recorded` and `table`: recordings of a real run say which draft tokens were right. A recording does not say this
//! for tokens that were not drafted in the run. For such a token it is drawn once, with the recording's probabilities
//! (hazards). A request may have more output tokens than its recording. Then all further draft tokens are wrong
//! (docs/model.md 13), or the recording starts over, if it comes from a truth table (a file of recorded acceptance)
//! that wraps.

use super::TruthRow;
use super::source::Bits;
use crate::executor::RequestTruth;
use crate::luck::{Luck, Stream};
use crate::workload::{Recording, Workload};

/// P(right | i − 1 draft tokens of the round were accepted), i = 1…8, pooled over the Spec-Bench recording of
/// Vicuna-68M drafting for Vicuna-7B. The last value holds for all larger i.
pub(super) const POOLED_HAZARDS: [f64; 8] = [0.572, 0.641, 0.705, 0.753, 0.802, 0.833, 0.851, 0.878];

/// Takes from a workload's recordings of real runs which draft tokens of a request are right.
pub(super) struct Recorded {
    /// Whether a recording starts over for a request with more output tokens than the recording. If false, all draft
    /// tokens after the recording's end are wrong.
    wraps: bool,
    recordings: Vec<Recording>,
    hazards: Vec<f64>,
    /// For each recording, the expected share of right draft tokens. A token of which the recording does not say
    /// whether it is right counts with its probability of being right. Confidences are drawn for this rate.
    rates: Vec<f64>,
    seed: u64,
}

impl Recorded {
    /// Takes the workload's recordings of which draft tokens of real requests were right. Where a recording does not
    /// say this, the draft token is right with a probability from `hazards`, by the number of accepted draft tokens
    /// before it in the round.
    pub fn new(workload: &Workload, hazards: Vec<f64>, wraps: bool, seed: u64) -> Recorded {
        let rates = workload.recordings.iter().map(|r| expected_rate(r, &hazards)).collect();
        Recorded { wraps, recordings: workload.recordings.clone(), hazards, rates, seed }
    }

    fn recording_of(&self, request: RequestTruth) -> &Recording {
        &self.recordings[request.recording.expect("building the source checked that every request has one") as usize]
    }

    /// The index into the recording for an output position; `None` beyond its end. A recording that wraps begins again
    /// at position 1, because position 0 comes from the prefill and is never drafted.
    fn index_at(&self, recording: &Recording, position: usize) -> Option<usize> {
        match recording.bits.len() {
            len if position < len => Some(position),
            len if self.wraps && len > 1 => Some(1 + (position - 1) % (len - 1)),
            _ => None,
        }
    }
}

/// Probability that the draft token at output position `n` is right, where the recording `r` does not say whether it
/// is: the recording's own probability, or else that of all recordings.
fn hazard(r: &Recording, hazards: &[f64], n: usize) -> f64 {
    if let Some(&chance) = r.chances.get(n) {
        return f64::from(chance);
    }
    hazards[usize::from(r.accepted_before[n]).min(hazards.len() - 1)]
}

/// The expected share of right draft tokens in a recording. A token of which the recording does not say whether it is
/// right counts with its hazard (its probability of being right). One right and one wrong token are added, so that the
/// share of a short recording is never 0 or 1. The known tokens alone would give too low a share, because it is unknown
/// after a run of right tokens whether the next one is right.
fn expected_rate(r: &Recording, hazards: &[f64]) -> f64 {
    let right =
        |(n, bit): (usize, &Option<bool>)| bit.map_or_else(|| hazard(r, hazards, n), |b| f64::from(u8::from(b)));
    let right: f64 = r.bits.iter().enumerate().map(right).sum();
    (right + 1.0) / (r.bits.len() as f64 + 2.0)
}

impl Bits for Recorded {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        out.reset(positions, 1);
        let recording = self.recording_of(request);
        let luck = Luck::new(self.seed, Stream::Unknown, request.id.into());
        for n in 0..positions {
            let Some(at) = self.index_at(recording, n) else { break };
            if recording.bits[at].unwrap_or_else(|| luck.unit(n as u64) < hazard(recording, &self.hazards, at)) {
                out.set(0, n);
            }
        }
    }

    fn has_law(&self) -> bool {
        false
    }

    fn rate(&self, request: RequestTruth, _: u32, _: u32) -> f64 {
        request.recording.map_or(0.5, |r| self.rates[r as usize])
    }

    fn recorded_confidence(&self, request: RequestTruth, position: u32) -> Option<f32> {
        let recording = self.recording_of(request);
        recording.confidences.get(self.index_at(recording, position as usize)?).copied()
    }

    fn recorded_rank(&self, request: RequestTruth, position: u32) -> Option<u32> {
        let recording = self.recording_of(request);
        let rank = recording.ranks.get(self.index_at(recording, position as usize)?);
        rank.map(|&rank| rank.into()).filter(|&rank| rank > 1)
    }
}
