//! The committed JSON schema of experiments must be up to date. What the schema accepts and refuses is tested in
//! `python/tests/test_schema.py`.

use crate::support::Place;
use foretoken_profiler::hardware::gpus::gpus;
use foretoken_profiler::hardware::models::catalog;
use std::path::{Path, PathBuf};

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments").join(name)
}

fn text() -> String {
    let output = Place::new().foretoken().arg("schema").output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
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
fn the_page_of_settings_has_every_gpu_and_model_and_the_keys_of_experiments() {
    let output = Place::new().foretoken().args(["settings", "--markdown"]).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    let presets = gpus().iter().map(|gpu| &gpu.name).chain(catalog().iter().map(|entry| &entry.name));
    let keys = ["max_num_batched_tokens", "roofline.floors", "arrivals", "acceptance.source"].map(str::to_owned);
    for part in presets.chain(&keys) {
        assert!(page.contains(part), "{part} is missing");
    }
}
