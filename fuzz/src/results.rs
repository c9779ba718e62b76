//! Fuzzes the readers of the files in a results folder.

use crate::said;
use foretoken_run::cells::{Manifest, Stored};
use foretoken_traces::intact::seal::{Syntax, seal};
use std::path::Path;

/// Reads the manifest of a results folder, which describes the results and lists their files. It is read twice: first
/// the bytes as they are, then with a repaired seal (checksum). The manifest must have finite numbers, and must be
/// equal after it is written and read again.
pub fn manifest(data: &[u8]) {
    read(data);
    let Some(text) = said::text(data) else { return };
    let members = text.split(",\n  \"seal\"").next().unwrap_or_default();
    let members = members.trim_end().trim_end_matches("\n}");
    read(seal(Syntax::Json, &format!("{members}\n}}")).as_bytes());
}

fn read(bytes: &[u8]) {
    const FOLDER: &str = "results";
    match Manifest::parse(Path::new(FOLDER), bytes) {
        Err(problem) => said::problem(&problem, FOLDER),
        Ok(manifest) => {
            said::finite(&manifest);
            let written = manifest.to_json();
            let again = Manifest::parse(Path::new(FOLDER), written.as_bytes());
            assert_eq!(again.map(|m| m.to_json()).unwrap_or_else(|e| panic!("{e}")), written);
        }
    }
}

/// Reads the stored bytes of a finished cell (one run of one policy with one seed). The checksum before these bytes is
/// left out. The cell's numbers must be equal after the cell is written and read again.
pub fn cell(data: &[u8]) {
    match postcard::from_bytes::<Stored>(data) {
        Err(error) => said::message(&error.to_string()),
        Ok(stored) => {
            let written = postcard::to_stdvec(&stored).expect("a cell can be written");
            let again: Stored = postcard::from_bytes(&written).expect("what was written reads");
            assert_eq!(again.numbers(&again.records), stored.numbers(&stored.records));
        }
    }
}
