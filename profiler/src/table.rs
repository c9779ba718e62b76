//! Fits a table of pass times: a function that is piecewise linear in batched tokens, in query-key pairs and in
//! context.
//!
//! A piecewise linear function through given points is a constant plus a sum of ramps. A ramp is 0 before its interval,
//! rises to 1 within the interval, and stays 1. If all coefficients are at least 0, the function never falls. Fitting
//! the whole table is therefore one problem of non-negative least squares, on relative errors as in the linear fit.

use crate::hardware::MeasuredSpec;
use crate::nnls::nnls;
use foretoken_sim::PassShape;
use nalgebra::{DMatrix, DVector};

/// In the fitted table of pass times, each measured number of batched tokens up to this number is a point of its own.
const DENSE: u64 = 16;
/// Above [`DENSE`] batched tokens, each point of the fitted table of pass times is at least this factor larger than the
/// point before. Points at a captured CUDA-graph size may be nearer.
const APART: f64 = 1.15;
/// Numbers of query-key pairs at which the fitted cost of attention may change its slope.
const PAIRS: Bends = Bends { first: 1 << 9, factor: 8 };
/// Numbers of context tokens at which the fitted cost of context may change its slope. The slope changes where the KV
/// of a batch becomes larger than one level of the caches.
const CONTEXT: Bends = Bends { first: 1 << 8, factor: 4 };

/// The sizes at which a piecewise linear function may change its slope: `first`, and then each `factor` times the size
/// before.
struct Bends {
    first: u64,
    factor: u64,
}

impl Bends {
    /// Returns the points of the piecewise linear function: 0, then the sizes up to half of `largest` at which its
    /// slope may change, then `largest`. There are no points if `largest` is 0.
    fn up_to(&self, largest: u64) -> Vec<u64> {
        if largest == 0 {
            return Vec::new();
        }
        let bends = std::iter::successors(Some(self.first), |at| at.checked_mul(self.factor));
        let inner = bends.take_while(|&at| at <= largest / 2);
        std::iter::once(0).chain(inner).chain([largest]).collect()
    }
}

/// Fits a table to `passes`, each given as (shape, seconds). `borders` are captured CUDA-graph sizes, to which passes
/// are padded. The time jumps after each border, so the measured sizes just before and after a border are points of the
/// table.
pub fn fit_table(passes: &[(PassShape, f64)], borders: &[u32]) -> MeasuredSpec {
    fit(passes, borders, nnls)
}

/// Fits a table to means of passes, without captured CUDA-graph sizes. Pass `i` of `passes`, given as (shape, seconds),
/// is the mean of `counts[i]` passes, so the square of its relative error has the weight `counts[i]`.
pub(crate) fn fit_counted(passes: &[(PassShape, f64)], counts: &[u64]) -> MeasuredSpec {
    fit(passes, &[], |a, b| {
        let weights = DVector::from_iterator(counts.len(), counts.iter().map(|&n| (n as f64).sqrt()));
        let (mut a, b) = (a.clone(), b.component_mul(&weights));
        a.column_iter_mut().for_each(|mut column| column.component_mul_assign(&weights));
        if a.nrows() <= a.ncols() {
            return nnls(&a, &b);
        }
        // There are thousands of equations for a few dozen unknowns. Their QR factorisation gives a small triangular
        // system with the same solution, and `nnls` solves this small system.
        let mut b = b;
        let qr = a.qr();
        qr.q_tr_mul(&mut b);
        let r = qr.unpack_r();
        nnls(&r, &b.rows(0, r.nrows()).into_owned())
    })
}

fn fit(
    passes: &[(PassShape, f64)],
    borders: &[u32],
    solve: impl FnOnce(&DMatrix<f64>, &DVector<f64>) -> DVector<f64>,
) -> MeasuredSpec {
    let batched = batched_points(passes, borders);
    let most = |size: fn(&PassShape) -> u64| passes.iter().map(|(pass, _)| size(pass)).max().unwrap_or(0);
    let (pairs, context) = (PAIRS.up_to(most(|p| p.pairs)), CONTEXT.up_to(most(|p| p.context)));
    let ramps = |points: &[u64]| points.len().saturating_sub(1);
    // The equations of the fit have these columns: a constant, then the ramps of batched tokens, of query-key pairs and
    // of context. A ramp is a function that rises from 0 to 1 between two points.
    let (tokens, attention) = (1 + ramps(&batched), 1 + ramps(&batched) + ramps(&pairs));
    let a = DMatrix::from_fn(passes.len(), attention + ramps(&context), |i, j| {
        let (pass, seconds) = &passes[i];
        let term = match j {
            0 => 1.0,
            _ if j < tokens => ramp(&batched, j - 1, pass.batched),
            _ if j < attention => ramp(&pairs, j - tokens, pass.pairs),
            _ => ramp(&context, j - attention, pass.context),
        };
        term / seconds
    });
    let x = solve(&a, &DVector::from_element(passes.len(), 1.0));
    let all = x.as_slice();
    MeasuredSpec {
        requests: vec![],
        batched: line(&batched, all[0], &all[1..tokens]),
        pairs: line(&pairs, 0.0, &all[tokens..attention]),
        context: line(&context, 0.0, &all[attention..]),
    }
}

/// Returns the (point, height) pairs of a piecewise linear function. Its height is `start` at the first point, and
/// rises by `rises[i]` from point i to point i + 1.
fn line(points: &[u64], start: f64, rises: &[f64]) -> Vec<(u64, f64)> {
    let heights = std::iter::once(0.0).chain(rises.iter().copied());
    let mut at = start;
    points
        .iter()
        .zip(heights)
        .map(|(&point, rise)| {
            at += rise;
            (point, at)
        })
        .collect()
}

/// Returns the height at `value` of the ramp that begins at point `at`: 0 before this point, 1 after the next point,
/// and linear between the two points. The first ramp continues below 0, and the last ramp continues above 1.
fn ramp(points: &[u64], at: usize, value: u64) -> f64 {
    let (from, to) = (points[at] as f64, points[at + 1] as f64);
    let share = (value as f64 - from) / (to - from);
    let low = if at == 0 { f64::NEG_INFINITY } else { 0.0 };
    let high = if at + 2 == points.len() { f64::INFINITY } else { 1.0 };
    share.clamp(low, high)
}

fn batched_points(passes: &[(PassShape, f64)], borders: &[u32]) -> Vec<u64> {
    let mut sizes: Vec<u64> = passes.iter().map(|p| p.0.batched).collect();
    sizes.sort_unstable();
    sizes.dedup();
    // `jumps(i)` is true if the time jumps between `sizes[i]` and `sizes[i + 1]`, because a captured CUDA-graph size
    // lies between them.
    let jumps = |i: usize| borders.iter().any(|&b| (sizes[i]..sizes[i + 1]).contains(&u64::from(b)));
    let last = sizes.len() - 1;
    let mut points: Vec<u64> = Vec::new();
    let mut pinned = true;
    for (i, &size) in sizes.iter().enumerate() {
        let far = points.last().is_none_or(|&before| size <= DENSE || size as f64 >= before as f64 * APART);
        let at_jump = (i > 0 && jumps(i - 1)) || (i < last && jumps(i));
        if far || at_jump || (i == last && pinned) {
            points.push(size);
            pinned = at_jump || points.len() == 1;
        } else if i == last {
            // The table always ends at the largest size. If the last point is too near to it, the largest size replaces
            // this point.
            *points.last_mut().expect("the first size is a point") = size;
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::LatencyModel;

    /// Seconds of a pass on a test machine. The machine pads batched tokens to a multiple of 8 (at most 32). Each
    /// query-key pair above 32,768 costs twice as much as a pair below.
    fn truth(p: &PassShape) -> f64 {
        let pairs = p.pairs as f64;
        1e-3 * (p.batched.min(32).next_multiple_of(8)) as f64 + 1e-8 * (pairs + (pairs - 32_768.0).max(0.0)) + 2e-3
    }

    fn passes() -> Vec<(PassShape, f64)> {
        let sizes = [1u64, 2, 4, 7, 8, 9, 15, 16, 17, 24, 25, 32, 40];
        let all = sizes.into_iter().flat_map(|b| [0u64, 300, 4000].map(|c| (b, c)));
        let shape = |(batched, context)| PassShape { requests: 1, batched, context, pairs: batched * context };
        all.map(shape).map(|p| (p, truth(&p))).collect()
    }

    #[test]
    fn the_table_fits_steps_and_bends() {
        let spec = fit_table(&passes(), &[8, 16, 24]);
        let model = spec.build().unwrap();
        for (p, seconds) in passes() {
            let error = model.pass(p).as_s() / seconds - 1.0;
            assert!(error.abs() < 0.01, "{p:?}: {error}");
        }
        // The table also predicts the time of a pass of 20 tokens, which was not measured. The machine pads it to 24
        // tokens.
        let between = PassShape { requests: 1, batched: 20, context: 0, pairs: 0 };
        assert!((model.pass(between).as_s() / truth(&between) - 1.0).abs() < 0.01);
    }

    /// On the test's machine the cache holds 4,096 tokens of context. Each token of context beyond these costs three
    /// times as much.
    #[test]
    fn context_may_cost_more_once_there_is_much_of_it() {
        let truth = |p: &PassShape| {
            1e-4 + 5e-5 * p.batched as f64 + 1e-7 * (p.context + 2 * p.context.saturating_sub(4096)) as f64
        };
        let shapes =
            [1u64, 2, 4, 8, 16].into_iter().flat_map(|b| [0u64, 16, 100, 256, 700, 1024, 2000].map(|c| (b, b * c)));
        let passes: Vec<_> = shapes
            .map(|(batched, context)| PassShape { requests: 1, batched, context, pairs: context })
            .map(|p| (p, truth(&p)))
            .collect();
        let model = fit_table(&passes, &[]).build().unwrap();
        for (p, seconds) in passes {
            let error = model.pass(p).as_s() / seconds - 1.0;
            assert!(error.abs() < 0.01, "{p:?}: {error}");
        }
    }

    #[test]
    fn a_table_never_falls_however_noisy_its_passes() {
        let mut noisy = passes();
        noisy.iter_mut().enumerate().for_each(|(i, p)| p.1 *= if i % 2 == 0 { 1.4 } else { 0.7 });
        assert_eq!(fit_table(&noisy, &[]).check(), Ok(()));
    }

    #[test]
    fn few_passes_make_a_table_too() {
        let one = [(PassShape { requests: 1, batched: 4, context: 0, pairs: 0 }, 1e-3)];
        let spec = fit_table(&one, &[]);
        assert_eq!((spec.batched, spec.pairs, spec.context), (vec![(4, 1e-3)], vec![], vec![]));
    }

    #[test]
    fn points_are_dense_where_tokens_are_few_and_at_borders() {
        let points = |sizes: &[u64], borders: &[u32]| {
            let passes: Vec<_> =
                sizes.iter().map(|&batched| (PassShape { batched, ..Default::default() }, 1.0)).collect();
            batched_points(&passes, borders)
        };
        assert_eq!(points(&[1, 2, 15, 16, 17, 18, 20, 21], &[]), [1, 2, 15, 16, 21]);
        assert_eq!(points(&[1, 32, 33, 34], &[32]), [1, 32, 33, 34]);
        assert_eq!(points(&[1, 30, 33, 34, 60], &[32]), [1, 30, 33, 60]);
        assert_eq!(points(&[1, 30, 31, 33, 34, 60], &[32]), [1, 30, 31, 33, 60]);
    }
}
