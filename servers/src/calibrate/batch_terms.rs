//! Terms of the number of requests in the cost of a target pass: a step above a batch size, and a slope from a batch
//! size on. The cost by tokens cannot say either, since tokens and requests differ by the draft length.
//!
//! A term is used only if it predicts steps better that it was not fitted to. The steps are divided into groups of one
//! draft length and one number of requests, and the groups into [`FOLDS`] parts. Each part is predicted by a fit to the
//! others. Of all terms the one with the least errors is taken if it makes them smaller by [`BETTER`]; then a second
//! one is looked for in the same way.

use crate::calibrate::batch_term::BatchTerm;
use crate::calibrate::costs::StepRow;
use crate::calibrate::fit::{CostFit, Costs, batch_column, bends, own_column, own_columns};
use foretoken_profiler::nnls::nnls;
use nalgebra::{Cholesky, DMatrix, DVector};
use std::collections::BTreeMap;

/// Number of parts into which groups of steps are divided.
const FOLDS: usize = 6;
/// A group counts if it has at least this number of steps.
const FEW: usize = 5;
/// A term is used if the errors of held-out groups are at most this share of those without it.
const BETTER: f64 = 0.8;
/// At most this number of terms is used, and of batch sizes is tried.
const TERMS: usize = 2;
const SIZES: usize = 24;
/// Standard deviation of a group's relative error that no fit has to explain.
const FLOOR: f64 = 0.003;

/// The sums of a group of steps from which fits and errors follow.
struct Group {
    gram: DMatrix<f64>,
    projected: DVector<f64>,
    /// The sum of each column, and of the observed times, over the group's steps.
    columns: DVector<f64>,
    elapsed_s: f64,
    steps: usize,
}

/// The terms of the number of requests that predict held-out steps best; none if none does so clearly.
pub(crate) fn chosen(rows: &[StepRow], costs: Costs) -> Vec<BatchTerm> {
    let requests = |r: &StepRow| r.decodes + r.prompts;
    let mut sizes: Vec<u32> = rows.iter().map(requests).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let every = sizes.len().div_ceil(SIZES).max(1);
    let most = sizes.last().copied().unwrap_or(0);
    let edges = || sizes.iter().copied().step_by(every).filter(|&n| n < most);
    let candidates: Vec<BatchTerm> =
        edges().map(BatchTerm::Above).chain([0].into_iter().chain(edges()).map(BatchTerm::Beyond)).collect();
    let plain = CostFit::of(rows, costs, &[]);
    let bends = bends(rows);
    let own = own_columns(&bends, costs);
    let all = own + candidates.len();
    let mut groups: BTreeMap<(u32, u32, bool), Group> = BTreeMap::new();
    for row in rows {
        let column = |j: usize| match j.checked_sub(own) {
            Some(term) => batch_column(row, candidates[term]),
            None => own_column(row, &bends, costs, j),
        };
        let (line, expected) = (DVector::from_fn(all, |j, _| column(j)), plain.expected_s(row));
        let group = groups.entry((row.k, requests(row), row.prompts > 0)).or_insert_with(|| Group {
            gram: DMatrix::zeros(all, all),
            projected: DVector::zeros(all),
            columns: DVector::zeros(all),
            elapsed_s: 0.0,
            steps: 0,
        });
        group.gram.ger(expected.powi(-2), &line, &line, 1.0);
        group.projected.axpy(row.elapsed_s / expected.powi(2), &line, 1.0);
        group.columns += line;
        group.elapsed_s += row.elapsed_s;
        group.steps += 1;
    }
    let groups: Vec<Group> = groups.into_values().collect();
    let (whole, to) = groups
        .iter()
        .fold((DMatrix::zeros(all, all), DVector::zeros(all)), |(gram, to), g| (gram + &g.gram, to + &g.projected));
    // The mean squared relative error of groups, each predicted by a fit to the groups of other parts.
    let score = |terms: &[usize]| {
        let used: Vec<usize> = (0..own).chain(terms.iter().map(|term| own + term)).collect();
        let mut sum = (0.0, 0.0);
        for fold in 0..FOLDS {
            let held = || groups.iter().skip(fold).step_by(FOLDS);
            let (mut gram, mut projected) = (whole.clone(), to.clone());
            held().for_each(|g| {
                gram -= &g.gram;
                projected -= &g.projected;
            });
            let Some(x) = solved(&gram, &projected, &used) else { return f64::INFINITY };
            for g in held().filter(|g| g.steps >= FEW) {
                let predicted: f64 = used.iter().zip(x.iter()).map(|(&j, x)| g.columns[j] * x).sum();
                let weight = (FLOOR * FLOOR + plain.noise.powi(2) / g.steps as f64).recip();
                // A group that is far off counts as one that is off by 20 %: a fit may not extrapolate well to it.
                let error = (predicted / g.elapsed_s - 1.0).clamp(-0.2, 0.2);
                sum = (sum.0 + weight * error * error, sum.1 + weight);
            }
        }
        if sum.1 > 0.0 { (sum.0 / sum.1).sqrt() } else { f64::INFINITY }
    };
    let (mut taken, mut least) = (Vec::new(), score(&[]));
    while taken.len() < TERMS {
        let tried = (0..candidates.len()).filter(|term| !taken.contains(term)).map(|term| {
            let terms: Vec<usize> = taken.iter().copied().chain([term]).collect();
            (score(&terms), term)
        });
        let Some((error, term)) = tried.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
        if error > BETTER * least {
            break;
        }
        taken.push(term);
        least = error;
    }
    taken.into_iter().map(|term| candidates[term]).collect()
}

/// The non-negative least squares of some columns from their Gram matrix.
fn solved(gram: &DMatrix<f64>, projected: &DVector<f64>, used: &[usize]) -> Option<DVector<f64>> {
    let size = |j: usize| gram[(j, j)].max(f64::MIN_POSITIVE).sqrt();
    // Columns of unit length, with a share of 1e-9 on the diagonal, so that equal columns have a solution.
    let scaled = DMatrix::from_fn(used.len(), used.len(), |i, j| {
        let (a, b) = (used[i], used[j]);
        gram[(a, b)] / (size(a) * size(b)) + if i == j { 1e-9 } else { 0.0 }
    });
    let to = DVector::from_fn(used.len(), |i, _| projected[used[i]] / size(used[i]));
    let lower = Cholesky::new(scaled)?.l();
    let right = lower.solve_lower_triangular(&to)?;
    let x = nnls(&lower.transpose(), &right);
    Some(DVector::from_fn(used.len(), |i, _| x[i] / size(used[i])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::batch_term::curve;
    use crate::calibrate::costs::Part;

    /// Steps with K = 0 and 3 and 1 to 12 requests: 10 ms, 0.1 ms a token, 1 ms a draft pass, and `more` by requests.
    fn rows(more: fn(u32) -> f64) -> Vec<StepRow> {
        let of = |(k, decodes, i): (u32, u32, u32)| {
            let verified = u64::from(decodes * (k + 1));
            let exact = 10e-3 + 1e-4 * verified as f64 + 1e-3 * f64::from(k) + more(decodes);
            StepRow {
                source: k as usize,
                part: Part::Step,
                when: 0.5,
                k,
                in_one_pass: false,
                decodes,
                verified,
                prompts: 0,
                prompt_tokens: 0,
                context: 0,
                elapsed_s: exact * if i % 2 == 0 { 1.005 } else { 0.995 },
                host_s: None,
            }
        };
        let steps = |k| (1..=12).flat_map(move |decodes| (0..10).map(move |i| (k, decodes, i)));
        [0, 3].into_iter().flat_map(steps).map(of).collect()
    }

    #[test]
    fn a_step_above_a_batch_size_is_found_and_no_other_term() {
        let rows = rows(|n| if n > 8 { 2.1e-3 } else { 0.0 });
        let terms = chosen(&rows, Costs::Apart);
        assert_eq!(terms, [BatchTerm::Above(8)]);
        let fit = CostFit::of(&rows, Costs::Apart, &terms);
        assert!((fit.batch[0].1 - 2.1e-3).abs() < 1e-4, "{:?}", fit.batch);
        assert_eq!(fit.batch[0].0.in_words(2.1e-3), "2.10 ms above 8 requests");
        assert_eq!(curve(&[(BatchTerm::Above(8), 2e-3)], 99), [(0, 0.0), (8, 0.0), (9, 2e-3), (99, 2e-3)]);
    }

    #[test]
    fn costs_by_tokens_alone_get_no_term() {
        assert_eq!(chosen(&rows(|_| 0.0), Costs::Apart), []);
    }
}
