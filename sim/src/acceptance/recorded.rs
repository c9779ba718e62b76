//! `recorded`: bits of a real run. What was not drafted there is unknown, and is drawn once from the hazards of the
//! recording; beyond its end everything is wrong (policies.md 13).

use super::source::Bits;
use super::{RequestTruth, TruthRow};
use crate::luck::{Luck, Stream};
use crate::{Recording, Workload};

/// P(right | i − 1 drafts of the round were accepted), i = 1…8, pooled over the Spec-Bench recording of Vicuna-68M drafting
/// for Vicuna-7B. The last one repeats.
pub(super) const POOLED_HAZARDS: [f64; 8] = [0.572, 0.641, 0.705, 0.753, 0.802, 0.833, 0.851, 0.878];

/// The recordings of a workload.
pub(super) struct Recorded {
    recordings: Vec<Recording>,
    hazards: Vec<f64>,
    /// Expected share of right bits, unknown ones included, by recording: the rate its confidences are drawn for.
    rates: Vec<f64>,
    seed: u64,
}

impl Recorded {
    /// The recordings of `workload`, unknown bits by `hazards`.
    pub fn new(workload: &Workload, hazards: Vec<f64>, seed: u64) -> Recorded {
        let rates = workload.recordings.iter().map(|r| expected_rate(r, &hazards)).collect();
        Recorded { recordings: workload.recordings.clone(), hazards, rates, seed }
    }
}

/// P(right) of the unknown bit at position `n`.
fn hazard(r: &Recording, hazards: &[f64], n: usize) -> f64 {
    hazards[usize::from(r.accepted_before[n]).min(hazards.len() - 1)]
}

/// Right bits, unknown ones by their hazards, over all bits; pulled towards one half by one of each, so that short
/// recordings stay off 0 and 1. Known bits alone would be biased low: a bit is unknown after a run of right ones.
fn expected_rate(r: &Recording, hazards: &[f64]) -> f64 {
    let right =
        |(n, bit): (usize, &Option<bool>)| bit.map_or_else(|| hazard(r, hazards, n), |b| f64::from(u8::from(b)));
    let right: f64 = r.bits.iter().enumerate().map(right).sum();
    (right + 1.0) / (r.bits.len() as f64 + 2.0)
}

impl Bits for Recorded {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        out.reset(positions, 1);
        let index = request.recording.expect("building the source checked that every request has a recording");
        let recording = &self.recordings[index as usize];
        let luck = Luck::new(self.seed, Stream::Unknown, request.id.into());
        for (n, bit) in recording.bits.iter().enumerate().take(positions) {
            if bit.unwrap_or_else(|| luck.unit(n as u64) < hazard(recording, &self.hazards, n)) {
                out.set(0, n);
            }
        }
    }

    fn rate(&self, request: RequestTruth, _: u32, _: u32) -> f64 {
        request.recording.map_or(0.5, |r| self.rates[r as usize])
    }
}
