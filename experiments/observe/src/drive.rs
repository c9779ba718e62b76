//! Sends the requests of a run when they are due, or when a client is free, and has the metrics read every second meanwhile.

use crate::answer::ask;
use crate::client::Client;
use crate::recorder::Recorder;
use foretoken_observed::recording::{Ended, Ending, Event, Failure, Sample};
use foretoken_sim::Arrivals;
use foretoken_spec::observe::ObserveSpec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{interval, sleep, timeout};

/// So many requests in a row without a connection: then there is no server any more.
const LOST: u32 = 5;

/// What a run sends, and how.
pub struct Load {
    /// The bodies of the requests.
    pub bodies: Vec<String>,
    /// When each is due, from the start; not used in a closed loop.
    pub due: Vec<Duration>,
    /// How they come in.
    pub arrivals: Arrivals,
    /// Names the run in the ids of its requests.
    pub name: String,
    /// Are the server's metrics to be read?
    pub metrics: bool,
}

/// What all requests of a run share.
struct Shared {
    client: Client,
    recorder: Recorder,
    load: Load,
    spec: ObserveSpec,
    /// Requests in a row that got no connection.
    unconnected: Cell<u32>,
    /// Why nothing more is sent, once that is so.
    ending: RefCell<Option<Ending>>,
    stop: Notify,
}

impl Shared {
    fn end(&self, ending: Ending) {
        self.ending.borrow_mut().get_or_insert(ending);
        self.stop.notify_waiters();
    }

    fn ended(&self) -> bool {
        self.ending.borrow().is_some()
    }

    /// May a request still be sent?
    fn open(&self) -> bool {
        let in_time = self.spec.run_s.is_none_or(|s| self.recorder.now().as_s() < s);
        in_time && !self.ended()
    }

    fn saw(&self, request: usize, how: Ended) {
        let none = matches!(how, Ended::Failed { why: Failure::Connect, .. });
        self.unconnected.set(if none { self.unconnected.get() + 1 } else { 0 });
        if let Ended::Failed { said, .. } = &how
            && self.unconnected.get() >= LOST
        {
            self.end(Ending::Lost(said.clone()));
        }
        self.recorder.saw(Event::Ended { request: request as u32, at: self.recorder.now(), how });
    }
}

/// Drives the server until every request has ended, or `interrupt` is set. To be called within a [`tokio::task::LocalSet`].
pub async fn drive(
    client: Client,
    recorder: Recorder,
    load: Load,
    spec: ObserveSpec,
    interrupt: Arc<AtomicBool>,
) -> Ending {
    let shared = Rc::new(Shared {
        client,
        recorder,
        load,
        spec,
        unconnected: Cell::new(0),
        ending: RefCell::default(),
        stop: Notify::new(),
    });
    let watch = spawn_local(watch_interrupt(shared.clone(), interrupt));
    let metrics = spawn_local(watch_metrics(shared.clone()));
    match shared.load.arrivals {
        Arrivals::Open => open_loop(&shared).await,
        Arrivals::Closed { clients } => closed_loop(&shared, clients).await,
    }
    watch.abort();
    metrics.abort();
    // The last reading, once everything has ended.
    if shared.load.metrics && !matches!(*shared.ending.borrow(), Some(Ending::Lost(_))) {
        read_metrics(&shared, &mut Vec::new()).await;
    }
    let ending = shared.ending.borrow_mut().take().unwrap_or(Ending::Done);
    shared.recorder.saw(Event::End { at: shared.recorder.now(), ending: ending.clone() });
    ending
}

async fn open_loop(shared: &Rc<Shared>) {
    let in_time = |due: &&Duration| shared.spec.run_s.is_none_or(|s| due.as_secs_f64() < s);
    let due: Vec<Duration> = shared.load.due.iter().take_while(in_time).copied().collect();
    let mut due = pace(shared.recorder.started(), due);
    let places = Arc::new(Semaphore::new(shared.spec.max_in_flight.map_or(Semaphore::MAX_PERMITS, |n| n as usize)));
    let mut running = JoinSet::new();
    while !shared.ended() {
        let next = tokio::select! {
            next = due.recv() => next,
            () = shared.stop.notified() => None,
        };
        let Some(request) = next else { break };
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            () = shared.stop.notified() => break,
        };
        let own = shared.clone();
        running.spawn_local(async move {
            one(&own, request).await;
            drop(place);
        });
    }
    while running.join_next().await.is_some() {}
}

/// Tells each request when it is due. A thread of its own does, since the runtime's timer counts whole milliseconds.
fn pace(start: Instant, due: Vec<Duration>) -> UnboundedReceiver<usize> {
    /// So soon it notices that nobody waits any more.
    const LOOK: Duration = Duration::from_millis(100);
    let (tell, told) = unbounded_channel();
    std::thread::spawn(move || {
        for (request, due) in due.into_iter().enumerate() {
            loop {
                let left = due.saturating_sub(start.elapsed());
                if left.is_zero() {
                    break;
                }
                if tell.is_closed() {
                    return;
                }
                std::thread::sleep(left.min(LOOK));
            }
            if tell.send(request).is_err() {
                return;
            }
        }
    });
    told
}

async fn closed_loop(shared: &Rc<Shared>, clients: u32) {
    let next = Rc::new(Cell::new(0));
    let mut running = JoinSet::new();
    for _ in 0..clients {
        let (shared, next) = (shared.clone(), next.clone());
        running.spawn_local(async move {
            while next.get() < shared.load.bodies.len() && shared.open() {
                let request = next.replace(next.get() + 1);
                one(&shared, request).await;
            }
        });
    }
    while running.join_next().await.is_some() {}
}

/// Sends a request, and again where that is asked for; writes down what comes.
async fn one(shared: &Rc<Shared>, request: usize) {
    for attempt in 0..=shared.spec.retries {
        if shared.ended() {
            return;
        }
        let id = request as u32;
        let post =
            shared.client.completion(shared.load.bodies[request].clone(), &format!("{}-{request}", shared.load.name));
        shared.recorder.saw(Event::Sent { request: id, at: shared.recorder.now(), attempt });
        let answer = ask(post, |tokens| {
            shared.recorder.saw(Event::Chunk { request: id, at: shared.recorder.now(), tokens });
        });
        let allowed = Duration::from_secs_f64(shared.spec.timeout_s);
        let how = tokio::select! {
            how = timeout(allowed, answer) => how.unwrap_or_else(|_| Ended::Failed {
                why: Failure::Timeout,
                said: format!("no end after {} s", shared.spec.timeout_s),
            }),
            () = shared.stop.notified() => Ended::Failed { why: Failure::Abandoned, said: "the run was ended".into() },
        };
        let again = attempt < shared.spec.retries && !shared.ended();
        let wait = wait_before(&how, attempt).filter(|_| again);
        shared.saw(request, how);
        match wait {
            Some(wait) => sleep(wait).await,
            None => return,
        }
    }
}

/// How long to wait before a request is sent again; `None`: it would come to the same.
fn wait_before(how: &Ended, attempt: u32) -> Option<Duration> {
    const LONGEST_S: f64 = 60.0;
    let backoff = 0.5 * f64::from(1u32 << attempt.min(10));
    match how {
        Ended::Refused { status: 429 | 503, retry_after_s, .. } => Some(retry_after_s.unwrap_or(backoff)),
        Ended::Failed { why: Failure::Connect, .. } => Some(backoff),
        _ => None,
    }
    .map(|s| Duration::from_secs_f64(s.min(LONGEST_S)))
}

async fn watch_interrupt(shared: Rc<Shared>, interrupt: Arc<AtomicBool>) {
    let mut often = interval(Duration::from_millis(50));
    loop {
        often.tick().await;
        if interrupt.load(Ordering::Relaxed) {
            return shared.end(Ending::Interrupted);
        }
    }
}

async fn watch_metrics(shared: Rc<Shared>) {
    if !shared.load.metrics {
        return;
    }
    let mut last = Vec::new();
    let mut every = interval(Duration::from_secs(1));
    loop {
        every.tick().await;
        read_metrics(&shared, &mut last).await;
    }
}

/// Writes down the metrics that are not as in the last reading.
async fn read_metrics(shared: &Shared, last: &mut Vec<Sample>) {
    match shared.client.metrics().await {
        Ok(now) => {
            let samples = crate::scrape::changed(last, &now);
            *last = now;
            shared.recorder.saw(Event::Metrics { at: shared.recorder.now(), samples });
        }
        Err(text) => shared.recorder.saw(Event::Note { at: shared.recorder.now(), text }),
    }
}
