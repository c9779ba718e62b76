//! Every key of an experiment has an effect: with another value of the key, the results or the messages differ. This
//! file tries the top-level keys, such as `seeds`, and the tables of single commands; `every_key.txt` lists them.
//! `run/src/inert/every_leaf_tests.rs` tries all other keys.

use crate::live::LIVE;
use crate::observe::speculating;
use crate::support::{Place, bytes_of};
use foretoken_servers::recordings::recording::read_recording;
use foretoken_tests::stub::{Completion, Reply, Stub, aside};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Keys that change no result and no message, each with the reason.
const EXCEPTIONS: [(&str, &str); 2] = [
    ("live.waiting", "how a thread waits changes times only"),
    ("live.warm_up_requests", "what is served before the clock starts changes times only, and is not recorded"),
];

/// The tables and keys of an experiment file that this test tries.
const TABLES: [&str; 12] = [
    "name", "seeds", "sweep_order", "output", "paper", "question", "arena", "live", "validate", "observe", "capacity",
    "fleet",
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

/// For each kind of quantity that a claim of a paper can be about: (the kind, such a quantity in TOML).
const KINDS: [(&str, &str); 11] = [
    ("value", r#"{ metric = "speedup", policy = "fixed-3" }"#),
    ("gain", r#"{ metric = "speedup", policy = "fixed-3", over = ["autoregressive"] }"#),
    ("increase", r#"{ metric = "speedup", policy = "fixed-3", over = "autoregressive" }"#),
    ("best", r#"{ metric = "speedup", among = ["fixed-1", "fixed-3"] }"#),
    (
        "crossing",
        r#"{ metric = "verified-acceptance", policy = "fixed-3", over = "fixed-1", along = "engine.max_num_seqs" }"#,
    ),
    ("keeps", r#"{ metric = "draft-length", policy = "fixed-3", bound = 2.0, along = "engine.max_num_seqs" }"#),
    ("change", r#"{ metric = "e2e-mean-s", policy = "fixed-3", along = "engine.max_num_seqs" }"#),
    ("windows", r#"{ policy = "fixed-3", seconds = 2.0, batch = [0.0, 50.0] }"#),
    ("estimate", r#"{ length = 3 }"#),
    ("belief-length", r#"{ acceptance = 0.5, batch = 4, context = 100 }"#),
    (
        "implied-length",
        r#"{ tokens_per_s = 100.0, draft_passes = 3, draft_width = 1, verify_tokens = 4, context = 100 }"#,
    ),
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
    let one = one.replace("policies = [", "policies = [{ oracle-goodput = {} }, ");
    one + "[slo]\ntpot_s = 0.05\n[arena]\nset = \"tuning\"\nabout = \"small\"\n"
}

fn searched() -> String {
    let text = arena().replace("{ oracle-goodput = {} }, ", "").replace("[slo]", "[slo]\nttft_s = 0.5");
    text.split("[arena]").next().unwrap().to_owned()
        + "[capacity]\nrequests = 100\nwarm_up_requests = 10\ntolerance = 0.05\nshare = 0.95\n"
}

/// A `[fleet]` table in which two replicas compute prompts for two others.
const SPLIT: &str = r#"router = "least-requests"
replicas = [{ count = 2, role = "prefill" }, { count = 2, role = "decode" }]
link = { bandwidth_gb_s = 0.1, latency_s = 0.002, kv_bytes_token = 1e5, draft_kv_bytes_token = 4e4 }"#;

/// An experiment on the fleet `fleet` with a load that is high enough for the fleet's settings to change the results.
fn served(fleet: &str) -> String {
    let text = RUN.replace("{ sweep = [1, 16] }", "8").replace("{ sweep = [0.0, 0.01] }", "0.0");
    let text = text.replace("{ sweep = [1, 3] }", "3").replace("rate = 2.0", "rate = 30.0");
    format!("{}[fleet]\n{fleet}\n", text.replace("requests = 40", "requests = 300"))
}

/// An experiment on a fleet whose number of replicas follows the load. The load has the shape of a day, shortened to 60
/// s.
fn scaled() -> String {
    let day = "servegen-day = { rate = 25.0, day_s = 60.0, tau_s = 5.0 }";
    let text = served("replicas = 2\nrouter = \"least-requests\"").replace("poisson = { rate = 30.0 }", day);
    let text =
        text.replace("requests = 300", "duration_s = 60.0").replace("num_gpu_blocks = 4000", "num_gpu_blocks = 200");
    text + "scaling = { rule = { llm-d = { down_window_s = 5.0 } }, max_replicas = 6, boot_s = 3.0, interval_s = 1.0 }\n\
            [slo]\nttft_s = 0.3\ntpot_s = 0.05\n"
}

fn experiment(command: &str) -> String {
    match command {
        "run" => RUN.to_owned(),
        "paper" => paper(),
        "question" => question(),
        "arena" => arena(),
        "capacity" => searched(),
        "fleet" => searched() + "[fleet]\nprice_gpu_hour = 2.0\n",
        "served" => served("replicas = [{ count = 3 }]\nrouter = \"vllm-dp\""),
        "split" => served(SPLIT),
        "scaled" => scaled(),
        "observe" => crate::observe::EXPERIMENT.replace("{ closed-loop = 2 }", "{ poisson = { rate = 400.0 } }"),
        "live" => {
            LIVE.replace("{ poisson = { rate = 100.0 } }", "{ closed-loop = 1 }").replace(", { smartspec = {} }", "")
        }
        other => panic!("no command `{other}`"),
    }
}

/// What `command` prints and writes for an experiment with the settings `sets`: exit code, messages and files. Times
/// are left out, and so are files that repeat the settings.
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
        "run" | "paper" | "question" | "served" | "split" | "scaled" => {
            json!([run(&["run", "x.toml", "-o", "out"]), files()])
        }
        // `run` on a folder of experiments with an `[arena]` table prints a table of all policies (the arena).
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
        other => panic!("no command `{other}`"),
    }
}

fn blake3_of(bytes: &[u8]) -> String {
    foretoken_traces::intact::seal::digest(bytes)
}

/// The acceptance rates and draft lengths of each policy in a report, as texts. They do not depend on pass times if a
/// single client sends each request only after the answer to the one before.
fn rates(report: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let policies =
        report["variants"].as_array().into_iter().flatten().filter_map(|v| v["policies"].as_array()).flatten();
    for policy in policies {
        let field = |key: &str| policy.get(key).map_or(String::new(), |value| format!("{key} {value}"));
        all.extend(["policy", "acceptance_rate", "accepted_length", "draft_length", "acceptance_length"].map(field));
    }
    all
}

/// The requests that a stub server got from `foretoken observe`, and how the run ended.
fn observed(place: &Place, sets: &[&str]) -> Value {
    let (asked, at_once, most) =
        (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let span = Arc::new(Mutex::new(None));
    let server = {
        let (asked, at_once, most, span) = (asked.clone(), at_once.clone(), most.clone(), span.clone());
        Stub::start(move |r| {
            if r.path != "/v1/completions" {
                return aside(r, "").expect("it has models, a version and metrics");
            }
            let now = at_once.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            asked.lock().unwrap().push(r.body.to_string());
            if r.nth > 0 {
                let now = Instant::now();
                let first = span.lock().unwrap().map_or(now, |(first, _)| first);
                *span.lock().unwrap() = Some((first, now));
            }
            std::thread::sleep(Duration::from_millis(40));
            at_once.fetch_sub(1, Ordering::SeqCst);
            match r.nth {
                3 => Reply::Text(503, vec!["retry-after: 0".into()], "{}".into()),
                _ => Completion { first: Duration::from_millis(20), ..speculating(r) }.reply(r),
            }
        })
    };
    let out = place
        .foretoken()
        .args(["observe", &server.url("127.0.0.1"), "x.toml", "-o", "out", "--no-figures"])
        .args(sets)
        .output();
    let out = out.unwrap();
    let said = if out.status.code() == Some(2) { crate::observe::stderr(&out) } else { String::new() };
    let mut asked: Vec<String> = asked.lock().unwrap().clone();
    asked.sort();
    let due = read_recording(&place.path("out/recordings/v0-s1.obs")).ok().map(|r| format!("{:?}", r.head.asked));
    let long =
        span.lock().unwrap().is_some_and(|(first, last): (Instant, Instant)| last - first > Duration::from_secs(1));
    json!([out.status.code(), said, asked, due, most.load(Ordering::SeqCst) > 1, long])
}

/// A row of `every_key.txt`: a command, a key (a leaf of the schema), the settings of both runs, and the setting that
/// only the second run has.
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
        let (both, change) = sets.split_once(" => ").unwrap_or(("", sets));
        let both: Vec<String> = both.split(" ;; ").filter(|set| !set.is_empty()).map(str::to_owned).collect();
        if command == "claims" {
            let kind = leaf.split('.').next().unwrap();
            let at = KINDS.iter().position(|(name, _)| *name == kind).unwrap();
            rows.extend(["paper", "question"].map(|table| Row {
                command: table.to_owned(),
                leaf: format!("{table}.claims[].measure.{leaf}"),
                both: both.clone(),
                change: format!("{table}.claims[{at}].measure.{leaf}={change}"),
            }));
            continue;
        }
        rows.push(Row { command: command.to_owned(), leaf: leaf.to_owned(), both, change: change.to_owned() });
    }
    rows
}

/// The paths of all keys of the schema's tables [`TABLES`] that hold a value and no table; `[]` stands for any index.
fn leaves() -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(include_str!("../../../experiments/experiment.schema.json")).unwrap();
    let mut leaves = BTreeSet::new();
    for (key, inner) in
        schema["properties"].as_object().unwrap().iter().filter(|(key, _)| TABLES.contains(&key.as_str()))
    {
        walk(&schema, inner, key, &mut leaves);
    }
    leaves
}

fn walk(root: &Value, schema: &Value, at: &str, leaves: &mut BTreeSet<String>) {
    // `fleet/src/routers/tests/keys.rs` tries the settings of routers. `fleet.rs` tries the policies of replicas.
    if ["fleet.router", "fleet.split.router", "fleet.replicas[].policy"].contains(&at) {
        return;
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
        // The definition of a sweep (`sweep-…`) repeats the keys of the plain value, so it is left out.
        if !name.starts_with("sweep-") {
            walk(root, &root["$defs"][name], at, leaves);
        }
        return;
    }
    let choices: Vec<&Value> =
        ["anyOf", "oneOf"].iter().flat_map(|k| schema[*k].as_array().into_iter().flatten()).collect();
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
    // `keys_of_validations_act` tries the keys of `[validate]`.
    let of_validations = leaves().into_iter().filter(|leaf| leaf.starts_with("validate."));
    let tried: BTreeSet<String> = rows().into_iter().map(|row| row.leaf).chain(of_validations).collect();
    let excepted: BTreeSet<String> = EXCEPTIONS.iter().map(|(leaf, _)| (*leaf).to_owned()).collect();
    let (leaves, both) = (leaves(), &tried | &excepted);
    let missing: Vec<_> = leaves.difference(&both).collect();
    let unknown: Vec<_> = both.difference(&leaves).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "without a row: {missing:#?}; not in the schema: {unknown:#?}");
    assert!(tried.is_disjoint(&excepted) && leaves.len() > 140, "{} leaves", leaves.len());
}

/// Runs the rows of `every_key.txt` for `commands`. Asserts that each row's key changes the outcome. Rows with the same
/// base settings share one run with these settings.
fn act(commands: &[&str]) {
    let rows: Vec<Row> = rows().into_iter().filter(|row| commands.contains(&row.command.as_str())).collect();
    let bases: BTreeSet<(String, Vec<String>)> =
        rows.iter().map(|row| (row.command.clone(), row.both.clone())).collect();
    let bases: BTreeMap<(String, Vec<String>), Value> = bases
        .into_par_iter()
        .map(|(command, both)| ((command.clone(), both.clone()), outcome(&command, &both)))
        .collect();
    let idle: Vec<String> = rows
        .par_iter()
        .filter(|row| {
            let changed = outcome(&row.command, &[&row.both[..], std::slice::from_ref(&row.change)].concat());
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

#[test]
fn keys_of_fleets_act() {
    act(&["served", "split", "scaled"]);
}

/// Runs of `observe` and `live` with the same settings must have the same outcome. Otherwise a different outcome would
/// not show that a key has an effect.
#[test]
fn keys_of_observations_and_live_runs_act() {
    for command in ["observe", "live"] {
        assert_eq!(outcome(command, &[]), outcome(command, &[]), "{command}");
    }
    act(&["observe", "live"]);
}

/// Runs two validations that differ in every key of `[validate]`. For each key the test compares one result that
/// depends on this key; it must differ. It does not compare measured times, because these differ between any two runs.
#[test]
fn keys_of_validations_act() {
    let facts = [
        (
            "loads = [0.6, 1.2]",
            "common_load = 0.6\nclients = 2\npieces = 1\nservice_s = 0.02\nrun_s = 0.02\nprofile_s = 0.05",
            "1e9",
        ),
        (
            "loads = [0.7, 1.3]",
            "common_load = 0.5\nclients = 3\npieces = 2\nservice_s = 0.2\nrun_s = 0.2\nprofile_s = 4.0",
            "9e8",
        ),
    ]
    .map(|(loads, settings, tolerance)| {
        let all =
            ["tpot", "e2e", "completed", "steady", "repeats"].map(|key| format!("{key} = {tolerance}\n")).concat();
        let text = LIVE.replace("requests = 12", "requests = 6000").replace("max_num_seqs = 4", "max_num_seqs = 2");
        let policies = "[{ autoregressive = {} }, { fixed = { k = 3 } }, { smartspec = {} }]";
        let text = text.replace(policies, "[{ fixed = { k = 3 } }]");
        let place = Place::holding(&format!("{text}[validate]\n{loads}\n{settings}\n[validate.tolerance]\n{all}"));
        let out = place.foretoken().args(["validate", "x.toml", "-o", "out"]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!([Some(0), Some(3)].contains(&out.status.code()), "{said}");
        let read = |name: &str| std::fs::read_to_string(place.path("out").join(name)).unwrap();
        facts_of(
            &serde_json::from_str(&read("validation.json")).unwrap(),
            &read("validation.txt"),
            &read("profile.toml"),
        )
    });
    let keys: BTreeSet<String> = leaves().into_iter().filter(|leaf| leaf.starts_with("validate.")).collect();
    assert_eq!(facts[0].keys().map(|key| format!("validate.{key}")).collect::<BTreeSet<_>>(), keys);
    let differs =
        |key: &str, fact: &str| match (LONGER.contains(&key), fact.parse::<u64>(), facts[1][key].parse::<u64>()) {
            // In the second validation, each setting of `LONGER` (a duration in seconds) is at least ten times as long.
            // So the number of requests or passes that it decides is larger even on a busy machine.
            (true, Ok(short), Ok(long)) => 10 * long > 13 * short,
            _ => facts[1][key] != fact,
        };
    let same: Vec<_> = facts[0].iter().filter(|(key, fact)| !differs(key, fact)).collect();
    assert!(same.is_empty(), "{same:#?}");
}

/// Keys of `[validate]` that are durations, seconds. A longer duration gives more requests or passes.
const LONGER: [&str; 3] = ["service_s", "run_s", "profile_s"];

/// For each key of `[validate]`, a result as text that depends on this key.
fn facts_of(v: &Value, text: &str, profile: &str) -> BTreeMap<&'static str, String> {
    let cells = v["cells"].as_array().unwrap();
    let has =
        |load: f64| cells.iter().chain(v["undecided"].as_array().unwrap()).any(|c| c["share"] == load).to_string();
    let bound = |what: &str| {
        let check = v["checks"].as_array().unwrap().iter().find(|check| check["what"].as_str().unwrap().contains(what));
        check.map_or(String::new(), |check| check["bound"].to_string())
    };
    let requests = |open: bool| {
        let counted = cells.iter().filter(|c| c["share"].is_number() == open);
        counted.map(|c| c["requests"].as_u64().unwrap()).sum::<u64>().to_string()
    };
    let closed = cells.iter().find(|c| c["share"].is_null()).map(|c| c["load"].to_string());
    let line = |with: &str| text.lines().find(|line| line.contains(with)).unwrap_or_default().to_owned();
    let passes: u64 = profile.lines().filter_map(|line| line.strip_prefix("passes = ")?.parse::<u64>().ok()).sum();
    BTreeMap::from([
        ("loads", has(1.2)),
        ("common_load", has(0.5)),
        ("clients", closed.unwrap_or_default()),
        ("pieces", (v["counted"][1].as_u64().unwrap() / (cells.len().max(1) as u64)).to_string()),
        ("service_s", requests(false)),
        ("run_s", requests(true)),
        ("profile_s", passes.to_string()),
        ("tolerance.tpot", bound("TPOT")),
        ("tolerance.e2e", bound("E2E")),
        ("tolerance.completed", bound("completed")),
        ("tolerance.steady", v["rule"].to_string()),
        ("tolerance.repeats", line("repeats agree within")),
    ])
}
