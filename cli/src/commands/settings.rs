//! `foretoken settings`: prints the keys of an experiment, from its JSON schema.

use super::print;
use clap::Args;
use foretoken_profiler::hardware::gpus::gpus;
use foretoken_profiler::hardware::models::catalog;
use foretoken_run::spec::experiment::Experiment;
use foretoken_run::spec::problem::{Problem, Result, nearest};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

pub const EXAMPLES: &str = "Examples:
  foretoken settings
  foretoken settings engine
  foretoken settings acceptance.source
  foretoken settings hardware.target.roofline.gpu";

#[derive(Debug, Args)]
pub struct SettingsArgs {
    /// The settings at and below this key [default: all]
    pub key: Option<String>,
    /// Print a page for the site: all settings, GPUs and models as Markdown
    #[arg(long, conflicts_with = "key")]
    pub markdown: bool,
}

/// Of a setting that is a choice among more names than this, only the first three names are printed. Such a long list
/// is a list of presets, and another command prints it.
const MANY: usize = 30;

/// A key of an experiment, with its path and its description.
#[derive(Clone)]
struct Setting {
    path: String,
    /// The setting's type and default as text, such as `number, 256`.
    kind: String,
    says: String,
}

/// Prints the page of settings (`--markdown`), or the keys at and below `key`, or all keys.
pub fn run(args: &SettingsArgs) -> Result<()> {
    if args.markdown {
        return page();
    }
    let key = args.key.as_deref();
    let all = all_settings();
    let below = |setting: &&Setting| match key {
        None => true,
        Some(key) => setting.path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])),
    };
    let shown: Vec<&Setting> = all.iter().filter(below).collect();
    match key {
        Some("policies") => {
            print("A policy's settings: foretoken policies show NAME; all policies: foretoken policies list\n")
        }
        Some(key) if shown.is_empty() => {
            let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
            let like = all.iter().find(|s| last(&s.path) == last(key)).map(|s| s.path.as_str());
            let near = like.or_else(|| nearest(key, all.iter().map(|s| s.path.as_str())));
            let problem = Problem::bad_input(format!("no setting is called `{key}`"));
            Err(problem.help(near.map_or_else(
                || "`foretoken settings` prints all of them".to_owned(),
                |near| format!("did you mean `{near}`?"),
            )))
        }
        _ => print(&shown.iter().map(|s| format!("{} ({})\n    {}\n", s.path, s.kind, s.says)).collect::<String>()),
    }
}

/// Prints the site's page of settings: a table for each part of an experiment, and the numbers of the GPUs and models.
fn page() -> Result<()> {
    let cell = |text: &str| text.replace('|', "\\|");
    let mut text =
        "# Settings\n\nEvery key of an experiment, generated from its schema by `foretoken settings --markdown`. \
                    `foretoken policies show NAME`\nprints a policy's settings, `foretoken settings slo` the keys of \
                    one table. Keys of the shipped experiments alone: `foretoken settings paper`, `question` and `arena`.\n"
            .to_owned();
    let mut part = String::new();
    let own = ["paper", "question", "arena"];
    let users =
        all_settings().into_iter().filter(|s| !own.contains(&s.path.split(['.', '[']).next().unwrap_or_default()));
    for s in without_repeats(users.collect()) {
        let own = s.path.split(['.', '[']).next().unwrap_or_default().to_owned();
        if own != part {
            write!(text, "\n## {own}\n\n| key | value | meaning |\n|---|---|---|\n").expect("a string grows");
            part = own;
        }
        writeln!(text, "| `{}` | {} | {} |", s.path, cell(&s.kind), cell(&s.says)).expect("a string grows");
    }
    text += "\n## GPUs\n\n| preset | bf16, TFLOP/s | fp8 | fp4 | memory, GB/s | memory, GiB | link, GB/s | source |\n\
             |---|--:|--:|--:|--:|--:|--:|---|\n";
    for g in gpus() {
        let peak = |flops: Option<f64>| flops.map_or("-".to_owned(), |f| format!("{:.0}", f * 1e-12));
        let gpu = &g.gpu;
        let (memory, link) = (gpu.memory_bytes / (1u64 << 30) as f64, gpu.link_bytes_s * 1e-9);
        writeln!(
            text,
            "| `{}` | {} | {} | {} | {:.0} | {memory:.0} | {link:.0} | {} |",
            g.name,
            peak(Some(gpu.bf16_flops)),
            peak(gpu.fp8_flops),
            peak(gpu.fp4_flops),
            gpu.bandwidth_bytes_s * 1e-9,
            cell(&g.source)
        )
        .expect("a string grows");
    }
    text += "\n## Models\n\n| preset | model | parameters, 10⁹ | active | layers | width | KV, bytes a token | vocabulary | source |\n\
             |---|---|--:|--:|--:|--:|--:|--:|---|\n";
    for e in catalog() {
        let (m, work) = (&e.shape, e.shape.work());
        writeln!(
            text,
            "| `{}` | {} | {:.3} | {:.3} | {} | {} | {:.0} | {} | {} |",
            e.name,
            cell(&e.model),
            e.published_parameters * 1e-9,
            m.active_parameters() * 1e-9,
            m.num_layers(),
            m.hidden,
            work.kv_bytes_token(1.0),
            m.vocab,
            cell(&e.source)
        )
        .expect("a string grows");
    }
    print(&text)
}

/// Replaces the keys of a table that repeat an earlier table's keys by one line that names the earlier table:
/// `hardware.draft` has the keys of `hardware.target`.
fn without_repeats(all: Vec<Setting>) -> Vec<Setting> {
    let keys = |table: &str, rows: &[Setting]| -> String {
        rows.iter().map(|s| format!("{} {} {}\n", &s.path[table.len()..], s.kind, s.says)).collect()
    };
    // The costs of a pass are said where a user looks for them, though an earlier table has them too.
    let costs: Vec<Setting> = all.iter().filter(|s| s.path.starts_with("hardware.target.")).cloned().collect();
    let mut first = BTreeMap::from([(keys("hardware.target", &costs), "hardware.target".to_owned())]);
    let mut kept = Vec::new();
    let mut rest = all.as_slice();
    'next: while let Some(s) = rest.first() {
        for (end, _) in s.path.match_indices('.') {
            let table = &s.path[..end];
            let below = |s: &&Setting| s.path.strip_prefix(table).is_some_and(|key| key.starts_with('.'));
            let n = rest.iter().take_while(below).count();
            if n < MANY {
                continue;
            }
            let earlier = first.entry(keys(table, &rest[..n])).or_insert_with(|| table.to_owned());
            if *earlier != table {
                let says = format!("The same keys as in `{earlier}`.");
                kept.push(Setting { path: table.to_owned(), kind: "table".to_owned(), says });
                rest = &rest[n..];
                continue 'next;
            }
        }
        kept.push(s.clone());
        rest = &rest[1..];
    }
    kept
}

/// All keys of an experiment, except the keys below `policies`, which `foretoken policies show` prints.
fn all_settings() -> Vec<Setting> {
    let schema = schemars::schema_for!(Experiment).to_value();
    let mut found = Vec::new();
    for (key, inner) in schema["properties"].as_object().into_iter().flatten().filter(|(key, _)| *key != "policies") {
        walk(&schema, (inner, None), key, &Value::Null, &mut found);
    }
    found
}

/// Appends the key `at` (a path such as `engine.block_size`) and all keys below it to `found`. `schema` describes the
/// key. If `schema` has no description text, the key gets the text `inherited`. `default` is the key's default value,
/// as the schema of the table around it states it.
fn walk(
    root: &Value,
    (schema, inherited): (&Value, Option<String>),
    at: &str,
    default: &Value,
    found: &mut Vec<Setting>,
) {
    let default = schema.get("default").unwrap_or(default);
    let target = resolved(root, schema);
    let says = one_line(schema).or_else(|| one_line(target)).or(inherited).unwrap_or_default();
    let mut tables = Vec::new();
    let mut kinds = Vec::new();
    forms(root, target, &mut tables, &mut kinds);
    if !kinds.is_empty() {
        kinds.dedup();
        let default = match default {
            Value::Null | Value::Object(_) => String::new(),
            value => format!(", default {}", value.to_string().replace('"', "")),
        };
        found.push(Setting { path: at.to_owned(), kind: kinds.join(" | ") + &default, says });
    }
    for table in tables {
        // If a setting allows one of several tables with a single key, such as `{ fixed = … }`, the schema describes
        // each such table and not its key. The key gets the table's description here.
        let choice = table["properties"].as_object().is_some_and(|keys| keys.len() == 1);
        for (key, inner) in table["properties"].as_object().into_iter().flatten() {
            let description = choice.then(|| one_line(table)).flatten();
            walk(root, (inner, description), &format!("{at}.{key}"), &default[key], found);
        }
        if table["additionalProperties"].is_object() {
            let description = one_line(schema);
            walk(root, (&table["additionalProperties"], description), &format!("{at}.NAME"), &Value::Null, found);
        }
    }
    if let Some(items) = target.get("items").filter(|items| is_table(resolved(root, items))) {
        walk(root, (items, None), &format!("{at}[]"), &Value::Null, found);
    }
}

/// Collects which values `schema` allows. Appends to `tables` the schema of each allowed table, and to `kinds` a text
/// for each other allowed value, such as `number`.
fn forms<'a>(root: &'a Value, schema: &'a Value, tables: &mut Vec<&'a Value>, kinds: &mut Vec<String>) {
    let schema = resolved(root, schema);
    let choices = ["anyOf", "oneOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
    choices.for_each(|choice| forms(root, choice, tables, kinds));
    if schema["properties"].is_object() || schema["additionalProperties"].is_object() {
        return tables.push(schema);
    }
    let names = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    if names.len() > MANY {
        return kinds.push(format!("{} | .. ({} names)", names[..3].join(" | "), names.len()));
    }
    if !names.is_empty() {
        return kinds.push(names.join(" | "));
    }
    let kind = match &schema["type"] {
        Value::Array(all) => all.first().and_then(Value::as_str),
        one => one.as_str(),
    };
    kinds.extend(match kind {
        Some("integer") => Some("whole number".to_owned()),
        Some("boolean") => Some("true | false".to_owned()),
        Some("array") => Some("list".to_owned()),
        Some("string") => Some("text".to_owned()),
        Some("number") => Some("number".to_owned()),
        _ => None,
    });
}

fn is_table(schema: &Value) -> bool {
    schema["properties"].is_object() || schema["oneOf"].is_array()
}

fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
        Some(name) => &root["$defs"][name],
        None => schema,
    }
}

fn one_line(schema: &Value) -> Option<String> {
    Some(schema["description"].as_str()?.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_repeats_another_is_one_line() {
        let kept = without_repeats(all_settings());
        let under = |table: &str| kept.iter().filter(|s| s.path.starts_with(&format!("{table}."))).count();
        assert!(under("hardware.target") > 100 && under("hardware.draft") == 0 && under("belief.fitted_to") < 5);
        let draft = kept.iter().find(|s| s.path == "hardware.draft").unwrap();
        assert_eq!(draft.says, "The same keys as in `hardware.target`.");
    }

    #[test]
    fn keys_have_their_type_default_and_description() {
        let all = all_settings();
        let setting = |path: &str| all.iter().find(|s| s.path == path).unwrap_or_else(|| panic!("{path} is missing"));
        assert_eq!(setting("engine.max_num_seqs").kind, "whole number, default 256");
        assert_eq!(
            setting("engine.version").kind,
            "vllm-v0 | vllm-0.32 | vllm-0.33 | sglang-0.5.23, default vllm-0.33"
        );
        assert!(setting("hardware.target.roofline.gpu").kind.starts_with("a100-40g | a100-80g"));
        assert_eq!(setting("acceptance.source.constant.rate").says, "Probability that a draft token is right, [0, 1].");
        assert_eq!(setting("acceptance.source.mixture.categories.NAME.a").kind, "number");
        assert_eq!(setting("workload.transform[].rate-scale").kind, "number");
        assert!(
            all.len() > 200 && all.iter().all(|s| !s.says.is_empty() || s.path.contains("fitted_to")),
            "{}",
            all.len()
        );
    }
}
