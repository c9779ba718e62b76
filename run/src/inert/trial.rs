//! Ways to run an experiment without one of its settings: leave the key out, so that its default holds, or give it
//! another value if the key is required.

use crate::plan::Plan;
use foretoken_hardware::gpus::gpus;
use foretoken_hardware::models::catalog;
use foretoken_spec::document::{Document, Path, Step};
use foretoken_spec::problem::Result;
use std::collections::BTreeMap;
use toml::Value;

/// Keys about the whole experiment, and the tables of other commands than `run`.
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

/// A setting, and the value that is tried instead.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The path of the setting's key.
    pub path: Path,
    /// The value that it was given, as TOML.
    pub value: String,
    /// The other value; `None` leaves the key out.
    other: Option<String>,
    /// The trial as text, such as `without it, with the default 256`.
    pub tried: String,
}

/// The settings of a plan that can be tried, and the settings that cannot.
#[derive(Debug, Default)]
pub struct Trials {
    /// One trial per key, in the order of the file.
    pub trials: Vec<Trial>,
    /// Required keys without another value that is known to be valid: names and paths.
    pub impossible: Vec<Path>,
}

impl Trial {
    /// The index in the file of the policy that the setting belongs to; `None` for settings outside policies.
    pub fn policy(&self) -> Option<usize> {
        policy(&self.path)
    }
}

/// The index of the policy that a key belongs to.
fn policy(path: &Path) -> Option<usize> {
    match path.0.as_slice() {
        [Step::Key(list), Step::Index(i), ..] if list == "policies" => Some(*i),
        _ => None,
    }
}

/// Whether a key lies within the shape of a model or the datasheet of a GPU. Each is one value, which is not tried key
/// by key.
fn is_part_of_hardware(path: &Path) -> bool {
    let keys = path.0.windows(2);
    let named =
        |pair: &[Step]| matches!(pair, [Step::Key(a), Step::Key(b)] if a == "roofline" && (b == "model" || b == "gpu"));
    keys.into_iter().position(named).is_some_and(|at| at + 2 < path.0.len())
}

/// The plan of a variant with other settings; reduced to one policy when the settings belong to one. `requests`:
/// requests of the original run.
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

/// Bounds a generator that lost its number of requests and would run to the end of its time: one request more than
/// before is enough to see a difference.
fn bound(document: &mut Document, requests: u64) -> Result<()> {
    let given = |key: &str| document.get(&Path::of("workload").key(key)).is_some();
    match given("duration_s") && !given("requests") {
        true => document.replace(&Path::of("workload.requests"), "a bound", &(requests + 1).to_string()),
        false => Ok(()),
    }
}

impl Trials {
    /// The trials of everything that a plan was given, that is not swept, and that differs from its default.
    /// `requests`: requests of the first variant. `wanted` selects keys.
    pub fn of(plan: &Plan, requests: u64, wanted: impl Fn(&Path) -> bool) -> Trials {
        let first = &plan.variants[0];
        let swept: Vec<Path> = first.choices.iter().map(|c| Path::of(&c.path)).collect();
        let tried = |path: &Path| {
            wanted(path)
                && !matches!(path.0.first(), Some(Step::Key(top)) if NOT_TRIED.contains(&top.as_str()))
                && !is_part_of_hardware(path)
                && !swept.iter().chain(&first.filled.keys).any(|other| path.is_below(other))
        };
        let mut all = Trials::default();
        let mut as_given = BTreeMap::new();
        for path in first.document().leaves().into_iter().filter(tried) {
            let policy = policy(&path);
            let digest = || alter(plan, 0, &[], policy, requests).ok().map(|altered| altered.digest());
            let Some(as_given) = as_given.entry(policy).or_insert_with(digest) else {
                all.impossible.push(path);
                continue;
            };
            match of_leaf(plan, &path, requests, as_given) {
                Found::Trial(trial) if all.trials.iter().any(|t| t.path == trial.path) => {}
                Found::Trial(trial) => all.trials.push(trial),
                Found::Default => {}
                Found::Nothing => all.impossible.push(path),
            }
        }
        all
    }
}

enum Found {
    Trial(Trial),
    Default,
    Nothing,
}

/// The trial for one leaf. `as_given`: the digest of the experiment with it.
fn of_leaf(plan: &Plan, path: &Path, requests: u64, as_given: &str) -> Found {
    let document = &plan.variants[0].document();
    let digest = |trials: &[&Trial]| {
        alter(plan, 0, trials, policy(path), requests).ok().map(|altered| (altered.digest(), altered))
    };
    let text = |path: &Path| document.value_at(path).map(|v| v.to_string()).unwrap_or_default();
    let without = |path: &Path| {
        let mut trial = Trial { path: path.clone(), value: text(path), other: None, tried: String::new() };
        let (digest, altered) = digest(&[&trial])?;
        let at = Path(path.0.iter().enumerate().map(|(i, step)| in_altered(i, step)).collect());
        trial.tried = match altered.resolved_at(&at) {
            // Without a number of requests there is no default to compare with (`bound`).
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

/// The path of a policy's setting in a plan that has that policy alone.
fn in_altered(step: usize, of: &Step) -> Step {
    match of {
        Step::Index(_) if step == 1 => Step::Index(0),
        other => other.clone(),
    }
}

/// Other values of the same kind: half and double a number, the opposite of a boolean, the names of other GPUs and
/// models. Other names and paths cannot be guessed.
pub(super) fn others(value: &Value) -> Vec<Value> {
    let scaled = |by: f64| scale(value, by);
    match value {
        Value::Boolean(b) => vec![Value::Boolean(!b)],
        Value::Float(0.0) => vec![Value::Float(0.5)],
        Value::Integer(i) => [i / 2, i.saturating_mul(2), i.saturating_add(1)].map(Value::Integer).to_vec(),
        Value::Float(_) | Value::Array(_) => [scaled(0.5), scaled(2.0)].into_iter().flatten().collect(),
        Value::String(_) => {
            // From the back, because neighbours in the lists are alike, some in every number. The first of each list
            // differ enough.
            let models = catalog().iter().map(|e| e.name.as_str()).take(15);
            let presets =
                gpus().iter().map(|g| g.name.as_str()).take(5).chain(models).collect::<Vec<_>>().into_iter().rev();
            presets.map(|name| Value::String(name.to_owned())).collect()
        }
        _ => Vec::new(),
    }
}

/// A value with every number multiplied by `by`, integers cut to whole numbers; `None` if it holds anything but
/// numbers.
fn scale(value: &Value, by: f64) -> Option<Value> {
    match value {
        Value::Float(x) => Some(Value::Float(x * by)),
        Value::Integer(i) => Some(Value::Integer((*i as f64 * by) as i64)),
        Value::Array(all) => all.iter().map(|v| scale(v, by)).collect::<Option<_>>().map(Value::Array),
        _ => None,
    }
}
