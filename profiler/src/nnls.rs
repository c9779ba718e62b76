//! Non-negative least squares by the active-set method of Lawson and Hanson (Solving Least Squares Problems, 1974,
//! chapter 23).

use nalgebra::{DMatrix, DVector};

/// Returns the vector `x ≥ 0` that minimises `|A·x − b|`. If a column of `A` has only zeros, its coefficient is 0.
pub fn nnls(a: &DMatrix<f64>, b: &DVector<f64>) -> DVector<f64> {
    assert_eq!(a.nrows(), b.len(), "one number a row");
    // Columns are scaled to unit length, so that one tolerance suits all columns.
    let lengths: Vec<f64> = a.column_iter().map(|c| c.norm()).collect();
    let mut scaled = a.clone();
    for (mut column, &length) in scaled.column_iter_mut().zip(&lengths) {
        if length > 0.0 {
            column /= length;
        }
    }
    let mut x = DVector::zeros(a.ncols());
    let mut free = vec![false; a.ncols()];
    let tolerance = 1e-10 * b.norm();
    // Each turn of the loop lets one more coefficient be above 0. No set of such coefficients occurs twice, so the loop
    // ends. Rounding errors could make a set occur again, so the number of turns is bounded.
    for _ in 0..10 * a.ncols() {
        let gradient = scaled.transpose() * (b - &scaled * &x);
        let steepest = (0..a.ncols()).filter(|&j| !free[j]).max_by(|&i, &j| gradient[i].total_cmp(&gradient[j]));
        let Some(entering) = steepest.filter(|&j| gradient[j] > tolerance) else { break };
        free[entering] = true;
        loop {
            let full = among(&scaled, b, &free);
            let blocking = (0..a.ncols()).filter(|&j| free[j] && full[j] <= 0.0);
            // Moves x towards the unconstrained solution `full`, until the first coefficient reaches 0. If no
            // coefficient does, x becomes `full`.
            let Some(step) = blocking.map(|j| x[j] / (x[j] - full[j])).min_by(f64::total_cmp) else {
                x = full;
                break;
            };
            let step = if step.is_finite() { step } else { 0.0 };
            x += (full - &x) * step;
            for j in 0..a.ncols() {
                if free[j] && x[j] <= 1e-14 {
                    (free[j], x[j]) = (false, 0.0);
                }
            }
        }
        if !free[entering] {
            // The coefficient that this turn let be above 0 went back to 0 at once, so it improves the fit only by
            // rounding errors.
            break;
        }
    }
    x.iter_mut().zip(&lengths).for_each(|(x, &length)| *x = if length > 0.0 { *x / length } else { 0.0 });
    x
}

/// Returns the least-squares solution over those columns `j` whose `free[j]` is true. The coefficients of the other
/// columns are 0.
fn among(a: &DMatrix<f64>, b: &DVector<f64>, free: &[bool]) -> DVector<f64> {
    let columns: Vec<usize> = (0..a.ncols()).filter(|&j| free[j]).collect();
    let solution = a.select_columns(&columns).svd(true, true).solve(b, 1e-12).expect("both factors were asked for");
    let mut x = DVector::zeros(a.ncols());
    columns.iter().zip(solution.iter()).for_each(|(&j, &value)| x[j] = value);
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::{Luck, Stream};

    /// Tries all sets of columns. Returns the smallest residual among the sets whose least-squares solution is
    /// non-negative.
    fn brute_force(a: &DMatrix<f64>, b: &DVector<f64>) -> f64 {
        let all = 1u32 << a.ncols();
        let sets = (0..all).map(|set| (0..a.ncols()).map(|j| set >> j & 1 == 1).collect::<Vec<_>>());
        let costs = sets.filter_map(|free| {
            let x = if free.contains(&true) { among(a, b, &free) } else { DVector::zeros(a.ncols()) };
            (x.min() >= -1e-12).then(|| (a * x - b).norm())
        });
        costs.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn no_set_of_columns_does_better() {
        let luck = Luck::new(5, Stream::Profile, 0);
        let mut bound = 0;
        for case in 0..300u64 {
            let (rows, columns) = (4 + (case % 9) as usize, 1 + (case % 5) as usize);
            let draws = luck.narrow(case);
            let entry = |i, j| draws.unit((i * 8 + j) as u64) * 10f64.powi(j as i32) - 0.2;
            let a = DMatrix::from_fn(rows, columns, entry);
            let b = DVector::from_fn(rows, |i, _| draws.unit(1000 + i as u64) - 0.3);
            let x = nnls(&a, &b);
            assert!(x.min() >= 0.0, "{x}");
            bound += usize::from(x.iter().any(|&v| v == 0.0));
            let (own, best) = ((&a * &x - &b).norm(), brute_force(&a, &b));
            assert!(own <= best * (1.0 + 1e-9) + 1e-12, "case {case}: {own} against {best}");
        }
        assert!(bound > 50, "the bound matters in some cases: {bound}");
    }

    #[test]
    fn zero_and_equal_columns_are_solved() {
        let a = DMatrix::from_row_slice(3, 3, &[1.0, 0.0, 1.0, 2.0, 0.0, 2.0, 3.0, 0.0, 3.0]);
        let x = nnls(&a, &DVector::from_row_slice(&[2.0, 4.0, 6.0]));
        assert!((x[0] + x[2] - 2.0).abs() < 1e-9 && x[1] == 0.0, "{x}");
    }
}
