//! Tests that build copies of the sources: the recipes of CONTRIBUTING.md, and a new policy. They compile most of the
//! workspace once more, so they need the feature `copies`: `cargo test --release -p foretoken-tests --features copies
//! --test copies`. `.ci/run` runs them in a step of their own.

mod new_policy;
mod recipes;

use foretoken_policies::template::{NewPolicy, new_policy};
use std::fs;
use std::path::Path;

/// Follows `foretoken policies new` in the source tree at `root`: writes the policy's file in the family `confidence`,
/// and adds the two lines that the command says to the table of policies.
fn add_policy(root: &Path, name: &str) {
    let NewPolicy { table, module, row, .. } = new_policy(root, name, "confidence").unwrap();
    let text = fs::read_to_string(&table).unwrap();
    let (head, rest) = text.split_once("mod confidence {\n").expect("a family's modules");
    let (modules, rows) = rest.split_once("\n    confidence::").expect("a family's rows");
    fs::write(table, format!("{head}mod confidence {{\n{module}\n{modules}\n{row}\n    confidence::{rows}")).unwrap();
}
