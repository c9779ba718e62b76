//! JSON lines: one typed row in each line, and errors that name line and key.

use crate::error::{TraceError, nearest};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// Parses one line as a row of type `T`. Serde parses it; only a line that fails is examined again, to explain the
/// error.
pub(super) fn row<'t, T: Deserialize<'t>>(
    path: &Path,
    line: u64,
    text: &'t str,
    keys: &[&str],
) -> Result<T, TraceError> {
    serde_json::from_str(text).map_err(|error| diagnose(path, line, text, keys, &error))
}

fn diagnose(path: &Path, line: u64, text: &str, keys: &[&str], error: &serde_json::Error) -> TraceError {
    let object = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return TraceError::row(path, line, None, "is not a JSON object", "one object a line is expected"),
        Err(e) => return malformed(path, line, text, &e),
    };
    if let Some(key) = keys.iter().find(|k| !object.contains_key(**k)) {
        let near = nearest(key, object.keys().map(String::as_str));
        let hint = match near.as_slice() {
            [] => "is the file of this format?".to_owned(),
            near => format!("the nearest keys are: {}", near.join(", ")),
        };
        return TraceError::row(path, line, Some(key), "is missing", hint);
    }
    // Serde reports the position just after the JSON value that it refused. The error message names the last key before
    // this position.
    let before = text.get(..error.column().min(text.len())).unwrap_or(text);
    let place = |key: &&String| before.rfind(&format!("\"{key}\"")).map_or(0, |p| p + 1);
    let blamed = object.keys().max_by_key(place).map(String::as_str);
    TraceError::row(path, line, blamed, reason(error), "correct or remove the line")
}

/// The error about a line that is not valid JSON. It names the character and the key before it.
pub(crate) fn malformed(path: &Path, line: u64, text: &str, error: &serde_json::Error) -> TraceError {
    let what = format!("is not valid JSON at character {}: {}", error.column(), reason(error));
    let before = text.get(..error.column().min(text.len())).unwrap_or_default();
    let key = before.rfind("\":").and_then(|end| Some(&before[before[..end].rfind('"')? + 1..end]));
    TraceError::row(path, line, key, what, "the line is malformed or cut off: correct or remove it")
}

/// Serde's message without its line and column. Serde sees only a single line, so its line number is not the file's.
fn reason(error: &serde_json::Error) -> String {
    let message = error.to_string();
    message.split(" at line ").next().unwrap_or(&message).to_owned()
}
