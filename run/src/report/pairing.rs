//! Pairs the cells (runs) of two results folders, gives reasons why cells have no partner, and lists the settings in
//! which the two experiments differ.

use super::Results;
use crate::spec::experiment::UNSWEPT;
use crate::spec::problem::{Problem, Result};
use foretoken_report::{Compared, Entry, Key, Pair};
use std::collections::BTreeMap;

/// The settings that decide the requests and the random draws of a run. If one of them differs between two experiments,
/// runs with the same seed have other requests or other draws.
const DRAWS: [&str; 3] = ["workload", "acceptance", "hardware.noise_cv"];

/// Pairs each run of `own` with the run of `other` that has the same policy, swept values and seed. Also lists
/// differences between the experiments, and warnings.
pub fn compare(own: &Results, other: Results) -> Result<Compared> {
    let summaries: Vec<_> = other.cells.iter().map(|c| (c.key(), &c.summary)).collect();
    let find = |key: &Key| summaries.iter().find(|(k, _)| same(k, key)).map(|(_, s)| (*s).clone());
    let pair = |key: &Key| Some(Pair { key: key.clone(), other: find(key)? });
    let pairs: Vec<Pair> = own.cells.iter().filter_map(|c| pair(c.key())).collect();
    let unpaired = reasons(own, &other);
    if pairs.is_empty() {
        let (here, there) = (own.folder.display(), other.folder.display());
        let problem = Problem::bad_input(format!("{here} and {there} have no run in common: {}", unpaired.join("; ")));
        return Err(problem.help("a pair has the same policy, the same swept values and the same seed in both"));
    }
    let differs = differences(&other.config, &own.config);
    let mut warnings: Vec<String> =
        other.partial.iter().map(|_| format!("{} did not end.", other.manifest.name)).collect();
    let draws: Vec<&str> = differs.iter().map(|d| d.0.as_str()).filter(|p| is_draw(p)).collect();
    if !draws.is_empty() {
        let what = draws.join(", ");
        warnings.push(format!(
            "Pairs share a seed but not their requests or random draws: the experiments differ in {what}."
        ));
    }
    if own.manifest.inputs.values().ne(other.manifest.inputs.values()) {
        warnings.push("The experiments read different trace files: pairs do not share their requests.".to_owned());
    }
    if own.source != other.source {
        warnings.push(format!("The numbers here are {}, those there {}.", own.source, other.source));
    }
    let digest = other.manifest.digest.get(..8).unwrap_or_default();
    let name = format!("{} ({}, Foretoken {}, {digest})", other.manifest.name, other.source, other.manifest.version);
    Ok(Compared { name, pairs, unpaired, differs, warnings })
}

/// Do two keys (policy, swept values and seed) stand for the same run? Swept values that are numbers are compared as
/// numbers: 1 equals 1.0.
fn same(a: &Key, b: &Key) -> bool {
    let value = |a: &foretoken_report::Swept, b: &foretoken_report::Swept| match (a.number, b.number) {
        (Some(x), Some(y)) => x == y,
        _ => a.value == b.value,
    };
    a.policy == b.policy
        && a.seed == b.seed
        && a.sweep.len() == b.sweep.len()
        && a.sweep.iter().zip(&b.sweep).all(|(a, b)| a.path == b.path && value(a, b))
}

/// Reasons why runs of one results folder have no partner in the other: swept settings, swept values, policies or seeds
/// that only one of them has, or no finished run.
fn reasons(own: &Results, other: &Results) -> Vec<String> {
    let entries = |r: &Results| r.cells.iter().map(|c| c.entry.clone()).collect::<Vec<_>>();
    let (here, there) = (entries(own), entries(other));
    let mut reasons = Vec::new();
    if here.is_empty() || there.is_empty() {
        let which = if here.is_empty() { own } else { other };
        return vec![format!("{} has no finished run", which.folder.display())];
    }
    let paths = |e: &[Entry]| e[0].key.sweep.iter().map(|s| s.path.clone()).collect::<Vec<_>>();
    let (swept_here, swept_there) = (paths(&here), paths(&there));
    let say = |paths: &[String]| if paths.is_empty() { "nothing".to_owned() } else { paths.join(", ") };
    if swept_here != swept_there {
        reasons.push(format!("one sweeps {} and the other {}", say(&swept_here), say(&swept_there)));
    } else {
        let setting =
            |e: &Entry| e.key.sweep.iter().map(|s| format!("{} = {}", s.path, s.value)).collect::<Vec<_>>().join(", ");
        only(&mut reasons, "the setting", &here, &there, setting);
    }
    only(&mut reasons, "the policy", &here, &there, |e| e.key.policy.clone());
    only(&mut reasons, "the seed", &here, &there, |e| e.key.seed.to_string());
    reasons
}

fn only(reasons: &mut Vec<String>, what: &str, here: &[Entry], there: &[Entry], of: impl Fn(&Entry) -> String) {
    let lacks = |all: &[Entry], value: &String| !all.iter().any(|e| of(e) == *value);
    for (have, lack, place) in [(here, there, "here"), (there, here, "there")] {
        let mut values: Vec<String> = have.iter().map(&of).collect();
        values.dedup();
        let mut seen: Vec<String> = Vec::new();
        for value in values {
            if !value.is_empty() && lacks(lack, &value) && !seen.contains(&value) {
                reasons.push(format!("{what} {value} is only {place}"));
                seen.push(value);
            }
        }
    }
}

fn is_draw(path: &str) -> bool {
    DRAWS.iter().any(|d| path == *d || path.strip_prefix(d).is_some_and(|rest| rest.starts_with('.')))
}

/// The settings in which two experiments, given as TOML, differ: (path, value in `was`, value in `is`).
fn differences(was: &str, is: &str) -> Vec<(String, String, String)> {
    let (was, is) = (leaves(was), leaves(is));
    let absent = || "not set".to_owned();
    let paths: std::collections::BTreeSet<&String> =
        was.keys().chain(is.keys()).filter(|p| was.get(*p) != is.get(*p)).collect();
    let value = |all: &BTreeMap<String, String>, path: &String| all.get(path).cloned().unwrap_or_else(absent);
    paths.into_iter().map(|p| (p.clone(), value(&was, p), value(&is, p))).collect()
}

/// The settings of an experiment, given as TOML, by their paths; a list is one value. Leaves out the keys that cannot
/// be swept: policies and seeds, by which runs are paired, and keys without effect on results.
fn leaves(text: &str) -> BTreeMap<String, String> {
    fn walk(path: &str, value: &toml::Value, settings: &mut BTreeMap<String, String>) {
        match value {
            toml::Value::Table(table) if !table.is_empty() => {
                let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
                table.iter().for_each(|(key, value)| walk(&join(key), value, settings));
            }
            other => drop(settings.insert(path.to_owned(), other.to_string())),
        }
    }
    let mut settings = BTreeMap::new();
    if let Ok(toml::Value::Table(mut top)) = toml::from_str::<toml::Value>(text) {
        UNSWEPT.iter().for_each(|key| drop(top.remove(*key)));
        walk("", &toml::Value::Table(top), &mut settings);
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_differ_by_path() {
        let was = "name = \"a\"\nseeds = [1, 2]\n[engine]\nblock_size = 16\n[workload.arrivals.poisson]\nrate = 4.0\n";
        let is = "name = \"a\"\nseeds = [3]\n[engine]\nblock_size = 32\nmax_num_seqs = 8\n[workload.arrivals.poisson]\nrate = 4.0\n";
        let expected = [("engine.block_size", "16", "32"), ("engine.max_num_seqs", "not set", "8")];
        let found = differences(was, is);
        assert_eq!(found.iter().map(|d| (d.0.as_str(), d.1.as_str(), d.2.as_str())).collect::<Vec<_>>(), expected);
        assert!(differences(is, is).is_empty());
    }

    #[test]
    fn workload_acceptance_and_noise_decide_the_draws() {
        assert!(is_draw("workload.arrivals.poisson.rate") && is_draw("hardware.noise_cv") && is_draw("acceptance"));
        assert!(!is_draw("engine.block_size") && !is_draw("hardware.target.linear.alpha_s"));
    }
}
