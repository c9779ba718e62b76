//! Replays recordings of SGLang's own scheduler (`tests/sglang/`) with our engine, event clock and scheduler. Every
//! batch must equal SGLang's, with its KV, its queue and its microsecond.

use crate::vllm::draws::draw;
use foretoken_sim::acceptance::RankLaw;
use foretoken_sim::engine::{Drafter, Engine, Hooks, Lengths, Rules, Scheduler, SpecDecode, SpeculativeConfig, Watch};
use foretoken_sim::event_clock::{EventClock, World};
use foretoken_sim::executor::{DecisionTime, Executor};
use foretoken_sim::{
    AcceptanceSource, Arrivals, AskedOutput, BatchView, ContextReads, DraftMethod, DraftPlan, Drafting, Drafts,
    EngineConfig, Host, LatencyModel, PassShape, QueueOrder, Request, RequestTruth, SchedulingPolicy, SglangSettings,
    Time, TruthRow, Version, Workload,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io::BufRead;
use std::sync::atomic::AtomicBool;

/// Microseconds of a pass, of a token in it and of a request in it, as in `tests/sglang/device.py`.
const PASS: u64 = 3000;
const TOKEN: u64 = 10;
const REQUEST: u64 = 50;

/// The first output token of request `n` is `OUTPUT + SPAN * n`; `EOS` ends an output (`tests/sglang/workloads.py`).
const SPAN: u64 = 1 << 12;
const OUTPUT: u64 = 1 << 20;
const EOS: u64 = 2;

/// Why a recording is not replayed: a part of SGLang that is not built.
pub fn unbuilt(line: &Value) -> Option<&'static str> {
    let s = &line["settings"];
    match () {
        () if s["radix_eviction_policy"] != "lru" => Some("another eviction policy than lru"),
        () if s["retraction_policy"] != "length" => Some("retraction by priority"),
        () if !s["max_queued_requests"].is_null() => Some("a bound of the queue"),
        () if list(&line["requests"]).iter().any(|r| leaves_no_room(line, r)) => Some("a prompt that fills the memory"),
        () if list(&line["events"]).iter().any(|e| e["is"] == "stuck") => Some("a request at which SGLang hangs"),
        () if line["family"] == "refused" => Some("a refused prompt, which SGLang runs as one token"),
        () => None,
    }
}

/// Whether a prompt leaves no room for an output token: SGLang computes it, and its client gets nothing.
fn leaves_no_room(line: &Value, request: &Value) -> bool {
    let (page, tokens) = (number(&line["derived"]["page_size"]), number(&line["derived"]["kv_tokens"]));
    let prompt: i64 = list(&request["prompt"]).iter().map(|run| number(&run[1])).sum();
    let pages = (prompt + page - 1) / page * page;
    tokens - pages - page - 1 <= 0 || number(&line["derived"]["max_req_len"]) - prompt - 1 <= 0
}

/// Replays a recorded workload. Returns the number of events.
///
/// # Errors
/// The first difference, with the events before it.
pub fn replay(line: &Value) -> Result<usize, String> {
    let order = order(line);
    let workload = workload(line, &order);
    let config = config(line);
    let theirs = events(line, &order);
    let k = config.max_draft_len;
    let widths = drafts_of_batches(line);
    let drafter = Scripted { k, widths };
    let speculation = if k > 0 { drafter.config() } else { SpeculativeConfig::default() };
    let rules = Rules::of(&config, &speculation).map_err(|e| e.to_string())?;
    let acceptance =
        Recorded { seed: number(&line["seed"]) as u64, permille: number(&line["accept"]) as u64, order: order.clone() };
    let world = World {
        draft: &Nothing,
        target: &Law,
        context_reads: ContextReads::Once,
        drafting: Drafting::Autoregressive,
        acceptance: &acceptance,
        overhead: Time::ZERO,
        host: Host::NONE,
        decision_time: DecisionTime::default(),
        noise_cv: 0.0,
        seed: 0,
        max_draft_len: k,
        queues: config.async_scheduling == Some(true),
    };
    let clock = EventClock::new(world, workload.len());
    let watch = Watcher { ours: Vec::new(), spec: k > 0 };
    let (arrivals, over) = (Arrivals::Open, AtomicBool::new(false));
    let (config, slo) = (&config, f64::INFINITY);
    let ours = match k {
        0 => {
            let none = foretoken_sim::engine::NoDraft;
            let work = Cow::Borrowed(&workload);
            let mut engine = Engine::new(config, work, arrivals, slo, rules, clock, none, true, watch);
            let Ok(_) = engine.run(&over);
            engine.finish().watch.ours
        }
        _ => {
            let work = Cow::Borrowed(&workload);
            let mut engine = Engine::new(config, work, arrivals, slo, rules, clock, drafter, true, watch);
            let Ok(_) = engine.run(&over);
            engine.finish().watch.ours
        }
    };
    let count = theirs.len().max(ours.len());
    for at in 0..count {
        let (their, our) = (theirs.get(at), ours.get(at));
        if their != our {
            let show = |e: Option<&Value>| e.map_or("nothing".into(), Value::to_string);
            let before: Vec<String> =
                theirs[at.saturating_sub(3)..at.min(theirs.len())].iter().map(Value::to_string).collect();
            let before = before.join("\n  ");
            return Err(format!("event {at}\n  {before}\nSGLang {}\nours   {}", show(their), show(our)));
        }
    }
    Ok(count)
}

fn number(v: &Value) -> i64 {
    v.as_i64().unwrap_or(0)
}

fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

/// The requests in the order of their arrivals, in which our engine numbers them.
fn order(line: &Value) -> Vec<usize> {
    let requests = list(&line["requests"]);
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|&i| (number(&requests[i]["at"]), i));
    order
}

fn workload(line: &Value, order: &[usize]) -> Workload {
    let requests = list(&line["requests"]);
    let high_first = line["settings"]["schedule_low_priority_values_first"] == false;
    let mut asked = Vec::new();
    let mut workload: Workload = order
        .iter()
        .map(|&i| {
            let r = &requests[i];
            let runs = list(&r["prompt"]);
            let prompt: Vec<u64> = runs
                .iter()
                .flat_map(|run| {
                    let first = number(&run[0]) as u64;
                    first..first + number(&run[1]) as u64
                })
                .collect();
            let ignore_eos = r["ignore_eos"] == true;
            let max_new_tokens = number(&r["max_new_tokens"]) as u32;
            asked.push(AskedOutput { max_new_tokens, ignore_eos });
            let eos = r["eos_after"].as_u64().map(|eos| eos as u32);
            let output = eos.filter(|_| !ignore_eos).map_or(max_new_tokens, |eos| eos.min(max_new_tokens));
            let token = |p: u32| match eos {
                Some(eos) if p + 1 == eos => EOS,
                _ => OUTPUT + SPAN * i as u64 + u64::from(p),
            };
            let priority = number(&r["priority"]) as i32;
            Request {
                priority: if high_first { -priority } else { priority },
                // A pass that is too many goes on behind the end of an output.
                prefix: prompt.iter().copied().chain((0..output + 64).map(token)).collect(),
                ..Request::new(us(number(&r["at"]) as u64), prompt.len() as u32, output.max(1))
            }
        })
        .collect();
    workload.prefix_block = 1;
    workload.asked = asked;
    workload
}

fn config(line: &Value) -> EngineConfig {
    let (s, d) = (&line["settings"], &line["derived"]);
    let page = number(&d["page_size"]) as u32;
    let most = |key: &str| number(&d[key]) as u32;
    EngineConfig {
        version: Version::Sglang0_5_23,
        method: DraftMethod::Eagle,
        block_size: page,
        num_gpu_blocks: most("kv_tokens") / page,
        max_model_len: most("max_req_len") + 1,
        max_num_seqs: most("max_running_requests"),
        max_draft_len: longest(s),
        async_scheduling: Some(d["overlap"] == true),
        prefix_caching: s["disable_radix_cache"] == false,
        draft_prefill: false,
        scheduling_policy: match s["enable_priority_scheduling"] == true {
            true => SchedulingPolicy::Priority,
            false => SchedulingPolicy::Fcfs,
        },
        sglang: SglangSettings {
            chunked_prefill_size: number(&d["chunked_prefill_size"]).max(0) as u32,
            max_prefill_tokens: most("max_prefill_tokens"),
            enable_mixed_chunk: d["mixed"] == true,
            schedule_policy: serde_json::from_value::<QueueOrder>(d["schedule_policy"].clone()).expect("an order"),
            schedule_conservativeness: s["schedule_conservativeness"].as_f64().expect("a number"),
            prefill_max_requests: s["prefill_max_requests"].as_u64().map(|most| most as u32),
            prefill_decode_interval: number(&s["prefill_decode_interval"]) as u32,
            prefill_decode_interval_min_bs: number(&s["prefill_decode_interval_min_bs"]) as u32,
            scheduler_recv_interval: number(&s["scheduler_recv_interval"]) as u32,
            priority_scheduling_preemption_threshold: number(&s["priority_scheduling_preemption_threshold"]) as i32,
            disable_priority_preemption: d["preemption"] == false,
            speculative_max_running_requests: None,
            max_new_tokens: None,
        },
        ..EngineConfig::default()
    }
}

/// The longest draft that the settings allow.
fn longest(settings: &Value) -> u32 {
    let tiers = settings["adaptive"].as_object().into_iter().flat_map(|tiers| tiers.values());
    let steps = tiers.flat_map(|tier| list(&tier["candidate_steps"])).map(|step| number(step) as u32);
    steps.max().unwrap_or(number(&settings["drafts"]) as u32)
}

/// The draft length of each decode batch.
fn drafts_of_batches(line: &Value) -> VecDeque<u32> {
    let runs = list(&line["events"]).iter().filter(|e| e["is"] == "run" && e["mode"] == "decode");
    runs.map(|e| number(&e["rows"][0][1]) as u32 - 1).collect()
}

/// The recorded events as [`Watcher`] writes ours.
fn events(line: &Value, order: &[usize]) -> Vec<Value> {
    let place =
        |id: &Value| order.iter().position(|&i| id.as_i64() == Some(i as i64)).map_or(Value::Null, |at| json!(at));
    let places = |ids: &Value| Value::Array(list(ids).iter().map(place).collect());
    let mut events = Vec::new();
    for e in list(&line["events"]) {
        match e["is"].as_str().unwrap_or_default() {
            "run" => {
                let prompts = number(&e["prompts"]) as usize;
                let extends = e["mode"] != "decode";
                let rows: Vec<Value> = list(&e["rows"])
                    .iter()
                    .enumerate()
                    .map(|(i, row)| {
                        let id = place(&row[0]);
                        match i < prompts {
                            true => json!([id, row[1], row[2], row[3], row[4]]),
                            false => json!([id, row[3], row[4]]),
                        }
                    })
                    .collect();
                events.push(json!({
                    "run": if extends { "prompts" } else { "decode" }, "rows": rows, "waiting": places(&e["waiting"]),
                    "running": places(&e["running"]), "full": e["full"] == 1, "chunked": place(&e["chunked"]),
                    "ratio": e["ratio"], "free": e["free"], "evictable": e["evictable"],
                }));
            }
            "end" => {
                let ended: Vec<Value> = list(&e["requests"]).iter().map(|r| json!([place(&r[0]), r[1]])).collect();
                events.push(json!({"end": ended, "at": e["at"]}));
            }
            "retract" => events.push(json!({"loses": place(&e["request"])})),
            "preempt" => events.push(json!({"loses": place(&e["request"]), "to": place(&e["by"])})),
            "abort" => events.push(json!({"aborts": place(&e["request"])})),
            "stuck" | "endless" => events.push(json!(e["is"])),
            _ => {}
        }
    }
    events
}

/// Notes the calls of our engine.
struct Watcher {
    ours: Vec<Value>,
    spec: bool,
}

impl Watch for Watcher {
    fn scheduled(&mut self, scheduler: &Scheduler, _: Time, _: Time) {
        let sglang = scheduler.sglang().expect("SGLang's scheduler runs");
        let events = sglang.events();
        for (id, by) in &events.freed {
            self.ours.push(match by {
                Some(by) => json!({"loses": id, "to": by}),
                None => json!({"loses": id}),
            });
        }
        self.ours.extend(events.aborted.iter().map(|id| json!({"aborts": id})));
        let batch = &scheduler.output().sglang;
        if batch.rows.is_empty() {
            return;
        }
        let rows: Vec<Value> = batch
            .rows
            .iter()
            .map(|row| {
                let r = sglang.req(row.id);
                match row.decodes {
                    false => json!([row.id, row.new, row.past, r.committed, r.allocated]),
                    true => json!([row.id, r.committed, r.allocated]),
                }
            })
            .collect();
        let (free, evictable) = sglang.memory();
        self.ours.push(json!({
            "run": if batch.extends { "prompts" } else { "decode" }, "rows": rows, "waiting": sglang.waiting(),
            "running": sglang.running(), "full": sglang.is_full(), "chunked": sglang.chunked(),
            "ratio": (sglang.new_token_ratio() * 1e6).round_ties_even() as i64, "free": free, "evictable": evictable,
        }));
    }

    fn emitted(&mut self, scheduler: &Scheduler, spec: &SpecDecode, now: Time) {
        debug_assert!(self.spec || spec.accepted.iter().all(|&accepted| accepted == 0));
        let finished = &scheduler.result().finished;
        if finished.is_empty() {
            return;
        }
        // SGLang lists them in the order of the batch.
        let rows = scheduler.output().sglang.rows.iter().map(|row| row.id);
        let ended: Vec<Value> = rows
            .filter_map(|id| finished.iter().find(|r| r.id == id))
            .map(|r| json!([r.id, r.num_output_tokens]))
            .collect();
        self.ours.push(json!({"end": ended, "at": now.0 / 1_000_000}));
    }
}

fn us(time: u64) -> Time {
    Time(time * 1_000_000)
}

/// The recorder's device.
struct Law;

impl LatencyModel for Law {
    fn pass(&self, shape: PassShape) -> Time {
        us(PASS + TOKEN * shape.batched + REQUEST * shape.requests)
    }
}

/// Drafting takes no time there.
struct Nothing;

impl LatencyModel for Nothing {
    fn pass(&self, _: PassShape) -> Time {
        Time::ZERO
    }
}

/// The recorder's drafter: it drafts what the recording says.
struct Scripted {
    k: u32,
    widths: VecDeque<u32>,
}

impl Scripted {
    fn config(&self) -> SpeculativeConfig {
        SpeculativeConfig {
            drafter: true,
            num_speculative_tokens: self.k,
            parallel_drafting: false,
            per_batch_size: Vec::new(),
            lengths: Lengths::Own,
        }
    }
}

impl<E: Executor> Hooks<E> for Scripted {
    fn propose(&mut self, _: &mut E, batch: &BatchView, _: &BatchView, plan: &mut DraftPlan, _: &mut Drafts) {
        if batch.limit.iter().any(|&limit| limit > 0) {
            plan.draft_len.fill(self.widths.pop_front().unwrap_or(0));
        }
    }
}

impl<E: Executor> Drafter<E> for Scripted {
    fn num_spec_tokens(&self, _: u32) -> u32 {
        self.k
    }

    fn speculative_config(&self, _: u32, _: bool) -> SpeculativeConfig {
        self.config()
    }
}

/// Which drafts are right, from the draws of `tests/vllm/chance.py`.
struct Recorded {
    seed: u64,
    permille: u64,
    order: Vec<usize>,
}

impl AcceptanceSource for Recorded {
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        let positions = request.output_len + max_draft_len;
        let recorded = self.order[request.id as usize] as u32;
        out.reset(positions as usize, 1);
        for p in 0..positions {
            if draw(self.seed, 1, recorded, p) % 1000 < self.permille {
                out.set(0, p as usize);
            }
        }
    }

    fn confidence(&self, _: RequestTruth, _: u32, _: u32, _: Option<bool>, _: u64) -> f32 {
        1.0
    }

    fn rank_if_wrong(&self, _: RequestTruth, _: u32) -> u32 {
        2
    }

    fn ranks(&self) -> &RankLaw {
        unreachable!("the replay drafts no trees")
    }
}

/// How many recordings of a family were replayed, and the first that differs.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Every batch was SGLang's.
    pub equal: usize,
    /// A batch was not SGLang's.
    pub differ: usize,
    /// The recording needs a part of SGLang that is not built.
    pub unbuilt: usize,
    /// The first difference.
    pub first: Option<String>,
}

impl std::fmt::Display for Replayed {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{:5} equal {:5} differ {:5} not built", self.equal, self.differ, self.unbuilt)
    }
}

/// Replays the workloads of a recording, by family.
///
/// # Errors
/// The text cannot be read, or a line is not JSON.
pub fn replay_all(text: impl BufRead) -> std::io::Result<BTreeMap<String, Replayed>> {
    let mut families = BTreeMap::<String, Replayed>::new();
    // The first line names format and release.
    for line in text.lines().skip(1) {
        let line: Value = serde_json::from_str(&line?)?;
        let counts = families.entry(line["family"].as_str().unwrap_or_default().to_owned()).or_default();
        if unbuilt(&line).is_some() {
            counts.unbuilt += 1;
            continue;
        }
        let result = std::panic::catch_unwind(|| replay(&line)).unwrap_or_else(|_| Err("a panic".into()));
        match result {
            Ok(_) => counts.equal += 1,
            Err(why) => {
                counts.differ += 1;
                let settings = &line["settings"];
                counts.first.get_or_insert_with(|| format!("seed {}: {settings}\n{why}", line["seed"]));
            }
        }
    }
    Ok(families)
}
