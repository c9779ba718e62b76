//! Every shipped `config.json` with one key removed: it is read as if it had the value that transformers' class gives
//! it without this key, or it is refused.

use crate::hardware::config::{ReadConfig, defaults, read_value};
use serde_json::{Map, Value};

/// The values that classes compute from other keys, by preset and key (`tests/models/defaults.py`).
static COMPUTED: std::sync::LazyLock<Map<String, Value>> =
    std::sync::LazyLock::new(|| serde_json::from_str(include_str!("removed.json")).unwrap());

/// Keys that say what a file has: it may lack them.
const OPTIONAL: [&str; 11] = [
    "dflash_config", "draft_vocab_size", "expert_dtype", "model_type", "mtp_hybrid_override_pattern",
    "mtp_layers_block_type", "mtp_num_hidden_layers", "num_mtp_modules", "num_nextn_predict_layers",
    "quantization_config", "tie_word_embeddings",
];

fn object<'a>(config: &'a mut Value, nested: Option<&str>) -> &'a mut Map<String, Value> {
    let object = match nested {
        Some(key) => config.get_mut(key).unwrap(),
        None => config,
    };
    object.as_object_mut().unwrap()
}

/// Shape, module and bits, without the warnings.
fn numbers(read: &ReadConfig) -> String {
    format!("{:?} {:?}", read.shape, read.mtp)
}

#[test]
fn a_missing_key_is_the_default_of_its_class_or_refused() {
    let rows: Vec<Value> = serde_json::from_str(include_str!("../../../../models.json")).unwrap();
    let (mut files, mut refused, mut same, mut by_class) = (0, 0, 0, 0);
    let mut wrong = Vec::new();
    for row in &rows {
        let (name, full) = (row["name"].as_str().unwrap(), &row["config"]);
        let whole = numbers(&read_value(full, "m").unwrap());
        let nested = full.get("text_config").and_then(Value::as_object);
        let top = full.as_object().unwrap().keys().map(|key| (None, key.clone()));
        let below = nested.into_iter().flat_map(Map::keys).map(|key| (Some("text_config"), key.clone()));
        for (nested, key) in top.chain(below).filter(|(_, key)| key != "text_config") {
            let mut without = full.clone();
            object(&mut without, nested).remove(&key);
            files += 1;
            let path = nested.map_or(key.clone(), |nested| format!("{nested}.{key}"));
            let read = match read_value(&without, "m") {
                Err(_) => {
                    refused += 1;
                    continue;
                }
                Ok(read) => read,
            };
            if numbers(&read) == whole || OPTIONAL.contains(&key.as_str()) {
                same += 1;
                continue;
            }
            // The number changed: it must be the class's.
            let computed = COMPUTED.get(name).and_then(|keys| keys.get(&path)).cloned();
            let stated = defaults::for_test(full, nested, &key);
            let Some(value) = computed.or(stated) else {
                wrong.push(format!("{name}: {path}: changes the shape, and no class says so"));
                continue;
            };
            let mut with = without.clone();
            object(&mut with, nested).insert(key.clone(), value.clone());
            match read_value(&with, "m") {
                Ok(with) if numbers(&with) == numbers(&read) => by_class += 1,
                Ok(_) => wrong.push(format!("{name}: {path}: not as with the class's {value}")),
                Err(e) => wrong.push(format!("{name}: {path}: the class's {value} is refused: {e}")),
            }
        }
    }
    println!("{files} files: {refused} refused, {same} unchanged, {by_class} by the class's default");
    assert!(wrong.is_empty(), "{} of {files}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(by_class > 100, "{by_class}");
}
