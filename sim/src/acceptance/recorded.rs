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
    /// Share of right bits among the known ones, by recording: the rate its confidences are drawn for.
    rates: Vec<f64>,
    seed: u64,
}

impl Recorded {
    /// The recordings of `workload`, unknown bits by `hazards`.
    pub fn new(workload: &Workload, hazards: Vec<f64>, seed: u64) -> Recorded {
        let rates = workload.recordings.iter().map(known_rate).collect();
        Recorded { recordings: workload.recordings.clone(), hazards, rates, seed }
    }
}

/// Right bits over known bits, pulled towards one half by one of each, so that short recordings stay off 0 and 1.
fn known_rate(r: &Recording) -> f64 {
    let known = r.bits.iter().flatten();
    let right = known.clone().filter(|&&b| b).count() as f64;
    (right + 1.0) / (known.count() as f64 + 2.0)
}

impl Bits for Recorded {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        out.reset(positions, 1);
        let index = request.recording.expect("building the source checked that every request has a recording");
        let recording = &self.recordings[index as usize];
        let luck = Luck::new(self.seed, Stream::Unknown, request.id.into());
        for (n, bit) in recording.bits.iter().enumerate().take(positions) {
            let right = bit.unwrap_or_else(|| {
                let accepted = usize::from(recording.accepted_before[n]);
                luck.unit(n as u64) < self.hazards[accepted.min(self.hazards.len() - 1)]
            });
            if right {
                out.set(0, n);
            }
        }
    }

    fn rate(&self, request: RequestTruth, _: u32, _: u32) -> f64 {
        request.recording.map_or(0.5, |r| self.rates[r as usize])
    }
}
