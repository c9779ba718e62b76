//! Names and units of settings in words, for axes and titles. `words.txt` has the list.

/// A setting's name and unit in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// The setting's name, such as `request rate`.
    pub name: String,
    /// The unit of its values, such as `requests/s`; empty for none.
    pub unit: String,
}

const LIST: &str = include_str!("words.txt");

/// The words for the setting at a path of an experiment; `None` if `words.txt` has no line for it. For a setting of a
/// policy, the name is made of the last key of the path and the policy's name, such as `k of fixed`.
pub fn of(path: &str) -> Option<Words> {
    let keys: Vec<&str> = path.split('.').map(|key| key.split('[').next().unwrap_or_default()).collect();
    if let Some(at) = keys.iter().position(|key| *key == "policies" || *key == "policy") {
        let key = keys.last()?.replace(['_', '-'], " ");
        let policy = keys.get(at + 1).filter(|_| keys.len() > at + 2);
        return Some(Words {
            name: policy.map_or(key.clone(), |policy| format!("{key} of {policy}")),
            unit: String::new(),
        });
    }
    let fits = |end: &str| {
        let end: Vec<&str> = end.split('.').collect();
        end.len() <= keys.len() && end.iter().rev().zip(keys.iter().rev()).all(|(e, k)| *e == "*" || e == k)
    };
    let lines = LIST.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut parts = line.split('|').map(str::trim);
        Some((parts.next()?, parts.next()?, parts.next().unwrap_or_default()))
    });
    let (_, name, unit) = lines.filter(|line| fits(line.0)).max_by_key(|line| line.0.split('.').count())?;
    // If the setting is a cost, the name also says whether it belongs to the target model or the draft model.
    let model = ["draft", "target"].into_iter().find(|model| keys[..keys.len() - 1].contains(model));
    let name = model.map_or_else(|| name.to_owned(), |model| format!("{name}, {model}"));
    Some(Words { name, unit: unit.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::experiment::UNSWEPT;
    use serde_json::Value;

    /// Adds to `found` the paths of all settings below a node of the JSON schema that are numbers. A key of a map is
    /// written as `*`.
    fn numbers(all: &Value, node: &Value, path: &str, open: &[&str], found: &mut Vec<String>) {
        if let Some(name) = node["$ref"].as_str().and_then(|r| r.rsplit('/').next()) {
            if !name.starts_with("sweep-") && !open.contains(&name) {
                numbers(all, &all["$defs"][name], path, &[open, &[name]].concat(), found);
            }
            return;
        }
        let types: Vec<&str> = match &node["type"] {
            Value::String(one) => vec![one],
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if types.iter().any(|t| ["number", "integer"].contains(t)) && !found.iter().any(|p| p == path) {
            found.push(path.to_owned());
        }
        for choices in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            node[choices].as_array().into_iter().flatten().for_each(|node| numbers(all, node, path, open, found));
        }
        for (key, node) in node["properties"].as_object().into_iter().flatten() {
            let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            numbers(all, node, &at, open, found);
        }
        numbers_of(all, &node["additionalProperties"], &format!("{path}.*"), open, found);
        numbers_of(all, &node["items"], path, open, found);
    }

    fn numbers_of(all: &Value, node: &Value, path: &str, open: &[&str], found: &mut Vec<String>) {
        if node.is_object() {
            numbers(all, node, path, open, found);
        }
    }

    #[test]
    fn every_number_that_can_be_swept_has_words() {
        let schema = crate::spec::schema::experiment();
        let mut found = Vec::new();
        numbers(&schema, &schema, "", &[], &mut found);
        // Settings in the tables of commands other than `run` are never swept, so they need no line in `words.txt`.
        let elsewhere = ["live", "validate", "observe"];
        let first = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
        found.retain(|path| !UNSWEPT.contains(&first(path).as_str()) && !elsewhere.contains(&first(path).as_str()));
        assert!(found.len() > 500, "{} numbers", found.len());
        let without: Vec<&String> = found.iter().filter(|path| of(path).is_none()).collect();
        assert!(without.is_empty(), "without a line in words.txt: {without:#?}");
    }

    #[test]
    fn every_line_of_the_list_names_something() {
        let schema = crate::spec::schema::experiment();
        let mut found = Vec::new();
        numbers(&schema, &schema, "", &[], &mut found);
        for line in LIST.lines().filter(|line| !line.starts_with('#')) {
            let parts: Vec<&str> = line.split('|').map(str::trim).collect();
            assert!(parts.len() == 3 && !parts[1].is_empty(), "{line}");
            // A table on a terminal is headed by the setting, its value and its unit.
            assert!(parts[1].chars().count() + parts[2].chars().count() <= 40, "too long for a heading: {line}");
            let used =
                found.iter().any(|path| of(path).is_some_and(|w| w.name.starts_with(parts[1]) && w.unit == parts[2]));
            assert!(used, "{line}");
        }
    }

    #[test]
    fn the_longest_end_names_a_setting() {
        let words = |path: &str| of(path).map(|w| (w.name, w.unit)).unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(words("workload.arrivals.poisson.rate"), pair("request rate", "requests/s"));
        assert_eq!(words("workload.transform[0].rate-scale"), pair("load", "×"));
        assert_eq!(words("acceptance.source.constant.rate"), pair("acceptance rate", "accepted of drafted"));
        assert_eq!(words("hardware.target.roofline.tensor_parallel"), pair("tensor parallelism, target", "GPUs"));
        assert_eq!(words("fleet.replicas[0].policy.fixed.k"), pair("k of fixed", ""));
        assert_eq!(of("engine.scheduler"), None);
    }
}
