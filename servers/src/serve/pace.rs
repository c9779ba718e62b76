//! The thread that runs the engine. It runs a step when the wall clock has reached the step's begin, and sends the
//! step's tokens when the wall clock has reached the step's end.

use crate::serve::ask::Ask;
use crate::serve::calls::{Call, End, Piece, Tokens};
use crate::serve::clock::Clock;
use crate::serve::metrics::{Finished, Metrics};
use crate::serve::step_log::StepLog;
use foretoken_run::spec::problem::Result;
use foretoken_sim::online::{Emitted, GivenOut, StepLine};
use foretoken_sim::{Online, Request, RequestId, Time, Workload};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Longest time that the engine's thread waits before it checks again whether it was asked to end.
const LOOK: Duration = Duration::from_millis(50);

/// Totals of a run of the server, from its start to its end.
#[derive(Clone, Debug)]
pub struct Served {
    /// Number of requests whose whole answer was sent.
    pub answered: u64,
    /// Number of requests that were aborted because their clients left.
    pub aborted: u64,
    /// Number of requests that were refused because too many requests were waiting.
    pub refused: u64,
    /// Number of output tokens that the engine's thread sent for its clients.
    pub tokens: u64,
    /// Median and 99th percentile of the delays of chunks (the tokens of one step for one request), in seconds; 0
    /// without streams. A delay is the time from the end of the step until the chunk was handed over to its connection.
    pub late_s: [f64; 2],
}

/// A request that the engine has taken and whose client waits for tokens.
struct Stream {
    to: UnboundedSender<Piece>,
    prompt_len: u32,
    /// True if the answer will have as many tokens as its client allowed (finish reason `length`).
    full: bool,
    /// Simulated times of the request's arrival (`arrived`), of the first step that emitted its tokens (`first`), and
    /// of the last such step so far (`last`). Before the first such step, `first` and `last` are `Time::MAX`.
    arrived: Time,
    first: Time,
    last: Time,
}

/// The state of the thread that runs the engine in real time.
pub struct Pace<'e> {
    engine: &'e mut dyn Online,
    likeness: &'e Workload,
    clock: Clock,
    max_waiting: usize,
    metrics: Metrics,
    log: Option<StepLog>,
    streams: HashMap<RequestId, Stream>,
    out: GivenOut,
    /// Tokens (`tokens`) and log lines (`steps`) of steps that the engine has run, but whose simulated time the wall
    /// clock has not reached yet.
    tokens: VecDeque<Emitted>,
    steps: VecDeque<StepLine>,
    /// Number of requests that the engine has received so far.
    given: usize,
    /// Simulated time at which the newest request came to the engine.
    last_arrival: Time,
    served: Served,
    prefix_caching: bool,
}

impl<'e> Pace<'e> {
    pub fn new(
        engine: &'e mut dyn Online,
        likeness: &'e Workload,
        clock: Clock,
        max_waiting: usize,
        prefix_caching: bool,
        metrics: Metrics,
        log: Option<StepLog>,
    ) -> Pace<'e> {
        Pace {
            engine,
            likeness,
            clock,
            max_waiting,
            metrics,
            log,
            streams: HashMap::new(),
            out: GivenOut::default(),
            tokens: VecDeque::new(),
            steps: VecDeque::new(),
            given: 0,
            last_arrival: Time::ZERO,
            served: Served { answered: 0, aborted: 0, refused: 0, tokens: 0, late_s: [0.0; 2] },
            prefix_caching,
        }
    }

    /// Serves clients until `interrupt` is set, or every sender of `calls` is dropped.
    pub fn keep(mut self, calls: &Receiver<Call>, interrupt: &AtomicBool) -> Result<Served> {
        while !interrupt.load(Ordering::Relaxed) {
            calls.try_iter().for_each(|call| self.take(call));
            let now = self.clock.time_of(Instant::now());
            self.send_due(now)?;
            if self.engine.next_step() <= now {
                self.engine.run_to(now, &mut self.out);
                self.take_out();
            }
            match calls.recv_timeout(self.idle()) {
                Ok(call) => self.take(call),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.log.iter_mut().try_for_each(StepLog::flush)?;
        Ok(self.served)
    }

    /// Returns how long the engine's thread may wait: until the next token, log line or step is due, but at most
    /// [`LOOK`].
    fn idle(&self) -> Duration {
        let token = self.tokens.front().map_or(Time::MAX, |e| e.at);
        let step = self.steps.front().map_or(Time::MAX, |step| step.written);
        let next = token.min(step).min(self.engine.next_step());
        if next == Time::MAX {
            return LOOK;
        }
        self.clock.instant_of(next).saturating_duration_since(Instant::now()).min(LOOK)
    }

    fn take(&mut self, call: Call) {
        match call {
            Call::Ask(ask, came, to) => self.ask(ask, came, to),
            Call::Leave(id) => self.leave(id, Finished::Abort),
            Call::Stop(id) => self.leave(id, Finished::Stop),
            Call::Metrics(to) => {
                let (load, waiting) = (self.engine.load(), self.waiting());
                let preemptions = self.engine.totals().preemptions;
                // Sending fails if the client that asked for the metrics has left. Then no answer is needed.
                let _ = to.send(self.metrics.text(&load, waiting, preemptions));
            }
        }
    }

    /// Returns the number of unfinished requests that the engine is not running now. Requests that have not reached the
    /// scheduler yet count too.
    fn waiting(&self) -> usize {
        self.streams.len().saturating_sub(self.engine.load().running as usize)
    }

    fn ask(&mut self, ask: Ask, came: Instant, to: UnboundedSender<Piece>) {
        let waiting = self.waiting();
        if waiting >= self.max_waiting {
            self.served.refused += 1;
            let _ = to.send(Piece::Busy(waiting));
            return;
        }
        self.last_arrival = self.last_arrival.max(self.clock.time_of(came));
        let like = (self.given % self.likeness.len()) as RequestId;
        self.given += 1;
        let mut request = Request { arrival: self.last_arrival, ..self.likeness.get(like) };
        let by_itself = if ask.ignore_eos { u32::MAX } else { request.output_len.max(ask.min_tokens) };
        let full = by_itself >= ask.max_tokens;
        (request.prompt_len, request.output_len) = (ask.prompt_len, by_itself.min(ask.max_tokens));
        request.prefix = ask.prefix;
        let id = self.engine.give_new(request);
        let arrived = self.last_arrival;
        let stream = Stream { to, prompt_len: ask.prompt_len, full, arrived, first: Time::MAX, last: Time::MAX };
        let left = stream.to.send(Piece::Begun(id)).is_err();
        self.streams.insert(id, stream);
        if left {
            // The client left before the engine took the request. The client's thread never got the id in `Begun`, so
            // it cannot send a `Leave` message.
            self.leave(id, Finished::Abort);
        }
    }

    fn leave(&mut self, id: RequestId, how: Finished) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.engine.abort(id);
        match how {
            Finished::Abort => {
                self.metrics.ended(how, None);
                self.served.aborted += 1;
            }
            Finished::Stop | Finished::Length => {
                self.metrics.ended(how, Some((stream.last - stream.arrived).as_s()));
                self.served.answered += 1;
            }
        }
    }

    /// Moves the tokens and the log lines of the steps that the engine has just run into queues, where they stay until
    /// they are due. Sends `Rejected` to clients whose requests the engine rejected.
    fn take_out(&mut self) {
        self.tokens.extend(self.out.emitted.drain(..));
        match self.log {
            Some(_) => self.steps.extend(self.out.steps.drain(..)),
            None => self.out.steps.clear(),
        }
        for (id, reason) in self.out.rejected.drain(..) {
            if let Some(stream) = self.streams.remove(&id) {
                let _ = stream.to.send(Piece::Rejected(format!("the request can never run: {reason:?}")));
            }
        }
    }

    /// Sends the tokens, and writes the log lines, of the steps whose simulated end is at or before `now`.
    fn send_due(&mut self, now: Time) -> Result<()> {
        while let Some(e) = self.tokens.pop_front_if(|e| e.at <= now) {
            self.send(&e);
        }
        let Some(log) = &mut self.log else { return Ok(()) };
        let mut any = false;
        while let Some(step) = self.steps.pop_front_if(|step| step.written <= now) {
            log.step(&step, &self.clock)?;
            any = true;
        }
        if any { log.flush() } else { Ok(()) }
    }

    fn send(&mut self, e: &Emitted) {
        let Some(stream) = self.streams.get_mut(&e.id) else { return };
        let (cached, queue_s) = (e.cached_tokens, (e.scheduled - stream.arrived).as_s());
        self.metrics.emitted(e);
        if stream.first == Time::MAX {
            stream.first = e.at;
            let cached = self.prefix_caching.then_some(cached);
            self.metrics.first_token(stream.prompt_len, cached, queue_s, (e.at - stream.arrived).as_s());
        } else {
            self.metrics.gap((e.at - stream.last).as_s());
        }
        stream.last = e.at;
        let due = self.clock.instant_of(e.at);
        self.served.tokens += u64::from(e.tokens);
        let end = e.ended.then(|| End {
            full: stream.full,
            queue_s,
            ttft_s: (stream.first - stream.arrived).as_s(),
            generation_s: (e.at - stream.first).as_s(),
            cached_tokens: cached,
        });
        let tokens = Tokens { due, count: e.tokens, round: (e.drafted, e.accepted), end };
        // Sending fails if the client has left. The client's `AbortOnDrop` then sends a `Leave` message.
        let _ = stream.to.send(Piece::Tokens(tokens));
        if e.ended {
            let how = if stream.full { Finished::Length } else { Finished::Stop };
            self.metrics.ended(how, Some((e.at - stream.arrived).as_s()));
            self.served.answered += 1;
            self.streams.remove(&e.id);
        }
    }
}
