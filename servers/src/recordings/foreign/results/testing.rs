//! Helpers for the tests of the readers of load generators' results.

use super::detect::parse;
use super::run::Run;
use std::path::Path;

/// The runs in a load generator's file with the content `text`, or the reader's error.
pub(super) fn parsed(text: &str) -> Result<Vec<Run>, String> {
    parse(Path::new("f"), text.as_bytes()).map(|(_, runs)| runs).map_err(|e| {
        assert!(!e.hint.is_empty());
        e.to_string()
    })
}

/// The only run in a load generator's file with the content `text`.
pub(super) fn only(text: &str) -> Run {
    let mut runs = parsed(text).unwrap();
    assert_eq!(runs.len(), 1);
    runs.remove(0)
}

/// The reader's error for a load generator's file with the content `text`.
pub(super) fn why(text: &str) -> String {
    parsed(text).unwrap_err()
}
