//! Settings that do nothing. After a run, the keys that were given or swept and changed no number are named, so that nobody
//! tunes one in vain or believes that it was tried.
//!
//! Found by running it again, not from a list: swept keys and seeds from the cells that are there (`swept.rs`), given keys by
//! leaving each out, or giving another value where it must be given (`trial.rs`), and comparing all numbers (`judge.rs`). A key
//! that was given its own default is not looked at, and neither are `[live]` and `[validate]`, which are other commands'.

mod judge;
mod reasons;
mod swept;
mod trial;

#[cfg(test)]
mod every_leaf;

use crate::cells::Numbers;
use crate::plan::Plan;
use crate::setting::Setting;
use foretoken_spec::document::Path;
use foretoken_spec::paper::Measure;
use foretoken_spec::problem::Result;
use judge::{Evidence, Judge};
use reasons::Facts;
use serde::{Deserialize, Serialize};
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

/// The settings that did nothing, and those that nothing is known of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inert {
    /// Settings that changed no number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_effect: Vec<WithoutEffect>,
    /// Settings that were not tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_tried: Vec<NotTried>,
}

/// A setting that changed no number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithoutEffect {
    /// Its key.
    pub path: String,
    /// What it was given, as TOML; absent when it was swept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What was tried instead.
    pub tried: String,
    /// How much came out the same.
    pub evidence: Evidence,
    /// Why it did nothing, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A setting that was not tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotTried {
    /// Its key.
    pub path: String,
    /// Would `--check-settings always` try it? If not, it must be given and no other value is known to be valid.
    pub for_its_cost: bool,
}

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

impl Inert {
    /// What a user should be told: a line for each reason with the settings that did nothing for it, one for each setting
    /// without a known reason, and one for those that were not tried for their cost.
    pub fn lines(&self) -> Vec<String> {
        let mut groups: Vec<Vec<&WithoutEffect>> = Vec::new();
        for one in &self.without_effect {
            let like = |group: &&mut Vec<&WithoutEffect>| one.why.is_some() && group[0].like(one);
            match groups.iter_mut().find(like) {
                Some(group) => group.push(one),
                None => groups.push(vec![one]),
            }
        }
        let mut lines: Vec<String> = groups.iter().map(|group| line(group)).collect();
        let left: Vec<&str> = self.not_tried.iter().filter(|n| n.for_its_cost).map(|n| n.path.as_str()).collect();
        if !left.is_empty() {
            lines.push(format!(
                "whether these settings do anything was not tried, for what it costs (--check-settings always tries): {}",
                left.join(", ")
            ));
        }
        lines
    }
}

impl WithoutEffect {
    /// Did it come to nothing for the same reason, as far as is known?
    fn like(&self, other: &WithoutEffect) -> bool {
        (&self.why, self.evidence) == (&other.why, other.evidence)
    }

    fn given(&self) -> String {
        match &self.value {
            Some(value) if value.len() < 60 => format!("{} = {value}", self.path),
            _ => self.path.clone(),
        }
    }
}

/// One line for settings that are alike.
fn line(group: &[&WithoutEffect]) -> String {
    let (first, given) = (group[0], group.iter().map(|one| one.given()).collect::<Vec<_>>().join(", "));
    let why = first.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let tried = match group {
        [one] => one.tried.as_str(),
        _ => "without each, or with another value in its place",
    };
    match first.evidence {
        Evidence::Whole => format!("{given} changed no number{why}; every result is the same {tried}"),
        Evidence::Part { same, of } => format!(
            "{given} changed no number in {same} of {of} comparisons{why}; tried {tried}, and --check-settings always \
             tries all"
        ),
        Evidence::Start { requests } => format!(
            "{given} changed no number of the first {requests} requests{why}; tried {tried}, and --check-settings always \
             tries all"
        ),
    }
}
