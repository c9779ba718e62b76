//! Finds settings that do nothing. After a run, the report names the keys that the experiment gives or sweeps although
//! they changed no number. So no user tunes a setting in vain.
//!
//! No list says which settings do nothing: each setting is tried. For swept keys and seeds, the finished runs are
//! compared (`swept.rs`). Each key that the experiment gives is left out, or gets another value if the key is required
//! (`trial.rs`); then all numbers of the two runs are compared (`judge.rs`). Keys with their default value are not
//! tried. `[fleet]` is not tried, nor are `[live]`, `[observe]`, `[validate]` and `[capacity]`, which belong to other
//! commands.

mod found;
mod judge;
mod reasons;
mod swept;
mod trial;

#[cfg(test)]
mod every_leaf;

pub use found::{Evidence, Inert, NotTried, WithoutEffect};

use crate::cells::Numbers;
use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::document::Path;
use crate::spec::paper::Measure;
use crate::spec::problem::Result;
use judge::Judge;
use reasons::Facts;
use std::sync::atomic::AtomicBool;
use trial::Trials;

/// Which settings are changed on trial after a run, to find settings without effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// The settings whose trials (runs without the setting, or with another value) together take at most a quarter of
    /// the run's work, or a few seconds if that is more.
    #[default]
    Auto,
    /// All settings are tried, on the whole run.
    Always,
    /// Only swept keys and seeds: their finished runs are compared, and no run is repeated.
    Never,
}

/// Number of request-steps that the check may simulate after any run, also after a short one. Simulating them takes a
/// few seconds.
const SMALL: u64 = 12_000_000;
/// After a long run, the check may simulate at most 1 / PART of the run's request-steps.
const PART: u64 = 4;

/// Finds the settings of a finished run that did nothing. `numbers` has the digest of each run's results, in the order
/// of `plan`, which lists all runs.
///
/// # Errors
/// The workload or server of the first variant (combination of swept values) and seed cannot be built, or the work is
/// interrupted.
pub fn look(plan: &Plan, numbers: &[Numbers], check: Check, interrupt: &AtomicBool) -> Result<Inert> {
    look_at(plan, numbers, check, interrupt, |_| true)
}

/// Finds the settings of a finished run that did nothing, as [`look`] does. Of the keys that the experiment gives,
/// tries only those for which `wanted` is true.
fn look_at(
    plan: &Plan,
    numbers: &[Numbers],
    check: Check,
    interrupt: &AtomicBool,
    wanted: impl Fn(&Path) -> bool,
) -> Result<Inert> {
    let (swept_idly, seeds_agree) = (swept::keys(plan, numbers), swept::seeds_agree(plan, numbers));
    if check == Check::Never && swept_idly.is_empty() && !seeds_agree {
        return Ok(Inert::default());
    }
    let setting = Setting::new(&plan.variants[0], plan.seeds[0])?;
    let facts = Facts::new(plan, &setting);
    let mut inert = Inert::default();
    let swept = |path: String, tried: &str, why| WithoutEffect {
        path,
        value: None,
        tried: tried.to_owned(),
        evidence: Evidence::Whole,
        why,
    };
    if seeds_agree {
        let why = Some("nothing in this experiment is random".to_owned());
        inert.without_effect.push(swept("seeds".to_owned(), "with each of its values", why));
    }
    // A claim of a paper (a statement with its number) may be computed from the acceptance without a run. For such
    // claims `[acceptance]` has an effect, although it changes no number of the run.
    let experiment = &plan.variants[0].experiment;
    let of_papers = experiment.paper.iter().flat_map(|paper| &paper.claims).map(|claim| &claim.measure);
    let of_questions = experiment.question.iter().flat_map(|question| &question.claims).map(|claim| &claim.measure);
    let estimates = of_papers.chain(of_questions).any(|measure| matches!(measure, Measure::Estimate(_)));
    let of_claims = |path: &str| estimates && path.starts_with("acceptance.");
    inert.without_effect.extend(swept_idly.into_iter().filter(|path| !of_claims(path)).map(|path| {
        let why = facts.why(&path);
        swept(path, "with each value of its sweep", why)
    }));
    if check == Check::Never {
        return Ok(inert);
    }
    let run: u64 = numbers.iter().map(|n| n.request_steps).sum();
    let budget = if check == Check::Always { u64::MAX } else { SMALL.max(run / PART) };
    // With `slo.reference`, the TPOT bound of one variant comes from the autoregressive run of another. A trial runs
    // one variant at a time, so it would not show the setting's effect.
    let scaled = plan.variants.iter().any(|variant| variant.experiment.slo.adaspec_scale.is_some());
    let swept_bounds = plan.variants.len() > 1 && scaled;
    let first = &plan.variants[0];
    let document = first.document();
    // An experiment with a calibrated profile (costs fitted to an observed server) describes an observed server and its
    // requests in the tables `engine`, `workload` and `acceptance`. Their values are facts and not choices. So
    // `Check::Auto` tries only those values of these tables that the user replaced with `--set`.
    let described = |path: &Path| {
        let in_tables = ["engine", "workload", "acceptance"].iter().any(|top| path.is_below(&Path::of(top)));
        check == Check::Auto && first.filled.calibrated && in_tables && !document.is_overridden(path)
    };
    let reported = |path: &Path| {
        let text = path.to_string();
        !(described(path) || of_claims(&text) || swept_bounds && text.starts_with("slo.reference"))
    };
    let Trials { trials, impossible } =
        Trials::of(plan, setting.workload.len() as u64, |path| wanted(path) && reported(path));
    let (found, left) = Judge { plan, numbers, budget, interrupt }.judge(trials, &setting)?;
    inert.without_effect.extend(found.into_iter().map(|(trial, evidence)| {
        let path = trial.path.to_string();
        let why = facts.why(&path);
        WithoutEffect { path, value: Some(trial.value), tried: trial.tried, evidence, why }
    }));
    let left = left.into_iter().map(|trial| (trial.path, true));
    let impossible = impossible.into_iter().map(|path| (path, false));
    inert.not_tried =
        left.chain(impossible).map(|(path, for_its_cost)| NotTried { path: path.to_string(), for_its_cost }).collect();
    Ok(inert)
}
