//! Replays a whole file of recordings.

use super::replay;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::BufRead;

/// How many recordings of a family were replayed, and the first that differs.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Every batch was SGLang's.
    pub equal: usize,
    /// A batch was not SGLang's.
    pub differ: usize,
    /// The first difference.
    pub first: Option<String>,
}

impl std::fmt::Display for Replayed {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{:5} equal {:5} differ", self.equal, self.differ)
    }
}

/// Replays the workloads of a recording, by family.
///
/// # Errors
/// The text cannot be read, or a line is not JSON.
pub fn replay_all(text: impl BufRead) -> std::io::Result<BTreeMap<String, Replayed>> {
    let mut families = BTreeMap::<String, Replayed>::new();
    // The first line names format and release.
    for line in text.lines().skip(1) {
        let line: Value = serde_json::from_str(&line?)?;
        let counts = families.entry(line["family"].as_str().unwrap_or_default().to_owned()).or_default();
        let result = std::panic::catch_unwind(|| replay(&line)).unwrap_or_else(|_| Err("a panic".into()));
        match result {
            Ok(_) => counts.equal += 1,
            Err(why) => {
                counts.differ += 1;
                let settings = &line["settings"];
                counts.first.get_or_insert_with(|| format!("seed {}: {settings}\n{why}", line["seed"]));
            }
        }
    }
    Ok(families)
}
