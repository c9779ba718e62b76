//! Errors of predicted pass times, by kind of pass. Each observed pass is predicted from its own shape with the costs
//! alone: no schedule and no acceptance take part.

use foretoken_profiler::Region;
use serde::{Deserialize, Serialize};

/// A kind of pass, by model and work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PassKind {
    /// Target: one token per request.
    Decode,
    /// Target: drafts to verify.
    Verify,
    /// Target: over 64 tokens without a prompt.
    Wide,
    /// Target: with a chunk of a prompt.
    Prefill,
    /// Draft: tokens of decoding requests.
    Draft,
    /// Draft: with a chunk of a prompt.
    DraftPrefill,
}

impl PassKind {
    /// All kinds of passes.
    pub const ALL: [PassKind; 6] = [
        PassKind::Decode,
        PassKind::Verify,
        PassKind::Wide,
        PassKind::Prefill,
        PassKind::Draft,
        PassKind::DraftPrefill,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            PassKind::Decode => "target, decode",
            PassKind::Verify => "target, verify",
            PassKind::Wide => "target, over 64 tokens",
            PassKind::Prefill => "target, with prompts",
            PassKind::Draft => "draft",
            PassKind::DraftPrefill => "draft, with prompts",
        }
    }
}

/// The kind of a target pass in this region of a profile.
impl From<Region> for PassKind {
    fn from(region: Region) -> PassKind {
        match region {
            Region::Decode => PassKind::Decode,
            Region::Verify => PassKind::Verify,
            Region::Wide => PassKind::Wide,
            Region::Prefill => PassKind::Prefill,
        }
    }
}

/// The errors of all passes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PassErrors {
    /// The kind of pass.
    pub region: PassKind,
    /// Number of passes.
    pub passes: u64,
    /// Share of this kind in the time of all passes.
    pub share: f64,
    /// Mean measured time, in seconds.
    pub live_s: f64,
    /// Mean predicted time, in seconds.
    pub predicted_s: f64,
    /// Error of the sum: predicted over measured, minus 1.
    pub error: f64,
    /// Mean relative error of single passes, without sign.
    pub mean_absolute_error: f64,
}

/// Sums of measured and predicted times, by kind of pass.
#[derive(Clone, Copy, Default)]
pub struct PassTimes([Sums; PassKind::ALL.len()]);

#[derive(Clone, Copy, Default)]
struct Sums {
    passes: u64,
    measured_s: f64,
    predicted_s: f64,
    /// Sum of the relative errors without sign.
    errors: f64,
}

impl PassTimes {
    /// Adds a pass.
    pub fn add(&mut self, kind: PassKind, measured_s: f64, predicted_s: f64) {
        let sums = &mut self.0[kind as usize];
        sums.passes += 1;
        sums.measured_s += measured_s;
        sums.predicted_s += predicted_s;
        sums.errors += (predicted_s / measured_s.max(1e-12) - 1.0).abs();
    }

    /// Adds the passes of a cell, from their errors.
    fn add_errors(&mut self, errors: &PassErrors) {
        let (sums, n) = (&mut self.0[errors.region as usize], errors.passes as f64);
        sums.passes += errors.passes;
        sums.measured_s += n * errors.live_s;
        sums.predicted_s += n * errors.predicted_s;
        sums.errors += n * errors.mean_absolute_error;
    }

    /// The errors of each kind that has passes.
    pub fn errors(&self) -> Vec<PassErrors> {
        let total: f64 = self.0.iter().map(|s| s.measured_s).sum();
        let errors = |(&region, s): (&PassKind, &Sums)| {
            let n = s.passes as f64;
            (s.passes > 0).then(|| PassErrors {
                region,
                passes: s.passes,
                share: s.measured_s / total,
                live_s: s.measured_s / n,
                predicted_s: s.predicted_s / n,
                error: s.predicted_s / s.measured_s - 1.0,
                mean_absolute_error: s.errors / n,
            })
        };
        PassKind::ALL.iter().zip(&self.0).filter_map(errors).collect()
    }
}

/// The errors over several cells.
pub fn over_cells<'a>(cells: impl IntoIterator<Item = &'a [PassErrors]>) -> Vec<PassErrors> {
    let mut sums = PassTimes::default();
    cells.into_iter().flatten().for_each(|errors| sums.add_errors(errors));
    sums.errors()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes() -> PassTimes {
        let mut times = PassTimes::default();
        times.add(PassKind::Verify, 100e-6, 70e-6);
        times.add(PassKind::Draft, 10e-6, 11e-6);
        times.add(PassKind::Draft, 10e-6, 11e-6);
        times
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn errors_are_of_sums_and_of_single_passes() {
        let errors = passes().errors();
        assert_eq!(errors.iter().map(|e| e.region).collect::<Vec<_>>(), [PassKind::Verify, PassKind::Draft]);
        assert!(close(errors[0].error, -0.3) && close(errors[0].share, 100.0 / 120.0), "{errors:?}");
        assert!(close(errors[1].error, 0.1) && close(errors[1].mean_absolute_error, 0.1), "{errors:?}");
    }

    #[test]
    fn two_cells_with_equal_passes_have_the_errors_of_one() {
        let one = passes().errors();
        for (a, b) in one.iter().zip(&over_cells([&one[..], &one])) {
            assert_eq!(b.passes, 2 * a.passes);
            assert!(close(a.error, b.error) && close(a.live_s, b.live_s) && close(a.share, b.share), "{a:?} {b:?}");
        }
    }
}
