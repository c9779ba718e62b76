//! Makes the list of runs from which ladders are computed (a ladder splits a policy's loss by missing knowledge): each
//! policy without and with added knowledge, the bounds, and the oracles.

use crate::arena::{priced, read, references};
use crate::plan::Plan;
use crate::spec::document::{Document, Path};
use crate::spec::problem::{Problem, Result};
use foretoken_policies::PolicySpec;
use foretoken_report::Source;
use std::path::Path as FilePath;

/// The wrapper policies of the first three rungs of a ladder, which splits a policy's loss by missing knowledge. Each
/// wrapper gives the policy that it contains one true value, such as the true cost.
const WRAPPERS: [&str; 3] = ["true-cost", "true-calibration", "true-rates"];
/// The policies of rungs four to six of a ladder, which splits a policy's loss by missing knowledge. Each of them runs
/// in place of that policy and knows more than a server can.
const BOUNDS: [&str; 3] = ["knows-rates", "knows-confidences", "knows-lengths"];
/// Each bound runs with each of these values of its setting `price` (what a second of a step's time costs, in tokens:
/// the number times the tokens per second that `decode` or `system` names). With the empty value, the setting is left
/// out. For each bound, only the run with the least E2E counts.
const PRICES: [&str; 6] = ["", "decode = 1.0", "decode = 2.0", "decode = 3.0", "system = 1.0", "system = 2.0"];

/// The runs from which one policy's ladder is made, as labels of policies.
pub struct PolicyRuns {
    /// Label of the policy whose loss the ladder splits, as the experiment gives it, without added knowledge.
    pub label: String,
    /// Does the policy whose loss the ladder splits draft trees?
    pub trees: bool,
    /// For each of the ladder's first three rungs, the label of the policy inside the wrappers up to this rung. Each
    /// wrapper gives the policy one true value. `None` if the rung's wrapper does not apply to the policy.
    pub wrapped: [Option<String>; 3],
}

/// Which policies are on which rung of a ladder, as labels.
pub struct LadderRuns {
    /// The policies whose loss is split, each with its runs without added knowledge and with the first three pieces of
    /// knowledge.
    pub policies: Vec<PolicyRuns>,
    /// For each bound (a policy of a ladder that knows more than a server can), its labels with each value of `PRICES`
    /// for the setting `price`.
    pub bounds: [Vec<String>; 3],
    /// The labels of the oracles; the oracle with the least E2E is the last rung of every ladder.
    pub oracles: Vec<String>,
}

/// Makes the plan of an experiment's ladder, which splits each policy's loss by missing knowledge. Also returns which
/// policies of the plan are on which rung.
pub fn of(mut document: Document, folder: &FilePath) -> Result<(Plan, LadderRuns)> {
    // The ladder adds the oracles itself, so a scenario of the arena need not name one. Without `policies` a scenario
    // has all policies, and its table says so.
    if document.get(&Path::of("policies")).is_some() {
        document.remove(&Path::of("arena"));
    }
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
            // A wrapper such as `true-cost` gives the policy in it a true value. It may have nothing to correct in a
            // policy. Then the check of its settings fails, and the policy's ladder has no rung for this wrapper.
            if wrapped.check().is_ok() {
                runs.wrapped[at] = Some(wrapped.label());
                add(&mut specs, wrapped.clone());
                inner = wrapped;
            }
        }
        policies.push(runs);
    }
    let mut bounds: [Vec<String>; 3] = Default::default();
    for (bound, labels) in BOUNDS.iter().zip(&mut bounds) {
        *labels = PRICES.iter().map(|price| listed(&priced(bound, price), &mut specs)).collect::<Result<_>>()?;
    }
    let mut oracles = Vec::new();
    for text in references() {
        // The bounds on the ladder's rungs before the last draft chains, so only an oracle that drafts chains can be on
        // the last rung.
        if !read(&text)?.definition().drafts_trees() {
            oracles.push(listed(&text, &mut specs)?);
        }
    }
    let texts: Vec<String> = specs.iter().map(written).collect::<Result<_>>()?;
    ["arena", "paper", "question"].iter().for_each(|key| document.remove(&Path::of(key)));
    document.replace(&Path::of("policies"), "the policies of the ladder", &format!("[{}]", texts.join(", ")))?;
    Ok((Plan::of(document, folder)?, LadderRuns { policies, bounds, oracles }))
}

/// Reads a policy from `text`, as an experiment's file has it, and adds it to `specs`. Returns the policy's label.
fn listed(text: &str, specs: &mut Vec<PolicySpec>) -> Result<String> {
    let spec = read(text)?;
    let label = spec.label();
    add(specs, spec);
    Ok(label)
}

/// Adds a policy to the list `specs`, unless it is in the list already.
fn add(specs: &mut Vec<PolicySpec>, spec: PolicySpec) {
    if !specs.contains(&spec) {
        specs.push(spec);
    }
}

/// Writes a policy as the text that stands for it in an experiment's file.
fn written(spec: &PolicySpec) -> Result<String> {
    let value = toml::Value::try_from(spec);
    value.map(|value| value.to_string()).map_err(|e| Problem::failed(format!("{}: {e}", spec.label())))
}
