//! `foretoken policies`: the registry, for people.

use super::print;
use crate::experiment::unknown_policy;
use crate::plan::with_defaults;
use crate::problem::Result;
use foretoken_policies::PolicySpec;
use std::fmt::Write;

/// Lists every policy with a line on what it does.
pub fn list() -> Result<()> {
    let names = PolicySpec::all_names();
    let width = names.iter().map(|n| n.len()).max().unwrap_or(0);
    let mut text = String::new();
    for name in names {
        let spec = known(name)?;
        writeln!(text, "{name:width$}  {}", spec.summary()).expect("writing to a string cannot fail");
    }
    print(&text)
}

/// Shows a policy: what it does, its source, its settings.
pub fn show(name: &str) -> Result<()> {
    let spec = known(name)?;
    let settings = toml::Value::try_from(&spec).map(|v| v.to_string()).unwrap_or_default();
    let truth =
        if spec.sees_hidden_truth() { "\nsees hidden truth: a bound, not a policy a server can run\n" } else { "" };
    print(&format!(
        "{name}: {}\nsource: {}\n{truth}\nin an experiment, with its defaults:\n  policies = [{settings}]\n",
        spec.summary(),
        spec.source(),
    ))
}

fn known(name: &str) -> Result<PolicySpec> {
    with_defaults(name).ok_or_else(|| unknown_policy(name, PolicySpec::all_names()))
}
