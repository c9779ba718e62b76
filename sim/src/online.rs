//! An engine on the event clock that works as a server: clients send requests while it runs, and it does not know them
//! before. The caller decides up to which time steps are run, and so how the engine's clock relates to the wall clock.

use crate::engine::{Drafter, Engine, Load, RejectReason, Scheduler, SpecDecode, Watch};
use crate::event_clock::EventClock;
use crate::metrics::{RequestRecords, Totals};
use crate::time::Time;
use crate::workload::{Request, RequestId};

/// Tokens of a request that a step emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// Id of the request.
    pub id: RequestId,
    /// When the tokens are sent to the client, on the engine's clock.
    pub at: Time,
    /// Number of tokens. Tokens beyond the request's end do not count.
    pub tokens: u32,
    /// Draft tokens that the step verified for the request, padding included.
    pub drafted: u32,
    /// Number of accepted draft tokens. Accepted drafts beyond the request's end count too.
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
    /// Number of tokens of the `generation_requests` in the step, drafts to verify included.
    pub generation_tokens: u64,
    /// How long the host waited for the step's output.
    pub elapsed: Time,
    /// KV blocks that requests hold.
    pub used_blocks: u32,
}

/// What an engine has produced since the caller last emptied it: tokens, steps and rejected requests.
#[derive(Clone, Debug, Default)]
pub struct GivenOut {
    /// Tokens, in order of time.
    pub emitted: Vec<Emitted>,
    /// Steps, in order of time.
    pub steps: Vec<StepLine>,
    /// Requests that can never run to their end, each with the reason.
    pub rejected: Vec<(RequestId, RejectReason)>,
}

/// An engine that serves clients.
pub trait Online {
    /// Gives the engine a request, which is sent at its time of arrival. Returns the request's id. Requests must be
    /// given in ascending order of their arrival times.
    fn give_new(&mut self, request: Request) -> RequestId;

    /// Aborts a request: it emits no further tokens. The tokens that it has emitted stay counted. Does nothing if the
    /// request has ended.
    fn abort(&mut self, id: RequestId);

    /// When the next step begins, if no further request is given; `Time::MAX` if no step follows.
    fn next_step(&self) -> Time;

    /// Runs the steps that begin at `now` or before; the last step may end later. Adds the steps' tokens and log lines,
    /// and rejected requests, to `out`.
    fn run_to(&mut self, now: Time, out: &mut GivenOut);

    /// The load between two steps.
    fn load(&self) -> Load;

    /// Sums over all steps.
    fn totals(&self) -> &Totals;

    /// The records of all requests so far. Their counts of rounds and drafts are not filled in yet.
    fn records(&self) -> &RequestRecords;
}

/// Watches the engine and collects the output of each step, until the caller takes it.
#[derive(Debug, Default)]
pub(crate) struct OutputLog {
    out: GivenOut,
    /// Number of tokens that each request has emitted.
    given: Vec<u32>,
    step: StepLine,
    /// When the host last ended its work. After this time it waits for a step's output.
    host: Time,
}

impl OutputLog {
    fn give(&mut self, scheduler: &Scheduler, at: Time, id: RequestId, (drafted, accepted): (u32, u32)) {
        if self.given.len() <= id as usize {
            self.given.resize(id as usize + 1, 0);
        }
        let given = &mut self.given[id as usize];
        let max_tokens = scheduler.max_tokens(id);
        let tokens = (1 + accepted).min(max_tokens - *given);
        *given += tokens;
        self.out.emitted.push(Emitted { id, at, tokens, drafted, accepted, ended: *given == max_tokens });
    }
}

impl Watch for OutputLog {
    fn scheduled(&mut self, _: &Scheduler, _: Time, end: Time) {
        self.host = end;
    }

    fn emitted(&mut self, scheduler: &Scheduler, spec: &SpecDecode, now: Time) {
        let (output, dropped) = (scheduler.output(), &scheduler.result().dropped);
        let (ids, limit) = (output.batch.ids(), output.batch.limit());
        let mut step = StepLine {
            generation_requests: ids.len() as u32,
            generation_tokens: ids.len() as u64 + limit.iter().map(|&k| u64::from(k)).sum::<u64>(),
            used_blocks: scheduler.kv_cache_manager().used(),
            ..StepLine::default()
        };
        for (i, &id) in ids.iter().enumerate().filter(|(_, id)| !dropped.contains(id)) {
            self.give(scheduler, now, id, (limit[i], spec.of(i).2));
        }
        for chunk in &output.chunks {
            let had_output = self.given.get(chunk.request as usize).is_some_and(|&given| given > 0);
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
    /// Number of rejected requests that were already given to the caller.
    rejected: usize,
}

impl<'a, D: Drafter<EventClock<'a>>> OnlineEngine<'a, D> {
    /// Wraps `engine`, which must keep the records of its steps, so that it computes no steps in one go.
    pub(crate) fn new(mut engine: Engine<'a, EventClock<'a>, D, OutputLog>) -> OnlineEngine<'a, D> {
        engine.be_fed();
        OnlineEngine { engine, rejected: 0 }
    }
}

impl<'a, D: Drafter<EventClock<'a>>> Online for OnlineEngine<'a, D> {
    fn give_new(&mut self, request: Request) -> RequestId {
        self.engine.give_new(request)
    }

    fn abort(&mut self, id: RequestId) {
        self.engine.abort(id);
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
        out.rejected.extend(&collected.rejected[self.rejected..]);
        self.rejected = collected.rejected.len();
        collected.steps.clear();
    }

    fn load(&self) -> Load {
        self.engine.load()
    }

    fn totals(&self) -> &Totals {
        self.engine.totals()
    }

    fn records(&self) -> &RequestRecords {
        self.engine.records()
    }
}
