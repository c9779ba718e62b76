//! Settings that do nothing. After a run, the keys that were given or swept and changed no number are named, so that nobody
//! tunes one in vain or believes that it was tried.
//!
//! Found by running it again, not from a list: swept keys and seeds from the cells that are there (`swept.rs`), given keys by
//! leaving each out, or giving another value where it must be given (`trial.rs`), and comparing all numbers (`judge.rs`). A key
//! that was given its own default is not looked at, and neither are `[live]`, `[observe]`, `[validate]` and `[capacity]`, which are other commands'.

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
use foretoken_spec::document::Path;
use foretoken_spec::paper::Measure;
use foretoken_spec::problem::Result;
use judge::Judge;
use reasons::Facts;
use std::sync::atomic::AtomicBool;
use trial::Trials;

/// When a run is tried again without its settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// As far as a quarter of the run's work goes, or a few seconds.
    #[default]
    Auto,
    /// All of them, on the whole run.
    Always,
    /// Swept ones alone, which costs nothing.
    Never,
}

/// Request-steps that may be spent on any run, however short: a few seconds at most.
const SMALL: u64 = 12_000_000;
/// On a long run, this part of it.
const PART: u64 = 4;

/// Finds the settings of a finished run that did nothing. `numbers`: of its cells, in the order of the plan.
pub fn look(plan: &Plan, numbers: &[Numbers], check: Check, interrupt: &AtomicBool) -> Result<Inert> {
    look_at(plan, numbers, check, interrupt, |_| true)
}

/// The same for some of the given keys alone.
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
        let why = Some("nothing here is drawn".to_owned());
        inert.without_effect.push(swept("seeds".to_owned(), "with each of its values", why));
    }
    // A claim's estimate is made of the acceptance alone, without a run.
    let claims = plan.variants[0].experiment.paper.iter().flat_map(|paper| &paper.claims);
    let estimates = claims.into_iter().any(|claim| matches!(claim.measure, Measure::Estimate(_)));
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
    // A load's run that bounds others is told only by all of them together.
    let scaled = plan.variants.iter().any(|variant| variant.experiment.slo.adaspec_scale.is_some());
    let swept_bounds = plan.variants.len() > 1 && scaled;
    let told = |path: &Path| {
        let path = path.to_string();
        !(of_claims(&path) || swept_bounds && path.starts_with("slo.reference"))
    };
    let Trials { trials, impossible } =
        Trials::of(plan, setting.workload.len() as u64, |path| wanted(path) && told(path));
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
