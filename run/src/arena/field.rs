//! Fills in the policies of an arena scenario that names no policies: the oracles that may be the reference, every
//! fixed draft length, and every other policy that a server can run.

use crate::spec::document::{Document, Path};
use crate::spec::problem::{Problem, Result};
use foretoken_policies::PolicySpec;
use foretoken_sim::EngineConfig;

/// The oracles that may be the reference of an arena scenario. The reference is the policy to whose E2E all other
/// policies are compared. Each oracle is written in TOML, as in an experiment.
///
/// In each scenario, the oracle of chains with the least mean E2E is the reference of policies that draft chains, and
/// the oracle of trees with the least mean E2E is the reference of policies that draft trees. The first oracle of each
/// kind maximises the tokens per second of each step alone. This does not give the least E2E where prefill takes much
/// of the time. The oracles with a `price` maximise tokens − price × seconds of each step. A new oracle is added here
/// and nowhere else.
pub const REFERENCES: [&str; 18] = [
    "{ oracle-goodput = {} }",
    "{ oracle-goodput = { price = { decode = 1.0 } } }",
    "{ oracle-goodput = { price = { decode = 1.5 } } }",
    "{ oracle-goodput = { price = { decode = 2.0 } } }",
    "{ oracle-goodput = { price = { decode = 3.0 } } }",
    "{ oracle-goodput = { price = { system = 1.0 } } }",
    "{ oracle-goodput = { price = { system = 1.5 } } }",
    "{ oracle-goodput = { price = { system = 2.0 } } }",
    "{ oracle-goodput = { price = { system = 3.0 } } }",
    "{ oracle-tree = {} }",
    "{ oracle-tree = { price = { decode = 1.0 } } }",
    "{ oracle-tree = { price = { decode = 1.5 } } }",
    "{ oracle-tree = { price = { decode = 2.0 } } }",
    "{ oracle-tree = { price = { decode = 3.0 } } }",
    "{ oracle-tree = { price = { system = 1.0 } } }",
    "{ oracle-tree = { price = { system = 1.5 } } }",
    "{ oracle-tree = { price = { system = 2.0 } } }",
    "{ oracle-tree = { price = { system = 3.0 } } }",
];

/// Reads one policy from TOML, as it is written in an experiment; `None` if `text` is not a policy.
pub(super) fn read(text: &str) -> Option<PolicySpec> {
    toml::from_str::<Listed>(&format!("policy = {text}")).ok().map(|listed| listed.policy)
}

#[derive(serde::Deserialize)]
struct Listed {
    policy: PolicySpec,
}

/// Fills in the policies of an experiment's document (its TOML) that has an `[arena]` table and no `policies`. Does
/// nothing to other documents.
pub fn fill(document: &mut Document) -> Result<()> {
    let given = |key: &str| document.get(&Path::of(key)).is_some();
    if !given("arena") || given("policies") {
        return Ok(());
    }
    let longest = document.value_at(&Path::of("engine.max_draft_len")).and_then(|value| value.as_integer());
    let longest = longest.and_then(|k| u32::try_from(k).ok()).unwrap_or(EngineConfig::default().max_draft_len);
    let policies = default_policies(longest)?;
    document.replace(&Path::of("policies"), "the policies of the arena", &format!("[{}]", policies.join(", ")))
}

/// As TOML: the policies of [`REFERENCES`], the fixed lengths from 1 to `longest`, and every other policy that does not
/// see the hidden truth and asks for at most `longest` draft tokens. Leaves out the clairvoyant policy, which takes the
/// best fixed length in hindsight, because every fixed length is a policy of the list.
fn default_policies(longest: u32) -> Result<Vec<String>> {
    let fixed = (1..=longest).map(|k| format!("{{ fixed = {{ k = {k} }} }}"));
    let others = PolicySpec::all().into_iter().filter(|policy| {
        let definition = policy.definition();
        let within = definition.asks_for().is_none_or(|(_, k)| k <= longest);
        within && policy.name() != "fixed" && definition.tries(longest).is_empty() && !policy.sees_hidden_truth()
    });
    let others = others.map(|policy| {
        let value = toml::Value::try_from(&policy);
        value.map(|v| v.to_string()).map_err(|e| Problem::failed(format!("{}: {e}", policy.label())))
    });
    REFERENCES.iter().map(|r| Ok((*r).to_owned())).chain(fixed.map(Ok)).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_is_an_oracle_with_settings_in_range() {
        for text in REFERENCES {
            let policy = read(text).unwrap_or_else(|| panic!("{text} is no policy"));
            assert!(policy.sees_hidden_truth() && policy.check().is_ok(), "{text}");
        }
    }
}
