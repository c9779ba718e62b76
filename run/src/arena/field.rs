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
pub fn references() -> impl Iterator<Item = String> {
    let prices = ["", "decode = 1.0", "decode = 1.5", "decode = 2.0", "decode = 3.0"].into_iter();
    let prices = prices.chain(["system = 1.0", "system = 1.5", "system = 2.0", "system = 3.0"]);
    ["oracle-goodput", "oracle-tree"].into_iter().flat_map(move |oracle| prices.clone().map(|p| priced(oracle, p)))
}

/// A policy in TOML, with a value of its setting `price`. If `price` is empty, the setting is left out.
pub fn priced(policy: &str, price: &str) -> String {
    match price {
        "" => format!("{{ {policy} = {{}} }}"),
        price => format!("{{ {policy} = {{ price = {{ {price} }} }} }}"),
    }
}

/// Reads one policy from TOML, as it is written in an experiment.
pub fn read(text: &str) -> Result<PolicySpec> {
    #[derive(serde::Deserialize)]
    struct Listed {
        policy: PolicySpec,
    }
    let listed = toml::from_str::<Listed>(&format!("policy = {text}"));
    listed.map(|listed| listed.policy).map_err(|e| Problem::failed(format!("{text}: {}", e.message())))
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

/// As TOML: the policies of [`references`], the fixed lengths from 1 to `longest`, and every other policy that does not
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
    references().map(Ok).chain(fixed.map(Ok)).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_is_an_oracle_with_settings_in_range() {
        assert_eq!(references().count(), 18);
        for text in references() {
            let policy = read(&text).unwrap_or_else(|e| panic!("{}", e.message()));
            assert!(policy.sees_hidden_truth() && policy.check().is_ok(), "{text}");
        }
    }
}
