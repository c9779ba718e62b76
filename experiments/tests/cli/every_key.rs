//! Every key of an experiment acts: with another value the results or the messages change. This test tries the keys about
//! the whole experiment and the tables of single commands (`every_key.txt`). All others are tried by
//! `run/src/inert/every_leaf.rs`.

use crate::live::LIVE;
use crate::observe::speculating;
use crate::support::{Place, bytes_of};
use foretoken_recordings::recording::read_recording;
use foretoken_tests::stub::{Completion, Reply, Stub, aside};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Keys that change no result and no message, each with the reason.
const EXCEPTIONS: [(&str, &str); 2] = [
    ("live.waiting", "how a thread waits changes times only"),
    ("live.warm_up_requests", "what is served before the clock starts changes times only, and is not recorded"),
];

/// The keys that this test tries.
const TABLES: [&str; 12] = [
    "name", "seeds", "sweep_order", "output", "paper", "question", "arena", "live", "validate", "observe", "capacity", "fleet",
];

const RUN: &str = r#"name = "keys"
seeds = [1]
policies = [{ autoregressive = {} }, { fixed = { k = { sweep = [1, 3] } } }]
[hardware]
target = { linear = { alpha_s = 1e-7, gamma_s = 2e-4, delta_s = 0.02 } }
draft = { linear = { alpha_s = 1e-8, gamma_s = 1e-5, delta_s = 0.002 } }
[engine]
num_gpu_blocks = 4000
max_num_seqs = { sweep = [1, 16] }
step_overhead_s = { sweep = [0.0, 0.01] }
[workload]
arrivals = { poisson = { rate = 2.0 } }
lengths = { fixed = { prompt = 64, output = 32 } }
requests = 40
[acceptance]
source = { constant = { rate = 0.7 } }
[output]
figures = false
"#;

/// One claim of each kind, in the order of `KINDS`.
const KINDS: [(&str, &str); 11] = [
    ("value", r#"{ metric = "speedup", policy = "fixed-3" }"#),
    ("gain", r#"{ metric = "speedup", policy = "fixed-3", over = ["autoregressive"] }"#),
    ("increase", r#"{ metric = "speedup", policy = "fixed-3", over = "autoregressive" }"#),
    ("best", r#"{ metric = "speedup", among = ["fixed-1", "fixed-3"] }"#),
    ("crossing", r#"{ metric = "speedup", policy = "fixed-3", over = "autoregressive", along = "engine.max_num_seqs" }"#),
    ("keeps", r#"{ metric = "e2e-mean-s", policy = "fixed-3", bound = 1000.0, along = "engine.max_num_seqs" }"#),
    ("change", r#"{ metric = "e2e-mean-s", policy = "fixed-3", along = "engine.max_num_seqs" }"#),
    ("windows", r#"{ policy = "fixed-3", seconds = 2.0, batch = [0.0, 50.0] }"#),
    ("estimate", r#"{ length = 3 }"#),
    ("belief-length", r#"{ acceptance = 0.9, batch = 4, context = 100 }"#),
    ("implied-length", r#"{ tokens_per_s = 100.0, draft_passes = 3, draft_width = 1, verify_tokens = 4, context = 100 }"#),
];

fn paper() -> String {
    let claims: Vec<String> = KINDS
        .iter()
        .enumerate()
        .map(|(i, (kind, measure))| {
            format!("{{ id = \"c{i}\", says = \"s\", where = \"w\", paper = \"figure only\", measure = {{ {kind} = {measure} }} }}")
        })
        .collect();
    format!("{RUN}[paper]\ntitle = \"T\"\nfigure = \"Figure 1\"\nclaims = [{}]\n", claims.join(", "))
}

fn question() -> String {
    let claims: Vec<String> = KINDS
        .iter()
        .enumerate()
        .map(|(i, (kind, measure))| format!("{{ id = \"c{i}\", says = \"s\", measure = {{ {kind} = {measure} }} }}"))
        .collect();
    let head = "thread = \"a/b#1\"\nurl = \"https://example.org/1\"\nasks = \"Does it?\"\nassumed = [\"This.\"]";
    let answers = "answer = \"Yes: {c0}.\"\notherwise = \"No: {c0}.\"\ndecided_by = [\"c0\"]";
    format!("{RUN}[question]\n{head}\n{answers}\nclaims = [{}]\n", claims.join(", "))
}

fn arena() -> String {
    let one = RUN.replace("{ sweep = [1, 16] }", "16").replace("{ sweep = [0.0, 0.01] }", "0.0");
    one + "[slo]\ntpot_s = 0.05\n[arena]\nset = \"tuning\"\nabout = \"small\"\n"
}

fn searched() -> String {
    arena().split("[arena]").next().unwrap().replace("[slo]", "[slo]\nttft_s = 0.5")
        + "[capacity]\nrequests = 100\nwarm_up_requests = 10\ntolerance = 0.05\nshare = 0.95\n"
}

fn experiment(command: &str) -> String {
    match command {
        "run" => RUN.to_owned(),
        "paper" => paper(),
        "question" => question(),
        "arena" => arena(),
        "capacity" => searched(),
        "fleet" => searched() + "[fleet]\nprice_gpu_hour = 2.0\n",
        "observe" => crate::observe::EXPERIMENT.replace("{ closed-loop = 2 }", "{ poisson = { rate = 400.0 } }"),
        "live" => LIVE.replace("{ poisson = { rate = 100.0 } }", "{ closed-loop = 1 }").replace("threads = 1\n", "threads = 1\n"),
        "validate" => {
            LIVE.replace("requests = 12", "requests = 3000")
                + "[validate]\nloads = [0.6]\ncommon_load = 0.6\npieces = 1\nservice_s = 0.05\nrun_s = 0.05\nprofile_s = 0.2\n\
                   [validate.tolerance]\ntpot = 1e9\ne2e = 1e9\ncompleted = 1e9\nsteady = 1e9\nrepeats = 1e9\n"
        }
        other => panic!("no command `{other}`"),
    }
}

/// What a command on an experiment with these settings says and writes, but for times and what repeats the settings.
fn outcome(command: &str, sets: &[String]) -> Value {
    let place = Place::holding(&experiment(command));
    let prompt = |text: &str| format!("{{\"prompt\": \"{text}\"}}\n").repeat(3);
    std::fs::write(place.path("a.jsonl"), prompt("copy: abcabc")).unwrap();
    std::fs::write(place.path("b.jsonl"), prompt("sort: 52341 9")).unwrap();
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let run = |args: &[&str]| {
        let output = place.foretoken().args(args).args(&sets).output().unwrap();
        let code = output.status.code().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let kept = |line: &&str| code != 0 || line.starts_with("warning:") || line.starts_with("note:");
        let said: Vec<&str> = said.lines().filter(kept).collect();
        (code, String::from_utf8(output.stdout).unwrap(), said.join("\n"))
    };
    let files = || {
        let mut files = if place.path("out").exists() { bytes_of(&place.path("out")) } else { BTreeMap::new() };
        files.retain(|name, _| name != "manifest.json" && !name.ends_with("experiment.toml"));
        files.into_iter().map(|(name, bytes)| (name, blake3_of(&bytes))).collect::<BTreeMap<_, _>>()
    };
    let read = |name: &str| -> Value {
        std::fs::read(place.path("out").join(name)).map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap())
    };
    match command {
        "run" | "paper" | "question" => json!([run(&["run", "x.toml", "-o", "out", "--check-settings", "never"]), files()]),
        // A folder of scenarios prints the table of the arena.
        "arena" => {
            std::fs::create_dir(place.path("all")).unwrap();
            std::fs::rename(place.path("x.toml"), place.path("all/x.toml")).unwrap();
            json!([
                run(&["run", "all", "-o", "out", "--format", "json"]),
                run(&["run", "all", "-o", "quick", "--quick", "--format", "json"])
            ])
        }
        "capacity" | "fleet" => json!([run(&[command, "x.toml", "-o", "out", "--no-figures"]), files()]),
        "observe" => observed(&place, &sets),
        "live" => {
            let (code, _, said) = run(&["live", "x.toml", "-o", "out", "--no-figures"]);
            let cells = &read("live.json")["cells"];
            let cells = cells.as_array().map_or(vec![], |cells| cells.iter().map(|c| c["ended"].clone()).collect());
            let overloaded = said.contains("overloaded:");
            let error = if code == 0 { "" } else { &said };
            json!([code, error, overloaded, read("live.json")["device"], cells, rates(&read("report.json"))])
        }
        "validate" => {
            let (code, _, said) = run(&["validate", "x.toml", "-o", "out"]);
            let (v, error) = (read("validation.json"), if [0, 3].contains(&code) { "" } else { &said });
            let each = |list: &str, key: &str| v[list].as_array().into_iter().flatten().map(|c| c[key].clone()).collect();
            let (loads, bounds): (Vec<Value>, Vec<Value>) = (each("cells", "load"), each("checks", "what"));
            let text = std::fs::read_to_string(place.path("out/validation.txt")).unwrap_or_default();
            let settings: Vec<&str> = text.lines().filter(|line| line.contains("repeats") || line.contains("clients")).collect();
            json!([error, loads, bounds, v["rule"], v["counted"][1], v["counted"][0] == 0, settings, v["checks"]])
        }
        other => panic!("no command `{other}`"),
    }
}

fn blake3_of(bytes: &[u8]) -> String {
    foretoken_intact::seal::digest(bytes)
}

/// The shares and lengths of drafts in a report, which do not depend on times if one client waits for each answer.
fn rates(report: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let policies = report["variants"].as_array().into_iter().flatten().filter_map(|v| v["policies"].as_array()).flatten();
    for policy in policies {
        let of = |key: &str| policy.get(key).map_or(String::new(), |value| format!("{key} {value}"));
        all.extend(["policy", "acceptance_rate", "accepted_length", "draft_length", "acceptance_length"].map(of));
    }
    all
}

/// What a stub server was asked, and how the run ended.
fn observed(place: &Place, sets: &[&str]) -> Value {
    let (asked, at_once, most) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let server = {
        let (asked, at_once, most) = (asked.clone(), at_once.clone(), most.clone());
        Stub::start(move |r| {
            if r.path != "/v1/completions" {
                return aside(r, "").expect("it has models, a version and metrics");
            }
            let now = at_once.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            asked.lock().unwrap().push(r.body.to_string());
            std::thread::sleep(Duration::from_millis(40));
            at_once.fetch_sub(1, Ordering::SeqCst);
            match r.nth {
                3 => Reply::Text(503, vec!["retry-after: 0".into()], "{}".into()),
                _ => Completion { first: Duration::from_millis(20), ..speculating(r) }.reply(r),
            }
        })
    };
    let out = place.foretoken().args(["observe", &server.url("127.0.0.1"), "x.toml", "-o", "out", "--no-figures"]).args(sets).output();
    let code = out.unwrap().status.code();
    let mut asked: Vec<String> = asked.lock().unwrap().clone();
    asked.sort();
    let due = read_recording(&place.path("out/recordings/v0-s1.obs")).ok().map(|r| format!("{:?}", r.head.asked));
    json!([code, asked, due, most.load(Ordering::SeqCst) > 1])
}

/// A row of the table: a command, a key (a leaf of the schema), settings of both runs, and the changed setting.
struct Row {
    command: String,
    leaf: String,
    both: Vec<String>,
    change: String,
}

fn rows() -> Vec<Row> {
    let text = include_str!("every_key.txt");
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let [command, leaf, sets] = line.split(" | ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        if command == "claims" {
            let kind = leaf.split('.').next().unwrap();
            let at = KINDS.iter().position(|(name, _)| *name == kind).unwrap();
            rows.extend(["paper", "question"].map(|table| Row {
                command: table.to_owned(),
                leaf: format!("{table}.claims[].measure.{leaf}"),
                both: vec![],
                change: format!("{table}.claims[{at}].measure.{leaf}={sets}"),
            }));
            continue;
        }
        let (both, change) = sets.split_once(" => ").unwrap_or(("", sets));
        let both = both.split(" ;; ").filter(|set| !set.is_empty()).map(str::to_owned).collect();
        rows.push(Row { command: command.to_owned(), leaf: leaf.to_owned(), both, change: change.to_owned() });
    }
    rows
}

/// The leaves of the schema in the tables of this test; `[]` stands for any index.
fn leaves() -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(include_str!("../../experiment.schema.json")).unwrap();
    let mut leaves = BTreeSet::new();
    for (key, inner) in schema["properties"].as_object().unwrap() {
        walk(&schema, inner, key, &mut leaves);
    }
    let ours = |leaf: &String| TABLES.contains(&leaf.split(['.', '[']).next().unwrap());
    // Routers, signals and replicas are tried by `every_leaf.rs`.
    let elsewhere = |leaf: &String| ["fleet.replicas", "fleet.router", "fleet.signals"].iter().any(|of| leaf.starts_with(of));
    leaves.into_iter().filter(|leaf| ours(leaf) && !elsewhere(leaf)).collect()
}

fn walk(root: &Value, schema: &Value, at: &str, leaves: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
        // A sweep has the values of the plain setting.
        return if name.starts_with("sweep-") { () } else { walk(root, &root["$defs"][name], at, leaves) };
    }
    let choices: Vec<&Value> = ["anyOf", "oneOf"].iter().flat_map(|k| schema[*k].as_array().into_iter().flatten()).collect();
    if !choices.is_empty() {
        return choices.into_iter().for_each(|choice| walk(root, choice, at, leaves));
    }
    if let Some(properties) = schema["properties"].as_object() {
        let below = properties.iter().filter(|(key, _)| *key != "sweep");
        return below.for_each(|(key, inner)| walk(root, inner, &format!("{at}.{key}"), leaves));
    }
    let item = &schema["items"];
    let item = item["$ref"].as_str().map_or(item, |r| &root["$defs"][r.rsplit('/').next().unwrap()]);
    if item["properties"].is_object() {
        return walk(root, item, &format!("{at}[]"), leaves);
    }
    if schema["type"] != "null" && schema["type"] != "object" {
        leaves.insert(at.to_owned());
    }
}

#[test]
fn every_key_of_the_other_tables_has_a_row() {
    let tried: BTreeSet<String> = rows().into_iter().map(|row| row.leaf).collect();
    let excepted: BTreeSet<String> = EXCEPTIONS.iter().map(|(leaf, _)| (*leaf).to_owned()).collect();
    let (leaves, both) = (leaves(), &tried | &excepted);
    let missing: Vec<_> = leaves.difference(&both).collect();
    let unknown: Vec<_> = both.difference(&leaves).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "without a row: {missing:#?}; not in the schema: {unknown:#?}");
    assert!(tried.is_disjoint(&excepted) && leaves.len() > 140, "{} leaves", leaves.len());
}

/// Runs the rows of these commands. A base experiment runs once for all rows that change nothing else.
fn act(commands: &[&str]) {
    let rows: Vec<Row> = rows().into_iter().filter(|row| commands.contains(&row.command.as_str())).collect();
    let bases: BTreeSet<(String, Vec<String>)> = rows.iter().map(|row| (row.command.clone(), row.both.clone())).collect();
    let bases: BTreeMap<(String, Vec<String>), Value> =
        bases.into_par_iter().map(|(command, both)| ((command.clone(), both.clone()), outcome(&command, &both))).collect();
    let idle: Vec<String> = rows
        .par_iter()
        .filter(|row| {
            let changed = outcome(&row.command, &[&row.both[..], &[row.change.clone()]].concat());
            changed == bases[&(row.command.clone(), row.both.clone())]
        })
        .map(|row| format!("{}: {}", row.leaf, row.change))
        .collect();
    assert!(idle.is_empty(), "these change no result and no message: {idle:#?}");
}

#[test]
fn keys_about_the_whole_experiment_act() {
    act(&["run", "paper", "question", "arena"]);
}

#[test]
fn keys_of_searches_act() {
    act(&["capacity", "fleet"]);
}

/// The outcome of a run that changes nothing is the same twice, so that a difference means something.
#[test]
fn keys_of_observations_and_live_runs_act() {
    for command in ["observe", "live"] {
        assert_eq!(outcome(command, &[]), outcome(command, &[]), "{command}");
    }
    act(&["observe", "live"]);
}

/// The facts that validations state before they measure. How long they run changes only what is measured.
#[test]
fn keys_of_validations_act() {
    act(&["validate"]);
}
