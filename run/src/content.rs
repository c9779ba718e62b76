//! Checks the content of requests: whether they have the categories that a policy names, and whether the acceptance was
//! recorded or calibrated on the trace that gives the lengths.

use crate::plan::Variant;
use crate::spec::document::Path;
use crate::spec::experiment::Experiment;
use crate::spec::problem::{Problem, Result};
use foretoken_policies::PolicySpec;
use foretoken_sim::acceptance::Rates;
use foretoken_traces::{ArrivalSpec, LengthSpec};

/// A note that the request lengths come from a real trace, but the acceptance rates are assumed. `None` if the lengths
/// do not come from a trace, if the acceptance was recorded on real requests, or if `calibrated` is true: the
/// acceptance was then fitted to the requests of an observed server.
pub fn note(experiment: &Experiment, calibrated: bool) -> Option<String> {
    let workload = &experiment.workload;
    let file = match (&workload.arrivals, &workload.lengths) {
        (_, Some(LengthSpec::Trace(trace))) => &trace.path,
        (ArrivalSpec::Trace(trace), None) => &trace.path,
        _ => return None,
    };
    if calibrated {
        return None;
    }
    let law = match &experiment.acceptance.source {
        Rates::Recorded { .. } | Rates::Table(_) | Rates::Counterfactual(_) => return None,
        Rates::Constant { .. } => "constant",
        Rates::ByPosition { .. } => "by-position",
        Rates::ByContext { .. } => "by-context",
        Rates::ByDepth { .. } => "by-depth",
        Rates::Marginal { .. } => "marginal",
        Rates::DraftedShare { .. } => "drafted-share",
        Rates::MeanLength(_) | Rates::Golden(_) => "mean-length",
        Rates::Profile(_) => "profile",
        Rates::Forced(_) => "forced",
        Rates::ByCategory(_) => "by-category",
        Rates::Mixture(_) => "mixture",
        Rates::PromptLookup(_) => "prompt-lookup",
        Rates::Suffix(_) => "suffix",
        Rates::LookupBesideModel(_) => "lookup-beside-model",
    };
    let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    Some(format!(
        "the lengths of {name} are real, its acceptance is assumed (acceptance.source.{law}): which drafts are right \
         depends on the content, so speedups hold for content that accepts as much"
    ))
}

/// Checks that every category that `policy` names is one of the requests' `categories`.
pub fn check_categories(variant: &Variant, index: usize, policy: &PolicySpec, categories: &[String]) -> Result<()> {
    let named = policy.definition().names_categories();
    let Some(unknown) = named.into_iter().find(|name| !categories.iter().any(|category| category == name)) else {
        return Ok(());
    };
    let message = format!("{}: no request is of the category {unknown}", policy.label());
    let at = Path::of(&format!("policies[{index}]"));
    let problem: Box<Problem> = variant.document().problem_at(&at, message);
    Err(match categories {
        [] => {
            problem.help("requests have categories where workload.lengths.categories gives them, or a trace names them")
        }
        all => problem.help(format!("there are: {}", all.join(", "))),
    })
}
