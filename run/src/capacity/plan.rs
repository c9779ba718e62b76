//! Reads the TOML of an experiment for a capacity search, and makes the experiment's plan.

use crate::plan::Plan;
use crate::spec::capacity::{CapacitySpec, of_logs};
use crate::spec::document::{Document, Path};
use crate::spec::problem::Result;
use std::path::Path as FilePath;

/// Reads an experiment's TOML, `document`. Returns (the plan, that is, the checked list of all runs; the `[capacity]`
/// table). Relative paths in the TOML start at `folder`.
///
/// If arrivals are generated, the plan's workload has exactly the number of requests that a probe needs. If arrivals
/// come from a log, [`Load`](crate::capacity::load::Load) takes the log's first requests. If `capacity.window_s` is
/// set, the workload stays whole.
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
    // An experiment cannot be read without a number of requests. The `[capacity]` table does not depend on this number,
    // so the experiment is first read with 1000 requests to get the table.
    let spec = asked(&with(1000)?);
    let plan = match spec.window_s {
        Some(_) => Plan::of(document.clone(), folder)?,
        None => with(spec.probe_requests())?,
    };
    Ok((plan, spec))
}

const REQUESTS: &str = "workload.requests";
