//! The summary of a table: acceptance by depth and family, ranks, and how well the draft's confidence is calibrated.
//! All numbers are counted from the recorded table; no model is used.

use super::by_category::{CategoryAcceptance, DEPTHS, Depth};
use super::{RecordedOutput, TruthTable};
use serde::Serialize;

/// Number of bins of equal width of the calibration curve.
const BINS: usize = 10;
/// Ranks are counted in groups. Each entry is the last rank of a group.
const RANKS: [u8; 8] = [1, 2, 3, 4, 8, 16, 64, 255];

/// The summary of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TruthSummary {
    /// Source of the numbers: always `recorded`.
    pub source: &'static str,
    /// All outputs together, then each family with outputs.
    pub families: Vec<FamilySummary>,
    /// Acceptance of each family by depth and by context.
    pub categories: Vec<CategoryAcceptance>,
    /// Share of positions by the rank of the right guess.
    pub ranks: Vec<RankShare>,
    /// Bins of the draft's confidence with at least one position.
    pub calibration: Vec<CalibrationBin>,
    /// Expected calibration error: the mean, weighted by positions, of the distance between a bin's mean confidence and
    /// its share of right drafts (Guo et al., arXiv 1706.04599, eq. 3).
    pub expected_calibration_error: f64,
}

/// Acceptance on one family of prompts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilySummary {
    /// Name of the family; `all` for all outputs.
    pub family: String,
    /// Number of outputs.
    pub outputs: u64,
    /// Number of output positions that a draft can predict. These are all but the first of each output, which the
    /// prefill gives.
    pub positions: u64,
    /// Share of the `positions` at which the draft's first guess is right.
    pub right: f64,
    /// Acceptance by depth, in rounds of length [`DEPTHS`].
    pub depths: Vec<Depth>,
    /// Mean number of tokens that a round emits, the target's own token included, for fixed draft lengths of 1 to
    /// [`DEPTHS`]. Drafts beyond the end of an output are never accepted.
    pub mean_acceptance_length: Vec<f64>,
}

/// The share of positions at which the rank of the target's token is in a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RankShare {
    /// First rank of the group.
    pub from: u8,
    /// Last rank of the group; 255 stands for all later ranks too.
    pub to: u8,
    /// Share of the positions that a draft can predict (all but the first of each output) that have a rank of this
    /// group.
    pub share: f64,
}

/// Positions with about equal confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CalibrationBin {
    /// Lower end of the bin, exclusive.
    pub from: f64,
    /// Upper end of the bin, inclusive.
    pub to: f64,
    /// Number of positions in the bin.
    pub positions: u64,
    /// Mean confidence at the bin's positions.
    pub confidence: f64,
    /// Share of the bin's positions at which the draft's first guess is right.
    pub right: f64,
}

impl TruthTable {
    /// Computes the summary of all recorded outputs.
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
    // `ended[a]`: number of rounds of length `DEPTHS` that accepted `a` tokens.
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
