//! Fits the cost of a step: a target pass over its tokens, then draft passes. The fit is one problem of non-negative
//! least squares. Errors are relative to the expected time, so that short steps count as much as long ones and the fit
//! predicts means.
//!
//! A step of `b` tokens with `c` tokens of context, after which n requests draft K tokens each, takes
//! T(b, c) + D(b + n) + (K − 1) · D(n): the first draft pass runs over all tokens of the step and one more per request,
//! each later pass over one token per request. The target's cost T is piecewise linear in b, never falls, and has a
//! constant cost per token of context. The draft model's cost D is linear: α per token of context, γ per token, δ per
//! pass. Where other steps are predicted better with it, T also has a term of the number of requests, or of tiles of
//! tokens (`terms.rs`).
//!
//! Two rules keep the fit from guessing. Below the smallest observed step T is constant. If the steps cannot separate T
//! from D, for example because all of them drafted 3 tokens, T gets the whole time of the steps and D none
//! ([`CostFit::together`]). Such a fit predicts the observed draft lengths only.

use crate::calibrate::costs::between_steps;
use crate::calibrate::costs::{Part, StepRow};
use crate::calibrate::term::{Term, curve, stairs};
use foretoken_profiler::hardware::{LatencySpec, MeasuredSpec};
use foretoken_profiler::nnls::nnls;
use foretoken_sim::Coefficients;
use nalgebra::{DMatrix, DVector};
use std::collections::BTreeSet;

/// Numbers of batched tokens at which the slope of the target's fitted cost may change.
const BENDS: [u64; 14] = [1, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024];

/// How often the fit of costs to steps is repeated. In the first fit, errors are relative to the observed times. In
/// each repetition, they are relative to the times that the previous fit predicts. With observed times alone, steps
/// that were short by chance would count most, and the fit would lie below the mean.
const ROUNDS: usize = 3;

/// A fitted target pass takes at least this share of the shortest observed step. Without this bound, a fit to few steps
/// may give all of the time to context or to draft passes. Target passes would then be free, so that whole runs take no
/// time, or a draft pass would cost as much as twenty target passes and would never pay.
const LEAST_SHARE: f64 = 0.05;

/// A fit separates draft passes from target passes if the standard error of the draft passes' share of a step's time is
/// at most this. This precision is enough: whether drafting pays depends on differences of some tens of per cent of a
/// step.
const MOST_ERROR: f64 = 0.10;

/// [`own_share`] is the share of the least-squares column "number of draft passes" that the target's columns do not
/// explain. A share of at most `ROUNDING` comes from rounding errors alone: draft passes cannot be separated from
/// target passes.
const ROUNDING: f64 = 1e-6;

/// The policies' linear cost model of a pass is fitted to the times of at most this number of passes, each with another
/// number of tokens.
const SIZES: u64 = 4096;

/// The fitted costs of target passes, of draft passes and of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct CostFit {
    /// Fitted time of a target pass without context and without `terms`, as (number of tokens, seconds). Times are
    /// linear between these points.
    pub batched: Vec<(u64, f64)>,
    /// Fitted seconds of a target pass per token of context that it reads.
    pub alpha_s: f64,
    /// Fitted terms of the number of requests or of tiles of tokens in a target pass, each with its seconds.
    pub terms: Vec<(Term, f64)>,
    /// The fitted linear cost of a draft pass; 0 if the fit does not separate draft passes from target passes.
    pub draft: Coefficients,
    /// Host time (scheduler, Python, launches) between the steps, seconds: the part that does not depend on requests.
    pub host_s: f64,
    /// Host time between the steps for each request in a step, seconds; 0 if the steps do not show that it grows.
    pub host_request_s: f64,
    /// Root mean square of the relative errors of the step times that the fit predicts.
    pub noise: f64,
}

/// Whether a fit to step times has separate costs for target model and draft model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Costs {
    /// The fit has one cost for target passes and one for draft passes.
    Apart,
    /// The fit has one cost per step, which counts as the target's.
    Together,
}

impl CostFit {
    /// Fits the costs of target passes and of draft passes to timed steps.
    pub fn to(rows: &[StepRow]) -> CostFit {
        CostFit::of(rows, Costs::Apart, &[])
    }

    /// Fits one cost to whole steps: all of a step's time counts as the target's, and draft passes cost nothing.
    pub fn together(rows: &[StepRow]) -> CostFit {
        CostFit::of(rows, Costs::Together, &[])
    }

    pub(crate) fn of(rows: &[StepRow], costs: Costs, terms: &[Term]) -> CostFit {
        let bends = bends(rows);
        let shortest = rows.iter().map(|r| r.elapsed_s).reduce(f64::min);
        let fitting = Fitting { rows, bends: &bends, costs, terms, least_s: LEAST_SHARE * shortest.unwrap_or(0.0) };
        let mut expected: Vec<f64> = rows.iter().map(|r| r.elapsed_s).collect();
        let mut fit = fitting.weighted(&expected);
        for _ in 0..ROUNDS {
            expected = rows.iter().map(|r| fit.expected_s(r)).collect();
            fit = fitting.weighted(&expected);
        }
        let squares: f64 = rows.iter().map(|r| (r.elapsed_s / fit.expected_s(r) - 1.0).powi(2)).sum();
        fit.noise = (squares / rows.len() as f64).sqrt();
        fit
    }

    /// The time in seconds by which the error of a step's predicted time is divided: the predicted time, but at least
    /// [`LEAST_SHARE`] of the observed time.
    pub(crate) fn expected_s(&self, r: &StepRow) -> f64 {
        self.step_s(r).max(LEAST_SHARE * r.elapsed_s)
    }

    /// The time in seconds that the fit predicts for a step or, if `r.part` says so, for its target pass alone.
    pub fn step_s(&self, r: &StepRow) -> f64 {
        let terms: f64 =
            self.terms.iter().map(|(term, seconds)| seconds * term.of(r.decodes + r.prompts, tokens(r))).sum();
        let (target, d) = (line(&self.batched, tokens(r)) + self.alpha_s * r.context as f64 + terms, &self.draft);
        match r.part {
            Part::Step => target + (d.delta_s * passes(r) + d.gamma_s * draft_tokens(r) + d.alpha_s * draft_context(r)),
            Part::Target => target,
        }
    }

    pub fn target(&self) -> LatencySpec {
        const FAR: u64 = 1 << 20;
        let context = if self.alpha_s > 0.0 { vec![(0, 0.0), (FAR, self.alpha_s * FAR as f64)] } else { vec![] };
        let requests = curve(&self.terms, FAR);
        LatencySpec::Measured(MeasuredSpec { batched: self.curve(), pairs: vec![], context, requests })
    }

    /// Fitted time of a target pass without context and without terms of requests, as (number of tokens, seconds).
    pub fn curve(&self) -> Vec<(u64, f64)> {
        let bends: Vec<u64> = self.batched.iter().map(|point| point.0).collect();
        stairs(&self.terms, &bends, bends.last().copied().unwrap_or(1), |x| line(&self.batched, x))
    }

    pub fn draft_model(&self) -> LatencySpec {
        LatencySpec::Linear(self.draft)
    }

    /// The linear cost model that policies assume for the target (their belief). The line is fitted to the times that
    /// `self` predicts for passes of 1 to `most` tokens.
    pub fn target_line(&self, most: u64) -> Coefficients {
        // Least squares of the relative errors of pass times. Each number of tokens from 1 to `most` counts once. If
        // `most` exceeds SIZES, numbers of tokens are skipped at equal distances, so that at most SIZES of them
        // count.
        let most = most.max(2);
        let sizes: Vec<u64> = (1..=most).step_by(most.div_ceil(SIZES) as usize).collect();
        let curve = self.curve();
        let a = DMatrix::from_fn(sizes.len(), 2, |i, j| {
            let seconds = line(&curve, sizes[i]);
            if j == 0 { 1.0 / seconds } else { sizes[i] as f64 / seconds }
        });
        let x = nnls(&a, &DVector::from_element(sizes.len(), 1.0));
        Coefficients { alpha_s: self.alpha_s, gamma_s: x[1], delta_s: x[0] }
    }
}

/// Numbers of tokens at which the slope of the target's cost may change: the size of the smallest step, some of
/// [`BENDS`], and the size of the largest step. A bend is used only if some step has more tokens than the previous
/// bend and at most as many as this bend. Otherwise many curves would explain the larger steps equally well, and the
/// fit would choose one of them at random.
pub(crate) fn bends(rows: &[StepRow]) -> Vec<u64> {
    let sizes: BTreeSet<u64> = rows.iter().map(tokens).collect();
    let (least, most) = (*sizes.first().expect("steps"), *sizes.last().expect("steps"));
    let mut all = vec![least];
    for bend in BENDS.into_iter().filter(|&b| least < b && b < most) {
        let before = *all.last().expect("the least");
        if sizes.range(before + 1..=bend).next().is_some() {
            all.push(bend);
        }
    }
    if most > least {
        all.push(most);
    }
    all
}

/// True if the observed steps suffice to separate the cost of a draft pass from the cost of a target pass. `noise` is
/// the root mean square of the relative errors of step times, if the costs of target passes and of draft passes are
/// fitted.
pub fn tells_apart(rows: &[StepRow], noise: f64) -> bool {
    let own = own_share(rows);
    own > ROUNDING && noise / (own * rows.len() as f64).sqrt() <= MOST_ERROR
}

/// The share of the squared norm of the least-squares column "number of draft passes" that no combination of the
/// target's columns explains. The share is about 0.3 for runs of K = 0 and K = 3. It is 0 up to rounding if every
/// step drafted equally many tokens. The standard error of the draft passes' share of a step's time is `noise` /
/// sqrt(share · number of steps).
fn own_share(rows: &[StepRow]) -> f64 {
    if rows.is_empty() {
        return 0.0;
    }
    let bends = bends(rows);
    let relative_column =
        |j: usize| DVector::from_fn(rows.len(), |i, _| column(&rows[i], &bends, j) / rows[i].elapsed_s);
    let mut passes = relative_column(draft_columns(&bends) + 2);
    let whole = passes.norm_squared();
    // Gram-Schmidt: the target's columns are subtracted from the column "number of draft passes" one by one.
    let mut basis: Vec<DVector<f64>> = Vec::new();
    for mut column in (0..draft_columns(&bends)).map(relative_column) {
        let length = column.norm();
        // Each column of the least-squares matrix is made orthogonal twice, because rounding errors leave a remainder
        // after the first time.
        for _ in 0..2 {
            basis.iter().for_each(|b| column -= b * b.dot(&column));
        }
        if column.norm() > 1e-6 * length {
            basis.push(column.normalize());
        }
    }
    basis.iter().for_each(|b| passes -= b * b.dot(&passes));
    if whole > 0.0 { passes.norm_squared() / whole } else { 0.0 }
}

/// The inputs of a fit of costs to steps: the steps, the numbers of tokens at which the target's cost may bend,
/// whether draft passes get a cost of their own, and the least time of a target pass.
struct Fitting<'a> {
    rows: &'a [StepRow],
    bends: &'a [u64],
    costs: Costs,
    terms: &'a [Term],
    /// Lower bound on the fitted time of a target pass, in seconds.
    least_s: f64,
}

impl Fitting<'_> {
    /// Fits the costs by least squares. The error of a step's time is divided by the step's entry in `expected`, its
    /// expected time in seconds. Leaves the fit's error (`noise`) at 0.
    fn weighted(&self, expected: &[f64]) -> CostFit {
        let Fitting { rows, bends, costs, terms, least_s } = *self;
        let drafts = draft_columns(bends);
        let own = own_columns(bends, costs);
        let entry = |i: usize, j: usize| match j.checked_sub(own) {
            Some(term) => term_column(&rows[i], terms[term]),
            None => own_column(&rows[i], bends, costs, j),
        };
        let a = DMatrix::from_fn(rows.len(), own + terms.len(), |i, j| entry(i, j) / expected[i]);
        // The observed time minus the lower bound of a target pass, relative to the expected time. Least squares fits
        // this remainder with constants of at least 0. The bound is added to the constant afterwards, so a pass never
        // takes less.
        let rest = |i: usize| (rows[i].elapsed_s - least_s * entry(i, 0)) / expected[i];
        let mut x = nnls(&a, &DVector::from_fn(rows.len(), |i, _| rest(i)));
        x[0] += least_s;
        let mut at = x[0];
        let mut batched = vec![(bends[0], at)];
        for (i, &bend) in bends.iter().enumerate().skip(1) {
            at += x[i];
            batched.push((bend, at));
        }
        if bends[0] > 1 {
            batched.insert(0, (1, x[0]));
        }
        let (host_s, host_request_s) = between_steps(rows);
        CostFit {
            batched,
            alpha_s: x[bends.len()],
            terms: terms.iter().copied().zip(x.iter().skip(own).copied()).filter(|at| at.1 > 0.0).collect(),
            draft: match costs {
                Costs::Apart => Coefficients { alpha_s: x[drafts], gamma_s: x[drafts + 1], delta_s: x[drafts + 2] },
                Costs::Together => Coefficients::FREE,
            },
            host_s,
            host_request_s,
            noise: 0.0,
        }
    }
}

/// Index of the draft model's first column in a row of the least-squares matrix. The draft model has three columns:
/// context, tokens and passes. The target's columns come before them: a constant, one ramp between each two
/// neighbouring bends, and context.
fn draft_columns(bends: &[u64]) -> usize {
    bends.len() + 1
}

/// Number of columns of the least-squares matrix without terms.
pub(crate) fn own_columns(bends: &[u64], costs: Costs) -> usize {
    draft_columns(bends) + if costs == Costs::Apart { 3 } else { 0 }
}

pub(crate) fn own_column(r: &StepRow, bends: &[u64], costs: Costs, j: usize) -> f64 {
    let part = if costs == Costs::Apart { r.part } else { Part::Target };
    column(&StepRow { part, ..*r }, bends, j)
}

pub(crate) fn term_column(r: &StepRow, term: Term) -> f64 {
    term.of(r.decodes + r.prompts, tokens(r))
}

fn column(r: &StepRow, bends: &[u64], j: usize) -> f64 {
    let (ramps, drafts) = (bends.len() - 1, draft_columns(bends));
    match (j, r.part) {
        (j, Part::Target) if j >= drafts => 0.0,
        (0, _) => 1.0,
        (j, _) if j <= ramps => {
            // The last ramp of the target's piecewise linear cost continues to rise beyond the largest step.
            let (from, to) = (bends[j - 1] as f64, bends[j] as f64);
            let share = (tokens(r) as f64 - from) / (to - from);
            if j == ramps { share.max(0.0) } else { share.clamp(0.0, 1.0) }
        }
        (j, _) if j < drafts => r.context as f64,
        (j, _) if j == drafts => draft_context(r),
        (j, _) if j == drafts + 1 => draft_tokens(r),
        _ => passes(r),
    }
}

/// Number of tokens of the step's target pass.
fn tokens(r: &StepRow) -> u64 {
    r.verified + r.prompt_tokens
}

/// Number of draft passes after the step. The pass of a block drafter that only writes the step's tokens into KV is no
/// pass of its own here, because it has no constant cost (docs/model.md 12).
fn passes(r: &StepRow) -> f64 {
    f64::from(if r.in_one_pass { r.k.min(1) } else { r.k })
}

/// Tokens of all draft passes after the step, summed. The first pass runs over the step's tokens and one more per
/// request, each later pass over one token per request. A drafter with one pass runs over the step's tokens, and over
/// one token and its draft tokens per request.
fn draft_tokens(r: &StepRow) -> f64 {
    let requests = f64::from(r.decodes + r.prompts);
    match r.k {
        0 => 0.0,
        k if r.in_one_pass => tokens(r) as f64 + requests * f64::from(k + 1),
        k => tokens(r) as f64 + requests * f64::from(k),
    }
}

/// Tokens of context that all draft passes after a step read together.
fn draft_context(r: &StepRow) -> f64 {
    r.context as f64 * passes(r)
}

/// The value at `x` of the line through `points`, by linear interpolation. Outside of the points, the first and the
/// last segment continue. One point gives a constant.
fn line(points: &[(u64, f64)], x: u64) -> f64 {
    if points.len() == 1 {
        return points[0].1;
    }
    let right = points.partition_point(|p| p.0 < x).clamp(1, points.len() - 1);
    let ((x0, y0), (x1, y1)) = (points[right - 1], points[right]);
    y0 + (y1 - y0) * (x as f64 - x0 as f64) / (x1 - x0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of plain decoding with `decodes` requests, on a machine that takes 1.5 ms per pass and 50 µs per token.
    fn step(decodes: u32) -> StepRow {
        StepRow {
            source: 0,
            part: Part::Step,
            when: 0.5,
            k: 0,
            in_one_pass: false,
            decodes,
            verified: decodes.into(),
            prompts: 0,
            prompt_tokens: 0,
            context: 0,
            elapsed_s: 1.5e-3 + 50e-6 * f64::from(decodes),
            host_s: None,
        }
    }

    /// Three draft passes after a step with two requests, eight verified tokens, 100 tokens of context and a prompt
    /// chunk of 50 tokens: the first runs over 58 + 3 tokens, the others over three tokens each.
    #[test]
    fn the_draft_passes_of_a_step_have_its_tokens_and_its_context() {
        let row = StepRow { k: 3, verified: 8, prompts: 1, prompt_tokens: 50, context: 100, ..step(2) };
        assert_eq!((draft_tokens(&row), draft_context(&row)), (58.0 + 3.0 * 3.0, 300.0));
        assert_eq!((draft_tokens(&step(2)), draft_context(&step(2))), (0.0, 0.0));
        // A block drafter writes the 58 tokens into KV, and drafts three tokens after one token of each request.
        let block = StepRow { in_one_pass: true, ..row };
        assert_eq!((passes(&row), passes(&block)), (3.0, 1.0));
        assert_eq!((draft_tokens(&block), draft_context(&block)), (58.0 + 3.0 * 4.0, 100.0));
    }

    /// The line that policies get is the law of the machine, also if not every number of tokens counts.
    #[test]
    fn the_policies_line_is_the_machines() {
        let rows: Vec<StepRow> = [1, 4, 16, 64].iter().flat_map(|&n| [step(n); 20]).collect();
        let fit = CostFit::to(&rows);
        for most in [1, 2, 64, 3 * SIZES] {
            let line = fit.target_line(most);
            assert!((line.gamma_s / 50e-6 - 1.0).abs() < 1e-6, "{most}: {line:?}");
            assert!((line.delta_s / 1.5e-3 - 1.0).abs() < 1e-6, "{most}: {line:?}");
        }
    }

    /// The target's fitted cost bends at a number of tokens only if some step has more tokens than the previous bend
    /// and at most as many as this bend. If step times are linear in the tokens, the fit is linear too, whichever
    /// sizes were observed.
    #[test]
    fn the_line_bends_only_where_steps_decide_it() {
        let bends_of = |sizes: &[u32]| bends(&sizes.iter().map(|&n| step(n)).collect::<Vec<_>>());
        assert_eq!(bends_of(&[1, 4, 12]), [1, 4, 12], "no step from 5 to 8");
        assert_eq!(bends_of(&[1, 4, 7, 12]), [1, 4, 8, 12]);
        assert_eq!(bends_of(&[3, 90]), [3, 90]);
        assert_eq!(bends_of(&[5]), [5]);
        for sizes in [&[1, 4, 12][..], &[2, 200], &[1, 3, 6, 20, 100], &[1, 2, 3, 9, 33, 65, 300]] {
            let rows: Vec<StepRow> = sizes.iter().flat_map(|&n| [step(n); 20]).collect();
            let fit = CostFit::to(&rows);
            for n in sizes[0]..=*sizes.last().unwrap() {
                let (fitted, law) = (fit.step_s(&step(n)), step(n).elapsed_s);
                assert!((fitted / law - 1.0).abs() < 1e-6, "{n} tokens of {sizes:?}: {fitted} for {law}");
            }
        }
    }
}
