//! Tests that build copies of the sources: the recipes of CONTRIBUTING.md, and a new policy. They compile most of the
//! workspace once more, so they need the feature `copies`: `cargo test --release -p foretoken-tests --features copies
//! --test copies`. `.ci/run` runs them in a step of their own.

mod new_policy;
mod recipes;
