//! `foretoken serve`: clients of every kind, bad input, and `calibrate` on runs of the served engine. `calibrate` must
//! find the engine's costs.

use crate::support::Place;
use foretoken_servers::recordings::step_log::LoggedStep;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An engine whose passes take a few milliseconds. `serve` runs this experiment, and `observe` sends its workload.
pub const EXPERIMENT: &str = r#"
name = "served"
seeds = [5]
policies = [{ fixed = { k = 3 } }]

[hardware]
target = { linear = { alpha_s = 2e-7, gamma_s = 4e-5, delta_s = 0.006 } }
draft = { linear = { alpha_s = 0.0, gamma_s = 5e-6, delta_s = 0.0006 } }

[engine]
version = "vllm-0.32"
method = "draft-model"
runner = "v1"
async_scheduling = false
deliver_at = "drafted"
max_num_seqs = 8
max_num_batched_tokens = 1024
max_model_len = 1024
num_gpu_blocks = 500
prefix_caching = true
step_overhead_s = 0.0003

[workload]
arrivals = { closed-loop = 4 }
lengths = { log-normal = { prompt = { mean = 80.0, sigma = 0.5, max = 400 }, output = { mean = 40.0, sigma = 0.5, max = 200 } } }
requests = 400

[acceptance.source]
constant = { rate = 0.7 }

[observe]
run_s = 2.5
warm_up_requests = 1
"#;

/// A running `foretoken serve`. It is killed when the value is dropped.
pub struct Server {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    pub address: SocketAddr,
    /// The messages of the server on stderr, up to the line that has its address.
    said: String,
}

impl Server {
    pub fn start(place: &Place, more: &[&str]) -> Server {
        Server::of(place, "x.toml", more)
    }

    fn of(place: &Place, file: &str, more: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foretoken"));
        command.args(["serve", file, "--port", "0", "--served-model-name", "m"]).args(more);
        let mut child = command.current_dir(place.path(".")).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("/v1 (simulated)") {
            assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
        }
        let (_, url) = said.split_once("http://").unwrap();
        let address = url.split('/').next().unwrap().parse().unwrap();
        Server { child, stderr, address, said }
    }

    /// Sends a request and returns the connection. The request is a GET if `body` is empty, otherwise a POST.
    fn send(&self, path: &str, body: &str) -> TcpStream {
        let mut connection = TcpStream::connect(self.address).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let method = if body.is_empty() { "GET" } else { "POST" };
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        connection.write_all((head + body).as_bytes()).unwrap();
        connection
    }

    /// Sends a request and returns the status and the body of the answer.
    fn ask(&self, path: &str, body: &str) -> (u16, String) {
        read(&mut self.send(path, body))
    }

    pub fn json(&self, path: &str, body: &str) -> Value {
        let (status, text) = self.ask(path, body);
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The value of the metric `name` on the line that contains `label`; 0 without such a line.
    fn metric(&self, name: &str, label: &str) -> f64 {
        let (_, text) = self.ask("/metrics", "");
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
        line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    /// Ends the server with the signal of Ctrl-C. Returns its last messages.
    pub fn end(mut self) -> String {
        assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status and the body of an HTTP answer. The parts of a chunked body are joined.
fn read(connection: &mut TcpStream) -> (u16, String) {
    let mut all = String::new();
    connection.read_to_string(&mut all).unwrap();
    let (head, body) = all.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if !head.contains("transfer-encoding: chunked") {
        return (status, body.to_owned());
    }
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole += &after[..size];
        rest = after[size..].trim_start_matches("\r\n");
    }
    (status, whole)
}

fn events(body: &str) -> Vec<Value> {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn completions_and_chats_are_answered_as_vllm_does() {
    let place = Place::holding(EXPERIMENT);
    let server = Server::start(&place, &["--step-log", "server.log"]);
    let whole =
        server.json("/v1/completions", r#"{"model": "m", "prompt": "hello", "max_tokens": 30, "ignore_eos": true}"#);
    assert_eq!(whole["choices"][0]["text"], "abcdefghijklmnopqrstuvwxyzabcd");
    assert_eq!(
        (&whole["choices"][0]["finish_reason"], &whole["usage"]["total_tokens"]),
        (&"length".into(), &32.into())
    );
    let per_step = whole["metrics"]["speculative_decoding"]["per_step_accepted"].as_array().unwrap();
    let accepted: u64 = per_step.iter().map(|n| n.as_u64().unwrap() + 1).sum();
    assert!((29..=32).contains(&accepted), "{whole}");

    let stopped = server.json(
        "/v1/chat/completions",
        r#"{"messages": [{"role": "user", "content": "x"}], "stop": ["de"], "ignore_eos": true}"#,
    );
    assert_eq!(stopped["choices"][0]["message"]["content"], "abc");
    assert_eq!(
        (&stopped["choices"][0]["finish_reason"], &stopped["choices"][0]["stop_reason"]),
        (&"stop".into(), &"de".into())
    );

    // A token that the client wants as an end counts, and its text is not shown. A field that is null is absent.
    let ended = server.json(
        "/v1/completions",
        r#"{"prompt": "hello", "max_tokens": 20, "stop_token_ids": [101], "ignore_eos": true, "stream": null, "echo": null,
            "return_token_ids": true}"#,
    );
    let choice = &ended["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&"abcd".into(), &"stop".into()));
    assert_eq!((&choice["stop_reason"], &choice["token_ids"][4]), (&101.into(), &101.into()));
    assert_eq!((&ended["usage"]["completion_tokens"], &choice["token_ids"][5]), (&5.into(), &Value::Null));

    let (status, stream) = server.ask("/v1/chat/completions", r#"{"messages": [{"role": "user", "content": "x"}], "stream": true,
        "max_tokens": 20, "ignore_eos": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}}"#);
    assert!(status == 200 && stream.ends_with("data: [DONE]\n\n"), "{stream}");
    let events = events(&stream);
    let text: String = events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(
        (text.as_str(), &events[0]["choices"][0]["delta"]["role"]),
        ("abcdefghijklmnopqrst", &"assistant".into())
    );
    let so_far: Vec<u64> = events.iter().map(|e| e["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert!(so_far.is_sorted() && so_far.last() == Some(&20), "{so_far:?}");

    // Without `ignore_eos`, an answer ends after one of the output lengths of the experiment's workload.
    let by_itself = server.json("/v1/completions", r#"{"prompt": [1, 2, 3], "max_tokens": 900}"#);
    assert_eq!(
        (&by_itself["choices"][0]["finish_reason"], &by_itself["usage"]["prompt_tokens"]),
        (&"stop".into(), &3.into())
    );
    assert_eq!(server.json("/v1/models", "")["data"][0]["max_model_len"], 1024);
    assert_eq!(server.json("/version", "")["version"], "0.32.0+foretoken");
    assert_eq!(server.ask("/health", "").0, 200);

    // If a prompt comes again, all of its blocks but the last are in the prefix cache.
    let long = format!("{{\"prompt\": \"{}\", \"max_tokens\": 4}}", "0123456789abcdef".repeat(40));
    server.json("/v1/completions", &long);
    let again = server.json("/v1/completions", &long);
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], 144, "{again}");
    assert_eq!(server.metric("vllm:prefix_cache_hits_total", ""), 144.0);
    assert_eq!(server.metric("vllm:request_success_total", "\"length\""), 4.0);
    assert_eq!(server.metric("vllm:request_success_total", "\"stop\""), 3.0);
    let drafts = server.metric("vllm:spec_decode_num_drafts_total", "");
    assert!(drafts > 0.0 && server.metric("vllm:spec_decode_num_draft_tokens_total", "") == 3.0 * drafts);
    assert!(server.end().contains("served 7 requests, "));

    let log = std::fs::read_to_string(place.path("server.log")).unwrap();
    let steps: Vec<LoggedStep> = log.lines().map(|line| LoggedStep::read(line).unwrap().unwrap()).collect();
    assert_eq!(steps.iter().map(|step| step.context_requests).sum::<u32>(), 7);
    assert!(steps.iter().map(|step| step.iteration).eq(0..steps.len() as u64));
    // A step of one request that verifies three draft tokens. It takes 6 ms, plus 0.04 ms for each of 4 tokens, plus
    // 0.6 ms for each of three draft passes.
    let decode = steps.iter().find(|step| step.generation_requests == 1 && step.context_requests == 0).unwrap();
    assert_eq!(decode.generation_tokens, 4);
    assert!((decode.elapsed_s - (0.00616 + 3.0 * 0.0006)).abs() < 0.0001, "{decode:?}");
}

/// With a tokenizer prompts count in its tokens, and `/tokenize` gives the ids that a prompt of ids may have.
#[test]
fn a_tokenizer_counts_prompts_and_answers() {
    let place = Place::holding(EXPERIMENT);
    let bytes = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/pair/target/tokenizer.json");
    let server = Server::start(&place, &["--tokenizer", bytes]);
    let made = server.json("/tokenize", r#"{"model": "m", "prompt": "twelve bytes"}"#);
    assert_eq!((&made["count"], &made["max_model_len"]), (&12.into(), &1024.into()), "{made}");
    assert_eq!(made["tokens"][0], u32::from(b't'));
    let back = server.json("/detokenize", &format!(r#"{{"model": "m", "tokens": {}}}"#, made["tokens"]));
    assert_eq!(back["prompt"], "twelve bytes");
    let text = r#"{"model": "m", "prompt": "twelve bytes", "max_tokens": 2}"#;
    assert_eq!(server.json("/v1/completions", text)["usage"]["prompt_tokens"], 12);
    let chat = r#"{"messages": [{"role": "user", "content": "twelve bytes"}]}"#;
    assert_eq!(server.json("/tokenize", chat)["count"], 16, "the role and the text");
    assert_eq!(server.ask("/tokenize", r#"{"model": "other", "prompt": "x"}"#).0, 404);
    assert_eq!(server.ask("/tokenize", "{}").0, 400);
    drop(server);
    let server = Server::start(&place, &[]);
    let (status, said) = server.ask("/tokenize", r#"{"prompt": "x"}"#);
    assert!(status == 501 && said.contains("--tokenizer"), "{said}");
    drop(server);
    let error = place.fails(&["serve", "x.toml", "--port", "0", "--tokenizer", "x.toml"], 2);
    assert!(error.contains("x.toml: no tokenizer"), "{error}");
}

#[test]
fn what_cannot_be_served_is_refused_and_clients_may_leave() {
    let place = Place::holding(EXPERIMENT);
    let server = Server::start(&place, &["--max-waiting", "2", "--bytes-per-token", "1"]);
    let long = format!("{{\"prompt\": \"{}\"}}", "x".repeat(1024));
    for (path, body, status, said) in [
        ("/v1/completions", r#"{"model": "other", "prompt": "x"}"#, 404, "`other` does not exist"),
        ("/v1/completions", long.as_str(), 400, "maximum context length is 1024 tokens"),
        ("/v1/completions", "{\"prompt\": ", 400, "EOF"),
        ("/v1/completions", r#"{"prompt": "x", "n": 4}"#, 400, "n is not simulated"),
        ("/v1/completions", r#"{"prompt": "x", "tool_choice": "required"}"#, 400, "tool_choice is not simulated"),
        ("/v1/completions", r#"{"prompt": "x", "response_format": {"type": "json_object"}}"#, 400, "response_format"),
        ("/v1/completions", r#"{"prompt": "x", "stream": "yes"}"#, 400, "stream: invalid type"),
        ("/v1/embeddings", "{}", 404, ""),
    ] {
        let (is, text) = server.ask(path, body);
        assert!(is == status && text.contains(said), "{body}: {is} {text}");
    }
    // Eight requests run and two wait. One more request is refused.
    let endless = r#"{"prompt": "x", "max_tokens": 1000, "ignore_eos": true, "stream": true}"#;
    let clients: Vec<TcpStream> = (0..10)
        .map(|i| {
            let client = server.send("/v1/completions", endless);
            // The next request is sent only when this one runs, or when eight requests run. So the first eight run and
            // the others wait.
            let begun = Instant::now();
            while server.metric("vllm:num_requests_running", "") < f64::from(i + 1).min(8.0) {
                assert!(begun.elapsed() < Duration::from_secs(20), "request {i} does not run");
            }
            client
        })
        .collect();
    let (status, text) = loop {
        let waiting = server.metric("vllm:num_requests_waiting", "");
        if waiting == 2.0 {
            break server.ask("/v1/completions", endless);
        }
    };
    assert!(status == 429 && text.contains("2 requests wait already"), "{status} {text}");
    drop(clients);
    let begun = Instant::now();
    while server.metric("vllm:request_success_total", "\"abort\"") < 10.0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the clients have left");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.metric("vllm:kv_cache_usage_perc", ""), 0.0);
    // When the server ends, the stream of a client that is still connected breaks off.
    let mut last = server.send("/v1/completions", endless);
    let mut first = [0; 64];
    last.read_exact(&mut first).unwrap();
    assert!(server.end().contains("10 aborted, 1 refused (429)"));
    let mut rest = String::new();
    let broken = last.read_to_string(&mut rest).is_err() || !rest.contains("[DONE]");
    assert!(broken, "{rest}");
}

#[test]
fn settings_that_no_server_has_are_refused() {
    let (experiment, _) = EXPERIMENT.split_once("[observe]").unwrap();
    let place = Place::holding(experiment);
    let server = Server::start(&place, &[]);
    let port = server.address.port().to_string();
    for (more, said) in [
        (&["--port", port.as_str()][..], "cannot listen at 127.0.0.1:"),
        (&["--set", "policies=[{ fixed = { k = 1 } }, { autoregressive = {} }]"], "a server runs one policy"),
        (&["--set", "policies=[{ clairvoyant-static = {} }]"], "chooses in hindsight"),
        (&["--set", "engine.max_num_seqs={ sweep = [4, 8] }"], "sweeps a setting over 2 values"),
        (&["--set", "fleet={ replicas = 2, router = { round-robin = {} } }"], "the experiment has a fleet"),
        (&["--step-log", "missing/server.log", "--port", "0"], "--step-log"),
        (&["--bytes-per-token", "0"], "0 is not in 1..=64"),
    ] {
        let out = place.soon(&[&["serve", "x.toml"], more].concat());
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && error.contains(said), "{more:?}: {error}");
    }
}

/// Runs `observe` on the served engine and `calibrate` on the recordings. `calibrate` must find the costs that the
/// experiment states. The step log has the simulated times, so a busy machine changes none of these numbers.
#[test]
fn the_law_of_a_served_engine_comes_back() {
    let place = Place::holding(&EXPERIMENT.replace("prefix_caching = true", "prefix_caching = false"));
    let mut runs = Vec::new();
    for k in [0, 3] {
        let policy = if k == 0 { "policies=[{ autoregressive = {} }]" } else { "policies=[{ fixed = { k = 3 } }]" };
        let server = Server::start(&place, &["--step-log", "server.log", "--set", policy]);
        for clients in [1, 4, 8] {
            let (url, out) = (format!("http://{}", server.address), format!("k{k}-c{clients}"));
            let arrivals = format!("workload.arrivals={{ closed-loop = {clients} }}");
            let mut observe = place.foretoken();
            observe.args(["observe", &url, "x.toml", "-o", &out, "--step-log", "server.log", "--no-figures"]);
            let done = observe.args(["--set", policy, "--set", &arrivals]).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            runs.push(out);
        }
    }
    let done = place.foretoken().arg("calibrate").args(&runs).args(["-o", "cal"]).output().unwrap();
    let error = String::from_utf8_lossy(&done.stderr).into_owned();
    // If the machine is too busy, the latencies that clients measure are too long. The verdict of `calibrate` is then
    // "not trusted" (exit code 3).
    assert!(matches!(done.status.code(), Some(0 | 3)), "{error}");
    let profile: toml::Table = std::fs::read_to_string(place.path("cal/profile.toml")).unwrap().parse().unwrap();
    let near = |what: &str, found: &toml::Value, law: f64, within: f64| {
        let found = found.as_float().unwrap();
        assert!((found / law - 1.0).abs() < within, "{what}: {found} s, and the law says {law} s");
    };
    near("host", &profile["step_overhead_s"], 0.0003, 0.05);
    let draft = &profile["draft"]["cost"]["linear"];
    near("draft pass", &draft["delta_s"], 0.0006, 0.02);
    near("draft token", &draft["gamma_s"], 5e-6, 0.1);
    let passes = profile["target"]["cost"]["measured"]["batched"].as_array().unwrap();
    assert!(passes.len() > 8, "{passes:?}");
    for pass in passes {
        let tokens = pass[0].as_integer().unwrap();
        near(&format!("target pass of {tokens}"), &pass[1], 0.006 + 4e-5 * tokens as f64, 0.02);
    }
    // `serve` warns if the user has edited the profile that `calibrate` wrote, as every command does.
    let mut edited = std::fs::read_to_string(place.path("cal/profile.toml")).unwrap();
    edited.insert_str(0, "# mine\n");
    std::fs::write(place.path("cal/mine.toml"), edited).unwrap();
    let policy = "policies=[{ fixed = { k = 3 } }]";
    let sets = ["--set", policy, "--set", "hardware.profile=mine.toml"];
    let server = Server::of(&place, "cal/experiment.toml", &sets);
    let named = |line: &str| line.starts_with("warning: ") && line.contains("edited");
    assert!(server.said.lines().any(named), "{}", server.said);
    drop(server);
    let advice = place.foretoken().args(["recommend", "cal"]).output().unwrap();
    let text = String::from_utf8_lossy(&advice.stdout).into_owned();
    assert!(advice.status.success() && text.contains("num_speculative_tokens"), "{text}");
}

/// `observe` on a server that keeps the KV of all prompts: neither its warm-ups nor its cells send a prompt that the
/// server has seen, so that every prompt is computed. Observed again, the same prompts are in the cache, and this is
/// named.
#[test]
fn observe_sends_no_prompt_that_the_server_has_cached() {
    let text = EXPERIMENT
        .replace("closed-loop = 4", "closed-loop = { sweep = [1, 2] }")
        .replace("alpha_s = 2e-7, gamma_s = 4e-5, delta_s = 0.006", "alpha_s = 0.0, gamma_s = 2e-4, delta_s = 0.002");
    let text = text.replace("num_gpu_blocks = 500", "num_gpu_blocks = 2000");
    let (head, tail) = text.split_once("lengths = ").unwrap();
    let (_, tail) = tail.split_once("requests = 400").unwrap();
    let tail = tail.replace("run_s = 2.5\nwarm_up_requests = 1", "warm_up_requests = 4");
    let place =
        Place::holding(&format!("{head}lengths = {{ fixed = {{ prompt = 320, output = 10 }} }}\nrequests = 12{tail}"));
    let server = Server::start(&place, &["--set", "workload.arrivals={ closed-loop = 1 }"]);
    let url = format!("http://{}", server.address);
    let observe = |out: &str| -> (Value, String) {
        let done = place.foretoken().args(["observe", &url, "x.toml", "-o", out, "--no-figures"]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{said}");
        let cells = std::fs::read(place.path(&format!("{out}/observed.json"))).unwrap();
        (serde_json::from_slice::<Value>(&cells).unwrap()["cells"].clone(), said)
    };
    let (cells, said) = observe("first");
    assert_eq!(cells.as_array().unwrap().len(), 2);
    for cell in cells.as_array().unwrap() {
        assert_eq!((&cell["cached_prompt_share"], &cell["answered"]), (&0.0.into(), &12.into()), "{cell}");
        // A pass over 320 prompt tokens takes 66 ms. The server and this client can only be later.
        assert!(cell["ttft_mean_s"].as_f64().unwrap() > 0.066, "{cell}");
    }
    assert!(!said.contains("prefix cache"), "{said}");
    // Four prompts of each warm-up and twelve of each cell, each of 20 blocks, and none of them again.
    assert_eq!(server.metric("vllm:prefix_cache_queries_total", ""), 2.0 * 16.0 * 320.0);
    assert_eq!(server.metric("vllm:prefix_cache_hits_total", ""), 0.0);
    let (cells, said) = observe("again");
    for cell in cells.as_array().unwrap() {
        // All blocks but the last of each prompt.
        assert_eq!(cell["cached_prompt_share"], 0.95, "{cell}");
    }
    assert!(said.contains("95 % of prompt tokens were found in a warm prefix cache"), "{said}");
}
