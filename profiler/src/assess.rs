//! Fits the costs of one model's passes to the measured times of passes of many shapes. Measures the errors of the fits
//! on shapes to which they were not fitted. Reports why a fit is not trusted.

use crate::fit::{FitError, Sample};
use crate::linear::{fit_linear, fit_ols};
use crate::profile::{ByRegion, Errors, Measurement, ModelInfo, ModelProfile, Range};
use crate::shapes::{Region, Role, Shape};
use crate::table::fit_table;
use foretoken_sim::{ContextReads, LatencyModel, Luck, PassShape, Stream};

/// A model's α, γ and δ (the linear cost of a pass) are trusted if their mean relative error on held-out shapes is at
/// most this bound, both for decode passes and for verification passes. A held-out shape is one to which they were not
/// fitted.
pub const TRUSTED_ERROR: f64 = 0.10;
/// Bound for the mean relative error of a fitted table of pass times on held-out shapes (shapes to which it was not
/// fitted). If the error exceeds the bound, the profile gets a note, but stays trusted. The bound is the larger of this
/// number and twice the machine's repeatability (the mean relative difference between two measurements of a shape).
pub const TABLE_ERROR: f64 = 0.05;

/// A pass whose time is above this multiple of the median counts as interrupted by another process. Means leave out
/// such passes.
pub const INTERRUPTED: f64 = 3.0;

/// The measured times of the passes of one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    pub shape: Shape,
    /// Seconds of each timed pass, in one list per visit. A visit is a few passes of the shape in a row.
    pub visits: Vec<Vec<f64>>,
}

impl Timed {
    /// Median time of all timed passes of the shape, seconds.
    pub fn median(&self) -> f64 {
        median(self.all())
    }

    /// Mean time of the shape's timed passes, without interrupted passes ([`INTERRUPTED`]), seconds. Costs are means
    /// and not medians, because times are skewed: the total time of many passes is their number times the mean.
    pub fn mean(&self) -> f64 {
        uninterrupted_mean(&self.all())
    }

    /// Robust coefficient of variation of the times of the shape's passes: 1.4826 · median absolute deviation / median.
    /// For normally distributed times it equals standard deviation / mean.
    pub fn spread(&self) -> f64 {
        let middle = self.median();
        1.4826 * median(self.all().into_iter().map(|x| (x - middle).abs()).collect()) / middle
    }

    /// Relative difference between two measurements of the shape. The shape's visits are divided into a first and a
    /// second half. The result is the difference between the medians of the two halves, divided by the mean of these
    /// medians. `None` with fewer than two visits.
    pub fn repeatability(&self) -> Option<f64> {
        let (first, second) = self.visits.split_at(self.visits.len() / 2);
        if first.is_empty() {
            return None;
        }
        let (a, b) = (median(first.concat()), median(second.concat()));
        Some((a - b).abs() / ((a + b) / 2.0))
    }

    fn all(&self) -> Vec<f64> {
        self.visits.iter().flatten().copied().collect()
    }
}

/// The median of the values in `x`; NaN without values.
pub fn median(mut x: Vec<f64>) -> f64 {
    x.sort_unstable_by(f64::total_cmp);
    match x.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => x[n / 2],
        n => (x[n / 2 - 1] + x[n / 2]) / 2.0,
    }
}

/// Number of folds of the cross-validation. The times of each fold are predicted by a fit to all other folds. Every
/// shape is therefore held out once, except the shapes of fold 0 (see [`folds`]).
pub const FOLDS: u8 = 5;

/// Gives each shape its cross-validation fold. The shapes of fold 0 are used in every fit, so that no fit has to
/// extrapolate. They are the shapes with the most new tokens, context tokens or query-key pairs, and each shape whose
/// number of tokens no other shape has. `seed` distributes the remaining shapes of each region evenly over the folds 1
/// to [`FOLDS`].
pub fn folds(shapes: &[Shape], seed: u64, role: Role) -> Vec<u8> {
    let luck = Luck::new(seed, Stream::Profile, 1 + role as u64);
    let mut folds = vec![0; shapes.len()];
    let ends: [fn(&Shape) -> u64; 3] =
        [Shape::batched, |s| s.pass(ContextReads::Once).context, |s| s.pass(ContextReads::Once).pairs];
    let is_end = |s: &Shape| ends.iter().any(|size| shapes.iter().all(|other| size(other) <= size(s)));
    let mut all = [0; FOLDS as usize];
    for region in Region::ALL {
        let mut own: Vec<usize> = (0..shapes.len()).filter(|&i| shapes[i].region() == region).collect();
        own.sort_by_key(|&i| luck.bits(i as u64));
        let mut sizes = [0; FOLDS as usize];
        for i in own.into_iter().filter(|&i| !is_end(&shapes[i])) {
            // This shape is predicted by the fit that leaves out the shape's fold. Another shape with the same number
            // of tokens must be in a different fold, so that this fit uses the other shape.
            let alike = |j: &usize| *j != i && shapes[*j].batched() == shapes[i].batched();
            let seen = |fold: u8| (0..shapes.len()).filter(alike).any(|j| folds[j] != fold);
            let size = |fold: &u8| (sizes[*fold as usize - 1], all[*fold as usize - 1]);
            if let Some(fold) = (1..=FOLDS).filter(|&fold| seen(fold)).min_by_key(size) {
                folds[i] = fold;
                sizes[fold as usize - 1] += 1;
                all[fold as usize - 1] += 1;
            }
        }
    }
    folds
}

/// Fits the costs of one model's passes (α, γ, δ and a table), and measures the errors of the fits. The returned fits
/// use all shapes. The error on a shape comes from a fit without the shape's fold. `reads` says how α counts the
/// context of a pass: once per request, or once per new token. The fitted table of pass times counts context once per
/// request; its other inputs are new tokens and query-key pairs. `borders` are captured CUDA-graph sizes, after which
/// pass times jump.
pub fn assess(
    role: Role,
    model: ModelInfo,
    timed: &[Timed],
    reads: ContextReads,
    seed: u64,
    borders: &[u32],
) -> Result<ModelProfile, FitError> {
    let shapes: Vec<Shape> = timed.iter().map(|t| t.shape).collect();
    let measured: Vec<Measurement> =
        timed.iter().zip(folds(&shapes, seed, role)).map(|(t, fold)| measurement(t, fold)).collect();
    let passes = |without: u8| {
        let seen = move |m: &&Measurement| without == 0 || m.fold != without;
        measured.iter().filter(seen).map(|m| (m.shape.pass(ContextReads::Once), m.seconds)).collect::<Vec<_>>()
    };
    let linear = fit_linear(&served(&measured, 0, reads))?;
    let ols = fit_ols(&served(&measured, 0, reads))?;
    let table = fit_table(&passes(0), borders);
    let (mut of_line, mut of_table) = (Vec::new(), Vec::new());
    for fold in (1..=FOLDS).filter(|&fold| measured.iter().any(|m| m.fold == fold)) {
        // The shapes outside of this fold may be too few for a linear fit. Then the fold's shapes give no held-out
        // errors.
        let Ok(line) = fit_linear(&served(&measured, fold, reads)).map(|fit| fit.coefficients()) else { continue };
        let table = fit_table(&passes(fold), borders).build().map_err(|e| FitError::Regression(e.to_string()))?;
        for m in measured.iter().filter(|m| m.fold == fold) {
            let (p, region) = (m.shape.pass(reads), m.shape.region());
            let off = |predicted: f64| (predicted / m.seconds - 1.0).abs();
            of_line.push((region, off(line.pass_s(p.context as f64, p.batched as f64))));
            of_table.push((region, off(table.pass(m.shape.pass(ContextReads::Once)).as_s())));
        }
    }
    let held_out = Errors { shapes: of_line.len() as u64, linear: by_region(&of_line), table: by_region(&of_table) };
    let spreads = timed.iter().map(Timed::spread).collect();
    let repeats: Vec<f64> = timed.iter().filter_map(Timed::repeatability).collect();
    let most =
        |size: fn(&PassShape) -> u64| shapes.iter().map(|s| size(&s.pass(ContextReads::Once))).max().unwrap_or(0);
    Ok(ModelProfile {
        noise_cv: median(spreads),
        repeatability: mean(&repeats).unwrap_or(0.0),
        model,
        linear,
        ols,
        held_out,
        range: Range {
            requests: shapes.iter().map(|s| u64::from(s.requests)).max().unwrap_or(0),
            batched: most(|p| p.batched),
            context: most(|p| p.context),
            pairs: most(|p| p.pairs),
        },
        table,
        measured,
    })
}

/// Chooses how α counts the context of the target's verification passes: once per request, or once per new token. The
/// choice is the count whose linear fit has the smaller error on the measured decode and verification passes of up to
/// [`SERVING_TOKENS`](crate::SERVING_TOKENS) tokens. If the errors are equal, the choice is once per request. (A draft
/// model's passes always count once per request.)
pub fn context_reads(target: &[Timed]) -> ContextReads {
    let measured: Vec<Measurement> = target.iter().map(|t| measurement(t, 0)).collect();
    let error = |reads| {
        let Ok(fit) = fit_linear(&served(&measured, 0, reads)) else { return f64::INFINITY };
        let asked = measured.iter().filter(|m| matches!(m.shape.region(), Region::Decode | Region::Verify));
        let off = |m: &Measurement| {
            let p = m.shape.pass(reads);
            (fit.coefficients().pass_s(p.context as f64, p.batched as f64) / m.seconds - 1.0).abs()
        };
        mean(&asked.map(off).collect::<Vec<_>>()).unwrap_or(f64::INFINITY)
    };
    if error(ContextReads::PerPosition) < error(ContextReads::Once) {
        ContextReads::PerPosition
    } else {
        ContextReads::Once
    }
}

/// Returns the samples (measured passes) for a linear fit: decode and verification passes of all sizes, without the
/// passes of the cross-validation fold `without` (0: no fold is left out). Prefill passes are not used, because
/// policies decide between verification passes, and because the attention of a prompt is quadratic.
fn served(measured: &[Measurement], without: u8, reads: ContextReads) -> Vec<Sample> {
    let seen = |m: &&Measurement| without == 0 || m.fold != without;
    let fitted = measured.iter().filter(|m| m.shape.region() != Region::Prefill).filter(seen);
    let sample = |m: &Measurement| {
        let p = m.shape.pass(reads);
        Sample { context: p.context as f64, batched: p.batched as f64, seconds: m.seconds }
    };
    fitted.map(sample).collect()
}

fn measurement(t: &Timed, fold: u8) -> Measurement {
    let samples = t.visits.iter().map(|v| v.len() as u64).sum();
    Measurement { shape: t.shape, seconds: t.mean(), spread: t.spread(), samples, fold }
}

fn by_region(errors: &[(Region, f64)]) -> ByRegion {
    let mean_of = |region| mean(&errors.iter().filter(|e| e.0 == region).map(|e| e.1).collect::<Vec<_>>());
    ByRegion {
        overall: mean(&errors.iter().map(|e| e.1).collect::<Vec<_>>()).unwrap_or(0.0),
        decode: mean_of(Region::Decode),
        verify: mean_of(Region::Verify),
        wide: mean_of(Region::Wide),
        prefill: mean_of(Region::Prefill),
    }
}

/// The mean of those values of `x` that are at most [`INTERRUPTED`] times the median of `x`; NaN without values.
pub fn uninterrupted_mean(x: &[f64]) -> f64 {
    let most = INTERRUPTED * median(x.to_vec());
    mean(&x.iter().copied().filter(|&x| x <= most).collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

fn mean(x: &[f64]) -> Option<f64> {
    (!x.is_empty()).then(|| x.iter().sum::<f64>() / x.len() as f64)
}

/// Messages about bad fits of the model `role`: (reasons not to trust the profile, notes).
pub fn failures(role: Role, profile: &ModelProfile) -> (Vec<String>, Vec<String>) {
    let (mut distrust, mut notes) = (Vec::new(), Vec::new());
    let name = role.name();
    for region in Region::ALL {
        let error = profile.held_out.linear.of(region);
        if error.is_none() && matches!(region, Region::Decode | Region::Verify) {
            distrust
                .push(format!("{name}: too few {} passes were measured to judge alpha, gamma, delta", region.name()));
        }
        let Some(error) = error.filter(|&e| e > TRUSTED_ERROR) else { continue };
        let line = format!(
            "{name}: alpha, gamma, delta are off by {:.0} % on held-out {} passes (bound {:.0} %)",
            error * 100.0,
            region.name(),
            TRUSTED_ERROR * 100.0
        );
        match region {
            Region::Decode | Region::Verify => distrust.push(line),
            Region::Wide | Region::Prefill => notes.push(line),
        }
    }
    let bound = TABLE_ERROR.max(2.0 * profile.repeatability);
    let table = profile.held_out.table.overall;
    if table > bound {
        notes.push(format!(
            "{name}: the table is off by {:.1} % on held-out passes (bound {:.1} %)",
            table * 100.0,
            bound * 100.0
        ));
    }
    (distrust, notes)
}

#[cfg(test)]
#[path = "assess_tests.rs"]
mod tests;
