//! Errors of fitted costs on steps that were left out of the fit: the steps of a whole run, or of the second half of
//! every run.

use crate::calibrate::costs::StepRow;
use crate::calibrate::fit::CostFit;
use crate::calibrate::predict::{AcceptanceFrom, Prediction};
use crate::calibrate::source::Source;
use crate::compare::numbers::{Numbers, RunRecords};
use crate::compare::server_runs::Misfit;
use foretoken_profiler::Calibrated;
use foretoken_run::spec::problem::Result;
use foretoken_sim::{EngineConfig, Run};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Errors of the step times that fitted costs predict, relative to the observed times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Error {
    /// Number of steps whose time was predicted.
    pub steps: usize,
    /// Mean over steps of |predicted time / observed time − 1|.
    pub mean_absolute: f64,
    /// Sum of predicted times / sum of observed times − 1. The predicted duration of a long run has this error.
    pub bias: f64,
}

impl Error {
    /// The mean absolute error and the bias of predicted step times, as text.
    pub fn in_words(&self) -> String {
        format!("{:.1} % (bias {})", 100.0 * self.mean_absolute, foretoken_report::signed_percent(self.bias))
    }
}

/// Errors of the predicted pass times of one live run. The predicting costs were fitted to the runs of other cells
/// (other policies or loads).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOutRun {
    /// Label, such as `fixed-3`, of the policy of the live run whose pass times are predicted.
    pub policy: String,
    /// The name of the file with the live run's recording.
    pub tape: String,
    /// Error of the summed time of the run's target passes: predicted / measured − 1. `None` if this run has no target
    /// pass, or if no run of another cell has one.
    pub target: Option<f64>,
    /// Error of the summed time of the run's draft passes: predicted / measured − 1. `None` if this run has no draft
    /// pass, or if no run of another cell has one.
    pub draft: Option<f64>,
}

/// Errors of step times that a fit predicts, on steps left out of the fit and on the fitted steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// For each run: (its index, the errors on its steps, predicted by costs fitted to all other runs). A run is
    /// missing here if there is no other run. It is also missing if the other runs do not have all its draft lengths,
    /// each with batches as small and as large as in this run.
    pub by_run: Vec<(usize, Error)>,
    /// Errors on the steps in the second half of every run. Their times are predicted by costs that were fitted to
    /// the first halves of the runs.
    pub by_time: Error,
    /// Errors on the steps to which the costs were fitted.
    pub fitted: Error,
    /// For each draft length: (draft length, errors on the fitted steps with this draft length).
    pub by_length: Vec<(u32, Error)>,
    /// What the form of the fitted costs cannot say, as the standard deviation of a relative error: see [`misfit`].
    #[serde(default)]
    pub misfit: f64,
    /// The errors of the numbers of whole runs, with the acceptance observed in them: see [`of_runs`](Self::of_runs).
    #[serde(default)]
    pub numbers: Misfit,
}

/// Steps of one draft length and one number of requests count as a group if they are at least this many.
const FEW: usize = 5;
/// A group is also predicted by a fit without it if it has at least this share of the steps of its draft length.
const GROUP: f64 = 0.05;
/// Steps with up to this many times as many or as few requests are left out together: they say the same.
const ALIKE: f64 = 1.5;

/// The groups of steps that have one draft length and one number of requests, as ((draft length, number of requests),
/// whether the group has a good share of the steps of its draft length).
fn groups(rows: &[StepRow]) -> Vec<((u32, u32), bool)> {
    let mut counts: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut of_length: BTreeMap<u32, usize> = BTreeMap::new();
    for row in rows.iter().filter(|r| r.decodes > 0) {
        *counts.entry((row.k, row.decodes)).or_default() += 1;
        *of_length.entry(row.k).or_default() += 1;
    }
    let common = |(at, n): ((u32, u32), usize)| (at, n as f64 >= GROUP * of_length[&at.0] as f64);
    counts.into_iter().filter(|group| group.1 >= FEW).map(common).collect()
}

/// What the form of the fitted costs cannot say: the root mean square of the relative errors of the summed times of
/// groups of steps. A group has one draft length and one number of requests. Its error by the fit itself is too small
/// for a draft length that was not observed. Its error by a fit without it and without similar batches is too large,
/// because the batch sizes of a prediction were observed. So the geometric mean of the two is taken, if smaller and
/// larger batches of the draft length remain. A step at a number of requests, or a curve that the form lacks, shows
/// here and nowhere else: a repeated run has the same misfit as the runs to which the costs were fitted. All groups
/// count equally, since other loads run other batches. The share of an error that its few steps explain is subtracted.
fn misfit(fit: &CostFit, rows: &[StepRow], fit_to: &dyn Fn(&[StepRow]) -> CostFit) -> f64 {
    let bias_of = |((k, decodes), common): ((u32, u32), bool)| {
        let own = |r: &StepRow| r.k == k && r.decodes == decodes;
        let is_alike = |r: &StepRow| {
            let (a, b) = (f64::from(r.decodes.max(1)), f64::from(decodes));
            r.k == k && a <= ALIKE * b && b <= ALIKE * a
        };
        let others: Vec<StepRow> = rows.iter().filter(|r| !is_alike(r)).copied().collect();
        let inside = common && batches(&others, k).is_some_and(|(least, most)| least < decodes && decodes < most);
        let by_fit = error(fit, rows.iter().filter(|r| own(r))).bias;
        let by_others = inside.then(|| error(&fit_to(&others), rows.iter().filter(|r| own(r))).bias);
        let bias = by_others.map_or(by_fit.abs(), |bias| (bias * by_fit).abs().sqrt());
        let chance = fit.noise * fit.noise / rows.iter().filter(|r| own(r)).count() as f64;
        (bias * bias - chance).max(0.0)
    };
    let all: Vec<f64> = groups(rows).into_iter().map(bias_of).collect();
    (all.iter().sum::<f64>() / all.len().max(1) as f64).sqrt()
}

/// The smallest and the largest number of decoding requests in the steps with draft length `k`.
fn batches(rows: &[StepRow], k: u32) -> Option<(u32, u32)> {
    let decodes = || rows.iter().filter(|r| r.k == k && r.decodes > 0).map(|r| r.decodes);
    Some((decodes().min()?, decodes().max()?))
}

/// The errors of the step times that the fitted costs `fit` predict for the steps `rows`.
pub fn error<'a>(fit: &CostFit, rows: impl Iterator<Item = &'a StepRow>) -> Error {
    let (mut n, mut absolute, mut predicted, mut observed) = (0, 0.0, 0.0, 0.0);
    for row in rows {
        let p = fit.step_s(row);
        n += 1;
        absolute += (p / row.elapsed_s - 1.0).abs();
        predicted += p;
        observed += row.elapsed_s;
    }
    match n {
        0 => Error::default(),
        n => Error { steps: n, mean_absolute: absolute / n as f64, bias: predicted / observed - 1.0 },
    }
}

impl HeldOut {
    /// The errors of the step times that `fit` predicts, and the errors of further fits that leave steps out.
    /// `fit_to` is the function that made `fit` from `rows`; this function also makes the further fits.
    pub fn of(fit: &CostFit, rows: &[StepRow], fit_to: &dyn Fn(&[StepRow]) -> CostFit) -> HeldOut {
        let mut runs: Vec<usize> = rows.iter().map(|r| r.source).collect();
        runs.dedup();
        let mut by_run = Vec::new();
        for &run in &runs {
            let (own, others): (Vec<StepRow>, Vec<StepRow>) = rows.iter().partition(|r| r.source == run);
            // The fit to the other runs must not extrapolate. So the other runs must have each draft length of this
            // run, with batches as small and as large as in this run.
            let lengths: BTreeSet<u32> = own.iter().map(|r| r.k).collect();
            let covered = |k: u32| match (batches(&own, k), batches(&others, k)) {
                (Some((least, most)), Some(others)) => others.0 <= least && most <= others.1,
                (own, _) => own.is_none(),
            };
            if !others.is_empty() && lengths.into_iter().all(covered) {
                by_run.push((run, error(&fit_to(&others), own.iter())));
            }
        }
        let (first, second): (Vec<StepRow>, Vec<StepRow>) = rows.iter().partition(|r| r.when < 0.5);
        let by_time = match first.is_empty() || second.is_empty() {
            true => Error::default(),
            false => error(&fit_to(&first), second.iter()),
        };
        let mut lengths: Vec<u32> = rows.iter().map(|r| r.k).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let of_length = |k: u32| (k, error(fit, rows.iter().filter(|r| r.k == k)));
        HeldOut {
            by_run,
            by_time,
            fitted: error(fit, rows.iter()),
            by_length: lengths.into_iter().map(of_length).collect(),
            misfit: misfit(fit, rows, fit_to),
            numbers: Misfit::default(),
        }
    }

    /// The root mean square of the relative errors with which the numbers of the runs are predicted, each run with its
    /// own acceptance, so that the errors come from costs and schedule. As in [`misfit`], the error of a run is the
    /// geometric mean of two: by costs fitted to all runs, and by costs fitted to the other runs, if these have its
    /// draft length, with batches as small and as large. `with_costs` makes a profile from costs fitted to some steps,
    /// and without steps that of all runs.
    pub fn of_runs(
        &self,
        sources: &[Source],
        rows: &[StepRow],
        engine: &EngineConfig,
        rates: &[f64],
        with_costs: &dyn Fn(Option<&[StepRow]>) -> Calibrated,
    ) -> Result<Misfit> {
        let whole = with_costs(None);
        let mut errors: Vec<Misfit> = Vec::new();
        for (at, source) in sources.iter().enumerate() {
            let Some(k) = source.k.filter(|k| whole.separated || whole.draft_lengths.contains(k)) else { continue };
            let left_out = self.by_run.iter().any(|(run, _)| *run == at);
            let others: Vec<StepRow> = rows.iter().filter(|r| r.source != at).copied().collect();
            let of_others = left_out.then(|| with_costs(Some(&others)));
            let acceptance = if k == 0 { AcceptanceFrom::None } else { AcceptanceFrom::Own(rates) };
            let numbers = |run: &Run| Numbers::of(&[RunRecords::requests_only(&run.records)]);
            let error = |cost: &Calibrated| -> Result<Misfit> {
                let run = Prediction { cost, acceptance, engine, seed: 1 }.serve(source, k)?;
                Ok(Misfit::between(&numbers(&run), &numbers(&source.run.run)))
            };
            let by_all = error(&whole)?;
            errors.push(match of_others {
                Some(others) => by_all.geometric_mean(&error(&others)?),
                None => by_all,
            });
        }
        Ok(Misfit::root_mean_square(&errors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::costs::Part;

    /// Steps of four test runs with K = 0, 0, 3 and 3. A step takes 10 ms, plus 0.1 ms per token, plus 5 ms per draft
    /// pass.
    fn rows() -> Vec<StepRow> {
        let mut all = Vec::new();
        for (source, k) in [(0, 0), (1, 0), (2, 3), (3, 3)] {
            for i in 0..200u32 {
                let decodes = 1 + i % 8;
                let prompt_tokens = if i % 10 == 0 { u64::from(40 + i % 90) } else { 0 };
                let verified = u64::from(decodes * (k + 1));
                let seconds = 10e-3 + 1e-4 * (verified + prompt_tokens) as f64 + 5e-3 * f64::from(k);
                all.push(StepRow {
                    source,
                    part: Part::Step,
                    when: f64::from(i) / 200.0,
                    k,
                    in_one_pass: false,
                    decodes,
                    verified,
                    prompts: u32::from(prompt_tokens > 0),
                    prompt_tokens,
                    context: 0,
                    elapsed_s: seconds,
                    host_s: Some(1e-3),
                });
            }
        }
        all
    }

    #[test]
    fn a_fit_predicts_held_out_steps_of_its_model() {
        let rows = rows();
        let fit = CostFit::to(&rows);
        let held_out = HeldOut::of(&fit, &rows, &CostFit::to);
        assert_eq!(held_out.by_run.len(), 4);
        for error in held_out.by_run.iter().map(|r| r.1).chain([held_out.by_time, held_out.fitted]) {
            assert!(error.mean_absolute < 1e-6 && error.bias.abs() < 1e-6, "{error:?}");
        }
        assert!((fit.host_s - 1e-3).abs() < 1e-12 && fit.noise < 1e-6);
        // The fit predicts a step with two draft passes, although no observed step had two.
        let mut two = rows[205];
        (two.k, two.verified) = (2, u64::from(two.decodes) * 3);
        two.elapsed_s = 10e-3 + 1e-4 * (two.verified + two.prompt_tokens) as f64 + 10e-3;
        assert!((fit.step_s(&two) / two.elapsed_s - 1.0).abs() < 1e-3, "{} {}", fit.step_s(&two), two.elapsed_s);
    }

    /// Steps above 6 requests that take 2 ms more, and a cost that grows with the square of the requests: the fit has
    /// no form for either.
    #[test]
    fn a_step_and_a_curve_that_the_form_lacks_are_misfit() {
        let of = |more: fn(f64) -> f64| {
            let mut rows = rows();
            rows.iter_mut().for_each(|r| r.elapsed_s += more(f64::from(r.decodes)));
            HeldOut::of(&CostFit::to(&rows), &rows, &CostFit::to).misfit
        };
        let (none, step, curve) = (of(|_| 0.0), of(|n| if n > 6.0 { 2e-3 } else { 0.0 }), of(|n| 1e-4 * n * n));
        assert!(none < 1e-6, "{none}");
        assert!((0.002..0.08).contains(&step), "{step}");
        assert!((0.001..0.10).contains(&curve), "{curve}");
    }

    /// The time of a run is the sum of its steps, so the fit must predict the mean time of steps.
    #[test]
    fn noise_leaves_the_fit_unbiased() {
        let mut rows = rows();
        for (i, row) in rows.iter_mut().enumerate() {
            // Noise on the step times: half of the steps are a third shorter, the other half a third longer.
            row.elapsed_s *= if i / 8 % 2 == 0 { 2.0 / 3.0 } else { 4.0 / 3.0 };
        }
        let bias = error(&CostFit::to(&rows), rows.iter()).bias;
        assert!(bias.abs() < 0.01, "{bias}");
    }

    #[test]
    fn a_run_with_a_length_of_its_own_is_not_held_out() {
        let rows: Vec<StepRow> = rows().into_iter().filter(|r| r.source < 3).collect();
        let held_out = HeldOut::of(&CostFit::to(&rows), &rows, &CostFit::to);
        assert_eq!(held_out.by_run.iter().map(|r| r.0).collect::<Vec<_>>(), [0, 1]);
    }
}
