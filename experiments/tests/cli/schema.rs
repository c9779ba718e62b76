//! The JSON schema of experiments. The committed file must be up to date, shipped experiments must satisfy the schema,
//! and invalid experiments must not.

use crate::support::{EXPERIMENT, Place};
use jsonschema::Validator;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text() -> String {
    let output = Place::new().foretoken().arg("schema").output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// The schema, ready to check experiments. The schema itself must be valid.
fn schema() -> Validator {
    let schema: Value = serde_json::from_str(&text()).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    jsonschema::validator_for(&schema).unwrap()
}

/// Every violation of the schema in `value`, with place and reason.
fn faults(schema: &Validator, value: &Value) -> Vec<String> {
    schema.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Replaces infinite numbers by finite ones, because TOML has infinity and JSON does not.
fn make_finite(value: &mut toml::Value) {
    match value {
        toml::Value::Float(x) if x.is_infinite() => *x = f64::MAX.copysign(*x),
        toml::Value::Array(all) => all.iter_mut().for_each(make_finite),
        toml::Value::Table(table) => table.iter_mut().for_each(|(_, inner)| make_finite(inner)),
        _ => {}
    }
}

/// The violations of the schema in an experiment's text.
fn faults_of_text(schema: &Validator, text: &str) -> Vec<String> {
    let mut value: toml::Value = toml::from_str(text).unwrap();
    make_finite(&mut value);
    faults(schema, &serde_json::to_value(value).unwrap())
}

#[test]
fn the_committed_schema_is_this_versions() {
    let committed = std::fs::read_to_string(shipped("experiment.schema.json")).unwrap();
    assert!(committed == text(), "experiments/experiment.schema.json is old: run .ci/refresh");
    // If parts of the schema were repeated, it would have more values, but not more descriptions. So the number of
    // values for each description is limited. The committed file breaks its lines by their length, so the values are
    // counted in a text with one value a line.
    let schema: serde_json::Value = serde_json::from_str(&committed).unwrap();
    let lines = serde_json::to_string_pretty(&schema).unwrap().lines().count();
    let described = committed.matches("\"description\"").count();
    assert!(lines < 18 * described, "{lines} lines for {described} descriptions: write once what is repeated");
}

#[test]
fn the_page_of_settings_is_this_versions() {
    let output = Place::new().foretoken().args(["settings", "--markdown"]).output().unwrap();
    let made = String::from_utf8(output.stdout).unwrap();
    let committed = std::fs::read_to_string(shipped("../docs/settings.md")).unwrap();
    assert!(committed == made, "docs/settings.md is old: run .ci/refresh");
}

#[test]
fn every_shipped_experiment_satisfies_it_and_names_it() {
    let schema = schema();
    let mut checked = 0;
    for (folder, line) in [
        ("", "#:schema experiment.schema.json"),
        ("papers", "#:schema ../experiment.schema.json"),
        ("arena", "#:schema ../experiment.schema.json"),
    ] {
        for entry in std::fs::read_dir(shipped(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "toml") || path.ends_with("Cargo.toml") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.lines().any(|l| l == line), "{} does not name its schema: {line}", path.display());
            let found = faults_of_text(&schema, &text);
            assert!(found.is_empty(), "{}: {found:#?}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} files");
    assert!(faults_of_text(&schema, EXPERIMENT).is_empty());
}

/// Every policy's table of defaults, as `policies defaults` prints it, satisfies the schema. A policy without settings
/// does, too.
#[test]
fn every_preset_satisfies_it() {
    let mut schema: Value = serde_json::from_str(&text()).unwrap();
    let definitions = schema["$defs"].take();
    let policy = json!({ "$ref": "#/$defs/Policy", "$defs": definitions, "$schema": schema["$schema"] });
    let policy = jsonschema::validator_for(&policy).unwrap();
    let output = Place::new().foretoken().args(["policies", "list", "--format", "json"]).output().unwrap();
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for described in all {
        for given in [&described["settings"], &json!({ described["name"].as_str().unwrap(): {} })] {
            let found = faults(&policy, given);
            assert!(found.is_empty(), "{given}: {found:#?}");
        }
    }
}

#[test]
fn the_schema_refuses_what_the_program_refuses() {
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
        assert!(!faults_of_text(&schema, &broken).is_empty(), "`{to}` in place of `{from}` is let through");
        let place = Place::holding(&broken);
        place.fails(&["run", "x.toml", "-o", "out"], 2);
    }
}
