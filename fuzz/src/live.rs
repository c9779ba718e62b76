//! Fuzzes the readers of files of live runs.

use crate::framed::repaired;
use crate::said;
use foretoken_kernels::model::parse_config;
use foretoken_live::serve::parse_jsonl;
use foretoken_live::serve::tape::{KIND, parse_tape};
use std::path::Path;

/// Reads the tape (log) of a live run twice: first the bytes as they are, then with repaired checksums. Rebuilds one
/// record for each request from an accepted tape.
pub fn tape(data: &[u8]) {
    for bytes in [data, &repaired(KIND, data)] {
        match parse_tape(bytes) {
            Err(error) => said::message(&error.to_string()),
            Ok(tape) => drop(tape.records()),
        }
    }
}

/// Reads a file with the prompts of a live run, one prompt a line. A file that is accepted has at least one prompt,
/// and no prompt is empty.
pub fn prompts(data: &[u8]) {
    const FILE: &str = "prompts.jsonl";
    let Some(text) = said::text(data) else { return };
    match parse_jsonl(Path::new(FILE), text) {
        Err(problem) => said::problem(&problem, FILE),
        Ok(prompts) => assert!(!prompts.is_empty() && prompts.iter().all(|p| !p.is_empty())),
    }
}

/// Reads the `config.json` of a model that runs on a device. All numbers of its shape must be finite.
pub fn device_config(data: &[u8]) {
    const FILE: &str = "config.json";
    match parse_config(Path::new(FILE), data) {
        Err(error) => said::names(&error.to_string(), FILE),
        Ok(shape) => said::finite(&shape),
    }
}
