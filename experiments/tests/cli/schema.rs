//! The JSON schema of experiments: the committed one is this version's, shipped files satisfy it, broken ones do not.

use crate::support::{EXPERIMENT, Place};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn schema() -> Value {
    let output = Place::new().foretoken().arg("schema").output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What is wrong with a value, by the keywords that our schema uses; any other keyword is a fault of this test.
fn faults(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let object = match schema {
        Value::Bool(true) => return Vec::new(),
        Value::Bool(false) => return vec![format!("{at}: nothing is allowed here")],
        other => other.as_object().unwrap(),
    };
    let mut found = Vec::new();
    let mut check = |ok: bool, what: String| found.extend((!ok).then(|| format!("{at}: {what}")));
    let each = |list: &Value| -> usize {
        list.as_array().unwrap().iter().filter(|s| faults(root, s, value, at).is_empty()).count()
    };
    for (key, rule) in object {
        match key.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "format" => {}
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                let inner = faults(root, &root["$defs"][name], value, at);
                check(inner.is_empty(), inner.join("; "));
            }
            "anyOf" => check(each(rule) > 0, format!("{value} is none of those allowed")),
            "oneOf" => check(each(rule) == 1, format!("{value} is {} of those allowed", each(rule))),
            "const" => check(value == rule, format!("{value} is not {rule}")),
            "enum" => check(rule.as_array().unwrap().contains(value), format!("{value} is not in {rule}")),
            "type" => {
                let names: Vec<&str> = rule
                    .as_array()
                    .map_or(vec![rule], |all| all.iter().collect())
                    .into_iter()
                    .map(|n| n.as_str().unwrap())
                    .collect();
                check(names.iter().any(|name| is_a(value, name)), format!("{value} is no {rule}"));
            }
            "minimum" => check(value.as_f64().is_none_or(|x| x >= rule.as_f64().unwrap()), format!("{value} < {rule}")),
            "maximum" => check(value.as_f64().is_none_or(|x| x <= rule.as_f64().unwrap()), format!("{value} > {rule}")),
            "minItems" => {
                check(value.as_array().is_none_or(|a| a.len() as u64 >= rule.as_u64().unwrap()), "too few".into())
            }
            "maxItems" => {
                check(value.as_array().is_none_or(|a| a.len() as u64 <= rule.as_u64().unwrap()), "too many".into())
            }
            "required" => {
                for name in rule.as_array().unwrap() {
                    check(
                        !value.is_object() || value.get(name.as_str().unwrap()).is_some(),
                        format!("{name} is missing"),
                    );
                }
            }
            "items" if value.is_array() => {
                for (i, item) in value.as_array().unwrap().iter().enumerate() {
                    let inner = faults(root, rule, item, &format!("{at}[{i}]"));
                    check(inner.is_empty(), inner.join("; "));
                }
            }
            "prefixItems" if value.is_array() => {
                for (i, (rule, item)) in rule.as_array().unwrap().iter().zip(value.as_array().unwrap()).enumerate() {
                    let inner = faults(root, rule, item, &format!("{at}[{i}]"));
                    check(inner.is_empty(), inner.join("; "));
                }
            }
            "properties" | "additionalProperties" if value.is_object() => {
                for (name, item) in value.as_object().unwrap() {
                    let known = object.get("properties").and_then(|p| p.get(name));
                    let rule = if key == "properties" { known } else { known.is_none().then_some(rule) };
                    let inner = rule.map(|rule| faults(root, rule, item, &format!("{at}.{name}"))).unwrap_or_default();
                    check(inner.is_empty(), inner.join("; "));
                }
            }
            "items" | "prefixItems" | "properties" | "additionalProperties" => {}
            other => panic!("{at}: this test does not know `{other}`"),
        }
    }
    found
}

fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("type {other}"),
    }
}

/// TOML can write infinity and JSON cannot: a number all the same.
fn make_finite(value: &mut toml::Value) {
    match value {
        toml::Value::Float(x) if x.is_infinite() => *x = f64::MAX.copysign(*x),
        toml::Value::Array(all) => all.iter_mut().for_each(make_finite),
        toml::Value::Table(table) => table.iter_mut().for_each(|(_, inner)| make_finite(inner)),
        _ => {}
    }
}

/// The faults of an experiment's text.
fn of(schema: &Value, text: &str) -> Vec<String> {
    let mut value: toml::Value = toml::from_str(text).unwrap();
    make_finite(&mut value);
    faults(schema, schema, &serde_json::to_value(value).unwrap(), "")
}

#[test]
fn the_committed_schema_is_this_versions() {
    let committed = std::fs::read_to_string(shipped("experiment.schema.json")).unwrap();
    assert!(
        serde_json::from_str::<Value>(&committed).unwrap() == schema(),
        "experiments/experiment.schema.json is old: foretoken schema > experiments/experiment.schema.json"
    );
}

#[test]
fn every_shipped_experiment_satisfies_it_and_names_it() {
    let schema = schema();
    let mut checked = 0;
    for (folder, line) in [("", "#:schema experiment.schema.json"), ("papers", "#:schema ../experiment.schema.json")] {
        for entry in std::fs::read_dir(shipped(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "toml") || path.ends_with("Cargo.toml") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.lines().any(|l| l == line), "{} does not name its schema: {line}", path.display());
            let found = of(&schema, &text);
            assert!(found.is_empty(), "{}: {found:#?}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} files");
    assert!(of(&schema, EXPERIMENT).is_empty());
}

/// Every default that `policies defaults` prints satisfies it, and so do no settings at all.
#[test]
fn every_preset_satisfies_it() {
    let schema = schema();
    let policy = &schema["$defs"]["Policy"];
    let output = Place::new().foretoken().args(["policies", "list", "--format", "json"]).output().unwrap();
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for described in all {
        for given in [&described["settings"], &json!({ described["name"].as_str().unwrap(): {} })] {
            let found = faults(&schema, policy, given, "");
            assert!(found.is_empty(), "{given}: {found:#?}");
        }
    }
}

#[test]
fn what_the_program_refuses_the_schema_refuses() {
    let schema = schema();
    for (from, to) in [
        ("max_num_seqs", "max_num_seq"),
        ("[slo]", "[sol]"),
        ("k = {", "length = {"),
        ("delta_s = 11e-3", "delta = 11e-3"),
        ("requests = 200", "requests = \"many\""),
        ("requests = 200", "requests = -1"),
        ("seeds = [1, 2]", "seeds = 3"),
        ("seeds = [1, 2]", "seeds = { sweep = [1, 2] }"),
        ("[8, 64]", "[]"),
        ("[8, 64]", "[8, \"x\"]"),
        ("adaspec = {}", "adaspek = {}"),
        ("constant = { rate = 0.7 }", "constant = { rate = 0.7 }\nmixture = {}"),
        ("draft = {", "draught = {"),
        ("steps = true", "steps = \"yes\""),
        ("name = \"small\"\n", ""),
    ] {
        assert!(EXPERIMENT.contains(from), "{from}");
        let broken = EXPERIMENT.replacen(from, to, 1);
        assert!(!of(&schema, &broken).is_empty(), "`{to}` in place of `{from}` is let through");
        let place = Place::holding(&broken);
        place.fails(&["run", "x.toml", "-o", "out"], 2);
    }
}
