//! Truth tables: what a draft got right on a target's own text, at every output position.
//!
//! `foretoken profile-acceptance` records one; a simulation replays it as a workload's recordings, either with the
//! lengths of its requests (a trace of the format `truth-table`) or dealt out to another workload ([`TruthTable::assign`]).

mod assign;
mod file;
mod summary;

pub(crate) use file::is_truth_table;
pub use summary::{CalibrationBin, DEPTHS, Depth, FamilySummary, RankShare, TruthSummary};

use foretoken_sim::Recording;
use serde::{Deserialize, Serialize};

/// The layout that this crate writes, and the only one it reads: the eighth byte of the file.
pub const SCHEMA_VERSION: u8 = b'2';

/// Steps of a recorded confidence: it is stored as a whole number of 65,535ths, rounded to the nearest and at least one, so
/// it is off by at most 8e-6 where it is not that small.
pub const CONFIDENCE_STEPS: u16 = u16::MAX;

/// A recording of a pair of models.
#[derive(Clone, Debug, PartialEq)]
pub struct TruthTable {
    /// What was recorded.
    pub header: TruthHeader,
    /// One an output, in the order of the prompts.
    pub outputs: Vec<RecordedOutput>,
}

/// What was recorded, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TruthHeader {
    /// Version of Foretoken that wrote it.
    pub foretoken: String,
    /// The model whose text it is.
    pub target: RecordedModel,
    /// The model whose guesses were compared with it.
    pub draft: RecordedModel,
    /// The device both ran on, in words.
    pub device: String,
    /// Where the prompts come from, in words.
    pub prompts: String,
    /// BLAKE3 of the prompts' tokens, in hexadecimal.
    pub prompts_digest: String,
    /// Softmax temperature of the target; 0 is greedy.
    pub temperature: f64,
    /// Names of the families of prompts.
    pub families: Vec<String>,
    /// What is known of it, where a server was observed and not a pair profiled: then positions may be unknown, and there are no
    /// ranks and no confidences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedTruth>,
}

/// What a server lets see of its draft: at each position that was drafted whether it was right. Behind a round in which everything was
/// accepted stands a position that nobody drafted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObservedTruth {
    /// The draft lengths that were observed.
    pub lengths: Vec<u32>,
    /// P(right | i − 1 drafts of the round were accepted), i = 1, 2, …: of the unknown positions. The last one repeats.
    pub hazards: Vec<f64>,
    /// How many of the hazards were observed; the others are extrapolated.
    pub seen: usize,
}

/// The rank of a position at which nothing was drafted, in observed tables.
pub const NOT_DRAFTED: u8 = 0;

/// A model of the pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedModel {
    /// A preset's name or a folder.
    pub name: String,
    /// The type its weights were kept in.
    pub dtype: String,
    /// BLAKE3 of its weights and shape, in hexadecimal.
    pub digest: String,
}

/// One output of the target, as the draft saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedOutput {
    /// Index into [`TruthHeader::families`].
    pub family: u16,
    /// Tokens of the prompt.
    pub prompt_len: u32,
    /// At each output position, which guess of the draft the target's token is: 1 the first; 255 is that or a later one.
    pub ranks: Vec<u8>,
    /// At each output position, the draft's probability of its first guess in steps of 1/65,535; at least 1.
    pub confidences: Vec<u16>,
}

impl RecordedOutput {
    /// Of ranks and confidences in (0, 1], one an output position.
    pub fn new(family: u16, prompt_len: u32, ranks: Vec<u8>, confidences: &[f32]) -> RecordedOutput {
        assert_eq!(ranks.len(), confidences.len(), "ranks and confidences");
        let steps = f32::from(CONFIDENCE_STEPS);
        let confidences = confidences.iter().map(|c| ((c * steps).round() as u16).max(1)).collect();
        RecordedOutput { family, prompt_len, ranks, confidences }
    }

    /// The confidence at an output position, (0, 1].
    pub fn confidence(&self, position: usize) -> f32 {
        f32::from(self.confidences[position]) / f32::from(CONFIDENCE_STEPS)
    }

    /// Of what a server was seen to accept: whether it was right at each output position, `None` where nothing was drafted.
    pub fn observed(family: u16, prompt_len: u32, bits: &[Option<bool>]) -> RecordedOutput {
        let rank = |bit: &Option<bool>| match bit {
            None => NOT_DRAFTED,
            Some(true) => 1,
            Some(false) => u8::MAX,
        };
        RecordedOutput { family, prompt_len, ranks: bits.iter().map(rank).collect(), confidences: vec![0; bits.len()] }
    }

    /// Calls `each` with the tokens accepted in every round of a fixed length `k`, one round after the other, as a server
    /// has them: the first starts at output position 1, since the prefill itself gives position 0, and a round moves on by
    /// what was accepted and one. Behind the end nothing is right.
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
    /// P(right) of what the recordings leave unknown, by position in a round; empty for a table that leaves nothing.
    pub(crate) fn hazards(&self) -> Vec<f64> {
        self.header.observed.as_ref().map_or_else(Vec::new, |observed| observed.hazards.clone())
    }

    /// The recordings, as a workload holds them.
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
    }
}

/// An output of an observed table as a recording. How many were accepted before an unknown position is how many right ones stand directly
/// before it.
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
    Recording { bits: ranks.iter().map(bit).collect(), accepted_before, ranks: Vec::new(), confidences: Vec::new() }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
