//! Replays recordings of SGLang's own scheduler (`tests/sglang/`) with our engine, event clock and scheduler. Every
//! batch must equal SGLang's, with its KV, its queue and its microsecond.

use crate::vllm::draws::draw;
use foretoken_sim::acceptance::RankLaw;
use foretoken_sim::engine::{
    Drafter, Engine, Hooks, Lengths, RejectReason, Rules, Scheduler, SpecDecode, SpeculativeConfig, Watch,
};
use foretoken_sim::event_clock::{EventClock, World};
use foretoken_sim::executor::{DecisionTime, Executor};
use foretoken_sim::{
    AcceptanceSource, Arrivals, BatchView, ContextReads, DraftPlan, Drafting, Drafts, Host, LatencyModel, PassShape,
    RequestTruth, Time, TruthRow,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

mod recording;
mod tally;

use recording::{config, drafts_of_batches, events, number, order, us, workload};
pub use tally::{Replayed, replay_all};

/// Microseconds of a pass, of a token in it and of a request in it, as in `tests/sglang/device.py`.
const PASS: u64 = 3000;
const TOKEN: u64 = 10;
const REQUEST: u64 = 50;

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
    let watch = Watcher { ours: Vec::new(), spec: k > 0, passes: 0, most: 100 * (theirs.len() + 1000) };
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
    // Where SGLang's loop hangs, our engine rejects a request and goes on.
    let until = ours.iter().position(|e| e == "stuck").filter(|_| theirs.last().is_some_and(|e| e == "stuck"));
    let ours = &ours[..until.map_or(ours.len(), |at| at + 1)];
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

/// Notes the calls of our engine.
struct Watcher {
    ours: Vec<Value>,
    spec: bool,
    /// Passes of the loop so far, and the most that a replay may take: one that goes on for ever is a difference.
    passes: usize,
    most: usize,
}

impl Watch for Watcher {
    fn scheduled(&mut self, scheduler: &Scheduler, _: Time, _: Time) {
        self.passes += 1;
        let sglang = scheduler.sglang().expect("SGLang's scheduler runs");
        assert!(self.passes < self.most, "the replay does not end; its last event is {:?}", self.ours.last());
        let events = sglang.events();
        for (id, by) in &events.freed {
            self.ours.push(match by {
                Some(by) => json!({"loses": id, "to": by}),
                None => json!({"loses": id}),
            });
        }
        self.ours.extend(events.aborted.iter().map(|(id, _)| json!({"aborts": id})));
        if scheduler.output().rejected.iter().any(|r| r.ran.is_none() && r.reason == RejectReason::PromptOverPool) {
            self.ours.push(json!("stuck"));
        }
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
        let sglang = scheduler.sglang().expect("SGLang's scheduler runs");
        // SGLang lists them in the order of the batch.
        let rows = scheduler.output().sglang.rows.iter().map(|row| row.id);
        let ended: Vec<Value> = rows
            .filter_map(|id| finished.iter().find(|r| r.id == id))
            .map(|r| json!([r.id, sglang.req(r.id).finished_len]))
            .collect();
        self.ours.push(json!({"end": ended, "at": now.0 / 1_000_000}));
    }
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
