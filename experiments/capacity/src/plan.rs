//! What is asked, and the plan that answers it.

use foretoken_run::plan::Plan;
use foretoken_spec::capacity::CapacitySpec;
use foretoken_spec::problem::Result;

/// The plan, with as many requests as a probe takes, and what is asked of it. `read` makes a plan with changes, each `key=value`; `sets` are the user's.
///
/// # Errors
/// What is wrong with the experiment.
pub fn load(sets: &[String], read: impl Fn(&[String]) -> Result<Plan>) -> Result<(Plan, CapacitySpec)> {
    let with = |requests: u32| {
        let sets: Vec<String> = sets.iter().cloned().chain([format!("workload.requests={requests}")]).collect();
        read(&sets)
    };
    // Some number, to see what number is asked for.
    let spec = with(1000)?.variants[0].experiment.capacity.clone().unwrap_or_default();
    let plan = match spec.window_s {
        Some(_) => read(sets)?,
        None => with(spec.requests + 2 * spec.warm_up_requests)?,
    };
    Ok((plan, spec))
}
