//! Results as JSON with rounded numbers, so that a test can compare them with a snapshot.

use serde::Serialize;
use serde_json::Value;

/// A result as JSON. Numbers that are not whole have four digits.
pub fn rounded(result: &impl Serialize) -> String {
    let mut value = serde_json::to_value(result).unwrap();
    round(&mut value);
    serde_json::to_string_pretty(&value).unwrap()
}

fn round(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Object(values) => values.values_mut().for_each(round),
        Value::Number(x) if x.is_f64() => *value = format!("{:.3e}", x.as_f64().unwrap()).parse().unwrap(),
        _ => {}
    }
}
