//! The JSON schema of an experiment: the types' own, and what the document adds to them (sweeps, a profile's values).
//!
//! An editor that has it completes keys and points at mistakes. It is a help, not the judge: `Experiment::read` is.

use crate::experiment::{Experiment, UNSWEPT};
use serde_json::{Map, Value, json};

/// The definition whose models a profile may give instead.
const HARDWARE: &str = "Hardware";

/// The schema, JSON Schema 2020-12.
pub fn experiment() -> Value {
    let mut schema = schemars::schema_for!(Experiment).to_value();
    let policies = settings_of_policies(&schema);
    for (name, definition) in schema["$defs"].as_object_mut().into_iter().flatten() {
        // A preset brings values for all settings: none is required.
        if policies.contains(name) {
            strip(definition, "required");
        }
        if name == HARDWARE {
            strip(definition, "required");
            definition["anyOf"] = json!([{ "required": ["profile"] }, { "required": ["target", "draft"] }]);
        }
        sweep_below(definition);
    }
    let top = schema["properties"].as_object_mut().into_iter().flatten();
    top.filter(|(key, _)| !UNSWEPT.contains(&key.as_str())).for_each(|(_, value)| *value = swept(value));
    schema["title"] = "Foretoken experiment".into();
    schema
}

/// The keys that a table called `name` must have, or, when it needs none, may have; empty when nothing called so is a table.
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

/// What a schema refers to, or the schema itself.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
        Some(name) => &root["$defs"][name],
        None => schema,
    }
}

/// The definitions that policies' settings refer to.
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

/// Lets every property below be a sweep, in whatever form it is described.
fn sweep_below(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    for (key, value) in object.iter_mut() {
        match key.as_str() {
            "properties" => value.as_object_mut().into_iter().flatten().for_each(|(_, property)| {
                sweep_below(property);
                *property = swept(property);
            }),
            "oneOf" | "anyOf" | "allOf" => value.as_array_mut().into_iter().flatten().for_each(sweep_below),
            "items" => sweep_below(value),
            _ => {}
        }
    }
}

/// The schema of a value that may be `{ sweep = [values] }`. What describes the value stays on top, where editors look for it.
fn swept(schema: &Value) -> Value {
    let mut value = schema.clone();
    let mut outer = Map::new();
    for key in ["description", "default"] {
        if let Some(said) = value.as_object_mut().and_then(|object| object.remove(key)) {
            outer.insert(key.into(), said);
        }
    }
    let sweep = json!({
        "type": "object",
        "properties": { "sweep": { "type": "array", "items": value.clone(), "minItems": 1 } },
        "required": ["sweep"],
        "additionalProperties": false,
    });
    outer.insert("anyOf".into(), json!([value, sweep]));
    Value::Object(outer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swept_value_keeps_its_description_on_top() {
        let given = json!({ "type": "integer", "minimum": 0, "description": "How many.", "default": 3 });
        let made = swept(&given);
        assert_eq!((&made["description"], &made["default"]), (&json!("How many."), &json!(3)));
        assert_eq!(made["anyOf"][0], json!({ "type": "integer", "minimum": 0 }));
        assert_eq!(made["anyOf"][1]["properties"]["sweep"]["items"], made["anyOf"][0]);
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
            assert!(schema["properties"][key]["anyOf"][1]["properties"]["sweep"].is_null(), "{key}");
        }
        assert!(schema["properties"]["engine"]["anyOf"][1]["properties"]["sweep"].is_object());
        for name in settings_of_policies(&schema) {
            assert!(schema["$defs"][&name]["required"].is_null(), "{name}");
        }
        assert_eq!(
            schema["$defs"]["Policy"]["oneOf"].as_array().map(Vec::len),
            Some(foretoken_policies::PolicySpec::all_names().len())
        );
    }
}
