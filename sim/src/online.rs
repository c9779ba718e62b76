//! An engine on the event clock that works as a server: clients send requests while it runs, and the engine does not
//! know them before. The caller decides up to which time steps are run, and so how the engine's clock relates to the
//! wall clock.

use crate::engine::{Drafter, Engine, Load, RejectReason, Scheduler, SpecDecode, Watch};
use crate::event_clock::EventClock;
use crate::metrics::Totals;
use crate::time::Time;
use crate::workload::{Request, RequestId};
use std::collections::HashMap;

/// The tokens of one request that one step emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// Id of the request.
    pub id: RequestId,
    /// When the request was first scheduled, on the engine's clock.
    pub scheduled: Time,
    /// Prompt tokens found in the prefix cache at the request's first admission.
    pub cached_tokens: u32,
    /// When the tokens are sent to the client, on the engine's clock.
    pub at: Time,
    /// Number of output tokens that the step emitted for the request. Tokens beyond the request's end do not count.
    pub tokens: u32,
    /// Draft tokens that the step verified for the request, padding included.
    pub drafted: u32,
    /// Number of draft tokens accepted in the step. Accepted draft tokens beyond the request's end count too.
    pub accepted: u32,
    /// Whether these are the last tokens of the request.
    pub ended: bool,
}

/// A step as a line of vLLM's step log describes it (`--enable-logging-iteration-details`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepLine {
    /// When the host had processed the step's output, on the engine's clock.
    pub written: Time,
    /// Number of requests without output that have prompt tokens in the step.
    pub context_requests: u32,
    /// Number of tokens of the `context_requests` in the step.
    pub context_tokens: u64,
    /// Number of requests in the step that already have output.
    pub generation_requests: u32,
    /// Number of tokens of the `generation_requests` in the step, draft tokens to verify included.
    pub generation_tokens: u64,
    /// How long the host waited for the step's output.
    pub elapsed: Time,
    /// Number of KV blocks that requests hold when the line is written.
    pub used_blocks: u32,
}

/// What an engine has produced since the caller last emptied it: tokens, steps and rejected requests.
#[derive(Clone, Debug, Default)]
pub struct GivenOut {
    /// The tokens that requests emitted, in order of time; an entry for each request and step.
    pub emitted: Vec<Emitted>,
    /// The steps that the engine ran, in order of time.
    pub steps: Vec<StepLine>,
    /// Requests that can never run to their end, each with the reason.
    pub rejected: Vec<(RequestId, RejectReason)>,
}

/// An engine that serves clients. It forgets requests that have ended, if the policy
/// [allows](crate::SpecPolicy::ids_may_return) this, so that its memory does not grow with the number of ended
/// requests. Ids are in the order in which requests are given, and no two of the last 2^32 requests have the same id.
pub trait Online {
    /// Gives the engine a request, which is sent at the request's `arrival` time. Returns the request's id. Requests
    /// must be given in ascending order of their arrival times.
    fn give_new(&mut self, request: Request) -> RequestId;

    /// Aborts a request: it emits no further tokens. The tokens that it has emitted stay counted. Does nothing if the
    /// request has ended.
    fn abort(&mut self, id: RequestId);

    /// When the next step begins, if no further request is given; `Time::MAX` if no step follows.
    fn next_step(&self) -> Time;

    /// Runs the steps that begin at `now` or before; the last step may end later. Adds to `out` the tokens and log
    /// lines of these steps, and the rejected requests.
    fn run_to(&mut self, now: Time, out: &mut GivenOut);

    /// The engine's load between two steps: its running and waiting requests, and its KV blocks in use.
    fn load(&self) -> Load;

    /// Counters of the engine, summed over all its steps: times, passes, and drafted, verified and accepted tokens.
    fn totals(&self) -> &Totals;
}

/// The values that the log of an engine's output keeps for a request that has not ended.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// When the request was first scheduled; `Time::MAX` until then.
    scheduled: Time,
    /// Number of the request's prompt tokens that were in the prefix cache when it was first scheduled.
    cached_tokens: u32,
    /// Number of tokens that the request has emitted.
    given: u32,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress { scheduled: Time::MAX, cached_tokens: 0, given: 0 }
    }
}

/// Watches the engine and collects the output of each step, until the caller takes it.
#[derive(Debug, Default)]
pub(crate) struct OutputLog {
    out: GivenOut,
    /// The progress of each request that has not ended, by the engine's id of the request.
    progress: Vec<Progress>,
    step: StepLine,
    /// When the host last ended its work. After this time it waits for a step's output.
    host: Time,
}

impl OutputLog {
    fn give(&mut self, scheduler: &Scheduler, at: Time, id: RequestId, (drafted, accepted): (u32, u32)) {
        let Progress { scheduled, cached_tokens, given } = &mut self.progress[id as usize];
        let (scheduled, cached_tokens) = (*scheduled, *cached_tokens);
        let max_tokens = scheduler.max_tokens(id);
        let tokens = (1 + accepted).min(max_tokens - *given);
        *given += tokens;
        let (id, ended) = (scheduler.workload().number(id), *given == max_tokens);
        self.out.emitted.push(Emitted { id, scheduled, cached_tokens, at, tokens, drafted, accepted, ended });
    }
}

impl Watch for OutputLog {
    fn scheduled(&mut self, scheduler: &Scheduler, start: Time, end: Time) {
        for admission in &scheduler.output().admitted {
            let i = admission.id as usize;
            if self.progress.len() <= i {
                self.progress.resize(i + 1, Progress::default());
            }
            if self.progress[i].scheduled == Time::MAX {
                self.progress[i].scheduled = start;
                self.progress[i].cached_tokens = admission.num_cached_tokens;
            }
        }
        self.host = end;
    }

    fn emitted(&mut self, scheduler: &Scheduler, spec: &SpecDecode, now: Time) {
        let (output, dropped) = (scheduler.output(), &scheduler.result().dropped);
        let (ids, limit) = (output.batch.ids(), output.batch.limit());
        let mut step = StepLine {
            generation_requests: ids.len() as u32,
            generation_tokens: ids.len() as u64 + limit.iter().map(|&k| u64::from(k)).sum::<u64>(),
            used_blocks: scheduler.used_blocks(),
            ..StepLine::default()
        };
        for (i, &id) in ids.iter().enumerate().filter(|(_, id)| !dropped.contains(id)) {
            self.give(scheduler, now, id, (limit[i], spec.of(i).2));
        }
        for chunk in &output.chunks {
            let had_output = self.progress[chunk.request as usize].given > 0;
            let (requests, tokens) = match had_output {
                true => (&mut step.generation_requests, &mut step.generation_tokens),
                false => (&mut step.context_requests, &mut step.context_tokens),
            };
            *requests += 1;
            *tokens += u64::from(chunk.tokens);
            if chunk.last && !dropped.contains(&chunk.request) {
                self.give(scheduler, now, chunk.request, (0, 0));
            }
        }
        self.step = step;
    }

    fn updated(&mut self, _: &Scheduler, start: Time, end: Time) {
        if self.step != StepLine::default() {
            let step = std::mem::take(&mut self.step);
            self.out.steps.push(StepLine { written: end, elapsed: start - self.host, ..step });
        }
        self.host = end;
    }
}

/// An engine, together with the log of its output.
pub(crate) struct OnlineEngine<'a, D> {
    engine: Engine<'a, EventClock<'a>, D, OutputLog>,
    /// For each request that is not forgotten: its id inside the engine, by its number. Clients use the number as the
    /// request's id.
    ids: HashMap<RequestId, RequestId>,
}

impl<'a, D: Drafter<EventClock<'a>>> OnlineEngine<'a, D> {
    /// Wraps `engine`. The engine must keep the records of its steps; then it computes no steps in one go, and the log
    /// sees every step.
    pub(crate) fn new(mut engine: Engine<'a, EventClock<'a>, D, OutputLog>) -> OnlineEngine<'a, D> {
        engine.be_fed();
        engine.be_forgetful();
        OnlineEngine { engine, ids: HashMap::new() }
    }
}

impl<'a, D: Drafter<EventClock<'a>>> Online for OnlineEngine<'a, D> {
    fn give_new(&mut self, request: Request) -> RequestId {
        let id = self.engine.give_new(request);
        let number = self.engine.number(id);
        self.ids.insert(number, id);
        number
    }

    fn abort(&mut self, id: RequestId) {
        if let Some(&id) = self.ids.get(&id) {
            self.engine.abort(id);
        }
    }

    fn next_step(&self) -> Time {
        self.engine.next_step()
    }

    fn run_to(&mut self, now: Time, out: &mut GivenOut) {
        let Ok(()) = self.engine.run_until(now + Time(1), false);
        self.engine.take_ended().for_each(drop);
        let (watch, collected) = self.engine.parts();
        out.emitted.append(&mut watch.out.emitted);
        out.steps.append(&mut watch.out.steps);
        out.rejected.append(&mut collected.rejected);
        collected.steps.clear();
        self.engine.forget_ended(|id, number, watch, _| {
            if let Some(progress) = watch.progress.get_mut(id as usize) {
                *progress = Progress::default();
            }
            self.ids.remove(&number);
        });
    }

    fn load(&self) -> Load {
        self.engine.load()
    }

    fn totals(&self) -> &Totals {
        self.engine.totals()
    }
}
