//! For every leaf (setting) of the schema, takes experiments that set the leaf, and runs them with other values of the
//! leaf. In one of them the results must change, unless the report says that another setting excludes the leaf, or
//! `idle.txt` lists it.
//!
//! Four groups of leaves are not tried here. `cli/tests/cli/every_key.rs` tries two groups on the whole
//! program: keys about the whole experiment (name, seeds, output, paper), and tables of other commands (live, observe,
//! validate, capacity, fleet). `REFUSED` and `NEEDS_A_FILE` list the other two groups.

use super::*;
use crate::cells::play;
use crate::spec::document::{Document, Path};
use crate::spec::experiment::Experiment;
use foretoken_policies::PolicySpec;
use foretoken_profiler::hardware::gpus::gpus;
use foretoken_profiler::hardware::models::catalog;
use rayon::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;
use std::sync::atomic::AtomicBool;

const BASE: &str = r#"name = "leaf"
policies = [{ autoregressive = {} }, { fixed = { k = 2 } }, { smartspec = {} }]
[hardware]
target = { roofline = { gpu = "a100-80g", model = "vicuna-7b" } }
draft = { roofline = { gpu = "a100-80g", model = "vicuna-68m" } }
[engine]
prefix_caching = false
[workload]
arrivals = { poisson = { rate = 8.0 } }
lengths = { spec-bench = {} }
requests = 24
[acceptance]
[belief]
"#;

/// Keys and tables of an experiment that another test, `every_key.rs`, tries on the whole program.
const OTHER_TABLES: [&str; 12] = [
    "name", "seeds", "sweep_order", "output", "paper", "question", "arena", "live", "validate", "observe", "capacity",
    "fleet",
];
/// Settings with which every experiment is refused with an error message. `sample` and `turns` would draw requests at
/// random from a trace of arrivals, but the arrivals must keep their order; `accept` belongs to Spec-Bench files, which
/// have no arrivals.
const REFUSED: [&str; 3] =
    ["workload.arrivals.trace.sample", "workload.arrivals.trace.turns", "workload.arrivals.trace.accept"];
/// Settings that need a measured file, so this test does not try them. Tests of the command line try `hardware.profile`
/// and the files of `acceptance.source`.
const NEEDS_A_FILE: [&str; 4] =
    ["hardware.profile", "hardware.truth", "acceptance.source.table", "acceptance.source.profile"];

/// Lists of changes to the experiment [`BASE`]. Each list makes one experiment, called a world; together the worlds set
/// every leaf. There is a world for each line of `worlds.txt`, for each use of a trace file, and for each policy with
/// its default settings.
fn worlds(folder: &FilePath) -> Vec<Vec<String>> {
    let list = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("src/inert/worlds.txt");
    let list = std::fs::read_to_string(list).expect("the list of worlds lies beside this file");
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let sets = |line: &str| line.split(" ;; ").filter(|set| !set.is_empty()).map(str::to_owned).collect();
    let mut worlds: Vec<Vec<String>> = lines.map(sets).collect();
    worlds.extend(traces(folder));
    worlds.extend(PolicySpec::all().into_iter().filter(|p| p.name() != "autoregressive").map(|policy| {
        let policy = toml::Value::try_from(&policy).expect("a policy is TOML");
        vec![format!("policies=[{{ autoregressive = {{}} }}, {policy}]")]
    }));
    worlds
}

/// The lists of changes to the experiment [`BASE`] that make it read trace files. Together they set every option of the
/// trace formats.
fn traces(folder: &FilePath) -> Vec<Vec<String>> {
    let write = |name: &str, text: String| {
        std::fs::write(folder.join(name), text).expect("written");
        folder.join(name).display().to_string()
    };
    let rows = |row: fn(u32) -> String| (0..24).map(row).collect::<String>();
    let head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
    let row = |i| format!("{},ChatGPT,{},{},{},Conversation log\n", i / 3, 30 + i, 9 + i % 7, 39 + i + i % 7);
    let burst = write("burst.csv", head.to_owned() + &rows(row));
    let row = |i| format!("{i},qa,0,{},{}\n", 30 + i, 9 + i % 7);
    let bench = write("bench.csv", "question_id,category,turn,input_tokens,output_tokens\n".to_owned() + &rows(row));
    let row = |i| {
        format!(
            "{{\"question_id\": {i}, \"category\": \"qa\", \"turn\": 0, \"input_tokens\": {}, \"output_tokens\": 9, \
             \"accepted\": [2, 1, 3], \"bits\": \"11?101110\"}}\n",
            30 + i
        )
    };
    let recorded = write("recorded.jsonl", rows(row));
    let row = |i| {
        format!(
            "{{\"prompt_token_ids\": {:?}, \"acc_eagle\": {{\"acc_len\": [3, 2, 1, 3, 1, 2, 3, 1, 2]}}, \
             \"acc_ngram\": {{\"acc_len\": [1, 6, 5, 4, 3, 2, 1, 1, 2]}}}}\n",
            vec![1; 30 + i as usize]
        )
    };
    let two_drafters = write("two.jsonl", rows(row));
    let row = |i: u32| {
        let ids: Vec<String> = (0..(30 + i) / 8).map(|block| block.to_string()).collect();
        let at = 1_700_000_000_000_u64 + 125 * u64::from(i);
        // Every second row is the further turn of a session.
        let wait = if i % 2 == 1 { "200" } else { "" };
        format!("{at},{},{},qa,{i},{},chat-{},{wait}\n", 30 + i, 9 + i % 7, ids.join(" "), i / 2)
    };
    let named_columns = write("own.csv", "when,in,out,kind,prio,ids,chat,wait\n".to_owned() + &rows(row));
    let row = |i: u32| {
        let ids: Vec<u32> = (0..(30 + i).div_ceil(8)).collect();
        format!(
            "{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": 9, \"hash_ids\": {ids:?}}}\n",
            125 * i,
            30 + i
        )
    };
    let mooncake = write("mooncake.jsonl", rows(row));
    let mooncake = format!("{{ path = \"{mooncake}\", format = \"mooncake\", unit = \"ms\", block_size = 8 }}");
    let columns = "format = \"columns\", columns = { arrival = \"when\", prompt = \"in\", output = \"out\", category = \"kind\", priority = \"prio\", unit = \"ms\", prefix = \"ids\" }, block_size = 8";
    let of_sessions = columns.replace("prefix =", "session = \"chat\", delay = \"wait\", prefix =");
    let common = "format = \"burstgpt\", unsorted = \"error\", zero_tokens = \"drop\", max_prompt_len = 50, max_output_len = 14, max_total_len = 60";
    let burstgpt = "failed_rows = \"drop\", ties = \"keep\", model = \"ChatGPT\", log_type = \"Conversation log\"";
    let spec = "format = \"spec-bench\", turns = \"first\", sample = \"shuffle\"";
    vec![
        // These come first, because a block of another size does not fit the ids of Mooncake's rows. Rows of `columns`
        // need no id of the last block, so they fit some other sizes too.
        vec![
            "--remove workload.requests".to_owned(),
            "--remove workload.lengths".to_owned(),
            format!("workload.arrivals={{ trace = {mooncake} }}"),
        ],
        vec![format!("workload.lengths={{ trace = {mooncake} }}")],
        vec![
            "--remove workload.requests".to_owned(),
            "--remove workload.lengths".to_owned(),
            format!("workload.arrivals={{ trace = {{ path = \"{burst}\", {common}, {burstgpt} }} }}"),
        ],
        vec![
            "--remove workload.requests".to_owned(),
            "--remove workload.lengths".to_owned(),
            format!("workload.arrivals={{ trace = {{ path = \"{named_columns}\", {columns} }} }}"),
        ],
        vec![format!("workload.lengths={{ trace = {{ path = \"{named_columns}\", {of_sessions} }} }}")],
        vec![
            "--remove workload.requests".to_owned(),
            "--remove workload.lengths".to_owned(),
            format!("workload.arrivals={{ trace = {{ path = \"{named_columns}\", {of_sessions} }} }}"),
        ],
        vec![format!(
            "workload.lengths={{ trace = {{ path = \"{burst}\", {common}, {burstgpt}, sample = \"in-order\" }} }}"
        )],
        vec![
            format!("workload.lengths={{ trace = {{ path = \"{bench}\", accept = \"{recorded}\", {spec} }} }}"),
            "acceptance.source={ recorded = {} }".to_owned(),
        ],
        vec![
            format!("workload.lengths={{ trace = {{ path = \"{two_drafters}\" }} }}"),
            "acceptance.source={ counterfactual = { drafter = { copied-run = { tokens = 2 } }, false_match = 0.3, model_len = 1 } }".to_owned(),
        ],
        vec![
            format!("workload.lengths={{ trace = {{ path = \"{two_drafters}\" }} }}"),
            "acceptance.source={ counterfactual = { drafter = \"model\" } }".to_owned(),
        ],
    ]
}

fn plan(sets: &[String]) -> Result<Plan> {
    let mut document = Document::parse("leaf.toml", BASE)?;
    for set in sets {
        match set.strip_prefix("--remove ") {
            Some(path) => document.remove(&Path::of(path)),
            None => document.set(set)?,
        }
    }
    Plan::of(document, FilePath::new(""))
}

fn numbers(plan: &Plan) -> Option<Vec<Numbers>> {
    let never = AtomicBool::new(false);
    let setting = Setting::new(&plan.variants[0], plan.seeds[0]).ok()?;
    let baseline = play(&setting, &plan.policies[plan.baseline].spec, None, &never).ok()?;
    let each = plan.policies.iter().map(|entrant| {
        let played = play(&setting, &entrant.spec, Some(baseline.slo), &never).ok()?;
        let summary = &played.stored.summary;
        Some(Numbers { digest: played.stored.numbers(&played.stored.records), requests: summary.requests })
    });
    each.collect()
}

/// The paths of all settings of the experiment's schema, without the groups that this test does not try. Each has the
/// names that are valid values; none for numbers and booleans. In a path, `[]` stands for any index and `*` for any
/// name that the user chooses.
fn schema_leaves() -> BTreeMap<String, BTreeSet<String>> {
    let schema = schemars::schema_for!(Experiment).to_value();
    let mut leaves = BTreeMap::new();
    walk(&schema, &schema, "", &mut leaves);
    leaves.retain(|path, _| {
        let top = path.split(['.', '[']).next().unwrap_or_default();
        let refused = REFUSED.contains(&path.as_str());
        !OTHER_TABLES.contains(&top) && !refused && !NEEDS_A_FILE.iter().any(|file| path.starts_with(file))
    });
    leaves
}

fn walk(root: &Value, schema: &Value, at: &str, leaves: &mut BTreeMap<String, BTreeSet<String>>) {
    // A wrapper (`true-cost` and others) contains a policy, which may be a wrapper too. The contained policy's settings
    // are tried as leaves of that policy. So they are not collected again inside the wrapper.
    if at.contains(".true-") && at.ends_with(".policy") {
        return;
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
        return walk(root, &root["$defs"][name], at, leaves);
    }
    let choices: Vec<&Value> =
        ["anyOf", "oneOf"].iter().flat_map(|k| schema[*k].as_array().into_iter().flatten()).collect();
    if !choices.is_empty() {
        return choices.into_iter().for_each(|choice| walk(root, choice, at, leaves));
    }
    if let Some(properties) = schema["properties"].as_object() {
        let below = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
        return properties.iter().for_each(|(key, inner)| walk(root, inner, &below(key), leaves));
    }
    if schema["additionalProperties"].is_object() {
        return walk(root, &schema["additionalProperties"], &format!("{at}.*"), leaves);
    }
    if schema["type"] == "null" || at.is_empty() {
        return;
    }
    let item = &schema["items"];
    let item = item["$ref"].as_str().map_or(item, |r| &root["$defs"][r.rsplit('/').next().unwrap_or_default()]);
    if item["oneOf"].is_array() || item["properties"].is_object() {
        return walk(root, item, &format!("{at}[]"), leaves);
    }
    // A table of the schema without settings adds no setting to the list.
    if schema["type"] == "object" {
        return;
    }
    let names = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
    leaves.entry(at.to_owned()).or_default().extend(names.filter_map(|n| Some(n.as_str()?.to_owned())));
}

/// The setting of the schema whose path matches `path`, the path of a key in an experiment, with the names that are its
/// valid values. `leaves` are all settings of the schema. `None` if none matches.
fn normal<'a>(path: &str, leaves: &'a BTreeMap<String, BTreeSet<String>>) -> Option<(&'a str, &'a BTreeSet<String>)> {
    let plain: String = {
        let mut inside = false;
        path.chars()
            .filter(|c| {
                inside = *c == '[' || inside && *c != ']';
                !inside || *c == '['
            })
            .collect()
    };
    leaves
        .iter()
        .find(|(leaf, _)| {
            let (a, b): (Vec<&str>, Vec<&str>) = (leaf.split('.').collect(), plain.split('.').collect());
            a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a == b || *a == "*")
        })
        .map(|(leaf, names)| (leaf.as_str(), names))
}

/// Parts of the paths of settings that this test does not change, because it cannot guess another valid value: names
/// and paths in files, lists and thresholds that must ascend, parameters that depend on each other, and values that
/// some experiments refuse.
const NOT_GUESSED: [&str; 30] = [
    ".golden", ".trace.block_size", ".trace.format", ".trace.log_type", ".trace.model", ".trace.path", ".trace.accept",
    ".trace.columns.", ".mixture.all.", ".mixture.categories.", ".roofline.activation_bytes", ".roofline.experts_read",
    ".roofline.memory_utilization", "engine.draft_kv", "engine.mtp_modules", "engine.scheduling_policy",
    ".dspark.table", ".sglang-throughput.slots[0].", ".candidates", ".downshift.below_one_less",
    ".num_speculative_tokens_per_batch_size", ".specinfer.expansion", ".specinfer-star.expansion",
    ".cascade-like.lengths",
    // The setting `price` is the word `step` or a table with a number. The number in the table is a setting of its own,
    // which is tried.
    ".oracle-goodput.price", ".oracle-tree.price", ".knows-rates.price", ".knows-confidences.price",
    ".knows-lengths.price", ".one-step-ahead.price",
];

/// Values to try in place of `value`. For a number: half and double, for an integer also 1 more, and 0.5 for 0.0. For a
/// list of numbers: all numbers halved, or doubled. For a boolean: its opposite. For a text: names of GPUs and models;
/// other names and paths cannot be guessed.
fn others(value: &toml::Value) -> Vec<toml::Value> {
    let scaled = |by: f64| scale(value, by);
    match value {
        toml::Value::Boolean(b) => vec![toml::Value::Boolean(!b)],
        toml::Value::Float(0.0) => vec![toml::Value::Float(0.5)],
        toml::Value::Integer(i) => [i / 2, i.saturating_mul(2), i.saturating_add(1)].map(toml::Value::Integer).to_vec(),
        toml::Value::Float(_) | toml::Value::Array(_) => [scaled(0.5), scaled(2.0)].into_iter().flatten().collect(),
        toml::Value::String(_) => {
            // Names of GPUs and models to try as other values. They are tried from the last to the first, because
            // neighbours in the lists are alike, and some have the same numbers. The first five GPUs and the first 15
            // models differ enough.
            let models = catalog().iter().map(|e| e.name.as_str()).take(15);
            let presets =
                gpus().iter().map(|g| g.name.as_str()).take(5).chain(models).collect::<Vec<_>>().into_iter().rev();
            presets.map(|name| toml::Value::String(name.to_owned())).collect()
        }
        _ => Vec::new(),
    }
}

/// The value with every number multiplied by `by`; integers are rounded towards 0. `None` if the value has something
/// other than numbers.
fn scale(value: &toml::Value, by: f64) -> Option<toml::Value> {
    match value {
        toml::Value::Float(x) => Some(toml::Value::Float(x * by)),
        toml::Value::Integer(i) => Some(toml::Value::Integer((*i as f64 * by) as i64)),
        toml::Value::Array(all) => all.iter().map(|v| scale(v, by)).collect::<Option<_>>().map(toml::Value::Array),
        _ => None,
    }
}

/// What the test found for one setting of the schema.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Changes,
    /// The report says that another setting excludes this one.
    Excluded,
    /// The test found no other valid value for the setting.
    NoOtherValue,
    /// No other value changed a number.
    Idle,
    Wrong(String),
}

/// Gives the setting at `path` other values, until the results change. If the report says that another setting excludes
/// it, they must not.
fn fate(world: &World, path: &Path, value: &toml::Value, names: &BTreeSet<String>) -> Fate {
    let named = names.iter().map(|name| toml::Value::String(name.clone()));
    let mut fate = Fate::NoOtherValue;
    for other in others(value).into_iter().chain(named).filter(|other| other != value) {
        let Ok(changed) = plan(&[&world.sets[..], &[format!("{path}={other}")]].concat()) else { continue };
        let Some(after) = numbers(&changed) else { continue };
        let inert = look(&changed, &after).expect("it ran once");
        match (inert.without_effect.iter().find(|w| path.is_below(&Path::of(&w.path))), after == world.numbers) {
            (Some(w), false) => return Fate::Wrong(format!("{path}={other} changes numbers and is named: {w:?}")),
            (Some(_), true) => fate = Fate::Excluded,
            (None, false) => return Fate::Changes,
            (None, true) if fate == Fate::NoOtherValue => fate = Fate::Idle,
            (None, true) => {}
        }
    }
    fate
}

/// An experiment of the list, with the numbers of its runs.
struct World {
    sets: Vec<String>,
    resolved: Document,
    numbers: Vec<Numbers>,
}

#[test]
fn every_leaf_of_the_schema_changes_the_results() {
    let folder = tempfile::tempdir().unwrap();
    let leaves = schema_leaves();
    assert!(leaves.len() > 350, "only {} leaves", leaves.len());
    // The shape of a model and the datasheet of a GPU are tried as one value each, so their keys are not tried alone.
    let is_part = |leaf: &&str| leaf.contains(".roofline.model.") || leaf.contains(".roofline.gpu.");
    // Costs of measured kernels need an installed package. `golden` is another word for `mean-length`, as which it is
    // read.
    let apart = |leaf: &str| leaf.contains(".kernels.") || leaf == "acceptance.source.golden";
    let leaves: BTreeMap<String, BTreeSet<String>> = leaves.into_iter().filter(|(leaf, _)| !apart(leaf)).collect();
    let wanted = |leaf: &&String| !is_part(&leaf.as_str());
    let worlds: Vec<World> = worlds(folder.path())
        .into_par_iter()
        .map(|sets| {
            let world = plan(&sets).unwrap_or_else(|e| panic!("{sets:?}: {e}"));
            let text = world.resolved_for(folder.path()).unwrap();
            let resolved = Document::parse("resolved", &text).unwrap();
            let numbers = numbers(&world).unwrap_or_else(|| panic!("{sets:?} does not run"));
            World { sets, resolved, numbers }
        })
        .collect();
    // For each leaf, the worlds that set it, with its path and value there.
    let mut places: BTreeMap<&str, Vec<(&World, Path, toml::Value)>> = BTreeMap::new();
    for world in &worlds {
        for path in world.resolved.leaves() {
            if let Some((leaf, _)) = normal(&path.to_string(), &leaves) {
                let value = world.resolved.value_at(&path).unwrap();
                places.entry(leaf).or_default().push((world, path, value));
            }
        }
    }
    let missing: Vec<&String> =
        leaves.keys().filter(wanted).filter(|leaf| !places.contains_key(leaf.as_str())).collect();
    assert!(missing.is_empty(), "no world has {missing:#?}");
    let fates: Vec<(&str, Fate)> = places
        .par_iter()
        .map(|(leaf, places)| {
            let names = &leaves[*leaf];
            let mut fates = Vec::new();
            for (world, path, value) in places {
                fates.push(fate(world, path, value, names));
                if matches!(fates.last(), Some(Fate::Changes | Fate::Wrong(_))) {
                    break;
                }
            }
            let first = [Fate::Changes, Fate::Excluded, Fate::Idle].into_iter().find(|f| fates.contains(f));
            let wrong = fates.into_iter().find(|f| matches!(f, Fate::Wrong(_)));
            (*leaf, wrong.or(first).unwrap_or(Fate::NoOtherValue))
        })
        .collect();
    let with = |wanted: &dyn Fn(&Fate) -> bool| -> Vec<&(&str, Fate)> {
        fates.iter().filter(|(_, fate)| wanted(fate)).collect()
    };
    let (changes, excluded) = (with(&|f| *f == Fate::Changes), with(&|f| *f == Fate::Excluded));
    eprintln!("{} leaves change results, and these are excluded: {excluded:#?}", changes.len());
    let wrong = with(&|f| matches!(f, Fate::Wrong(_)));
    assert!(wrong.is_empty(), "{wrong:#?}");
    let listed: BTreeSet<&str> = include_str!("idle.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let idle: BTreeSet<&str> = with(&|f| *f == Fate::Idle).iter().map(|(leaf, _)| *leaf).collect();
    assert_eq!(idle, listed, "add an experiment in which the leaf acts to worlds.txt, and keep idle.txt true");
    assert!(changes.len() > 150, "{} change results", changes.len());
    let guessed = |path: &str| !NOT_GUESSED.iter().any(|end| path.contains(end));
    let unknown: Vec<_> = with(&|f| *f == Fate::NoOtherValue).into_iter().filter(|(leaf, _)| guessed(leaf)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}
