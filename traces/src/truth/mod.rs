//! Truth tables: which of a draft model's tokens were right on a target model's own text, at every output position.
//!
//! `foretoken profile-acceptance` records a table. A simulation replays it in one of two ways: as a trace (format
//! `truth-table`), with the lengths of the table's requests, or assigned to the requests of another workload
//! ([`TruthTable::assign`]).

mod assign;
pub mod by_category;
mod file;
pub mod speculation_profile;
mod summary;

pub use by_category::{DEPTHS, Depth};
pub use file::KIND;
pub(crate) use file::is_truth_table;
pub use summary::{CalibrationBin, FamilySummary, RankShare, TruthSummary};

use foretoken_sim::Recording;
use serde::{Deserialize, Serialize};

/// The number of the layout of truth-table files (which draft tokens were right). This crate writes and reads only this
/// layout. The number is the eighth byte of the file.
pub const SCHEMA_VERSION: u8 = b'2';

/// A recorded confidence of a draft token is stored as a number of steps of 1/65,535, rounded to the nearest and at
/// least 1. The error is at most 8e-6, except for confidences below half a step.
pub const CONFIDENCE_STEPS: u16 = u16::MAX;

/// Which guesses of a draft model were right at every position of a target model's outputs, with a header about the
/// recording.
#[derive(Clone, Debug, PartialEq)]
pub struct TruthTable {
    /// The models, the device and the prompts with which the table was recorded.
    pub header: TruthHeader,
    /// One entry for each output of the target model, in the order of the prompts.
    pub outputs: Vec<RecordedOutput>,
}

/// What a truth table was recorded with: the models, the device and the prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TruthHeader {
    /// Version of Foretoken that wrote the table.
    pub foretoken: String,
    /// The target model, which generated the outputs.
    pub target: RecordedModel,
    /// The draft model, whose guesses were compared with the target's outputs.
    pub draft: RecordedModel,
    /// A description of the device that ran the draft model and the target model.
    pub device: String,
    /// A description of the source of the prompts.
    pub prompts: String,
    /// BLAKE3 of the prompts' tokens, in hexadecimal.
    pub prompts_digest: String,
    /// Softmax temperature of the target; 0 is greedy.
    pub temperature: f64,
    /// Names of the families (kinds of tasks) of the prompts.
    pub families: Vec<String>,
    /// Set if the table comes from an observed server and not from `foretoken profile-acceptance`. Then it is unknown
    /// at some positions whether a draft token would have been right, a rank says only right, wrong or not drafted, and
    /// there are no confidences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedTruth>,
}

/// What can be observed about a server's draft tokens: for each position with a draft token, whether it was right. At
/// the position right after a step whose draft tokens were all accepted, nothing was drafted, so this position is
/// unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObservedTruth {
    /// The draft lengths, in tokens per request and step, with which the server was observed.
    pub lengths: Vec<u32>,
    /// The probabilities with which a simulation draws whether a draft token at an unknown position is right: P(draft
    /// token i of a request's step is right | its draft tokens 1 to i − 1 were right), i = 1, 2, …. The last value
    /// holds for all later i.
    pub hazards: Vec<f64>,
    /// Number of values at the start of `hazards` (probabilities that a draft token is right) that come from observed
    /// steps. The later values are extrapolated.
    pub seen: usize,
}

/// The rank that marks, in the truth table of an observed server, an output position at which nothing was drafted.
pub const NOT_DRAFTED: u8 = 0;

/// The target model or the draft model with which a truth table was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedModel {
    /// Name of the model's preset, or path of its folder.
    pub name: String,
    /// Type in which the model's weights were stored.
    pub dtype: String,
    /// BLAKE3 of the model's weights and shape, in hexadecimal.
    pub digest: String,
}

/// One recorded output of the target model, with the draft model's guesses at each position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedOutput {
    /// The family of the prompt, as an index into [`TruthHeader::families`].
    pub family: u16,
    /// Number of tokens of the output's prompt.
    pub prompt_len: u32,
    /// For each output position, the rank of the target's token among the draft model's guesses, from 1. 255 stands for
    /// all ranks from 255 on. In the table of an observed server 1 is right, 255 is wrong, and [`NOT_DRAFTED`] is not
    /// drafted.
    pub ranks: Vec<u8>,
    /// For each output position, the draft model's probability of its first guess, in steps of 1/65,535, from 1 on. The
    /// table of an observed server has instead, where nothing was drafted, the probability that a draft token would be
    /// right for this output. It has 0 at the other positions, and everywhere if this probability was not estimated.
    pub confidences: Vec<u16>,
}

impl RecordedOutput {
    /// Makes a recorded output. `ranks` has the rank of the target's token among the draft model's guesses at every
    /// output position, `confidences` the probability (0, 1] of the first guess. Panics if the two lists have different
    /// lengths.
    pub fn new(family: u16, prompt_len: u32, ranks: Vec<u8>, confidences: &[f32]) -> RecordedOutput {
        assert_eq!(ranks.len(), confidences.len(), "ranks and confidences");
        let steps = f32::from(CONFIDENCE_STEPS);
        let confidences = confidences.iter().map(|c| ((c * steps).round() as u16).max(1)).collect();
        RecordedOutput { family, prompt_len, ranks, confidences }
    }

    /// The draft model's probability of its first guess at an output position, (0, 1]. In the table of an observed
    /// server, see [`confidences`](Self::confidences).
    pub fn confidence(&self, position: usize) -> f32 {
        f32::from(self.confidences[position]) / f32::from(CONFIDENCE_STEPS)
    }

    /// Makes a recorded output of an observed server. `bits` says for each output position whether the draft token was
    /// right; `None` where nothing was drafted.
    pub fn observed(family: u16, prompt_len: u32, bits: &[Option<bool>]) -> RecordedOutput {
        let rank = |bit: &Option<bool>| match bit {
            None => NOT_DRAFTED,
            Some(true) => 1,
            Some(false) => u8::MAX,
        };
        RecordedOutput { family, prompt_len, ranks: bits.iter().map(rank).collect(), confidences: vec![0; bits.len()] }
    }

    /// Sets, for an output of an observed server, the probability that a draft token is right, at each position where
    /// nothing was drafted. `chance` gives it from the number of right positions directly before.
    pub fn set_chances(&mut self, chance: impl Fn(u8) -> f64) {
        let before = observed_recording(self).accepted_before;
        for ((step, &rank), before) in self.confidences.iter_mut().zip(&self.ranks).zip(before) {
            if rank == NOT_DRAFTED {
                *step = ((chance(before) * f64::from(CONFIDENCE_STEPS)).round() as u16).max(1);
            }
        }
    }

    /// Adds `by` to the log-odds of the probabilities that [`set_chances`](Self::set_chances) set.
    pub fn move_chances(&mut self, by: f64) {
        let most = f64::from(CONFIDENCE_STEPS);
        for step in self.confidences.iter_mut().filter(|step| **step > 0) {
            let odds = f64::from(*step) / (most - f64::from(*step)).max(0.5) * by.exp();
            *step = ((most * odds / (1.0 + odds)).round() as u16).max(1);
        }
    }

    /// Simulates a server with the fixed draft length `k` on this output, and calls `each` with the number of accepted
    /// draft tokens of every step. The first step starts at output position 1, because the prefill gives position 0. A
    /// step with n accepted draft tokens emits n + 1 tokens; the next step starts after them. Draft tokens beyond the
    /// output's end are not accepted.
    fn rounds(&self, k: usize, mut each: impl FnMut(usize)) {
        let mut at = 1;
        while at < self.ranks.len() {
            let accepted = self.ranks[at..].iter().take(k).take_while(|&&rank| rank == 1).count();
            each(accepted);
            at += accepted + 1;
        }
    }
}

impl TruthTable {
    /// The probability that a draft token at an unknown position is right, by its place among the draft tokens of its
    /// step. Empty if the table has no unknown positions.
    pub(crate) fn hazards(&self) -> Vec<f64> {
        self.header.observed.as_ref().map_or_else(Vec::new, |observed| observed.hazards.clone())
    }

    /// All outputs of the truth table as recordings (which draft tokens were right) that a workload's requests can
    /// replay.
    pub fn recordings(&self) -> Vec<Recording> {
        self.outputs.iter().map(|output| recording(output, self.header.observed.is_some())).collect()
    }
}

fn recording(output: &RecordedOutput, observed: bool) -> Recording {
    if observed {
        return observed_recording(output);
    }
    Recording {
        bits: output.ranks.iter().map(|&rank| Some(rank == 1)).collect(),
        accepted_before: vec![0; output.ranks.len()],
        ranks: output.ranks.clone(),
        confidences: (0..output.ranks.len()).map(|n| output.confidence(n)).collect(),
        ..Recording::default()
    }
}

/// An output in the table of an observed server, as a recording (which draft tokens were right) that a request can
/// replay. At an unknown position, `accepted_before` is the number of right positions directly before it.
pub fn observed_recording(output: &RecordedOutput) -> Recording {
    let ranks = &output.ranks;
    let mut accepted_before = vec![0; ranks.len()];
    let mut run = 0u8;
    for (before, &rank) in accepted_before.iter_mut().zip(ranks) {
        match rank {
            1 => run = run.saturating_add(1),
            NOT_DRAFTED => *before = std::mem::take(&mut run),
            _ => run = 0,
        }
    }
    let bit = |&rank: &u8| (rank != NOT_DRAFTED).then_some(rank == 1);
    let estimated = output.confidences.iter().any(|&step| step > 0);
    let chances = if estimated { (0..ranks.len()).map(|n| output.confidence(n)).collect() } else { Vec::new() };
    Recording { bits: ranks.iter().map(bit).collect(), accepted_before, chances, ..Recording::default() }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
