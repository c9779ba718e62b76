//! The plan of a ladder: each policy as it is and with each truth, the bounds, and the oracles.

use crate::arena::REFERENCES;
use crate::plan::Plan;
use foretoken_policies::PolicySpec;
use foretoken_report::Source;
use foretoken_spec::document::{Document, Path};
use foretoken_spec::problem::{Problem, Result};
use std::path::Path as FilePath;

/// File of the ladders as JSON, in the results folder.
pub const LADDER_JSON: &str = "ladder.json";
/// File of the page about the ladders, in the results folder.
pub const PAGE: &str = "ladder.html";

/// The wrappers of the first three rungs, in their order.
const WRAPPERS: [&str; 3] = ["true-cost", "true-calibration", "true-rates"];
/// The bounds of the next three rungs, in their order.
const BOUNDS: [&str; 3] = ["knows-rates", "knows-confidences", "knows-lengths"];
/// The prices of time at which each bound runs; the best one stands for it.
const PRICES: [&str; 6] = ["", "decode = 1.0", "decode = 2.0", "decode = 3.0", "system = 1.0", "system = 2.0"];

/// A policy's runs on its way up: labels of the plan's policies.
pub struct Way {
    /// The policy as it is.
    pub policy: String,
    /// Does it draft trees?
    pub trees: bool,
    /// The policy with the truths of each rung so far; `None` where a wrapper has nothing to correct.
    pub wrapped: [Option<String>; 3],
}

/// What runs for a ladder.
pub struct Ways {
    /// The policies.
    pub ways: Vec<Way>,
    /// The forms of each bound.
    pub bounds: [Vec<String>; 3],
    /// The oracles.
    pub oracles: Vec<String>,
}

/// The plan of an experiment's ladder, and which of its policies stand for which rung.
///
/// # Errors
/// The experiment is wrong, its acceptance is recorded and so has no law, or it has no policy that a server can run.
pub fn of(mut document: Document, folder: &FilePath) -> Result<(Plan, Ways)> {
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
    let mut all: Vec<PolicySpec> = Vec::new();
    let mut ways = Vec::new();
    for policy in climbing {
        let mut way =
            Way { policy: policy.label(), trees: policy.definition().drafts_trees(), wrapped: [None, None, None] };
        let mut inner = policy.clone();
        add(&mut all, policy.clone());
        for (at, wrapper) in WRAPPERS.iter().enumerate() {
            let wrapped = read(&format!("{{ {wrapper} = {{ policy = {} }} }}", written(&inner)?))?;
            // A wrapper refuses a policy that has nothing to correct.
            if wrapped.check().is_ok() {
                way.wrapped[at] = Some(wrapped.label());
                add(&mut all, wrapped.clone());
                inner = wrapped;
            }
        }
        ways.push(way);
    }
    let bounds = [priced(BOUNDS[0], &mut all)?, priced(BOUNDS[1], &mut all)?, priced(BOUNDS[2], &mut all)?];
    let oracles = REFERENCES.iter().map(|text| listed(text, &mut all)).collect::<Result<_>>()?;
    let texts: Vec<String> = all.iter().map(written).collect::<Result<_>>()?;
    ["arena", "paper", "question"].iter().for_each(|key| document.remove(&Path::of(key)));
    document.replace(&Path::of("policies"), "the policies of the ladder", &format!("[{}]", texts.join(", ")))?;
    Ok((Plan::of(document, folder)?, Ways { ways, bounds, oracles }))
}

/// The labels of a bound at every price.
fn priced(bound: &str, all: &mut Vec<PolicySpec>) -> Result<Vec<String>> {
    let form = |price: &&str| match *price {
        "" => format!("{{ {bound} = {{}} }}"),
        price => format!("{{ {bound} = {{ price = {{ {price} }} }} }}"),
    };
    PRICES.iter().map(|price| listed(&form(price), all)).collect()
}

/// The label of a policy given as text, which joins `all`.
fn listed(text: &str, all: &mut Vec<PolicySpec>) -> Result<String> {
    let spec = read(text)?;
    let label = spec.label();
    add(all, spec);
    Ok(label)
}

/// Adds a policy unless it is there.
fn add(all: &mut Vec<PolicySpec>, spec: PolicySpec) {
    if !all.contains(&spec) {
        all.push(spec);
    }
}

#[derive(serde::Deserialize)]
struct Listed {
    policy: PolicySpec,
}

/// A policy from its text, as in an experiment.
fn read(text: &str) -> Result<PolicySpec> {
    toml::from_str::<Listed>(&format!("policy = {text}"))
        .map(|listed| listed.policy)
        .map_err(|e| Problem::failed(format!("{text}: {}", e.message())))
}

/// A policy as text.
fn written(spec: &PolicySpec) -> Result<String> {
    let value = toml::Value::try_from(spec);
    value.map(|value| value.to_string()).map_err(|e| Problem::failed(format!("{}: {e}", spec.label())))
}
