//! What is asked, and the plan that answers it.

use foretoken_run::plan::Plan;
use foretoken_spec::capacity::{CapacitySpec, of_logs};
use foretoken_spec::document::{Document, Path};
use foretoken_spec::problem::Result;
use std::path::Path as FilePath;

/// The plan with the requests that a probe takes, and what is asked of it. Relative paths in the document start at
/// `folder`.
///
/// Generated arrivals end when a probe has its requests. A log ends where it ends, and [`Load`](crate::load::Load)
/// takes its first requests.
///
/// # Errors
/// What is wrong with the experiment.
pub fn load(document: &Document, folder: &FilePath) -> Result<(Plan, CapacitySpec)> {
    let asked = |plan: &Plan| plan.variants[0].experiment.capacity.clone().unwrap_or_default();
    let with = |requests: u32| {
        let mut document = document.clone();
        document.replace(&Path::of(REQUESTS), "the requests of a probe", &requests.to_string())?;
        Plan::of(document, folder)
    };
    if of_logs(document)? {
        let plan = Plan::of(document.clone(), folder)?;
        let spec = asked(&plan);
        return Ok((plan, spec));
    }
    // Generated arrivals need an end before the experiment can be read at all. Which number it is does not matter here.
    let spec = asked(&with(1000)?);
    let plan = match spec.window_s {
        Some(_) => Plan::of(document.clone(), folder)?,
        None => with(spec.probe_requests())?,
    };
    Ok((plan, spec))
}

const REQUESTS: &str = "workload.requests";
