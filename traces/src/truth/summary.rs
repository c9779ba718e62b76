//! The summary of a truth table (which draft tokens were right on recorded outputs): how often draft tokens are
//! accepted by depth and family of prompts, the ranks of the target's tokens, and how well the draft model's confidence
//! is calibrated. All numbers are counted from the recorded table; no model is used.

use super::by_category::{CategoryAcceptance, DEPTHS, Depth};
use super::{RecordedOutput, TruthTable};
use serde::Serialize;

/// Number of bins of confidence, of equal width, in the calibration curve (share of right draft tokens by confidence).
const BINS: usize = 10;
/// Output positions are counted by groups of ranks of the target's token among the draft model's guesses. Each entry is
/// the last rank of a group.
const RANKS: [u8; 8] = [1, 2, 3, 4, 8, 16, 64, 255];

/// The summary of a truth table: how often draft tokens are accepted, ranks of the target's tokens, and the calibration
/// of confidences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TruthSummary {
    /// Where the numbers of the summary come from: always `recorded`.
    pub source: &'static str,
    /// The acceptance on all outputs of the table together, then on each family (kind of task) with outputs.
    pub families: Vec<FamilySummary>,
    /// Acceptance of the draft tokens in each family's outputs, by depth and by context length.
    pub categories: Vec<CategoryAcceptance>,
    /// Share of output positions in each group of ranks of the target's token among the draft model's guesses.
    pub ranks: Vec<RankShare>,
    /// Calibration of the draft model's confidence: one entry for each bin of confidence with at least one output
    /// position.
    pub calibration: Vec<CalibrationBin>,
    /// Expected calibration error of the draft model: the mean, weighted by output positions, of the distance between a
    /// bin's mean confidence and its share of right draft tokens (Guo et al., arXiv 1706.04599, eq. 3).
    pub expected_calibration_error: f64,
}

/// How often draft tokens are accepted on the outputs of one family (kind of task) of prompts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilySummary {
    /// Name of the family (kind of task); `all` for all outputs.
    pub family: String,
    /// Number of recorded outputs of the family.
    pub outputs: u64,
    /// Number of output positions for which a draft token can exist: all but the first of each output, which the
    /// prefill gives.
    pub positions: u64,
    /// Share of the `positions` at which the draft model's first guess is right.
    pub right: f64,
    /// Acceptance by depth (a draft token's place among its request's draft tokens of a step), with [`DEPTHS`] draft
    /// tokens per step.
    pub depths: Vec<Depth>,
    /// Mean number of tokens that a request emits in a step, the target's own token included, for fixed draft lengths
    /// of 1 to [`DEPTHS`]. Draft tokens beyond the end of an output are never accepted.
    pub mean_acceptance_length: Vec<f64>,
}

/// The share of output positions at which the rank of the target's token among the draft model's guesses is in a group
/// of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RankShare {
    /// First rank of the group of ranks, counted from 1.
    pub from: u8,
    /// Last rank of the group of ranks; 255 stands for all later ranks too.
    pub to: u8,
    /// Share of output positions whose rank is in this group. The first position of each output does not count, because
    /// it has no draft token.
    pub share: f64,
}

/// The output positions at which the draft model's confidence is in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CalibrationBin {
    /// Lower end of the bin of confidence, exclusive.
    pub from: f64,
    /// Upper end of the bin of confidence, inclusive.
    pub to: f64,
    /// Number of output positions at which the draft model's confidence is in the bin.
    pub positions: u64,
    /// Mean confidence of the draft model at the output positions of the bin.
    pub confidence: f64,
    /// Share of the bin's output positions at which the draft model's first guess is right.
    pub right: f64,
}

impl TruthTable {
    /// Computes the summary (acceptance, ranks, calibration of confidences) of all outputs in the truth table.
    pub fn summary(&self) -> TruthSummary {
        let all: Vec<&RecordedOutput> = self.outputs.iter().collect();
        let mut families = vec![family("all", &all)];
        for (i, name) in self.header.families.iter().enumerate() {
            let own: Vec<&RecordedOutput> = all.iter().copied().filter(|o| usize::from(o.family) == i).collect();
            if !own.is_empty() {
                families.push(family(name, &own));
            }
        }
        let calibration = calibration(&all);
        let positions: u64 = calibration.iter().map(|b| b.positions).sum();
        let off = |b: &CalibrationBin| b.positions as f64 * (b.confidence - b.right).abs();
        TruthSummary {
            source: "recorded",
            families,
            categories: self.by_category(),
            ranks: ranks(&all),
            expected_calibration_error: share(calibration.iter().map(off).sum(), positions),
            calibration,
        }
    }
}

fn share(part: f64, of: u64) -> f64 {
    part / of.max(1) as f64
}

fn drafted<'a>(outputs: &'a [&RecordedOutput]) -> impl Iterator<Item = (u8, f64)> + 'a {
    outputs.iter().flat_map(|o| (1..o.ranks.len()).map(|n| (o.ranks[n], f64::from(o.confidence(n)))))
}

fn family(name: &str, outputs: &[&RecordedOutput]) -> FamilySummary {
    let positions = drafted(outputs).count() as u64;
    let right = drafted(outputs).filter(|p| p.0 == 1).count();
    // `ended[a]` is the number of steps with `DEPTHS` draft tokens of which the first `a` were accepted.
    let mut ended = [0u64; DEPTHS + 1];
    outputs.iter().for_each(|o| o.rounds(DEPTHS, |accepted| ended[accepted] += 1));
    let depth = |d: usize| {
        let at_least = |n: usize| ended[n..].iter().sum::<u64>();
        let (reached, accepted) = (at_least(d), at_least(d + 1));
        let rate = (reached > 0).then(|| accepted as f64 / reached as f64);
        Depth { depth: d as u32 + 1, reached, accepted, rate }
    };
    let mean_length = |k: usize| {
        let (mut rounds, mut accepted) = (0u64, 0);
        outputs.iter().for_each(|o| {
            o.rounds(k, |a| {
                rounds += 1;
                accepted += a as u64;
            });
        });
        1.0 + share(accepted as f64, rounds)
    };
    FamilySummary {
        family: name.to_owned(),
        outputs: outputs.len() as u64,
        positions,
        right: share(right as f64, positions),
        depths: (0..DEPTHS).map(depth).collect(),
        mean_acceptance_length: (1..=DEPTHS).map(mean_length).collect(),
    }
}

fn ranks(outputs: &[&RecordedOutput]) -> Vec<RankShare> {
    let mut counts = [0u64; RANKS.len()];
    drafted(outputs).for_each(|(rank, _)| counts[RANKS.partition_point(|&last| last < rank)] += 1);
    let positions = counts.iter().sum();
    let firsts = std::iter::once(1).chain(RANKS.iter().map(|&last| last.saturating_add(1)));
    let groups = firsts.zip(RANKS).zip(counts);
    groups.map(|((from, to), n)| RankShare { from, to, share: share(n as f64, positions) }).collect()
}

fn calibration(outputs: &[&RecordedOutput]) -> Vec<CalibrationBin> {
    let mut bins = [(0u64, 0.0, 0u64); BINS];
    for (rank, confidence) in drafted(outputs) {
        let bin = &mut bins[((confidence * BINS as f64).ceil() as usize).clamp(1, BINS) - 1];
        *bin = (bin.0 + 1, bin.1 + confidence, bin.2 + u64::from(rank == 1));
    }
    let edge = |i: usize| i as f64 / BINS as f64;
    let bin = |(i, (n, sum, right)): (usize, (u64, f64, u64))| CalibrationBin {
        from: edge(i),
        to: edge(i + 1),
        positions: n,
        confidence: share(sum, n),
        right: share(right as f64, n),
    };
    bins.into_iter().enumerate().filter(|(_, b)| b.0 > 0).map(bin).collect()
}
