//! Sends the requests of a run. A request is sent when it is due or, in a closed loop, when a client is free.
//! Meanwhile the server's metrics are read every second.

use crate::observe::answer::ask;
use crate::observe::client::Client;
use crate::observe::recorder::Recorder;
use crate::observe::waiting::asked;
use crate::recordings::recording::{Ended, Ending, Event, Failure, Sample};
use foretoken_run::spec::observe::ObserveSpec;
use foretoken_sim::Arrivals;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{interval, sleep, timeout};

/// If this number of requests in a row get no connection, the server counts as lost and the run ends.
const LOST: u32 = 5;
/// Time limit for the last reading of the server's metrics after an interruption by the user.
const LAST_METRICS: Duration = Duration::from_millis(300);

/// The requests of a run and how to send them.
pub struct Load {
    /// The JSON bodies of the run's requests, in the order of sending.
    pub bodies: Vec<String>,
    /// `tokens[i]` is the number of output tokens that request i asks for.
    pub tokens: Vec<u32>,
    /// `due[i]` is the time from the run's start at which request i is due. Not used in a closed loop.
    pub due: Vec<Duration>,
    /// How requests are sent: by clients in a closed loop, or at set times.
    pub arrivals: Arrivals,
    /// The run's name, which begins the ids of its requests.
    pub name: String,
    /// True if the server's `/metrics` is to be read during the run.
    pub metrics: bool,
}

/// State that all tasks that send requests of a run share.
struct Shared {
    client: Client,
    recorder: Recorder,
    load: Load,
    spec: ObserveSpec,
    /// Indices of the requests that are in flight.
    running: RefCell<BTreeSet<u32>>,
    /// Number of requests in a row, up to now, that got no connection to the server.
    unconnected: Cell<u32>,
    /// The error of the last request, if the server counts as lost (several requests in a row got no connection).
    lost: RefCell<Option<String>>,
    stop: Notify,
}

impl Shared {
    /// True if further requests may be sent now: until `observe.run_s` seconds of the run have passed. Always true
    /// without `observe.run_s`.
    fn open(&self) -> bool {
        self.spec.run_s.is_none_or(|s| self.recorder.now().as_s() < s)
    }

    fn sent(&self, request: u32, attempt: u32) {
        self.running.borrow_mut().insert(request);
        self.recorder.saw(Event::Sent { request, at: self.recorder.now(), attempt });
    }

    fn ended(&self, request: u32, how: Ended) {
        let none = matches!(how, Ended::Failed { why: Failure::Connect, .. });
        self.unconnected.set(if none { self.unconnected.get() + 1 } else { 0 });
        if let Ended::Failed { said, .. } = &how
            && self.unconnected.get() >= LOST
        {
            self.lost.borrow_mut().get_or_insert_with(|| said.clone());
            self.stop.notify_one();
        }
        self.running.borrow_mut().remove(&request);
        self.recorder.saw(Event::Ended { request, at: self.recorder.now(), how });
    }
}

/// Sends requests until each has ended, the server is lost, or `interrupt` is set. No request is begun after
/// `observe.run_s`. At the end, the requests in flight are recorded as abandoned, the metrics are read once more unless
/// the server is lost, and the end is recorded. Must be called within a [`tokio::task::LocalSet`].
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
        running: RefCell::default(),
        unconnected: Cell::new(0),
        lost: RefCell::default(),
        stop: Notify::new(),
    });
    let metrics = spawn_local(watch_metrics(shared.clone()));
    let requests = async {
        match shared.load.arrivals {
            // The caller, `observe`, refuses an experiment with sessions before the first request, so `Sessions` does
            // not occur here.
            Arrivals::Open | Arrivals::Sessions => open_loop(&shared).await,
            Arrivals::Closed { clients } => closed_loop(&shared, clients).await,
        }
    };
    // When one branch of `select!` ends, the future `requests` is dropped. This stops every task that `requests`
    // started, wherever the task waits.
    let mut ending = tokio::select! {
        biased;
        () = asked(&interrupt) => Ending::Interrupted,
        () = shared.stop.notified() => Ending::Lost(shared.lost.borrow().clone().unwrap_or_default()),
        () = requests => Ending::Done,
    };
    metrics.abort();
    for request in shared.running.take() {
        let how = Ended::Failed { why: Failure::Abandoned, said: "the run was ended".into() };
        shared.recorder.saw(Event::Ended { request, at: shared.recorder.now(), how });
    }
    let mut last = Vec::new();
    let reading = async {
        if shared.load.metrics {
            read_metrics(&shared, &mut last).await;
        }
    };
    match ending {
        Ending::Lost(_) => {}
        Ending::Interrupted => drop(timeout(LAST_METRICS, reading).await),
        Ending::Done => tokio::select! {
            () = reading => {}
            () = asked(&interrupt) => ending = Ending::Interrupted,
        },
    }
    shared.recorder.saw(Event::End { at: shared.recorder.now(), ending: ending.clone() });
    ending
}

async fn open_loop(shared: &Rc<Shared>) {
    let in_time = |due: &&Duration| shared.spec.run_s.is_none_or(|s| due.as_secs_f64() < s);
    let due: Vec<Duration> = shared.load.due.iter().take_while(in_time).copied().collect();
    let mut due = pace(shared.recorder.started(), due);
    let places = Arc::new(Semaphore::new(shared.spec.max_in_flight.map_or(Semaphore::MAX_PERMITS, |n| n as usize)));
    let mut running = JoinSet::new();
    while let Some(request) = due.recv().await {
        let place = places.clone().acquire_owned().await;
        let own = shared.clone();
        running.spawn_local(async move {
            one(&own, request).await;
            drop(place);
        });
    }
    while running.join_next().await.is_some() {}
}

/// Starts a thread that sends the index of each request to the returned receiver when the request is due. A thread does
/// this, because the runtime's timer counts whole milliseconds.
fn pace(start: Instant, due: Vec<Duration>) -> UnboundedReceiver<usize> {
    /// Longest time between two checks, by the thread that says when requests are due, whether the receiver was
    /// dropped.
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

/// Sends the request with this index and records its answer. After a failed connection, or a refusal with 429 or 503,
/// the request is sent again, at most `observe.retries` times.
async fn one(shared: &Rc<Shared>, request: usize) {
    let id = request as u32;
    let allowed = Duration::from_secs_f64(shared.spec.timeout_s);
    for attempt in 0..=shared.spec.retries {
        let post =
            shared.client.completion(shared.load.bodies[request].clone(), &format!("{}-{request}", shared.load.name));
        shared.sent(id, attempt);
        let answer = ask(post, shared.load.tokens[request], |tokens| {
            shared.recorder.saw(Event::Chunk { request: id, at: shared.recorder.now(), tokens });
        });
        let how = timeout(allowed, answer).await.unwrap_or_else(|_| Ended::Failed {
            why: Failure::Timeout,
            said: format!("no end after {} s", shared.spec.timeout_s),
        });
        let wait = wait_before(&how, attempt).filter(|_| attempt < shared.spec.retries);
        shared.ended(id, without_secrets(&shared.client, how));
        match wait {
            Some(wait) => sleep(wait).await,
            None => return,
        }
    }
}

/// Removes the client's key and password from `how`, which says how an answer ended and may quote a text of the server.
fn without_secrets(client: &Client, how: Ended) -> Ended {
    match how {
        Ended::Refused { status, said, retry_after_s } => {
            Ended::Refused { status, said: client.without_secrets(said), retry_after_s }
        }
        Ended::Failed { why, said } => Ended::Failed { why, said: client.without_secrets(said) },
        finished => finished,
    }
}

/// How long to wait before a request is sent again, at most a minute. `how` says how attempt number `attempt` ended.
/// `None` if the request is not sent again after such an end.
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

/// Reads the server's metrics and records those values that changed since the last reading. A failed reading is
/// recorded as a note.
async fn read_metrics(shared: &Shared, last: &mut Vec<Sample>) {
    match shared.client.metrics().await {
        Ok(now) => {
            let samples = crate::observe::scrape::changed(last, &now);
            *last = now;
            shared.recorder.saw(Event::Metrics { at: shared.recorder.now(), samples });
        }
        Err(text) => shared.recorder.saw(Event::Note { at: shared.recorder.now(), text }),
    }
}
