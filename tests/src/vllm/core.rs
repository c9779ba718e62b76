//! Replays a recorded workload of vLLM's engine core with our engine, event clock and scheduler. Every call of our
//! scheduler must equal the recorded call of vLLM's scheduler, and must come at the same microsecond.

use super::blocks::Blocks;
use super::compare::{Differs, IDLE_STEPS, cuts_padding, differs, entries};
use super::fixture::{Call, Recorded, SCHEDULE, Step, UPDATE, Update};

use foretoken_sim::acceptance::RankLaw;
use foretoken_sim::engine::{Drafter, Ending, Engine, Hooks, Rules, Scheduler, SpeculativeConfig, Watch};
use foretoken_sim::event_clock::{EventClock, World};
use foretoken_sim::executor::{DecisionTime, Executor};
use foretoken_sim::{
    AcceptanceSource, AroundExecutor, Arrivals, BatchView, Coefficients, ContextReads, DraftMethod, DraftPlan,
    Drafting, Drafts, EngineConfig, Host, LatencyModel, Linear, PassShape, RequestId, RequestTruth, Runner, Time,
    TruthRow,
};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};

/// Replays a recorded workload of vLLM's engine core with our engine. `rules` are the scheduling rules of a release of
/// vLLM.
///
/// # Errors
/// The first difference between our calls of the scheduler and the recorded ones.
pub fn replay(recorded: &Recorded, rules: Rules) -> Result<(), Differs> {
    let k = recorded.speculation.num_speculative_tokens;
    let config = EngineConfig { max_draft_len: k, ..recorded.config.clone() };
    let lookup = config.method == DraftMethod::Ngram && config.runner == Some(Runner::V1);
    let draft = OfTheRecorder(if lookup { affine(60.0, 0.0) } else { affine(130.0, 3.0) });
    let target = affine(1000.0, 7.0);
    let acceptance = RecordedAcceptance(recorded);
    let world = World {
        draft: &draft,
        target: &target,
        context_reads: ContextReads::Once,
        drafting: Drafting::Autoregressive,
        acceptance: &acceptance,
        overhead: Time::ZERO,
        host: Host::NONE,
        decision_time: DecisionTime { schedule: us(SCHEDULE), update: us(UPDATE), ..DecisionTime::default() },
        noise_cv: 0.0,
        seed: 0,
        max_draft_len: k,
        queues: true,
    };
    let clock = ClockWithLookup { clock: EventClock::new(world, recorded.workload.len()), recorded };
    let over = AtomicBool::new(false);
    let watch =
        Watcher { recorded, over: &over, calls: Vec::new(), blocks: Blocks::default(), seen: WatcherState::default() };
    let (workload, arrivals) = (&recorded.workload, Arrivals::Open);
    let drafter = FullDrafter(recorded);
    let mut engine =
        Engine::new(&config, Cow::Borrowed(workload), arrivals, f64::INFINITY, rules, clock, drafter, false, watch);
    let Ok(ending) = engine.run(&over);
    let finished = engine.finish();
    let watch = finished.watch;
    let mut theirs = recorded.calls.iter();
    for (at, ours) in watch.calls.iter().enumerate() {
        match theirs.next() {
            Some(call) if call == ours => {}
            // The recorder does not write the step in which an assertion of vLLM failed.
            None if matches!(ours, Call::Schedule(step) if cuts_padding(recorded, step)) => return Ok(()),
            other => return Err(differs(format!("call {at}"), other, Some(ours))),
        }
    }
    if let Some(call) = theirs.next() {
        return Err(differs("another call", call, ending));
    }
    let kind = match ending {
        Ending::Done => "done",
        _ if watch.seen.idle >= IDLE_STEPS => "endless",
        _ => "stuck",
    };
    let refused: Vec<u32> = finished.out.rejected.iter().map(|&(id, _)| id).collect();
    // The recording lists every request that vLLM refused. If the run ends before its last arrival, our engine has not
    // seen the last of these requests.
    let all = if kind == "done" { refused == recorded.refused } else { recorded.refused.starts_with(&refused) };
    if !all {
        return Err(differs("refused requests", &recorded.refused, refused));
    }
    let theirs = (recorded.ending.as_str(), recorded.end, recorded.blocks);
    let ours = (kind, watch.seen.now, watch.blocks.hash);
    if theirs == ours { Ok(()) } else { Err(differs("the end", theirs, ours)) }
}

fn us(time: u64) -> Time {
    Time(time * 1_000_000)
}

/// The cost of a pass that takes `pass` µs plus `token` µs for each token.
fn affine(pass: f64, token: f64) -> Linear {
    Linear::new(Coefficients { alpha_s: 0.0, gamma_s: token * 1e-6, delta_s: pass * 1e-6 })
}

/// The recorder's device (`tests/vllm/device.py`): every pass of a drafter takes the same time for the same number of
/// tokens, also a pass that only writes keys and values.
struct OfTheRecorder(Linear);

impl LatencyModel for OfTheRecorder {
    fn pass(&self, shape: PassShape) -> Time {
        self.0.pass(shape)
    }

    fn context_pass(&self, shape: PassShape) -> Time {
        self.0.pass(shape)
    }
}

/// Decides which draft tokens are accepted as the recorder (the Python program that recorded vLLM) did: from the same
/// random draws.
struct RecordedAcceptance<'a>(&'a Recorded);

impl AcceptanceSource for RecordedAcceptance<'_> {
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        let positions = request.output_len + max_draft_len;
        out.reset(positions as usize, 1);
        (0..positions).filter(|&p| self.0.holds(request.id, p)).for_each(|p| out.set(0, p as usize));
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

/// A drafter that drafts as many tokens for each request as the scheduler allows.
struct FullDrafter<'a>(&'a Recorded);

impl<E: Executor> Hooks<E> for FullDrafter<'_> {
    fn propose(&mut self, _: &mut E, batch: &BatchView, _: &BatchView, plan: &mut DraftPlan, _: &mut Drafts) {
        plan.draft_len.copy_from_slice(batch.limit);
    }
}

impl<E: Executor> Drafter<E> for FullDrafter<'_> {
    fn num_spec_tokens(&self, _: u32) -> u32 {
        self.0.speculation.num_speculative_tokens
    }

    fn speculative_config(&self, _: u32, _: bool) -> SpeculativeConfig {
        self.0.speculation.clone()
    }
}

/// The event clock of the simulation (it adds up computed pass times), for draft tokens that are looked up in earlier
/// text. It cuts the number of each request's draft tokens to the number that was proposed while vLLM was recorded.
struct ClockWithLookup<'a> {
    clock: EventClock<'a>,
    recorded: &'a Recorded,
}

impl<'a> AroundExecutor for ClockWithLookup<'a> {
    type Inner = EventClock<'a>;
    type Error = Infallible;

    fn inner(&self) -> &EventClock<'a> {
        &self.clock
    }

    fn inner_mut(&mut self) -> &mut EventClock<'a> {
        &mut self.clock
    }

    fn around_cap_draft_limits(&mut self, ids: &[RequestId], emitted: &[u32], limit: &mut [u32]) {
        for ((&id, &emitted), limit) in ids.iter().zip(emitted).zip(limit) {
            *limit = (*limit).min(self.recorded.proposed(id, emitted, *limit));
        }
    }
}

/// What the watcher, which records the calls of our scheduler, remembers from one call to the next.
#[derive(Default)]
struct WatcherState {
    /// The end of the scheduler's last call, in µs of the engine's simulated clock.
    now: u64,
    /// Number of requests that had arrived by the last call of `schedule`.
    arrived: usize,
    /// Number of successive calls of `update_from_output` that gave no token and saw no new arrival.
    idle: u32,
    /// For each of the last two calls of `schedule`: did it schedule and preempt no request?
    empty: [bool; 2],
    /// Number of output tokens that each request has.
    outputs: HashMap<RequestId, u32>,
    /// The requests that have ended.
    ended: HashSet<RequestId>,
    /// For each step in flight, the oldest first: the requests of the step, and the requests that were preempted since
    /// the step was scheduled.
    in_flight: Vec<(Vec<RequestId>, Vec<RequestId>)>,
}

/// Records the calls of our engine's scheduler, in the form in which vLLM's calls were recorded. Like the program that
/// recorded vLLM, the watcher ends a workload that makes no progress.
struct Watcher<'a> {
    recorded: &'a Recorded,
    over: &'a AtomicBool,
    calls: Vec<Call>,
    blocks: Blocks,
    seen: WatcherState,
}

impl Watcher<'_> {
    /// Ends the run if the engine makes no progress and every request that vLLM did not refuse has arrived.
    fn end_without_progress(&mut self, scheduler: &Scheduler) {
        let coming =
            (self.seen.arrived..self.recorded.workload.len()).any(|id| !self.recorded.refused.contains(&(id as u32)));
        let stuck = self.seen.empty == [true, true] && !scheduler.is_idle();
        self.over.store(!coming && (stuck || self.seen.idle >= IDLE_STEPS), Ordering::Relaxed);
    }

    fn free(scheduler: &Scheduler) -> i64 {
        i64::from(scheduler.kv_cache_manager().num_free_blocks())
    }
}

impl Watch for Watcher<'_> {
    fn scheduled(&mut self, scheduler: &Scheduler, start: Time, end: Time) {
        let seen = &mut self.seen;
        let arrived = self.recorded.workload.arrival.partition_point(|&at| at <= start);
        let real = |id: usize| !self.recorded.refused.contains(&(id as u32));
        if (seen.arrived..arrived).any(real) {
            seen.idle = 0;
        }
        seen.arrived = arrived;
        let output = scheduler.output();
        let entries = entries(scheduler);
        let preempted: Vec<u32> = output.preempted.iter().map(|r| r.id).collect();
        preempted.iter().for_each(|&id| self.blocks.forget(id));
        seen.in_flight.iter_mut().for_each(|(_, stale)| stale.extend(&preempted));
        seen.in_flight.push((entries.iter().map(|e| e.request).collect(), Vec::new()));
        self.blocks.note(scheduler, &entries);
        seen.empty = [seen.empty[1], entries.is_empty() && preempted.is_empty()];
        seen.now = end.0 / 1_000_000;
        self.calls.push(Call::Schedule(Step {
            start: start.0 / 1_000_000,
            entries,
            free: Self::free(scheduler),
            k: output.num_spec_tokens_to_schedule,
            skip_drafts: output.skip_drafts,
            preempted,
            finished: Vec::new(),
            blocks: self.blocks.hash & 0xFFF,
        }));
        self.end_without_progress(scheduler);
    }

    fn updated(&mut self, scheduler: &Scheduler, start: Time, end: Time) {
        let seen = &mut self.seen;
        let (ids, stale) = seen.in_flight.remove(0);
        let mut now: HashMap<RequestId, u32> =
            scheduler.running().iter().map(|r| (r.id, r.num_output_tokens)).collect();
        now.extend(scheduler.waiting().map(|r| (r.id, r.num_output_tokens)));
        let mut ended: Vec<u32> = Vec::new();
        if !ids.is_empty() {
            now.extend(scheduler.result().finished.iter().map(|r| (r.id, r.num_output_tokens)));
            ended.extend(scheduler.result().finished.iter().map(|r| r.id));
        }
        // vLLM lists the ended requests in the order in which the step scheduled them.
        ended.sort_by_key(|id| ids.iter().position(|other| other == id));
        let mut fates = String::new();
        let mut tokens = 0;
        for id in &ids {
            if seen.ended.contains(id) {
                fates.push('x');
                continue;
            }
            if stale.contains(id) {
                fates.push('!');
            }
            let before = seen.outputs.insert(*id, now[id]).unwrap_or(0);
            tokens += now[id] - before;
            fates.push(char::from_digit(now[id] - before, 36).expect("no more drafts than letters"));
        }
        for &id in &ended {
            seen.ended.insert(id);
            self.blocks.forget(id);
        }
        seen.idle = if tokens > 0 { 0 } else { seen.idle + 1 };
        seen.now = end.0 / 1_000_000;
        let free = Self::free(scheduler);
        self.calls.push(Call::Update(Update { start: start.0 / 1_000_000, fates, free, finished: ended }));
        self.end_without_progress(scheduler);
    }
}
