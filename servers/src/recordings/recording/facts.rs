//! The types of a recording's contents: the planned requests, the server, and the events of the run.

use foretoken_sim::{Arrivals, Time};
use serde::{Deserialize, Serialize};

/// The start of a recording, written before the first request is sent: server, policy, settings and the planned
/// requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Version of Foretoken that made the recording.
    pub foretoken: String,
    /// The label, such as `fixed-3`, of the policy that the server runs, according to the experiment.
    pub policy: String,
    /// Seed of the workload's random draws, from the experiment's `seeds`.
    pub seed: u64,
    /// The server's address without user name and password.
    pub url: String,
    /// The name of the model that the requests ask for.
    pub model: String,
    /// What the server reports about itself: version, models, limits.
    pub server: Server,
    /// Wall clock at the run's start (time zero), in microseconds since 1970. It converts the times in the server's log
    /// to the run's clock.
    pub started_unix_us: u64,
    /// Number of clients that send the requests in a closed loop; `None` if requests were sent at set times.
    pub clients: Option<u32>,
    /// True if prompts were sent as token ids, false if they were sent as text.
    pub token_ids: bool,
    /// Sampling temperature of the requests; 0 is greedy.
    pub temperature: f64,
    /// Names of the categories of requests in the workload.
    pub categories: Vec<String>,
    /// The requests that the run plans to send, in the order of sending.
    pub asked: Vec<Asked>,
}

impl Head {
    /// How the run's requests arrive: in a closed loop, or at set times.
    pub fn arrivals(&self) -> Arrivals {
        self.clients.map_or(Arrivals::Open, |clients| Arrivals::Closed { clients })
    }
}

/// A request that the run plans to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// When the request should be sent, counted from the run's start. Zero in a closed loop, where a request is sent
    /// when a client is free.
    pub due: Time,
    /// Planned prompt length, tokens.
    pub prompt_len: u32,
    pub output_len: u32,
    /// The request's category, as an index into [`Head::categories`].
    pub category: u16,
}

/// What a server reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// The server's version; `None` if it does not answer `/version`.
    pub version: Option<String>,
    pub models: Vec<String>,
    /// The model's limit on prompt plus output tokens of a request; `None` if the server does not state a limit.
    pub max_model_len: Option<u32>,
    /// True if the server answers `/metrics`.
    pub metrics: bool,
}

/// One thing that happened during a run. Times count from the run's start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    Sent {
        /// Index of the request in [`Head::asked`].
        request: u32,
        /// When the request was sent.
        at: Time,
        /// How often the request had been sent before: 0 for the first attempt.
        attempt: u32,
    },
    /// The client read a part of an answer.
    Chunk {
        /// Index of the request in [`Head::asked`].
        request: u32,
        /// When the client read the part of the answer.
        at: Time,
        /// The tokens of the part of the answer, as ids or as a number.
        tokens: Tokens,
    },
    /// An answer ended, or failed.
    Ended {
        /// Index of the request in [`Head::asked`].
        request: u32,
        /// When the answer ended or failed.
        at: Time,
        /// Whether the server finished or refused the answer, or the connection failed.
        how: Ended,
    },
    /// The client read values of the server's metrics.
    Metrics {
        /// When the client read the values of the server's metrics.
        at: Time,
        /// The values of the server's metrics (serving and speculation) that changed since the client last read them.
        /// At the first reading, these are all values.
        samples: Vec<Sample>,
    },
    /// The client read new lines of the server's step log.
    Log {
        /// When the client read the log's lines. The server wrote them up to a second before.
        at: Time,
        lines: Vec<String>,
    },
    /// A note that `foretoken observe` made for the user, for example that the server's metrics could not be read.
    Note {
        /// When the note was made, counted from the run's start.
        at: Time,
        text: String,
    },
    /// The last event of a recording.
    End {
        /// When the run ended, counted from the run's start.
        at: Time,
        ending: Ending,
    },
}

/// The tokens of one chunk, as far as the server reports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tokens {
    Ids(Vec<u32>),
    /// The answer's total number of tokens so far, with this chunk. The server reports this total, and not the number
    /// of tokens of each chunk.
    SoFar(u32),
    /// The chunk has text, and the server does not report its number of tokens.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ended {
    /// The server ended the answer normally.
    Finished {
        /// Why the answer ended: `length`, `stop`, or another reason that the server states.
        reason: String,
        /// Number of the request's prompt tokens, as the server counts them; `None` if the server does not report
        /// this number.
        prompt_tokens: Option<u32>,
        /// Number of the answer's tokens, as the server counts them; `None` if the server does not report this
        /// number.
        completion_tokens: Option<u32>,
        /// Number of the request's prompt tokens found in the server's prefix cache; `None` if the server does not
        /// report this number.
        cached_tokens: Option<u32>,
        /// The server's own metrics of the request, as JSON.
        metrics: Option<String>,
    },
    Refused {
        status: u16,
        /// The start of the server's message about the refusal, at most a few hundred characters.
        said: String,
        /// The server's `retry-after`: seconds after which the client may try again. `None` if the server sends no
        /// `retry-after`.
        retry_after_s: Option<f64>,
    },
    /// The connection failed, or the answer broke off.
    Failed {
        /// The kind of failure, such as a timeout.
        why: Failure,
        /// The message of the connection's error.
        said: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// No connection to the server could be made.
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
    pub value: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// Every request that was sent has ended.
    Done,
    Interrupted,
    /// The server stopped answering; the text is the last error of a request.
    Lost(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The start of the recording, written before the run's first request: server, policy, settings and planned
    /// requests.
    pub head: Head,
    /// What happened during the run (requests sent, parts of answers, metrics, log lines), in the order in which it was
    /// observed.
    pub events: Vec<Event>,
    /// How the run ended; `None` if the process was killed or the file was cut.
    pub ending: Option<Ending>,
}
