//! Runs libFuzzer on the fuzz target that the environment variable `FORETOKEN_FUZZ_TARGET` names.

#![no_main]

use foretoken_fuzz::TARGETS;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// The environment variable that names the fuzz target to run.
const VARIABLE: &str = "FORETOKEN_FUZZ_TARGET";

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    let target = TARGETS.iter().find(|(of, _)| *of == name);
    target.unwrap_or_else(|| panic!("{VARIABLE}={name} is no target; targets are {}", names.join(", "))).1
});

fuzz_target!(|data: &[u8]| TARGET(data));
