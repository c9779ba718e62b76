//! The JSON schema of an experiment. It is the schema of the Rust types, with two additions that a file may have:
//! sweeps in place of values, and a profile in place of costs.
//!
//! Editors use the schema to complete keys and to point at mistakes. `Experiment::read` decides what is valid.

use crate::spec::experiment::{Experiment, UNSWEPT};
use serde_json::{Map, Value, json};

/// Name of the definition of `[hardware]` in the JSON schema, in which `target` and `draft` may be absent, because a
/// profile may give them.
const HARDWARE: &str = "Hardware";

/// Tables of an experiment that may be left out when `foretoken observe` sends the experiment's requests to a real
/// server.
const UNKNOWN_OF_A_SERVER: [&str; 2] = ["hardware", "acceptance"];

/// Most characters of a line of the JSON schema's text. A longer value is written over several lines.
const WIDTH: usize = 260;

/// Makes the schema of an experiment (JSON Schema 2020-12).
pub fn experiment() -> Value {
    let mut schema = schemars::schema_for!(Experiment).to_value();
    let policies = settings_of_policies(&schema);
    let mut shared = Shared::default();
    for (name, definition) in schema["$defs"].as_object_mut().into_iter().flatten() {
        // A policy has a preset with values for all settings, so no setting is required.
        if policies.contains(name) {
            strip(definition, "required");
        }
        if name == HARDWARE {
            strip(definition, "required");
            definition["anyOf"] = json!([{ "required": ["profile"] }, { "required": ["target", "draft"] }]);
        }
        shared.sweep_below(definition, name);
    }
    let top = schema["properties"].as_object_mut().into_iter().flatten();
    for (key, value) in top.filter(|(key, _)| !UNSWEPT.contains(&key.as_str())) {
        *value = shared.swept(value, &format!("Experiment.{key}"));
    }
    for (name, definition) in shared.definitions {
        let before = schema["$defs"].as_object_mut().and_then(|all| all.insert(name.clone(), definition));
        assert!(before.is_none(), "{name} is a type's name too");
    }
    let required = schema["required"].as_array_mut().into_iter();
    required.for_each(|keys| keys.retain(|key| !UNKNOWN_OF_A_SERVER.iter().any(|k| key == k)));
    schema["anyOf"] = json!([{ "required": UNKNOWN_OF_A_SERVER }, { "required": ["observe"] }]);
    schema["title"] = "Foretoken experiment".into();
    schema
}

/// The schema as text, sorted by name. Each setting is on one line if it fits, so that changes can be read and
/// merged.
pub fn text() -> String {
    let mut text = String::new();
    write(&experiment(), 0, 0, &mut text);
    text + "\n"
}

/// Writes `value` as JSON. The line to which it is appended is indented by `indent` columns and already has `taken`
/// more characters. A value that does not fit on the line is written over several lines.
fn write(value: &Value, indent: usize, taken: usize, out: &mut String) {
    let line = in_a_line(value);
    let parts: Vec<(String, &Value)> = match value {
        _ if indent + taken + line.chars().count() < WIDTH => Vec::new(),
        Value::Object(all) => all.iter().map(|(key, inner)| (format!("{}: ", json!(key)), inner)).collect(),
        Value::Array(all) => all.iter().map(|inner| (String::new(), inner)).collect(),
        _ => Vec::new(),
    };
    if parts.is_empty() {
        return out.push_str(&line);
    }
    let (open, close) = if value.is_object() { ('{', '}') } else { ('[', ']') };
    let last = parts.len() - 1;
    out.push(open);
    for (i, (key, inner)) in parts.into_iter().enumerate() {
        *out += &format!("\n{:1$}{key}", "", indent + 2);
        write(inner, indent + 2, key.chars().count() + 1, out);
        out.push_str(if i < last { "," } else { "" });
    }
    *out += &format!("\n{:indent$}{close}", "");
}

fn in_a_line(value: &Value) -> String {
    match value {
        Value::Object(all) => {
            let parts: Vec<String> = all.iter().map(|(k, v)| format!("{}: {}", json!(k), in_a_line(v))).collect();
            format!("{{{}}}", parts.join(", "))
        }
        Value::Array(all) => format!("[{}]", all.iter().map(in_a_line).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// The required keys of the experiment's table called `name`; all its keys if none is required. Empty if no table has
/// that name.
pub fn settings_of(name: &str) -> Vec<String> {
    let schema = schemars::schema_for!(Experiment).to_value();
    let keys = |table: &Value| -> Vec<String> {
        let table = resolved(&schema, table);
        let required: Vec<String> =
            table["required"].as_array().into_iter().flatten().filter_map(|k| Some(k.as_str()?.to_owned())).collect();
        match table["properties"].as_object() {
            Some(properties) if required.is_empty() => properties.keys().cloned().collect(),
            _ => required,
        }
    };
    let definitions = schema["$defs"].as_object().into_iter().flatten().map(|(_, definition)| definition);
    let choices = definitions.flat_map(|d| d["oneOf"].as_array().into_iter().flatten().chain([d]));
    choices.map(|d| keys(&d["properties"][name])).find(|keys| !keys.is_empty()).unwrap_or_default()
}

/// If a part of the JSON schema refers to a definition (`$ref`), returns the definition, else the part itself.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
        Some(name) => &root["$defs"][name],
        None => schema,
    }
}

/// Names of the JSON schema's definitions that hold the settings of policies.
fn settings_of_policies(schema: &Value) -> Vec<String> {
    let each = schema["$defs"]["Policy"]["oneOf"].as_array().into_iter().flatten();
    let settings = each.filter_map(|policy| policy["properties"].as_object()?.values().next()?["$ref"].as_str());
    settings.filter_map(|reference| Some(reference.rsplit_once('/')?.1.to_owned())).collect()
}

fn strip(schema: &mut Value, key: &str) {
    if let Some(object) = schema.as_object_mut() {
        object.remove(key);
    }
}

/// Definitions that the JSON schema needs beside the definitions of the Rust types: a definition of `{ sweep = [...] }`
/// for every kind of value, and definitions of values that have no Rust type, such as a list of strings. Each
/// definition is written once.
#[derive(Default)]
struct Shared {
    definitions: Map<String, Value>,
}

impl Shared {
    /// Changes `schema` so that the value of every property in it may be a sweep. `at` is the path of names from the
    /// root down to `schema`.
    fn sweep_below(&mut self, schema: &mut Value, at: &str) {
        let Some(object) = schema.as_object_mut() else { return };
        for (key, value) in object.iter_mut() {
            match key.as_str() {
                "properties" => value.as_object_mut().into_iter().flatten().for_each(|(name, property)| {
                    let at = format!("{at}.{name}");
                    self.sweep_below(property, &at);
                    *property = self.swept(property, &at);
                }),
                "oneOf" | "anyOf" | "allOf" => {
                    value.as_array_mut().into_iter().flatten().for_each(|choice| self.sweep_below(choice, at));
                }
                "items" => self.sweep_below(value, at),
                _ => {}
            }
        }
    }

    /// The schema of a value that may be `{ sweep = [values] }` in place of the value that `schema` describes. The
    /// description stays at the top, where editors look for it.
    fn swept(&mut self, schema: &Value, at: &str) -> Value {
        let mut value = schema.clone();
        let mut outer = Map::new();
        for key in ["description", "default"] {
            if let Some(said) = value.as_object_mut().and_then(|object| object.remove(key)) {
                outer.insert(key.into(), said);
            }
        }
        let name = match name_of(&value) {
            Some(name) => name,
            None => {
                let name = self.define(at, value);
                value = reference(&name);
                name
            }
        };
        let label = json!({ "type": "string", "description": "Name of the setting on the axes of figures." });
        let label = reference(&self.define("label", label));
        let sweep = json!({
            "type": "object",
            "properties": {
                "sweep": { "type": "array", "items": value.clone(), "minItems": 1 },
                "label": label,
            },
            "required": ["sweep"],
            "additionalProperties": false,
        });
        let sweep = reference(&self.define(&format!("sweep-{name}"), sweep));
        outer.insert("anyOf".into(), json!([value, sweep]));
        Value::Object(outer)
    }

    /// Adds a definition to the JSON schema, unless an equal definition exists. Returns its name. If another definition
    /// has the name `name`, a number is added to the name.
    fn define(&mut self, name: &str, definition: Value) -> String {
        let numbered = |n: u32| if n == 1 { name.to_owned() } else { format!("{name}-{n}") };
        let free = |name: &String| self.definitions.get(name).is_none_or(|there| *there == definition);
        let name = (1..).map(numbered).find(free).expect("there is always another number");
        self.definitions.insert(name.clone(), definition);
        name
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// A name for a value's schema that needs no definition of its own. It is the name of a Rust type's definition, or
/// describes a plain number, text or boolean, such as `uint32-from-1`. `None` for all other values.
fn name_of(value: &Value) -> Option<String> {
    let object = value.as_object()?;
    if let (Some(name), 1) = (value["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")), object.len()) {
        return Some(name.to_owned());
    }
    let plain = |key: &String| ["type", "format", "minimum", "maximum"].contains(&key.as_str());
    let kinds: Vec<&str> = match value.get("type")? {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        one => vec![one.as_str()?],
    };
    if !object.keys().all(plain) || kinds.iter().any(|kind| ["object", "array"].contains(kind)) {
        return None;
    }
    let named = |kind: &&str| value["format"].as_str().filter(|_| *kind != "null").unwrap_or(kind).to_owned();
    let mut name = kinds.iter().map(named).collect::<Vec<_>>().join("-or-");
    for (key, word) in [("minimum", "from"), ("maximum", "to")] {
        if let Some(bound) = object.get(key).filter(|bound| **bound != json!(0)) {
            name += &format!("-{word}-{bound}");
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swept_value_keeps_its_description_on_top() {
        let mut shared = Shared::default();
        let given = json!({ "type": "integer", "minimum": 0, "description": "How many.", "default": 3 });
        let made = shared.swept(&given, "Table.key");
        assert_eq!((&made["description"], &made["default"]), (&json!("How many."), &json!(3)));
        assert_eq!(made["anyOf"], json!([{ "type": "integer", "minimum": 0 }, { "$ref": "#/$defs/sweep-integer" }]));
        assert_eq!(shared.definitions["sweep-integer"]["properties"]["sweep"]["items"], made["anyOf"][0]);
    }

    #[test]
    fn a_definition_is_written_once_and_no_two_share_a_name() {
        let mut shared = Shared::default();
        let list = |of: &str| json!({ "type": "array", "items": { "type": of } });
        let refs = |made: &Value| {
            [&made["anyOf"][0]["$ref"], &made["anyOf"][1]["$ref"]].map(|r| r.as_str().unwrap().to_owned())
        };
        let first = refs(&shared.swept(&list("string"), "Table.key"));
        assert_eq!(first, ["#/$defs/Table.key", "#/$defs/sweep-Table.key"]);
        assert_eq!(refs(&shared.swept(&list("string"), "Table.key")), first);
        // The two equal schemas make three definitions: the list of strings, the sweep over this list, and the label
        // that every sweep may have.
        assert_eq!(shared.definitions.len(), 3);
        let other = refs(&shared.swept(&list("integer"), "Table.key"));
        assert_eq!(other, ["#/$defs/Table.key-2", "#/$defs/sweep-Table.key-2"]);
        let bounded = |most: u32| json!({ "type": ["integer", "null"], "format": "uint8", "maximum": most });
        assert_eq!(name_of(&bounded(255)).unwrap(), "uint8-or-null-to-255");
        assert_ne!(name_of(&bounded(255)), name_of(&bounded(3)));
    }

    #[test]
    fn the_text_is_the_schema_in_lines_that_end() {
        let text = text();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), experiment());
        // No line of the schema's text is longer than `WIDTH`, except lines with a description.
        let long = |line: &&str| line.chars().count() > WIDTH && !line.trim_start().starts_with("\"description\": ");
        assert_eq!(text.lines().filter(long).count(), 0);
        assert!(
            text.lines().filter(|line| line.contains("{\"$ref\": \"#/$defs/sweep-")).count() > 400,
            "one setting a line"
        );
    }

    #[test]
    fn tables_say_their_keys() {
        assert_eq!(settings_of("constant"), ["rate"]);
        assert_eq!(settings_of("by-depth"), ["rates"]);
        assert_eq!(settings_of("fixed").len(), 2, "{:?}", settings_of("fixed"));
        assert_eq!(settings_of("max_num_seqs"), [""; 0]);
    }

    #[test]
    fn names_seeds_and_policies_are_not_swept_and_no_preset_requires_anything() {
        let schema = experiment();
        for key in UNSWEPT {
            assert!(schema["properties"][key].is_object(), "{key}");
            assert!(!in_a_line(&schema["properties"][key]).contains("sweep"), "{key}");
        }
        assert_eq!(schema["properties"]["engine"]["anyOf"][1]["$ref"], "#/$defs/sweep-EngineConfig");
        assert_eq!(
            schema["$defs"]["sweep-EngineConfig"]["properties"]["sweep"]["items"]["$ref"],
            "#/$defs/EngineConfig"
        );
        for name in settings_of_policies(&schema) {
            assert!(schema["$defs"][&name]["required"].is_null(), "{name}");
        }
        assert_eq!(
            schema["$defs"]["Policy"]["oneOf"].as_array().map(Vec::len),
            Some(foretoken_policies::PolicySpec::all_names().len())
        );
    }
}
