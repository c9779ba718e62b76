//! The types that a recording consists of.

use foretoken_sim::{Arrivals, Time};
use serde::{Deserialize, Serialize};

/// What is known before the first request is sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Version of Foretoken that recorded.
    pub foretoken: String,
    /// The label of the policy that the server runs, according to the experiment.
    pub policy: String,
    /// Seed of the workload's random draws, from the experiment's `seeds`.
    pub seed: u64,
    /// The server's address without user name and password.
    pub url: String,
    /// The model that requests name.
    pub model: String,
    /// What the server reports about itself.
    pub server: Server,
    /// Wall clock at the run's start (time zero), in microseconds since 1970. It converts the times in the server's log
    /// to the run's clock.
    pub started_unix_us: u64,
    /// Number of clients of a closed loop; `None` if requests were sent at set times.
    pub clients: Option<u32>,
    /// True if prompts were sent as token ids, false if they were sent as text.
    pub token_ids: bool,
    /// Sampling temperature of the requests; 0 is greedy.
    pub temperature: f64,
    /// Names of the workload's categories.
    pub categories: Vec<String>,
    /// The planned requests, in the order of sending.
    pub asked: Vec<Asked>,
}

impl Head {
    /// The arrival process: a closed loop, or requests at set times.
    pub fn arrivals(&self) -> Arrivals {
        self.clients.map_or(Arrivals::Open, |clients| Arrivals::Closed { clients })
    }
}

/// A planned request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// When the request was due, from the run's start. Zero in a closed loop, where a request is sent when a client is
    /// free.
    pub due: Time,
    /// Planned prompt length, tokens.
    pub prompt_len: u32,
    /// Output tokens that the request asks for.
    pub output_len: u32,
    /// Index into [`Head::categories`].
    pub category: u16,
}

/// What a server reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// The server's version; `None` if it does not answer `/version`.
    pub version: Option<String>,
    /// The models that the server offers.
    pub models: Vec<String>,
    /// The model's limit on prompt plus output tokens of a request; `None` if the server does not state one.
    pub max_model_len: Option<u32>,
    /// True if the server answers `/metrics`.
    pub metrics: bool,
}

/// One thing that happened during a run. Times count from the run's start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A request was sent.
    Sent {
        /// Index of the request in [`Head::asked`].
        request: u32,
        /// When the request was sent.
        at: Time,
        /// How often the request had been sent before: 0 for the first attempt.
        attempt: u32,
    },
    /// A part of an answer came.
    Chunk {
        /// Index of the request in [`Head::asked`].
        request: u32,
        /// When the part was read.
        at: Time,
        /// The part's tokens.
        tokens: Tokens,
    },
    /// An answer ended, or failed.
    Ended {
        /// Index of the request in [`Head::asked`].
        request: u32,
        /// When the answer ended.
        at: Time,
        /// How the answer ended.
        how: Ended,
    },
    /// Values of the server's metrics were read.
    Metrics {
        /// When the values were read.
        at: Time,
        /// The serving and speculation metrics whose values changed since the last reading. The first reading has all
        /// of them.
        samples: Vec<Sample>,
    },
    /// New lines of the server's step log were read.
    Log {
        /// When the lines were read. The server wrote them up to a second before.
        at: Time,
        /// The lines' text.
        lines: Vec<String>,
    },
    /// A note for the reader of the results.
    Note {
        /// When the note was made.
        at: Time,
        /// The note's text.
        text: String,
    },
    /// The last event of a recording.
    End {
        /// When the run ended.
        at: Time,
        /// How the run ended.
        ending: Ending,
    },
}

/// The tokens of a chunk, as far as the server reports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tokens {
    /// The token ids.
    Ids(Vec<u32>),
    /// The answer's number of tokens so far, this chunk included.
    SoFar(u32),
    /// The chunk has text, and the server does not report its number of tokens.
    Unknown,
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ended {
    /// The server ended the answer.
    Finished {
        /// `length`, `stop`, or another reason that the server states.
        reason: String,
        /// Tokens of the prompt, as the server counts them.
        prompt_tokens: Option<u32>,
        /// Tokens of the answer, as the server counts them.
        completion_tokens: Option<u32>,
        /// Prompt tokens found in the server's prefix cache; `None` if the server does not report them.
        cached_tokens: Option<u32>,
        /// The server's own metrics of the request, as JSON.
        metrics: Option<String>,
    },
    /// The server refused the request.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The start of the server's message, at most a few hundred characters.
        said: String,
        /// The server's `retry-after`: seconds after which the client may try again. `None` if the server does not send
        /// it.
        retry_after_s: Option<f64>,
    },
    /// The connection failed, or the answer broke off.
    Failed {
        /// The kind of failure.
        why: Failure,
        /// The error's message.
        said: String,
    },
}

/// The kinds of failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// No connection could be made.
    Connect,
    /// The answer took longer than allowed.
    Timeout,
    /// The answer broke off before its end.
    Cut,
    /// The answer was no stream of completion events, or an event could not be read.
    Garbled,
    /// The run ended while the request was in flight.
    Abandoned,
}

/// One value of the server's metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The metric's name. Prometheus labels follow if the metric has labels.
    pub name: String,
    /// The metric's value.
    pub value: f64,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// Every request that was sent has ended.
    Done,
    /// The user interrupted the run.
    Interrupted,
    /// The server stopped answering; the text is the last error.
    Lost(String),
}

/// A whole recording in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// What was known before the run.
    pub head: Head,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// How the run ended; `None` if the process was killed or the file was cut.
    pub ending: Option<Ending>,
}
