//! The plan of an experiment: the checked list of all its runs. [`crate::load`] makes a plan from a file.

use crate::profiled::Filled;
use crate::spec::document::{Choice, Document, Path, Picked};
use crate::spec::experiment::Experiment;
use crate::spec::fleet::FleetSpec;
use crate::spec::paper::{At, number};
use crate::spec::problem::{Problem, Result};
use foretoken_policies::PolicySpec;
use foretoken_report::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path as FilePath, PathBuf};

/// The checked list of all runs: every policy with every combination of swept values and every seed.
#[derive(Clone)]
pub struct Plan {
    pub name: String,
    /// The seeds; each policy runs once with each seed.
    pub seeds: Vec<u64>,
    /// One variant for each combination of the experiment's swept values.
    pub variants: Vec<Variant>,
    /// The policies to compare, including the autoregressive baseline.
    pub policies: Vec<Entrant>,
    /// Index in `policies` of the autoregressive baseline, with which the other policies are compared.
    pub baseline: usize,
    /// Whether the runs are made on a device or on a server; `None` if they are simulated.
    pub measured: Option<Measured>,
    /// The folder at which the experiment's relative paths start.
    pub(crate) folder: PathBuf,
    /// The experiment's TOML with the user's overrides, in which sweeps are not expanded.
    pub(crate) document: Document,
    /// The experiment's TOML with the user's overrides and all defaults. This TOML gives the same plan again.
    pub(crate) resolved: toml::Value,
    /// A map from each relative path of a file in the experiment to the path of this file on this machine.
    pub(crate) relative: BTreeMap<String, PathBuf>,
    /// A map from the path of each file that the experiment reads to the digest of the file's bytes.
    pub inputs: BTreeMap<String, String>,
    /// Warnings about entries of models' `config.json` files that the simulator does not model, one sentence each.
    pub(crate) config_warnings: Vec<String>,
}

/// How the numbers of an experiment are measured, if it is not simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// The runs are made on a device on which our engine runs (`foretoken live`).
    Live,
    /// The runs are made on a server to which `foretoken observe` sends requests.
    Observed,
}

/// One combination of the experiment's swept values.
#[derive(Clone)]
pub struct Variant {
    /// The swept settings, each with its value in this variant.
    pub choices: Vec<Choice>,
    /// The experiment with the swept values of this variant, and with the paths of its files resolved.
    pub experiment: Experiment,
    /// The experiment's TOML with the swept values of this variant, for error messages that point into the file.
    pub(crate) picked: Picked,
    /// Which settings of the engine are derived from the hardware, because the file does not give them.
    pub derived: Derived,
    /// The keys that a profile filled in, and facts about the profile: what it measured, which draft lengths it can
    /// predict, warnings.
    pub filled: Filled,
    /// For each kind of replica with an engine or hardware of its own: the experiment with this engine and hardware.
    /// The key is the kind's index in the experiment's `fleet.replicas`.
    pub kinds: BTreeMap<usize, Variant>,
}

impl Variant {
    /// The experiment's TOML with the values of this variant in place of sweeps. Each call builds a new document.
    pub fn document(&self) -> Document {
        self.picked.document()
    }

    /// Does the experiment have a `[fleet]` with more than one replica, at the start or later?
    pub fn is_fleet(&self) -> bool {
        self.experiment.fleet.as_ref().is_some_and(|fleet| fleet.most_at_a_time() > 1)
    }

    /// Does the fleet have replicas that only compute prompts and hand them to decode replicas?
    pub fn is_split(&self) -> bool {
        self.experiment.fleet.as_ref().is_some_and(FleetSpec::is_split)
    }

    /// Number of GPUs that run the target model, over all replicas of the experiment. A replica has `tensor_parallel`
    /// GPUs if its costs name the GPUs, else 1.
    pub fn gpus(&self) -> u32 {
        let Some(fleet) = &self.experiment.fleet else { return self.gpus_of_one() };
        let kinds = fleet.replicas.kinds();
        kinds.iter().enumerate().map(|(i, kind)| kind.count * self.kinds.get(&i).unwrap_or(self).gpus_of_one()).sum()
    }

    /// Number of GPUs that run the target model on one replica with the experiment's own hardware.
    pub fn gpus_of_one(&self) -> u32 {
        self.experiment.hardware.target.machine().map_or(1, |machine| machine.tensor_parallel)
    }
}

/// Which settings of the engine were derived from the hardware, because the experiment's file does not give them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Derived {
    /// Was `engine.num_gpu_blocks`, the number of KV blocks, derived from the hardware?
    pub num_gpu_blocks: bool,
    /// Was `engine.state_blocks`, the blocks of a recurrent state, derived from the hardware?
    pub state_blocks: bool,
    /// Was `engine.request_blocks`, the blocks of compressed attention's windows and compressors, derived from the
    /// hardware?
    pub request_blocks: bool,
    /// Were `engine.sliding_window` and `engine.window_groups` derived from the hardware?
    pub windows: bool,
    /// Was `engine.draft_kv`, the draft model's part of the KV memory, derived from the hardware?
    pub draft_kv: bool,
    /// Was `engine.frontend_s`, the way between client and scheduler, derived from the engine that the hardware names?
    pub frontend_s: bool,
}

/// A policy that takes part in an experiment's comparison.
#[derive(Clone, Debug)]
pub struct Entrant {
    /// The policy with its settings, as the experiment gives them.
    pub spec: PolicySpec,
    /// Was the policy added as the autoregressive baseline, because the experiment does not list it?
    pub implied: bool,
}

impl Plan {
    /// The experiment with all defaults as TOML, for a file in the folder `results`. Relative paths are rewritten so
    /// that they start at `results`.
    pub fn resolved_for(&self, results: &FilePath) -> Result<String> {
        let moved = |given: &str| self.relative.get(given).map(|file| path_from(results, file));
        to_toml(&self.resolved_with(&moved))
    }

    /// The experiment as TOML with the user's overrides but without defaults, for a file in the folder `results`. The
    /// text gives the same plan, and shows which settings the user gave.
    pub fn asked_for(&self, results: &FilePath) -> Result<String> {
        let mut value: toml::Value = self.document.read()?;
        rename_paths(&mut value, &|given| self.relative.get(given).map(|file| path_from(results, file)));
        put_order(&mut value, &self.document.sweeps(&["policies"])?);
        to_toml(&value)
    }

    /// Digest of everything on which the results depend: the experiment, the contents of its files (not their paths),
    /// and Foretoken's version.
    pub fn digest(&self) -> String {
        let value = self.resolved_with(&|given| self.inputs.get(given).cloned());
        let mut hasher = blake3::Hasher::new();
        hasher.update(env!("CARGO_PKG_VERSION").as_bytes()).update(b"\0").update(value.to_string().as_bytes());
        hasher.finalize().to_hex().to_string()
    }

    /// Where the numbers of the plan's runs come from: a device, a server, or a simulation with measured or modelled
    /// costs and recorded or modelled acceptance.
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

    /// One sentence for each profile that was edited after the costs were measured or fitted. All results that are made
    /// with such a profile repeat the sentence.
    pub fn edited(&self) -> BTreeSet<&str> {
        self.variants.iter().filter_map(|v| v.filled.changed.as_deref()).collect()
    }

    /// The warnings about the profiles and the models of the experiment, without repetitions. Warnings about edited
    /// profiles come first.
    pub fn warnings(&self) -> Vec<&str> {
        let others: BTreeSet<&str> = self.variants.iter().filter_map(|v| v.filled.warning.as_deref()).collect();
        let configs: BTreeSet<&str> = self.config_warnings.iter().map(String::as_str).collect();
        self.edited().into_iter().chain(others).chain(configs).collect()
    }

    /// The experiment with all defaults, in which `rename` was applied to the paths of files.
    fn resolved_with(&self, rename: &dyn Fn(&str) -> Option<String>) -> toml::Value {
        let mut value = self.resolved.clone();
        rename_paths(&mut value, rename);
        value
    }

    /// Changes the plan to runs on a real server. Removes the autoregressive baseline if the program added it, that is,
    /// if the experiment does not list this policy. The server runs the one policy of the experiment.
    pub fn observed(&mut self) -> Result<()> {
        let wrong = |path: &str, message: &str| self.document.problem_at(&Path::of(path), message.to_owned());
        if self.policies.iter().filter(|p| !p.implied).count() != 1 {
            return Err(wrong("policies", "a server runs one policy at a time, and the experiment has several")
                .help("name what this server does: --set 'policies=[{ fixed = { k = 3 } }]'"));
        }
        let oracle = self.policies.iter().find(|p| !p.implied && p.spec.sees_hidden_truth());
        if let Some(oracle) = oracle {
            let what = format!("`{}` sees what drafts will get right, which no server can", oracle.spec.label());
            return Err(
                wrong("policies", &what).help("name what this server does: --set 'policies=[{ fixed = { k = 3 } }]'")
            );
        }
        if self.variants.iter().any(|v| v.experiment.slo.adaspec_scale.is_some()) {
            return Err(wrong(
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

    /// Reduces the plan after only its first `cells` runs were made, to runs that can be compared. Keeps the variants
    /// of which all runs were made. If there is no such variant, keeps the first variant, with the seeds of which all
    /// runs were made. If there is no such seed, keeps the first `cells` policies with the first seed. Returns false if
    /// `cells` is 0.
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

    /// Moves the autoregressive baseline to the front of the policies, so that it runs first. A TPOT bound may be a
    /// multiple of this run's TPOT, and all other policies are compared with this run.
    pub fn baseline_first(&mut self) {
        self.policies[..=self.baseline].rotate_right(1);
        self.baseline = 0;
    }

    /// The path of the default results folder: `results/`, then `prefix` (empty for `foretoken run`), the experiment's
    /// name, a hyphen and the first 8 digits of the digest of experiment, input files and version. If the name begins
    /// with `prefix`, the prefix is not repeated.
    pub fn usual_folder(&self, prefix: &str) -> PathBuf {
        let name = self.name.strip_prefix(prefix).unwrap_or(&self.name);
        PathBuf::from("results").join(format!("{prefix}{name}-{}", &self.digest()[..8]))
    }

    pub fn cells(&self) -> usize {
        self.variants.len() * self.seeds.len() * self.policies.len()
    }
}

pub(crate) fn to_toml(value: &toml::Value) -> Result<String> {
    toml::to_string(value).map_err(|e| Problem::failed(format!("the experiment cannot be written as TOML: {e}")))
}

/// Applies `rename` to every text of the tables that may contain paths of files: workload, live, observe, acceptance,
/// fleet, and the profile. `rename` returns `None` for a text that is not the path of a file; the text then stays.
fn rename_paths(value: &mut toml::Value, rename: &dyn Fn(&str) -> Option<String>) {
    for table in ["workload", "live", "observe", "acceptance", "fleet"] {
        value.get_mut(table).into_iter().for_each(|table| rename_strings(table, rename));
    }
    let profile = value.get_mut("hardware").and_then(|hardware| hardware.get_mut("profile"));
    profile.into_iter().for_each(|profile| rename_strings(profile, rename));
}

/// Sets the key `sweep_order` to the paths of the sweeps, because a TOML value does not keep the order of the keys in
/// the text. If there is at most one sweep, removes the key.
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

/// The relative path from a folder to a file, which must both exist. If there is no relative path (another drive),
/// returns the file's full path.
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

/// The indices of the variants that a claim picks with `at`: each swept setting in `at` has the given value in them. A
/// claim is a statement that the experiment checks.
pub fn variants<'p>(plan: &'p Plan, at: &'p At) -> impl Iterator<Item = usize> + use<'p> {
    (0..plan.variants.len()).filter(move |&v| at.iter().all(|(path, value)| picks(plan, v, path, value)))
}

/// Does the swept setting `path` have the value `value` in variant number `variant`? If `value` is a list, one of its
/// values suffices. If the swept values are texts and `value` is a number, this number is the index of a swept value,
/// from 0.
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

/// The index, from 0, of the value `chosen` among the values that the swept setting `path` takes in the plan.
pub fn place(plan: &Plan, path: &str, chosen: &Choice) -> usize {
    let mut seen: Vec<&str> = Vec::new();
    for value in plan.variants.iter().filter_map(|v| choice(v, path)).map(|c| c.value.as_str()) {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen.iter().position(|&value| value == chosen.value).unwrap_or(usize::MAX)
}

fn unquoted(text: &str) -> &str {
    text.trim_matches('"')
}

/// The value that the swept setting `path` has in a variant; `None` if the setting is not swept.
pub fn choice<'v>(variant: &'v Variant, path: &str) -> Option<&'v Choice> {
    variant.choices.iter().find(|c| c.path == path)
}
