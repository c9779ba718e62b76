//! The plan of an experiment: everything that will run, checked. [`crate::load`] makes it.

use crate::profiled::Filled;
use foretoken_hardware::LatencySpec;
use foretoken_policies::PolicySpec;
use foretoken_report::Source;
use foretoken_spec::document::{Choice, Document, Path, Picked};
use foretoken_spec::experiment::Experiment;
use foretoken_spec::paper::{At, number};
use foretoken_spec::problem::{Problem, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path as FilePath, PathBuf};

/// Everything that will run, checked.
pub struct Plan {
    /// The name of the experiment.
    pub name: String,
    /// The seeds, one replication each.
    pub seeds: Vec<u64>,
    /// One variant for each combination of swept values.
    pub variants: Vec<Variant>,
    /// The policies, the autoregressive baseline among them.
    pub policies: Vec<Entrant>,
    /// Index of the baseline in `policies`.
    pub baseline: usize,
    /// What measures the experiment, if it is not simulated.
    pub measured: Option<Measured>,
    /// The folder where relative paths start.
    pub(crate) folder: PathBuf,
    /// The experiment with its overrides, before sweeps were expanded.
    pub(crate) document: Document,
    /// The experiment with overrides and defaults filled in; it gives the same plan again.
    pub(crate) resolved: toml::Value,
    /// Files that the experiment names by relative paths: the path in the file, and the file's place.
    pub(crate) relative: BTreeMap<String, PathBuf>,
    /// The files that the experiment reads, as it names them, with the digests of their bytes.
    pub inputs: BTreeMap<String, String>,
    /// What the `config.json` files of its models say and is not modelled, a sentence each.
    pub(crate) config_warnings: Vec<String>,
}

/// What measures an experiment, in place of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// A device, on which our engine runs.
    Live,
    /// A server of its own, which is observed.
    Observed,
}

/// One combination of swept values.
pub struct Variant {
    /// The swept values of this combination.
    pub choices: Vec<Choice>,
    /// The experiment, with the paths of its files resolved.
    pub experiment: Experiment,
    /// The document, for errors that point into the file.
    pub(crate) picked: Picked,
    /// Settings derived from the hardware because the file does not give them.
    pub derived: Derived,
    /// Keys and warnings that a profile filled in.
    pub filled: Filled,
    /// The kinds of replicas of a fleet that have an engine or hardware of their own, by their place in
    /// `fleet.replicas`.
    pub kinds: BTreeMap<usize, Variant>,
}

impl Variant {
    /// The file with every sweep replaced, made at each call.
    pub fn document(&self) -> Document {
        self.picked.document()
    }

    /// Does a fleet of several replicas serve the requests?
    pub fn is_fleet(&self) -> bool {
        self.experiment.fleet.as_ref().is_some_and(|fleet| fleet.replicas.number() > 1)
    }

    /// Number of GPUs that the target runs on, on all replicas: a roofline's `tensor_parallel`, or 1, on each.
    pub fn gpus(&self) -> u32 {
        let Some(fleet) = &self.experiment.fleet else { return self.gpus_of_one() };
        let kinds = fleet.replicas.kinds();
        kinds.iter().enumerate().map(|(i, kind)| kind.count * self.kinds.get(&i).unwrap_or(self).gpus_of_one()).sum()
    }

    /// Number of GPUs of a replica.
    pub fn gpus_of_one(&self) -> u32 {
        match &self.experiment.hardware.target {
            LatencySpec::Roofline(roofline) => roofline.tensor_parallel,
            _ => 1,
        }
    }
}

/// Which engine settings the file leaves to the hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Derived {
    /// Is `engine.num_gpu_blocks` derived from the hardware?
    pub num_gpu_blocks: bool,
    /// Is `engine.draft_kv` derived from the hardware?
    pub draft_kv: bool,
}

/// A policy in the comparison.
#[derive(Clone, Debug)]
pub struct Entrant {
    /// The policy with its settings.
    pub spec: PolicySpec,
    /// Was it added as the baseline, without being asked for?
    pub implied: bool,
}

impl Plan {
    /// The value at a path of the resolved experiment, as TOML: the given value, or the default.
    pub fn resolved_at(&self, path: &Path) -> Option<String> {
        path.find(&self.resolved).map(ToString::to_string)
    }

    /// The resolved experiment as TOML for the folder `results`. It runs from there, because relative paths are
    /// rewritten to start at `results`.
    ///
    /// # Errors
    /// The experiment cannot be written as TOML.
    pub fn resolved_for(&self, results: &FilePath) -> Result<String> {
        let moved = |given: &str| self.relative.get(given).map(|file| path_from(results, file));
        to_toml(&self.resolved_with(&moved))
    }

    /// The experiment with its overrides and without defaults, as TOML for the folder `results`. It gives the same
    /// plan, and shows which values were given.
    ///
    /// # Errors
    /// The experiment cannot be written as TOML.
    pub fn asked_for(&self, results: &FilePath) -> Result<String> {
        let mut value: toml::Value = self.document.read()?;
        rename_paths(&mut value, &|given| self.relative.get(given).map(|file| path_from(results, file)));
        put_order(&mut value, &self.document.sweeps(&["policies"])?);
        to_toml(&value)
    }

    /// Digest of everything that decides the results: experiment, bytes of its files (not their paths), version.
    pub fn digest(&self) -> String {
        let value = self.resolved_with(&|given| self.inputs.get(given).cloned());
        let mut hasher = blake3::Hasher::new();
        hasher.update(env!("CARGO_PKG_VERSION").as_bytes()).update(b"\0").update(value.to_string().as_bytes());
        hasher.finalize().to_hex().to_string()
    }

    /// The source of its numbers: a device, or measured or modelled costs and acceptance.
    pub fn source(&self) -> Source {
        let profiled = self.variants.iter().any(|v| v.experiment.hardware.profile.is_some());
        let replays = |v: &Variant| v.experiment.acceptance.source.is_recorded();
        match (self.measured, profiled, self.variants.iter().any(replays)) {
            (Some(Measured::Live), ..) => Source::Live,
            (Some(Measured::Observed), ..) => Source::Observed,
            (None, true, true) => Source::ProfiledRecorded,
            (None, true, false) => Source::Profiled,
            (None, false, true) => Source::Recorded,
            (None, false, false) => Source::Simulated,
        }
    }

    /// One sentence per profile that was edited after it was measured or calibrated. Every result that is made with
    /// such a profile repeats the sentence.
    pub fn edited(&self) -> BTreeSet<&str> {
        self.variants.iter().filter_map(|v| v.filled.changed.as_deref()).collect()
    }

    /// The warnings of the plan's profiles and of its models' files, each once. Warnings about edited profiles come
    /// first.
    pub fn warnings(&self) -> Vec<&str> {
        let others: BTreeSet<&str> = self.variants.iter().filter_map(|v| v.filled.warning.as_deref()).collect();
        let configs: BTreeSet<&str> = self.config_warnings.iter().map(String::as_str).collect();
        self.edited().into_iter().chain(others).chain(configs).collect()
    }

    /// The resolved experiment, with the paths in its workload, its acceptance and its profile renamed.
    fn resolved_with(&self, rename: &dyn Fn(&str) -> Option<String>) -> toml::Value {
        let mut value = self.resolved.clone();
        rename_paths(&mut value, rename);
        value
    }

    /// Reduces the plan to what a server can run: the one policy of the experiment, without the baseline that
    /// simulations add.
    ///
    /// # Errors
    /// There are several policies, the policy is an oracle, or a bound is scaled from an autoregressive run, which the
    /// server does not make.
    pub fn observed(&mut self) -> Result<()> {
        let at = |path: &str, message: &str| self.document.problem_at(&Path::of(path), message.to_owned());
        if self.policies.iter().filter(|p| !p.implied).count() != 1 {
            return Err(at("policies", "a server runs one policy at a time, and the experiment has several")
                .help("name what this server does: --set 'policies=[{ fixed = { k = 3 } }]'"));
        }
        let oracle = self.policies.iter().find(|p| !p.implied && p.spec.sees_hidden_truth());
        if let Some(oracle) = oracle {
            let what = format!("`{}` sees what drafts will get right, which no server can", oracle.spec.label());
            return Err(
                at("policies", &what).help("name what this server does: --set 'policies=[{ fixed = { k = 3 } }]'")
            );
        }
        if self.variants.iter().any(|v| v.experiment.slo.adaspec_scale.is_some()) {
            return Err(at(
                "slo",
                "slo.adaspec-scale is scaled from an autoregressive run, which this server does not make",
            )
            .help("give the bound itself: slo.tpot_s"));
        }
        self.policies.retain(|p| !p.implied);
        self.baseline = 0;
        self.measured = Some(Measured::Observed);
        Ok(())
    }

    /// Reduces the plan to the part that the first `cells` cells fill: whole variants, else whole seeds of the first
    /// variant, else its first policies. Returns false if nothing remains.
    pub fn shorten(&mut self, cells: usize) -> bool {
        let (policies, seeds) = (self.policies.len(), self.seeds.len());
        let (variants, rows) = (cells / (policies * seeds), cells / policies);
        if variants > 0 {
            self.variants.truncate(variants);
        } else if rows > 0 {
            self.variants.truncate(1);
            self.seeds.truncate(rows);
        } else {
            self.variants.truncate(1);
            self.seeds.truncate(1);
            self.policies.truncate(cells);
        }
        cells > 0
    }

    /// Puts the baseline first: bounds may depend on it, and all others are compared with it.
    pub fn baseline_first(&mut self) {
        self.policies[..=self.baseline].rotate_right(1);
        self.baseline = 0;
    }

    /// The default results folder; `prefix` marks folders of other commands than `run`.
    pub fn usual_folder(&self, prefix: &str) -> PathBuf {
        let name = self.name.strip_prefix(prefix).unwrap_or(&self.name);
        PathBuf::from("results").join(format!("{prefix}{name}-{}", &self.digest()[..8]))
    }

    /// Number of cells: variants × seeds × policies.
    pub fn cells(&self) -> usize {
        self.variants.len() * self.seeds.len() * self.policies.len()
    }
}

pub(crate) fn to_toml(value: &toml::Value) -> Result<String> {
    toml::to_string(value).map_err(|e| Problem::failed(format!("the experiment cannot be written as TOML: {e}")))
}

/// Renames the paths in a document's workload, acceptance, fleet and profile.
fn rename_paths(value: &mut toml::Value, rename: &dyn Fn(&str) -> Option<String>) {
    for table in ["workload", "live", "observe", "acceptance", "fleet"] {
        value.get_mut(table).into_iter().for_each(|table| rename_strings(table, rename));
    }
    let profile = value.get_mut("hardware").and_then(|hardware| hardware.get_mut("profile"));
    profile.into_iter().for_each(|profile| rename_strings(profile, rename));
}

/// Adds `sweep_order` where there are several sweeps, because a TOML value loses the order of the text.
pub(crate) fn put_order(value: &mut toml::Value, sweeps: &[(Path, toml::Value)]) {
    let order = sweeps.iter().map(|(path, _)| toml::Value::String(path.to_string())).collect();
    match sweeps.len() {
        0 | 1 => Path::of("sweep_order").remove(value),
        _ => Path::of("sweep_order").put(value, toml::Value::Array(order)),
    }
}

fn rename_strings(value: &mut toml::Value, rename: &dyn Fn(&str) -> Option<String>) {
    match value {
        toml::Value::String(text) => rename(text).into_iter().for_each(|new| *text = new),
        toml::Value::Array(items) => items.iter_mut().for_each(|item| rename_strings(item, rename)),
        toml::Value::Table(table) => table.iter_mut().for_each(|(_, item)| rename_strings(item, rename)),
        _ => {}
    }
}

/// The relative path from a folder to a file, which both exist; the file's full path if there is none (another drive).
pub(crate) fn path_from(folder: &FilePath, file: &FilePath) -> String {
    let real = |path: &FilePath| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let (folder, file) = (real(folder), real(file));
    let shared = folder.components().zip(file.components()).take_while(|(a, b)| a == b).count();
    if shared == 0 {
        return file.display().to_string();
    }
    let up = folder.components().skip(shared).map(|_| std::path::Component::ParentDir);
    up.chain(file.components().skip(shared)).collect::<PathBuf>().display().to_string()
}

/// The variants that `at` picks, by index.
pub fn variants<'p>(plan: &'p Plan, at: &'p At) -> impl Iterator<Item = usize> + use<'p> {
    (0..plan.variants.len()).filter(move |&v| at.iter().all(|(path, value)| picks(plan, v, path, value)))
}

/// Did the sweep at `path` have this value in a variant? Of a list, each value counts.
pub fn picks(plan: &Plan, variant: usize, path: &str, value: &toml::Value) -> bool {
    if let toml::Value::Array(values) = value {
        return values.iter().any(|value| picks(plan, variant, path, value));
    }
    choice(&plan.variants[variant], path).is_some_and(|c| match (c.number, number(value)) {
        (Some(swept), Some(x)) => swept == x,
        (None, Some(x)) => place(plan, path, c) as f64 == x,
        _ => match value {
            toml::Value::Boolean(on) => c.value == on.to_string(),
            _ => value.as_str() == Some(unquoted(&c.value)),
        },
    })
}

/// The index of a choice in its sweep, from 0.
pub fn place(plan: &Plan, path: &str, of: &Choice) -> usize {
    let mut seen: Vec<&str> = Vec::new();
    for value in plan.variants.iter().filter_map(|v| choice(v, path)).map(|c| c.value.as_str()) {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen.iter().position(|&value| value == of.value).unwrap_or(usize::MAX)
}

fn unquoted(text: &str) -> &str {
    text.trim_matches('"')
}

/// The value of the sweep at `path` in a variant.
pub fn choice<'v>(variant: &'v Variant, path: &str) -> Option<&'v Choice> {
    variant.choices.iter().find(|c| c.path == path)
}
