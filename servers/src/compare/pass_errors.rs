//! Errors of predicted pass times, by kind of pass. The cost model alone predicts the time of each observed pass from
//! the pass's shape. No schedule and no acceptance are simulated.

use foretoken_profiler::Region;
use serde::{Deserialize, Serialize};

/// A kind of pass, by the model (target model or draft model) and the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PassKind {
    /// A target pass with one token per request.
    Decode,
    /// A target pass with draft tokens to verify.
    Verify,
    /// A target pass with over 64 tokens and without a prompt's tokens.
    Wide,
    /// A target pass with a chunk of a prompt.
    Prefill,
    /// A draft pass over tokens of decoding requests only.
    Draft,
    /// A draft pass with a chunk of a prompt.
    DraftPrefill,
}

impl PassKind {
    /// All kinds of model passes, in the order of tables.
    pub const ALL: [PassKind; 6] = [
        PassKind::Decode,
        PassKind::Verify,
        PassKind::Wide,
        PassKind::Prefill,
        PassKind::Draft,
        PassKind::DraftPrefill,
    ];

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

/// Converts a region of a profile to a kind of pass. (A profile divides target passes into regions by their work:
/// decode, verify, wide, prefill.)
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

/// The errors of the predicted times of all passes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PassErrors {
    pub region: PassKind,
    /// Number of passes of this kind (such as verify) in the live runs.
    pub passes: u64,
    /// The part of the measured time of all passes that the passes of this kind took, as a share.
    pub share: f64,
    /// Mean measured time of a pass of this kind, seconds.
    pub live_s: f64,
    /// Mean predicted time of a pass of this kind, seconds.
    pub predicted_s: f64,
    /// Error of the time of all passes of this kind together: predicted / measured − 1.
    pub error: f64,
    /// Mean absolute relative error of the predicted times of single passes of this kind.
    pub mean_absolute_error: f64,
}

#[derive(Clone, Copy, Default)]
pub struct PassTimes([Sums; PassKind::ALL.len()]);

#[derive(Clone, Copy, Default)]
struct Sums {
    passes: u64,
    measured_s: f64,
    predicted_s: f64,
    /// Sum over passes of the absolute relative error of the predicted time.
    errors: f64,
}

impl PassTimes {
    pub fn add(&mut self, kind: PassKind, measured_s: f64, predicted_s: f64) {
        let sums = &mut self.0[kind as usize];
        sums.passes += 1;
        sums.measured_s += measured_s;
        sums.predicted_s += predicted_s;
        sums.errors += (predicted_s / measured_s.max(1e-12) - 1.0).abs();
    }

    /// Adds the passes of a cell that are already summed up in `errors`.
    fn add_errors(&mut self, errors: &PassErrors) {
        let (sums, n) = (&mut self.0[errors.region as usize], errors.passes as f64);
        sums.passes += errors.passes;
        sums.measured_s += n * errors.live_s;
        sums.predicted_s += n * errors.predicted_s;
        sums.errors += n * errors.mean_absolute_error;
    }

    /// The errors of predicted times, for each kind of pass that occurred.
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

/// The errors by kind of pass over several cells, given as the errors of each cell.
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
