//! Reads the log of a seat (`foretoken.vllm` and `foretoken.sglang`, format `foretoken-seat 1`): JSON lines that an
//! engine with one of Foretoken's policies in its scheduler wrote. The log becomes a recording, as if `foretoken
//! observe` had sent the requests, so that a calibration has one way for both.
//!
//! The first line of a start of the engine has its settings. Each other line is a request, a step, the end of a
//! request, or a step for which the engine's own choice was taken because the policy failed. Times are seconds on one
//! clock.

use crate::recordings::Unread;
use crate::recordings::recording::{Asked, Ended, Ending, Event, Failure, Head, Recording, Sample, Server, Tokens};
use crate::recordings::stated::release_of;
use foretoken_policies::PolicySpec;
use foretoken_sim::config::{DraftMethod, Version};
use foretoken_sim::{EngineConfig, Time};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The value of `format` in the first line.
const FORMAT: &str = "foretoken-seat 1";

/// A seat's log: what the engine did, as a recording, and what the policy said.
#[derive(Clone, Debug)]
pub struct SeatLog {
    /// The requests, answers and steps of the engine.
    pub recording: Recording,
    pub seat: Seated,
    pub engine: EngineConfig,
}

/// What the policy in a seat did while the engine ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seated {
    /// The policy, as a table with its settings under its name.
    pub policy: Value,
    /// True if the policy's lengths were used, false if they were only logged.
    pub acted: bool,
    /// Number of steps for which the policy chose a length.
    pub chosen: u64,
    /// Number of steps for which the policy chose another length than the engine.
    pub other: u64,
    /// For each cause, the number of times that the engine's own choice was taken because the policy failed.
    pub fallbacks: BTreeMap<String, u64>,
}

impl Seated {
    /// The policy; `None` if this version of Foretoken does not know it, or not with these settings.
    pub fn spec(&self) -> Option<PolicySpec> {
        PolicySpec::deserialize(&self.policy).ok().filter(|spec| spec.check().is_ok())
    }

    /// What the policy chose, in a sentence.
    pub fn in_words(&self) -> String {
        let name = self.spec().map_or_else(|| self.policy.to_string(), |spec| spec.label());
        let failed: u64 = self.fallbacks.values().sum();
        let fallbacks = match failed {
            0 => String::new(),
            n => {
                let causes: Vec<String> = self.fallbacks.iter().map(|(why, n)| format!("{why}: {n}")).collect();
                format!("; in {n} steps the engine's own length was taken ({})", causes.join(", "))
            }
        };
        let verb = if self.acted { "chose" } else { "would have chosen" };
        let (other, chosen) = (self.other, self.chosen);
        format!("{name} {verb} another length than the engine in {other} of {chosen} steps{fallbacks}")
    }
}

#[derive(Deserialize)]
struct Start {
    engine: String,
    version: String,
    started_unix_s: f64,
    #[serde(default)]
    policy: Value,
    mode: String,
    settings: Settings,
}

#[derive(Deserialize)]
struct Settings {
    num_speculative_tokens: u32,
    #[serde(default)]
    table: Option<Value>,
    /// The draft lengths that SGLang prepares, of which its own adaptive policy chooses.
    #[serde(default)]
    candidate_steps: Vec<u32>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    max_num_seqs: Option<u32>,
    #[serde(default)]
    max_num_batched_tokens: Option<u32>,
    #[serde(default)]
    enable_prefix_caching: Option<bool>,
    #[serde(default)]
    async_scheduling: Option<bool>,
    #[serde(default)]
    block_size: Option<u32>,
    #[serde(default)]
    num_gpu_blocks: Option<u32>,
    #[serde(default)]
    max_model_len: Option<u32>,
    #[serde(default)]
    model: String,
}

#[derive(Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
enum Line {
    Request { id: u32, at: f64, prompt: u32, max_tokens: u32 },
    Step(Step),
    End { id: u32, at: f64, tokens: u32, cached: Option<u32>, why: String },
    Fallback { why: String },
}

#[derive(Deserialize)]
struct Step {
    at: f64,
    took: f64,
    ids: Vec<u32>,
    verified: Vec<u32>,
    accepted: Vec<u32>,
    emitted: Vec<u32>,
    chunks: Vec<(u32, u32, u32)>,
    kv: f64,
    theirs: Option<u32>,
    would: Option<u32>,
}

/// A request while the log is read.
#[derive(Default)]
struct Request {
    sent: f64,
    prompt: u32,
    /// Tokens of the answer so far.
    so_far: u32,
    first_step: Option<f64>,
    first_token: Option<f64>,
    drafted: Vec<u32>,
    accepted: Vec<u32>,
}

const HINT: &str = "give the file that FORETOKEN_LOG named, as the engine wrote it";

pub fn is_seat_log(path: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 256];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut start)).unwrap_or(0);
    String::from_utf8_lossy(&start[..read]).contains(FORMAT)
}

/// Reads a seat's log. If the engine was started more than once, its last start is read. A last line that was not
/// finished is left out.
pub fn read_seat_log(path: &Path) -> Result<SeatLog, Unread> {
    let text = std::fs::read_to_string(path).map_err(|e| Unread::file(path, format!("cannot be read: {e}"), HINT))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines: Vec<&str> = whole.lines().collect();
    let starts = lines.iter().enumerate().filter(|(_, line)| line.contains(FORMAT)).map(|(i, _)| i);
    let Some(first) = starts.clone().next_back() else {
        return Err(Unread::file(path, "has no line with the format and the engine's settings", HINT));
    };
    let wrong = |i: usize, e: &dyn std::fmt::Display| Unread::line(path, i + 1, format!("cannot be read: {e}"), HINT);
    let start: Start = serde_json::from_str(lines[first]).map_err(|e| wrong(first, &e))?;
    let mut reader = Reader::of(&start);
    for (i, line) in lines.iter().enumerate().skip(first + 1) {
        let line = serde_json::from_str(line).map_err(|e| wrong(i, &e))?;
        reader.take(line).map_err(|e| wrong(i, &e))?;
    }
    if starts.count() > 1 {
        let text = format!("{}: the engine was started again, and its last start is read", path.display());
        reader.events.push(Event::Note { at: Time::ZERO, text });
    }
    Ok(reader.log(start, path))
}

struct Reader {
    started_unix_s: f64,
    asked: Vec<Asked>,
    requests: BTreeMap<u32, (u32, Request)>,
    events: Vec<Event>,
    steps: u64,
    end: f64,
    seat: Seated,
}

impl Reader {
    fn of(start: &Start) -> Reader {
        let seat = Seated {
            policy: start.policy.clone(),
            acted: start.mode == "act",
            chosen: 0,
            other: 0,
            fallbacks: BTreeMap::new(),
        };
        let mut events = Vec::new();
        if let (Some(blocks), Some(size)) = (start.settings.num_gpu_blocks, start.settings.block_size) {
            let name = format!("vllm:cache_config_info{{block_size=\"{size}\",num_gpu_blocks=\"{blocks}\"}}");
            events.push(Event::Metrics { at: Time::ZERO, samples: vec![Sample { name, value: 1.0 }] });
        }
        let started_unix_s = start.started_unix_s;
        Reader { started_unix_s, asked: vec![], requests: BTreeMap::new(), events, steps: 0, end: 0.0, seat }
    }

    fn take(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Request { id, at, prompt, max_tokens } => {
                let request = self.asked.len() as u32;
                let due = Time::from_s(at);
                self.asked.push(Asked { due, prompt_len: prompt, output_len: max_tokens, category: 0 });
                self.events.push(Event::Sent { request, at: due, attempt: 0 });
                self.requests.insert(id, (request, Request { sent: at, prompt, ..Request::default() }));
            }
            Line::Step(step) => self.step(&step)?,
            Line::End { id, at, tokens, cached, why } => {
                let (request, of) = self.requests.remove(&id).ok_or(format!("request {id} has no line of its own"))?;
                let how = if why == "abort" {
                    Ended::Failed { why: Failure::Abandoned, said: why }
                } else {
                    Ended::Finished {
                        reason: why,
                        prompt_tokens: Some(of.prompt),
                        completion_tokens: Some(tokens),
                        cached_tokens: cached,
                        metrics: Some(of.metrics()),
                    }
                };
                self.end = self.end.max(at);
                self.events.push(Event::Ended { request, at: Time::from_s(at), how });
            }
            Line::Fallback { why } => *self.seat.fallbacks.entry(why).or_default() += 1,
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let n = step.ids.len();
        for (what, len) in
            [("verified", step.verified.len()), ("accepted", step.accepted.len()), ("emitted", step.emitted.len())]
        {
            if len != n {
                return Err(format!("{n} requests, and {len} numbers in `{what}`"));
            }
        }
        let end = step.at + step.took;
        self.end = self.end.max(end);
        for (i, id) in step.ids.iter().enumerate() {
            let Some((request, of)) = self.requests.get_mut(id) else { continue };
            if step.verified[i] > 0 {
                of.drafted.push(step.verified[i]);
                of.accepted.push(step.accepted[i]);
            }
            let (request, total) = (*request, of.give(step.emitted[i], end));
            self.chunk(request, end, step.emitted[i], total);
        }
        for &(id, before, new) in &step.chunks {
            let Some((request, of)) = self.requests.get_mut(&id) else { continue };
            of.first_step.get_or_insert(step.at);
            // The pass over a prompt's last token, or over the last token of a request that was preempted, gives a
            // token.
            if before + new >= of.prompt + of.so_far {
                let (request, total) = (*request, of.give(1, end));
                self.chunk(request, end, 1, total);
            }
        }
        if let (Some(theirs), Some(would)) = (step.theirs, step.would) {
            self.seat.chosen += 1;
            self.seat.other += u64::from(theirs != would);
        }
        let (new, drafts) = (step.chunks.iter().map(|c| c.2).sum::<u32>(), step.verified.iter().sum::<u32>());
        let line = format!(
            "{:.6} INFO seat Iteration({}): {} context requests, {new} context tokens, {n} generation requests, \
             {} generation tokens, iteration elapsed time: {:.4} ms, CPU KV cache usage: {:.2}%",
            self.started_unix_s + end,
            self.steps,
            step.chunks.len(),
            n as u32 + drafts,
            1e3 * step.took,
            1e2 * step.kv,
        );
        self.steps += 1;
        self.events.push(Event::Log { at: Time::from_s(end), lines: vec![line] });
        Ok(())
    }

    fn chunk(&mut self, request: u32, at: f64, tokens: u32, total: u32) {
        if tokens > 0 {
            self.events.push(Event::Chunk { request, at: Time::from_s(at), tokens: Tokens::SoFar(total) });
        }
    }

    fn log(mut self, start: Start, path: &Path) -> SeatLog {
        let ending = if self.requests.is_empty() { Ending::Done } else { Ending::Interrupted };
        self.events.push(Event::End { at: Time::from_s(self.end), ending: ending.clone() });
        let policy = match (start.settings.num_speculative_tokens, &start.settings.table, self.seat.acted) {
            (0, _, _) => "autoregressive".to_owned(),
            (k, None | Some(Value::Null), false) if start.settings.candidate_steps.len() < 2 => format!("fixed-{k}"),
            _ => String::new(),
        };
        let engine = start.engine();
        let head = Head {
            foretoken: env!("CARGO_PKG_VERSION").into(),
            policy,
            url: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            model: start.settings.model,
            server: Server {
                version: Some(start.version).filter(|_| start.engine == "vllm"),
                max_model_len: start.settings.max_model_len,
                ..Server::default()
            },
            started_unix_us: (1e6 * start.started_unix_s) as u64,
            token_ids: true,
            asked: self.asked,
            ..Head::default()
        };
        let recording = Recording { head, events: self.events, ending: Some(ending) };
        SeatLog { recording, seat: self.seat, engine }
    }
}

impl Start {
    /// The settings as an experiment states them. What the log does not say has Foretoken's default.
    fn engine(&self) -> EngineConfig {
        let (mut engine, of) = (EngineConfig::default(), &self.settings);
        let release = match self.engine.as_str() {
            "vllm" => release_of(&self.version),
            other => Version::deserialize(Value::String(format!("{other}-{}", self.version))).ok(),
        };
        engine.version = release.unwrap_or(engine.version);
        engine.max_num_seqs = of.max_num_seqs.unwrap_or(engine.max_num_seqs);
        match engine.release().sglang {
            true => {
                let size = engine.sglang.chunked_prefill_size;
                engine.sglang.chunked_prefill_size = of.max_num_batched_tokens.unwrap_or(size);
            }
            false => {
                engine.max_num_batched_tokens = of.max_num_batched_tokens.unwrap_or(engine.max_num_batched_tokens);
            }
        }
        engine.prefix_caching = of.enable_prefix_caching.unwrap_or(engine.prefix_caching);
        engine.async_scheduling = of.async_scheduling.or(engine.async_scheduling);
        let method = of.method.as_ref().map(|name| Value::String(name.to_lowercase().replace('_', "-")));
        engine.method = method.and_then(|m| DraftMethod::deserialize(m).ok()).unwrap_or(engine.method);
        engine
    }
}

impl Request {
    /// The answer gets tokens. Returns its tokens so far.
    fn give(&mut self, tokens: u32, at: f64) -> u32 {
        self.so_far += tokens;
        if tokens > 0 {
            self.first_token.get_or_insert(at);
        }
        self.so_far
    }

    /// The request's metrics in the form of vLLM's.
    fn metrics(&self) -> String {
        let after_ms = |at: Option<f64>| at.map(|at| 1e3 * (at - self.sent).max(0.0));
        json!({
            "queue_time_ms": after_ms(self.first_step),
            "time_to_first_token_ms": after_ms(self.first_token),
            "speculative_decoding": { "per_step_drafted": self.drafted, "per_step_accepted": self.accepted },
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recordings::run::ObservedRun;

    const START: &str = r#"{"format":"foretoken-seat 1","engine":"vllm","version":"0.32.0","started_unix_s":1700000000.0,"policy":{"foresight":{}},"mode":"shadow","settings":{"num_speculative_tokens":3,"table":null,"block_size":16,"num_gpu_blocks":100,"max_model_len":2048}}"#;
    const LINES: [&str; 6] = [
        r#"{"is":"request","id":7,"at":1.0,"prompt":30,"max_tokens":5}"#,
        r#"{"is":"step","at":1.1,"took":0.02,"ids":[],"context":[],"verified":[],"accepted":[],"emitted":[],"chunks":[[7,0,30]],"running":1,"waiting":0,"kv":0.02,"theirs":3,"would":2,"used":3,"decision_us":10}"#,
        r#"{"is":"step","at":1.12,"took":0.01,"ids":[7],"context":[31],"verified":[3],"accepted":[2],"emitted":[3],"chunks":[],"running":1,"waiting":0,"kv":0.02,"theirs":3,"would":3,"used":3,"decision_us":10}"#,
        r#"{"is":"fallback","at":1.13,"why":"slow"}"#,
        r#"{"is":"step","at":1.13,"took":0.01,"ids":[7],"context":[34],"verified":[1],"accepted":[0],"emitted":[1],"chunks":[],"running":1,"waiting":0,"kv":0.02,"theirs":3,"would":null,"used":3,"decision_us":0}"#,
        r#"{"is":"end","id":7,"at":1.14,"tokens":5,"cached":0,"why":"length"}"#,
    ];

    fn written(lines: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seat.jsonl");
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        (dir, path)
    }

    #[test]
    fn a_log_becomes_a_run() {
        let lines: Vec<&str> = std::iter::once(START).chain(LINES).collect();
        let (_dir, path) = written(&lines);
        assert!(is_seat_log(&path));
        let log = read_seat_log(&path).unwrap();
        let counts = (log.seat.chosen, log.seat.other, log.seat.acted, log.seat.fallbacks["slow"]);
        assert_eq!(counts, (2, 1, false, 1));
        let run = ObservedRun::of(&log.recording);
        assert_eq!((run.answers.len(), run.steps.len()), (1, 3));
        let answer = &run.answers[0];
        assert_eq!(answer.chunks.iter().map(|c| c.1).collect::<Vec<_>>(), [1, 3, 1]);
        let rounds = answer.rounds.as_ref().unwrap();
        assert_eq!((&rounds.drafted, &rounds.accepted), (&vec![3, 1], &vec![2, 0]));
        assert!(answer.finished() && answer.rounds_are_whole());
        assert!((answer.times.queue_s.unwrap() - 0.1).abs() < 1e-9);
        let step = &run.steps[1];
        assert_eq!((step.logged.generation_requests, step.logged.generation_tokens, step.emitted), (1, 4, 3));
        assert!((step.logged.elapsed_s - 0.01).abs() < 1e-9);
        assert_eq!((run.metrics.num_gpu_blocks, run.metrics.block_size), (Some(100), Some(16)));
        assert_eq!(log.recording.head.policy, "fixed-3");
    }

    #[test]
    fn the_last_start_counts_and_an_unfinished_line_is_left_out() {
        let mut lines = vec![START, LINES[0], START];
        lines.extend(&LINES[..3]);
        let (_dir, path) = written(&lines);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str(r#"{"is":"end","id":7,"#);
        std::fs::write(&path, text).unwrap();
        let log = read_seat_log(&path).unwrap();
        assert_eq!(log.recording.head.asked.len(), 1);
        assert_eq!(log.recording.ending, Some(Ending::Interrupted));
        assert!(log.recording.events.iter().any(|e| matches!(e, Event::Note { .. })));
    }

    #[test]
    fn damage_is_refused_with_its_line() {
        let without = LINES[2].replace(r#""verified":[3]"#, r#""verified":[]"#);
        for (line, said) in [
            ("{", "line 3: cannot be read: EOF"),
            (r#"{"is":"song"}"#, "line 3: cannot be read: unknown variant `song`"),
            (
                r#"{"is":"end","id":9,"at":2.0,"tokens":1,"cached":null,"why":"stop"}"#,
                "request 9 has no line of its own",
            ),
            (without.as_str(), "1 requests, and 0 numbers in `verified`"),
        ] {
            let (_dir, path) = written(&[START, LINES[0], line]);
            let e = read_seat_log(&path).unwrap_err().to_string();
            assert!(e.contains(said), "{line}: {e}");
        }
        let (_dir, path) = written(&[LINES[0]]);
        assert!(!is_seat_log(&path));
        assert!(read_seat_log(&path).unwrap_err().to_string().contains("no line with the format"));
    }
}
