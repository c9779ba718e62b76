//! Terms in the cost of a target pass: a step above a batch size, a slope from a batch size on, and tiles of tokens.
//! The line by tokens cannot say the first two, since tokens and requests differ by the draft length. It says tiles
//! only where each number of tokens was observed.
//!
//! A term is used only if it predicts steps better that it was not fitted to.

use crate::calibrate::costs::StepRow;
use crate::calibrate::fit::{CostFit, Costs, bends, own_column, own_columns, term_column};
use crate::calibrate::term::Term;
use foretoken_profiler::nnls::nnls;
use nalgebra::{Cholesky, DMatrix, DVector};
use std::collections::BTreeMap;

/// Number of parts into which groups of steps are divided.
const FOLDS: usize = 6;
/// For terms of requests a group counts if it has at least this number of steps.
const FEW: usize = 5;
/// A term of requests is used if the errors of held-out groups are at most this share of those without it.
const BETTER: f64 = 0.8;
/// The same for tiles. Most of their groups are single steps, whose chance no term takes away.
const BETTER_TILES: f64 = 0.9;
/// At most this number of terms of requests is used, and of batch sizes is tried.
const TERMS: usize = 2;
const SIZES: usize = 24;
/// Sizes of tiles that are tried, in tokens, as (first, last, distance). A GPU's tile is a multiple of 8 tokens; tensor
/// parallelism and experts can make it any number.
const TILES: [(u32, u32, usize); 3] = [(4, 32, 1), (36, 64, 4), (72, 128, 8)];
/// Standard deviation of a group's relative error that no fit has to explain.
const FLOOR: f64 = 0.003;

/// The terms that predict held-out steps best; none if none does so clearly. At most one of them is of tiles.
pub(crate) fn chosen(rows: &[StepRow], costs: Costs) -> Vec<Term> {
    // Tiles of more tokens than every step has are no term.
    let largest = rows.iter().map(|r| r.verified + r.prompt_tokens).max().unwrap_or(0);
    let sizes = TILES.into_iter().flat_map(|(from, to, by)| (from..=to).step_by(by));
    let tiles: Vec<Term> = sizes.filter(|&t| u64::from(t) < largest).map(Term::Tiles).collect();
    // Steps with prompts have many numbers of tokens, in which tiles show. Each number is a group.
    let tokens = |r: &StepRow| if r.prompts > 0 { r.prompt_tokens + r.verified } else { 0 };
    let held = HeldOutSteps::new(rows, costs, &[], tiles, tokens, |g| g.with_prompts);
    let taken = held.best(1, BETTER_TILES);

    let mut sizes: Vec<u32> = rows.iter().map(|r| r.decodes + r.prompts).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let every = sizes.len().div_ceil(SIZES).max(1);
    let most = sizes.last().copied().unwrap_or(0);
    let edges = || sizes.iter().copied().step_by(every).filter(|&n| n < most);
    let of_requests = edges().map(Term::Above).chain([0].into_iter().chain(edges()).map(Term::Beyond)).collect();
    let held = HeldOutSteps::new(rows, costs, &taken, of_requests, |_| 0, |g| g.steps >= FEW);
    let more = held.best(TERMS, BETTER);
    more.into_iter().chain(taken).collect()
}

/// Steps in groups of one draft length, one number of requests, with or without prompts, and one number of tokens where
/// this counts. The groups are divided into [`FOLDS`] parts. Each part is predicted by fits to the others.
struct HeldOutSteps {
    groups: Vec<Group>,
    /// Of each part: the Gram matrix of its steps' columns, and their product with the observed times.
    parts: Vec<(DMatrix<f64>, DVector<f64>)>,
    /// Number of columns that every fit has. The column of a candidate follows them.
    own: usize,
    candidates: Vec<Term>,
    /// Relative error of a step's time by a fit without candidates.
    noise: f64,
    counts: fn(&Group) -> bool,
}

/// The sums of a group over its steps.
struct Group {
    columns: DVector<f64>,
    elapsed_s: f64,
    steps: usize,
    with_prompts: bool,
}

impl HeldOutSteps {
    fn new(
        rows: &[StepRow],
        costs: Costs,
        taken: &[Term],
        candidates: Vec<Term>,
        tokens: impl Fn(&StepRow) -> u64,
        counts: fn(&Group) -> bool,
    ) -> HeldOutSteps {
        let plain = CostFit::of(rows, costs, taken);
        let bends = bends(rows);
        let line = own_columns(&bends, costs);
        let own = line + taken.len();
        let all = own + candidates.len();
        let entry = |row: &StepRow, j: usize| match j {
            j if j < line => own_column(row, &bends, costs, j),
            j if j < own => term_column(row, taken[j - line]),
            j => term_column(row, candidates[j - own]),
        };
        let key = |r: &StepRow| (r.k, r.decodes + r.prompts, r.prompts > 0, tokens(r));
        let mut index: BTreeMap<(u32, u32, bool, u64), usize> = rows.iter().map(|r| (key(r), 0)).collect();
        index.values_mut().enumerate().for_each(|(i, at)| *at = i);
        let group = |&(_, _, with_prompts, _): &(u32, u32, bool, u64)| Group {
            columns: DVector::zeros(all),
            elapsed_s: 0.0,
            steps: 0,
            with_prompts,
        };
        let mut groups: Vec<Group> = index.keys().map(group).collect();
        let mut parts = vec![(DMatrix::zeros(all, all), DVector::zeros(all)); FOLDS];
        for row in rows {
            let at = index[&key(row)];
            let (columns, expected) = (DVector::from_fn(all, |j, _| entry(row, j)), plain.expected_s(row));
            let (gram, projected) = &mut parts[at % FOLDS];
            gram.ger(expected.powi(-2), &columns, &columns, 1.0);
            projected.axpy(row.elapsed_s / expected.powi(2), &columns, 1.0);
            let group = &mut groups[at];
            group.columns += columns;
            group.elapsed_s += row.elapsed_s;
            group.steps += 1;
        }
        HeldOutSteps { groups, parts, own, candidates, noise: plain.noise, counts }
    }

    /// The root mean squared relative error of groups, each predicted by a fit with these candidates to the groups of
    /// other parts.
    fn score(&self, terms: &[usize]) -> f64 {
        let used: Vec<usize> = (0..self.own).chain(terms.iter().map(|term| self.own + term)).collect();
        let of_used = |(gram, projected): &(DMatrix<f64>, DVector<f64>)| {
            (gram.select_rows(&used).select_columns(&used), projected.select_rows(&used))
        };
        let parts: Vec<_> = self.parts.iter().map(of_used).collect();
        let mut sum = (0.0, 0.0);
        for fold in 0..FOLDS {
            let others = parts.iter().enumerate().filter(|(i, _)| *i != fold).map(|(_, part)| part.clone());
            let Some((gram, projected)) = others.reduce(|a, b| (a.0 + b.0, a.1 + b.1)) else { continue };
            let Some(x) = solved(&gram, &projected) else { return f64::INFINITY };
            for g in self.groups.iter().skip(fold).step_by(FOLDS).filter(|g| (self.counts)(g)) {
                let predicted: f64 = used.iter().zip(x.iter()).map(|(&j, x)| g.columns[j] * x).sum();
                let weight = (FLOOR * FLOOR + self.noise.powi(2) / g.steps as f64).recip();
                // A group that is far off counts as one that is off by 20 %: a fit may not extrapolate well to it.
                let error = (predicted / g.elapsed_s - 1.0).clamp(-0.2, 0.2);
                sum = (sum.0 + weight * error * error, sum.1 + weight);
            }
        }
        if sum.1 > 0.0 { (sum.0 / sum.1).sqrt() } else { f64::INFINITY }
    }

    /// Up to `most` candidates. Of all candidates the one with the least errors is taken if it makes them smaller by
    /// `better`; then the next one is looked for in the same way.
    fn best(&self, most: usize, better: f64) -> Vec<Term> {
        let (mut taken, mut least) = (Vec::new(), self.score(&[]));
        while taken.len() < most {
            let tried = (0..self.candidates.len()).filter(|term| !taken.contains(term)).map(|term| {
                let terms: Vec<usize> = taken.iter().copied().chain([term]).collect();
                (self.score(&terms), term)
            });
            let Some((error, term)) = tried.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
            if !least.is_finite() || error > better * least {
                break;
            }
            taken.push(term);
            least = error;
        }
        taken.into_iter().map(|term| self.candidates[term]).collect()
    }
}

/// Non-negative least squares from the Gram matrix of the columns and their product with the observed times.
fn solved(gram: &DMatrix<f64>, projected: &DVector<f64>) -> Option<DVector<f64>> {
    let n = projected.len();
    let size = |j: usize| gram[(j, j)].max(f64::MIN_POSITIVE).sqrt();
    // Columns of unit length, with a share of 1e-9 on the diagonal, so that equal columns have a solution.
    let scaled = DMatrix::from_fn(n, n, |i, j| gram[(i, j)] / (size(i) * size(j)) + if i == j { 1e-9 } else { 0.0 });
    let to = DVector::from_fn(n, |i, _| projected[i] / size(i));
    let lower = Cholesky::new(scaled)?.l();
    let right = lower.solve_lower_triangular(&to)?;
    let x = nnls(&lower.transpose(), &right);
    Some(DVector::from_fn(n, |i, _| x[i] / size(i)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::costs::Part;
    use foretoken_sim::PassShape;

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
        assert_eq!(terms, [Term::Above(8)]);
        let fit = CostFit::of(&rows, Costs::Apart, &terms);
        assert!((fit.terms[0].1 - 2.1e-3).abs() < 1e-4, "{:?}", fit.terms);
        assert_eq!(fit.terms[0].0.in_words(2.1e-3), "2.10 ms above 8 requests");
    }

    /// Whole tiles of 20 tokens. Steps with a prompt of 10 to 300 tokens show them.
    #[test]
    fn tiles_are_found_by_their_size() {
        let mut rows = rows(|_| 0.0);
        let first = rows[0];
        rows.extend((10..300).map(|prompt_tokens| {
            let elapsed_s = 10e-3 + 1e-4 * (prompt_tokens + 3) as f64;
            StepRow { k: 0, decodes: 3, verified: 3, prompts: 1, prompt_tokens, elapsed_s, ..first }
        }));
        rows.iter_mut().for_each(|r| r.elapsed_s += 2.2e-3 * ((r.verified + r.prompt_tokens).div_ceil(20) - 1) as f64);
        assert_eq!(chosen(&rows, Costs::Apart), [Term::Tiles(20)]);
        let fit = CostFit::of(&rows, Costs::Apart, &[Term::Tiles(20)]);
        assert!((fit.terms[0].1 - 2.2e-3).abs() < 1e-4, "{:?}", fit.terms);
        let pass = |batched| fit.target().build().pass(PassShape { requests: 1, batched, context: 0, pairs: 0 });
        let jump = pass(21).as_s() - pass(20).as_s();
        assert!((jump - 2.3e-3).abs() < 1e-4, "{jump}");
        let law = 10e-3 + 48.0 * 1e-4 + 2.0 * 2.2e-3;
        assert!((pass(48).as_s() / law - 1.0).abs() < 0.01, "{}", pass(48).as_s());
    }

    #[test]
    fn costs_by_tokens_alone_get_no_term() {
        assert_eq!(chosen(&rows(|_| 0.0), Costs::Apart), []);
    }
}
