//! The whole way from an observed server to advice, for every kind of arrivals: `observe`, `calibrate`, and then `run`,
//! `recommend`, `export vllm` and `capacity` on the experiment that `calibrate` wrote.

use crate::support::Place;
use foretoken_tests::stub::{Completion, Reply, Request, Stub, aside};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const EXPERIMENT: &str = r#"name = "seen"
seeds = [1]
policies = [{ fixed = { k = 3 } }]

[engine]
max_num_seqs = 4
max_model_len = 512

[workload]
arrivals = { closed-loop = 2 }
lengths = { fixed = { prompt = 12, output = 8 } }
requests = 40

[observe]
warm_up_requests = 1
"#;

/// A server to observe: (the policy in its experiment, the draft length as a function of the number of requests in
/// flight).
type Server = (&'static str, fn(usize) -> u32);

/// A kind of arrivals (such as a closed loop), with the servers to observe.
struct Kind {
    name: &'static str,
    /// Changes to the base experiment for this kind of arrivals, as arguments of `--set`.
    sets: &'static [&'static str],
    /// The servers to observe with this kind of arrivals.
    servers: &'static [Server],
    /// The name of the load in the output of `recommend`.
    load: &'static str,
    /// Texts that the experiment written by `calibrate` must contain.
    written: &'static [&'static str],
}

const PLAIN: Server = ("{ autoregressive = {} }", |_| 0);
const ONE: Server = ("{ fixed = { k = 1 } }", |_| 1);
const THREE: Server = ("{ fixed = { k = 3 } }", |_| 3);
const TABLE: (&str, fn(usize) -> u32) =
    ("{ vllm-dynamic = { num_speculative_tokens_per_batch_size = [[1, 1, 3], [2, 4, 1]] } }", |n| {
        if n > 1 { 1 } else { 3 }
    });

const KINDS: [Kind; 7] = [
    Kind {
        name: "closed",
        sets: &[],
        servers: &[PLAIN, THREE],
        load: "closed loop of 2",
        written: &["closed-loop = 2", "requests = 40"],
    },
    Kind {
        name: "open",
        sets: &["workload.arrivals={ poisson = { rate = 80.0 } }"],
        servers: &[PLAIN, THREE],
        load: "Poisson 80/s",
        written: &["arrivals = { trace = { path = \"traces/00-k0.csv\" } }"],
    },
    Kind {
        name: "log",
        sets: &["workload={ arrivals = { trace = { path = \"log.csv\" } } }"],
        servers: &[PLAIN, THREE],
        load: "log of k0, ",
        written: &["arrivals = { trace = "],
    },
    Kind {
        name: "bursts",
        sets: &["workload.arrivals={ azure-code = {} }", "observe.time_scale=30.0"],
        servers: &[PLAIN, THREE],
        load: "azure-code, ",
        written: &["arrivals = { trace = "],
    },
    Kind {
        name: "no plain decoding",
        sets: &["workload.arrivals={ poisson = { rate = 80.0 } }"],
        servers: &[ONE, THREE],
        load: "Poisson 80/s",
        written: &["fixed = { k = 1 }", "fixed = { k = 3 }"],
    },
    Kind {
        name: "a table",
        sets: &[],
        servers: &[PLAIN, THREE, TABLE],
        load: "closed loop of 2",
        written: &["closed-loop = 2"],
    },
    Kind {
        name: "priorities",
        sets: &[
            "workload={ arrivals = { trace = { path = \"log.csv\" } }, priorities = { chat = 0, batch = 1 } }",
            "engine.scheduling_policy=priority",
            // Prompts of `families` (kinds of text) would make each family one more category beside `chat` and `batch`,
            // so random prompts are sent.
            "observe.prompts=random",
        ],
        servers: &[PLAIN, THREE],
        load: "log of k0, ",
        written: &["scheduling_policy = \"priority\"", "priorities = { batch = 1, chat = 0 }"],
    },
];

/// Prompt tokens of every request, as the server logs them.
const PROMPT: u32 = 12;
/// The time that the stub server takes for a target pass, without the time for its tokens.
const TARGET: Duration = Duration::from_micros(1500);
/// The time that the stub server adds for each token of a target pass.
const TOKEN: Duration = Duration::from_micros(50);
/// The time that the stub server takes for a draft pass.
const DRAFT: Duration = Duration::from_micros(300);

/// A stub server that logs its steps. Each step of a request gives one token or, with draft tokens, the accepted ones
/// and one more.
fn server(log: &Path, drafts: fn(usize) -> u32) -> Stub {
    File::create(log).unwrap();
    let file = Mutex::new((OpenOptions::new().append(true).open(log).unwrap(), Vec::<Instant>::new()));
    Stub::start(move |r| aside(r, "").unwrap_or_else(|| answer(r, &mut file.lock().unwrap(), drafts)))
}

fn answer(r: &Request, (log, ends): &mut (File, Vec<Instant>), drafts: fn(usize) -> u32) -> Reply {
    let now = Instant::now();
    ends.retain(|end| *end > now);
    let k = drafts(ends.len() + 1);
    let step = |tokens: u32| TARGET + TOKEN * tokens + DRAFT * k;
    let (first, gap) = (step(PROMPT), step(k + 1));
    let tokens = r.body["max_tokens"].as_u64().unwrap() as usize;
    let (mut chunks, mut accepted) = (vec![1], Vec::new());
    for round in r.nth.. {
        let left = tokens - chunks.iter().sum::<usize>();
        if left == 0 {
            break;
        }
        let right = round % (k as usize + 1);
        accepted.push(right);
        chunks.push((right + 1).min(left));
    }
    let written = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for i in 0..chunks.len() as u32 {
        let (prompts, prompt, requests, generated) = if i == 0 { (1, PROMPT, 0, 0) } else { (0, 0, 1, k + 1) };
        let at = (written + first + gap * i).as_secs_f64();
        let ms = 1e3 * if i == 0 { first } else { gap }.as_secs_f64();
        writeln!(
            log,
            "{at:.6} INFO x Iteration({i}): {prompts} context requests, {prompt} context tokens, {requests} generation requests, \
             {generated} generation tokens, iteration elapsed time: {ms:.2} ms, CPU KV cache usage: 0.1%"
        )
        .unwrap();
    }
    ends.push(now + first + gap * (chunks.len() as u32 - 1));
    let rounds = json!({ "per_step_drafted": vec![k; accepted.len()], "per_step_accepted": accepted });
    let metrics = (k > 0).then(|| json!({ "speculative_decoding": rounds }));
    Completion { chunks, first, gap, metrics, ..Completion::of(r) }.reply(r)
}

/// Runs the program in a folder; it must succeed. Returns stdout and stderr.
fn done(place: &Place, args: &[&str]) -> (String, String) {
    let out = place.foretoken().args(args).output().unwrap();
    let [stdout, stderr] = [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    // The times that a busy machine adds to the stub's replies are no law of the server, so a measured run may be
    // faster than the advised one.
    let contradicted = args[0] == "recommend" && stderr.contains("the measurements contradict this advice");
    assert!(out.status.success() || contradicted && out.status.code() == Some(3), "{args:?}: {stderr}\n{stdout}");
    (stdout, stderr)
}

/// For one kind of arrivals (such as a closed loop): observes each of its servers, and runs `calibrate` on all
/// recordings together, into the folder `cal`.
fn calibrated(kind: &Kind) -> Place {
    let place = Place::holding(EXPERIMENT);
    let mut log = "t_s,input_tokens,output_tokens,category\n".to_owned();
    for i in 0..40 {
        let category = if i % 3 == 0 { "batch" } else { "chat" };
        log += &format!("{:.3},{},{},{category}\n", 0.013 * f64::from(i), 8 + i % 5, 5 + i % 4);
    }
    std::fs::write(place.path("log.csv"), log).unwrap();
    let mut folders = Vec::new();
    for (policy, drafts) in kind.servers {
        let folder = if folders.is_empty() { "k0".to_owned() } else { format!("k{}", folders.len()) };
        let stub = server(&place.path("server.log"), *drafts);
        let (url, policies) = (stub.url("127.0.0.1"), format!("policies=[{policy}]"));
        let mut args = vec!["observe", &url, "x.toml", "--step-log", "server.log", "-o", &folder, "--no-figures"];
        args.extend(kind.sets.iter().chain([&policies.as_str()]).flat_map(|set| ["--set", set]));
        let (_, told) = done(&place, &args);
        assert!(told.contains(&format!("then foretoken calibrate {folder} OTHER")), "{}: {told}", kind.name);
        folders.push(folder);
    }
    let args: Vec<&str> =
        ["calibrate"].into_iter().chain(folders.iter().map(String::as_str)).chain(["-o", "cal"]).collect();
    // On a busy machine the calibration may be written but not trusted (exit code 3). This is accepted, because its
    // accuracy is not tested here.
    let out = place.foretoken().args(args).output().unwrap();
    let (exit, told) = (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned());
    assert!(matches!(exit, Some(0 | 3)) && told.contains("to simulate it: "), "{}: {told}", kind.name);
    assert!(told.contains("next: foretoken recommend cal"), "{}: {told}", kind.name);
    place
}

#[test]
fn run_recommend_export_and_capacity_accept_the_calibration_of_every_kind_of_arrivals() {
    std::thread::scope(|scope| {
        for kind in &KINDS {
            scope.spawn(|| goes_the_whole_way(kind));
        }
    });
}

fn goes_the_whole_way(kind: &Kind) {
    let place = calibrated(kind);
    let name = kind.name;
    let written = std::fs::read_to_string(place.path("cal/experiment.toml")).unwrap();
    kind.written.iter().for_each(|words| assert!(written.contains(words), "{name}: {words}: {written}"));
    let (said, _) = done(&place, &["run", "cal/experiment.toml", "-o", "ran", "--no-figures"]);
    assert!(said.contains("autoregressive"), "{name}: {said}");
    let (said, _) = done(&place, &["recommend", "cal", "-o", "advice", "--longest", "3", "--format", "json"]);
    let advice: Value = serde_json::from_str(&said).unwrap();
    assert!(advice["at_loads"][0]["load"].as_str().unwrap().starts_with(kind.load), "{name}: {}", advice["at_loads"]);
    assert_eq!(advice["at_loads"].as_array().unwrap().len(), 1, "{name}: the servers had one load");
    let (said, _) = done(&place, &["export", "vllm", "cal/experiment.toml", "--batch-sizes", "1,2"]);
    assert!(said.contains("num_speculative_tokens_per_batch_size"), "{name}: {said}");
    let mut capacity = vec!["capacity", "cal/experiment.toml", "-o", "carried"];
    let sets = ["slo.tpot_s=0.05", "slo.ttft_s=0.5", "capacity={ requests = 30, warm_up_requests = 0, share = 0.9 }"];
    capacity.extend(sets.into_iter().flat_map(|set| ["--set", set]));
    if written.contains("closed-loop") {
        // `capacity` needs a rate of requests. A closed loop has no rate, because its clients wait for answers.
        capacity.extend(["--set", "workload.arrivals={ poisson = { rate = 5.0 } }"]);
    }
    let (said, _) = done(&place, &capacity);
    assert!(said.contains("autoregressive"), "{name}: {said}");
}

/// Costs that `calibrate` finds equal the stub server's costs. The step log has the server's own times, so a busy
/// machine changes no cost.
#[test]
fn the_costs_of_an_observed_server_come_back_from_calibrate() {
    let sets = &["workload.arrivals={ closed-loop = 1 }"];
    let place = calibrated(&Kind { name: "one client", sets, servers: &[PLAIN, THREE], load: "", written: &[] });
    let profile = std::fs::read_to_string(place.path("cal/profile.toml")).unwrap();
    let costs: Value = toml::from_str(&profile).unwrap();
    assert_eq!(costs["separated"], true, "{costs:#}");
    let is = |found: &Value, law: Duration| {
        let found = found.as_f64().unwrap();
        assert!((found / law.as_secs_f64() - 1.0).abs() < 0.01, "{found} s where the server takes {law:?}: {costs:#}");
    };
    is(&costs["draft"]["cost"]["linear"]["delta_s"], DRAFT);
    // The stub server's target passes have 1, 4 or `PROMPT` tokens.
    let target = costs["target"]["cost"]["measured"]["batched"].as_array().unwrap();
    for tokens in [1, 4, PROMPT] {
        let pass = target.iter().find(|pass| pass[0] == tokens).unwrap_or_else(|| panic!("{tokens} tokens: {costs:#}"));
        is(&pass[1], TARGET + TOKEN * tokens);
    }
}
