//! Trials: how to run an experiment without one of its settings. The key is left out, so that its default applies. If
//! the key is required, it gets another value.

use crate::plan::Plan;
use crate::spec::document::{Document, Path, Step};
use crate::spec::problem::Result;
use foretoken_profiler::hardware::gpus::gpus;
use foretoken_profiler::hardware::models::catalog;
use std::collections::BTreeMap;
use toml::Value;

/// Top-level keys of an experiment that are never left out on trial: keys about the whole experiment, and tables that
/// `foretoken run` does not use or that other commands use.
const NOT_TRIED: [&str; 12] = [
    "name",
    "seeds",
    "sweep_order",
    "output",
    "paper",
    "question",
    "arena",
    "live",
    "validate",
    "observe",
    "capacity",
    "fleet",
];

/// A trial: a run of the experiment in which one setting is left out or gets another value, to see whether any number
/// changes.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The path of the setting that the trial changes.
    pub path: Path,
    /// The setting's value in the experiment, as TOML.
    pub value: String,
    /// The value that the setting gets on trial, as TOML; `None` if its key is left out.
    other: Option<String>,
    /// The trial's change of the setting, as text for the report, such as `without it, with the default 256`.
    pub tried: String,
}

/// The trials of a plan's settings (each leaves one setting out or changes it), and the settings that cannot be tried.
#[derive(Debug, Default)]
pub struct Trials {
    /// One trial (a run without the setting, or with another value) for each key of the experiment that can be tried,
    /// in the order of the experiment's file.
    pub trials: Vec<Trial>,
    /// Keys that cannot be left out and for which the program cannot guess another valid value, such as paths of files.
    pub impossible: Vec<Path>,
}

impl Trial {
    /// The index in the file's `policies` of the policy to which the setting that the trial changes belongs; `None` if
    /// the setting belongs to no policy.
    pub fn policy(&self) -> Option<usize> {
        policy(&self.path)
    }
}

/// The index in the file's `policies` of the policy to which a key belongs; `None` if it belongs to no policy.
fn policy(path: &Path) -> Option<usize> {
    match path.0.as_slice() {
        [Step::Key(list), Step::Index(i), ..] if list == "policies" => Some(*i),
        _ => None,
    }
}

/// Is the key inside the shape of a model or the datasheet of a GPU? Such a shape or datasheet is replaced on trial as
/// one value, not key by key.
fn is_part_of_hardware(path: &Path) -> bool {
    let keys = path.0.windows(2);
    let named = |pair: &[Step]| matches!(pair, [Step::Key(a), Step::Key(b)] if (a == "roofline" || a == "kernels") && (b == "model" || b == "gpu"));
    keys.into_iter().position(named).is_some_and(|at| at + 2 < path.0.len())
}

/// The plan of one variant (combination of swept values), with the settings of `trials` left out or changed. With a
/// `policy` (an index in the file), the plan has only this policy. `requests` is the number of requests of the original
/// run.
///
/// # Errors
/// A trial's other value is not TOML or has no place in the experiment, or the altered experiment is wrong (see
/// [`Plan::of`]).
pub fn alter(plan: &Plan, variant: usize, trials: &[&Trial], policy: Option<usize>, requests: u64) -> Result<Plan> {
    plan.altered(variant, |document| {
        for trial in trials {
            match &trial.other {
                Some(value) => document.replace(&trial.path, "another value", value)?,
                None => document.remove(&trial.path),
            }
        }
        policy.into_iter().for_each(|i| document.keep_item(&Path::of("policies"), i));
        bound(document, requests)
    })
}

/// If only `duration_s` limits the number of requests of a generated workload, limits the number of requests to one
/// more than in the original run. One more request suffices to see a difference, and the run stays short.
fn bound(document: &mut Document, requests: u64) -> Result<()> {
    let given = |key: &str| document.get(&Path::of("workload").key(key)).is_some();
    match given("duration_s") && !given("requests") {
        true => document.replace(&Path::of("workload.requests"), "a bound", &(requests + 1).to_string()),
        false => Ok(()),
    }
}

impl Trials {
    /// Makes a trial (a run without the setting) for each key that the experiment's file gives and for which `wanted`
    /// is true. Leaves out swept keys, keys with their default value, keys that a profile filled in, the keys of
    /// [`NOT_TRIED`], and single keys of a model's shape or a GPU's datasheet. `requests` is the number of requests of
    /// the first variant.
    pub fn of(plan: &Plan, requests: u64, wanted: impl Fn(&Path) -> bool) -> Trials {
        let first = &plan.variants[0];
        let swept: Vec<Path> = first.choices.iter().map(|c| Path::of(&c.path)).collect();
        let tried = |path: &Path| {
            wanted(path)
                && !matches!(path.0.first(), Some(Step::Key(top)) if NOT_TRIED.contains(&top.as_str()))
                && !is_part_of_hardware(path)
                && !swept.iter().chain(&first.filled.keys).any(|other| path.is_below(other))
        };
        let mut found = Trials::default();
        let mut as_given = BTreeMap::new();
        for path in first.document().leaves().into_iter().filter(tried) {
            let policy = policy(&path);
            let digest = || alter(plan, 0, &[], policy, requests).ok().map(|altered| altered.digest());
            let Some(as_given) = as_given.entry(policy).or_insert_with(digest) else {
                found.impossible.push(path);
                continue;
            };
            match find_trial(plan, &path, requests, as_given) {
                Found::Trial(trial) if found.trials.iter().any(|t| t.path == trial.path) => {}
                Found::Trial(trial) => found.trials.push(trial),
                Found::Default => {}
                Found::Nothing => found.impossible.push(path),
            }
        }
        found
    }
}

enum Found {
    Trial(Trial),
    Default,
    Nothing,
}

/// Finds a change of the key at `path` that gives a valid experiment other than the unchanged one. If there is none,
/// tries to leave out a table around the key. `as_given` is the digest of the unchanged experiment.
fn find_trial(plan: &Plan, path: &Path, requests: u64, as_given: &str) -> Found {
    let document = &plan.variants[0].document();
    let digest = |trials: &[&Trial]| {
        alter(plan, 0, trials, policy(path), requests).ok().map(|altered| (altered.digest(), altered))
    };
    let text = |path: &Path| document.value_at(path).map(|v| v.to_string()).unwrap_or_default();
    let without = |path: &Path| {
        let mut trial = Trial { path: path.clone(), value: text(path), other: None, tried: String::new() };
        let (digest, altered) = digest(&[&trial])?;
        let in_altered = Path(path.0.iter().enumerate().map(|(i, step)| step_in_altered(i, step)).collect());
        trial.tried = match altered.resolved_at(&in_altered) {
            // For most keys, leaving the key out gives its default. `workload.requests` is an exception: without this
            // key, the function `bound` may set another number.
            Some(default) if default.len() < 60 && *path != Path::of("workload.requests") => {
                format!("without it, with the default {default}")
            }
            _ => "without it".to_owned(),
        };
        Some((digest, trial))
    };
    if let Some((digest, trial)) = without(path) {
        return if digest == as_given { Found::Default } else { Found::Trial(trial) };
    }
    for other in document.value_at(path).iter().flat_map(others) {
        let other = other.to_string();
        let tried = format!("with {other} in its place");
        let trial = Trial { path: path.clone(), value: text(path), other: Some(other), tried };
        if digest(&[&trial]).is_some_and(|(digest, _)| digest != as_given) {
            return Found::Trial(trial);
        }
    }
    let above = path.ancestors().skip(1).filter(|p| matches!(p.0.last(), Some(Step::Key(_))));
    let tables = above.filter_map(|p| without(&p)).find(|(digest, _)| *digest != as_given);
    tables.map_or(Found::Nothing, |(_, trial)| Found::Trial(trial))
}

/// Part number `i` of the path of a key, for an experiment that is reduced to one policy. There the policy has index 0,
/// so the index in a path such as `policies[3].fixed.k` becomes 0.
fn step_in_altered(i: usize, step: &Step) -> Step {
    match step {
        Step::Index(_) if i == 1 => Step::Index(0),
        other => other.clone(),
    }
}

/// Values to try in place of `value`. For a number: half and double, for an integer also 1 more, and 0.5 for 0.0. For a
/// list of numbers: all numbers halved, or doubled. For a boolean: its opposite. For a text: names of GPUs and models;
/// other names and paths cannot be guessed.
pub(super) fn others(value: &Value) -> Vec<Value> {
    let scaled = |by: f64| scale(value, by);
    match value {
        Value::Boolean(b) => vec![Value::Boolean(!b)],
        Value::Float(0.0) => vec![Value::Float(0.5)],
        Value::Integer(i) => [i / 2, i.saturating_mul(2), i.saturating_add(1)].map(Value::Integer).to_vec(),
        Value::Float(_) | Value::Array(_) => [scaled(0.5), scaled(2.0)].into_iter().flatten().collect(),
        Value::String(_) => {
            // Names of GPUs and models to try as other values. They are tried from the last to the first, because
            // neighbours in the lists are alike, and some have the same numbers. The first five GPUs and the first 15
            // models differ enough.
            let models = catalog().iter().map(|e| e.name.as_str()).take(15);
            let presets =
                gpus().iter().map(|g| g.name.as_str()).take(5).chain(models).collect::<Vec<_>>().into_iter().rev();
            presets.map(|name| Value::String(name.to_owned())).collect()
        }
        _ => Vec::new(),
    }
}

/// The value with every number multiplied by `by`; integers are rounded towards 0. `None` if the value has something
/// other than numbers.
fn scale(value: &Value, by: f64) -> Option<Value> {
    match value {
        Value::Float(x) => Some(Value::Float(x * by)),
        Value::Integer(i) => Some(Value::Integer((*i as f64 * by) as i64)),
        Value::Array(all) => all.iter().map(|v| scale(v, by)).collect::<Option<_>>().map(Value::Array),
        _ => None,
    }
}
