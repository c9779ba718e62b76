//! Files of live runs.

use crate::framed::repaired;
use crate::said;
use foretoken_kernels::model::parse_config;
use foretoken_live::serve::parse_jsonl;
use foretoken_live::serve::tape::{KIND, parse_tape};
use std::path::Path;

/// A tape, as it is and with right checksums, and the records that are rebuilt from it.
pub fn tape(data: &[u8]) {
    for bytes in [data, &repaired(KIND, data)] {
        match parse_tape(bytes) {
            Err(error) => said::message(&error.to_string()),
            Ok(tape) => drop(tape.records()),
        }
    }
}

/// Prompts of a live run, one a line.
pub fn prompts(data: &[u8]) {
    const FILE: &str = "prompts.jsonl";
    let Some(text) = said::text(data) else { return };
    match parse_jsonl(Path::new(FILE), text) {
        Err(problem) => said::problem(&problem, FILE),
        Ok(prompts) => assert!(!prompts.is_empty() && prompts.iter().all(|p| !p.is_empty())),
    }
}

/// The `config.json` of a model that runs on a device.
pub fn device_config(data: &[u8]) {
    const FILE: &str = "config.json";
    match parse_config(Path::new(FILE), data) {
        Err(error) => said::names(&error.to_string(), FILE),
        Ok(shape) => said::finite(&shape),
    }
}
