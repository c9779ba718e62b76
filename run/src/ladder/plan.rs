//! Makes the plan of a ladder: each policy without and with added knowledge, the bounds, and the oracles.

use crate::arena::REFERENCES;
use crate::plan::Plan;
use foretoken_policies::PolicySpec;
use foretoken_report::Source;
use foretoken_spec::document::{Document, Path};
use foretoken_spec::problem::{Problem, Result};
use std::path::Path as FilePath;

/// Name of the file with the ladders as JSON, in the results folder.
pub const LADDER_JSON: &str = "ladder.json";
/// Name of the HTML page with the ladders, in the results folder.
pub const PAGE: &str = "ladder.html";

/// The wrapper policies of the first three rungs, in order. Each gives the policy that it contains one true value, such
/// as the true cost.
const WRAPPERS: [&str; 3] = ["true-cost", "true-calibration", "true-rates"];
/// The bounds of the next three rungs, in order. Each replaces the policy.
const BOUNDS: [&str; 3] = ["knows-rates", "knows-confidences", "knows-lengths"];
/// Each bound runs with each of these settings of `price` (the cost of a second, see `oracle-goodput`). For each bound,
/// only the run with the least E2E counts.
const PRICES: [&str; 6] = ["", "decode = 1.0", "decode = 2.0", "decode = 3.0", "system = 1.0", "system = 2.0"];

/// The runs from which one policy's ladder is made, as labels of policies of the plan.
pub struct PolicyRuns {
    /// The policy without added knowledge.
    pub label: String,
    /// Does the policy draft trees?
    pub trees: bool,
    /// For each of the first three rungs, the label of the policy inside the wrappers up to this rung. `None` if the
    /// rung's wrapper does not apply to the policy.
    pub wrapped: [Option<String>; 3],
}

/// Which policies of the plan are on which rung, as labels.
pub struct LadderRuns {
    /// The policies that get a ladder.
    pub policies: Vec<PolicyRuns>,
    /// For each rung with a bound, the labels of the bound with each price of `PRICES`.
    pub bounds: [Vec<String>; 3],
    /// The labels of the oracles; the oracle with the least E2E is on the last rung.
    pub oracles: Vec<String>,
}

/// Makes the plan of an experiment's ladder. Also returns which policies of the plan are on which rung.
///
/// # Errors
/// The experiment is wrong, its acceptance is recorded (which gives no probabilities), or it has no policy that drafts
/// and that a server can run.
pub fn of(mut document: Document, folder: &FilePath) -> Result<(Plan, LadderRuns)> {
    let asked = Plan::of(document.clone(), folder)?;
    if matches!(asked.source(), Source::Recorded | Source::ProfiledRecorded) {
        let what =
            "the acceptance is recorded: a recording has outcomes and no law, so no bound by what is known exists";
        let problem = document.problem_at(&Path::of("acceptance.source"), what);
        return Err(problem.help("name a law that was fitted to it, such as acceptance.source = { mixture = {} }"));
    }
    let climbing: Vec<&PolicySpec> = asked
        .policies
        .iter()
        .map(|p| &p.spec)
        .filter(|p| !p.sees_hidden_truth() && p.name() != "autoregressive")
        .collect();
    if climbing.is_empty() {
        let problem = document.problem_at(&Path::of("policies"), "no policy of the experiment can climb a ladder");
        return Err(problem.help("name one that a server can run and that drafts: policies = [{ adaspec = {} }]"));
    }
    let mut specs: Vec<PolicySpec> = Vec::new();
    let mut policies = Vec::new();
    for policy in climbing {
        let trees = policy.definition().drafts_trees();
        let mut runs = PolicyRuns { label: policy.label(), trees, wrapped: [None, None, None] };
        let mut inner = policy.clone();
        add(&mut specs, policy.clone());
        for (at, wrapper) in WRAPPERS.iter().enumerate() {
            let wrapped = read(&format!("{{ {wrapper} = {{ policy = {} }} }}", written(&inner)?))?;
            // The check fails if the wrapper has nothing to correct in the policy; then the rung does not apply.
            if wrapped.check().is_ok() {
                runs.wrapped[at] = Some(wrapped.label());
                add(&mut specs, wrapped.clone());
                inner = wrapped;
            }
        }
        policies.push(runs);
    }
    let bounds = [priced(BOUNDS[0], &mut specs)?, priced(BOUNDS[1], &mut specs)?, priced(BOUNDS[2], &mut specs)?];
    let mut oracles = Vec::new();
    for text in REFERENCES {
        // The bounds of the other rungs draft chains, and so must the oracles of the last rung.
        if !read(text)?.definition().drafts_trees() {
            oracles.push(listed(text, &mut specs)?);
        }
    }
    let texts: Vec<String> = specs.iter().map(written).collect::<Result<_>>()?;
    ["arena", "paper", "question"].iter().for_each(|key| document.remove(&Path::of(key)));
    document.replace(&Path::of("policies"), "the policies of the ladder", &format!("[{}]", texts.join(", ")))?;
    Ok((Plan::of(document, folder)?, LadderRuns { policies, bounds, oracles }))
}

/// Adds the policy `bound` with each of [`PRICES`] to `specs`. Returns the labels.
fn priced(bound: &str, specs: &mut Vec<PolicySpec>) -> Result<Vec<String>> {
    let form = |price: &&str| match *price {
        "" => format!("{{ {bound} = {{}} }}"),
        price => format!("{{ {bound} = {{ price = {{ {price} }} }} }}"),
    };
    PRICES.iter().map(|price| listed(&form(price), specs)).collect()
}

/// Adds the policy that `text` gives to `specs`. Returns its label.
fn listed(text: &str, specs: &mut Vec<PolicySpec>) -> Result<String> {
    let spec = read(text)?;
    let label = spec.label();
    add(specs, spec);
    Ok(label)
}

/// Adds a policy to `specs`, unless `specs` has it already.
fn add(specs: &mut Vec<PolicySpec>, spec: PolicySpec) {
    if !specs.contains(&spec) {
        specs.push(spec);
    }
}

#[derive(serde::Deserialize)]
struct Listed {
    policy: PolicySpec,
}

/// Reads a policy that is written as in an experiment.
fn read(text: &str) -> Result<PolicySpec> {
    toml::from_str::<Listed>(&format!("policy = {text}"))
        .map(|listed| listed.policy)
        .map_err(|e| Problem::failed(format!("{text}: {}", e.message())))
}

/// Writes a policy as in an experiment.
fn written(spec: &PolicySpec) -> Result<String> {
    let value = toml::Value::try_from(spec);
    value.map(|value| value.to_string()).map_err(|e| Problem::failed(format!("{}: {e}", spec.label())))
}
