//! What a recording is made of.

use foretoken_sim::{Arrivals, Time};
use serde::{Deserialize, Serialize};

/// What is known before the first request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Version of Foretoken that recorded.
    pub foretoken: String,
    /// What the experiment says that the server does: a policy's label.
    pub policy: String,
    /// The seed of the workload.
    pub seed: u64,
    /// The server, without what may be secret in its address.
    pub url: String,
    /// The model that was asked for.
    pub model: String,
    /// What the server says of itself.
    pub server: Server,
    /// Wall clock at the run's instant zero, microseconds since 1970: what the server's log is placed by.
    pub started_unix_us: u64,
    /// Clients of a closed loop; `None` when requests were sent at instants.
    pub clients: Option<u32>,
    /// Were prompts sent as token ids? Otherwise as text.
    pub token_ids: bool,
    /// Softmax temperature that was asked for; 0 is greedy.
    pub temperature: f64,
    /// Names of the categories.
    pub categories: Vec<String>,
    /// The requests that would be sent, in order.
    pub asked: Vec<Asked>,
}

impl Head {
    /// How requests came in.
    pub fn arrivals(&self) -> Arrivals {
        self.clients.map_or(Arrivals::Open, |clients| Arrivals::Closed { clients })
    }
}

/// A request as it was planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// When it was due; in a closed loop zero, since it is due when its client is free.
    pub due: Time,
    /// Tokens of its prompt, as planned.
    pub prompt_len: u32,
    /// Tokens asked for.
    pub output_len: u32,
    /// Index into [`Head::categories`].
    pub category: u16,
}

/// What a server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its version, where it has `/version`.
    pub version: Option<String>,
    /// The models that it serves.
    pub models: Vec<String>,
    /// Tokens that a request of the model may have, prompt and output, where it says so.
    pub max_model_len: Option<u32>,
    /// Has it `/metrics`?
    pub metrics: bool,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A request was handed to the connection.
    Sent {
        /// Which one.
        request: u32,
        /// When.
        at: Time,
        /// From 0: how often it had been sent before.
        attempt: u32,
    },
    /// A part of an answer came.
    Chunk {
        /// Of which request.
        request: u32,
        /// When it was read.
        at: Time,
        /// Its tokens.
        tokens: Tokens,
    },
    /// An answer ended, or will not come.
    Ended {
        /// Of which request.
        request: u32,
        /// When.
        at: Time,
        /// How.
        how: Ended,
    },
    /// The server's metrics.
    Metrics {
        /// When they were read.
        at: Time,
        /// The ones that are about serving and speculation.
        samples: Vec<Sample>,
    },
    /// Lines of the server's step log that were new.
    Log {
        /// When they were read; they were written up to a second before.
        at: Time,
        /// The lines.
        lines: Vec<String>,
    },
    /// A note for the reader of the run.
    Note {
        /// When.
        at: Time,
        /// What.
        text: String,
    },
    /// Nothing follows.
    End {
        /// When.
        at: Time,
        /// How the run ended.
        ending: Ending,
    },
}

/// The tokens of a chunk, as far as the server tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tokens {
    /// Their ids.
    Ids(Vec<u32>),
    /// How many the answer has so far, this chunk included.
    SoFar(u32),
    /// It has text, and the server does not say of how many tokens.
    Unknown,
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ended {
    /// The server ended it.
    Finished {
        /// `length`, `stop`, or what the server says.
        reason: String,
        /// Tokens of the prompt, as the server counts them.
        prompt_tokens: Option<u32>,
        /// Tokens of the answer, as the server counts them.
        completion_tokens: Option<u32>,
        /// Tokens of the prompt that the server had in its prefix cache, where it tells.
        cached_tokens: Option<u32>,
        /// The server's own metrics of the request, as JSON.
        metrics: Option<String>,
    },
    /// The server refused it.
    Refused {
        /// The HTTP status.
        status: u16,
        /// What it said, at most some hundred characters.
        said: String,
        /// Seconds after which to try again, where it says so.
        retry_after_s: Option<f64>,
    },
    /// The connection failed, or the answer broke off.
    Failed {
        /// What went wrong.
        why: Failure,
        /// In words.
        said: String,
    },
}

/// What went wrong with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// None could be made.
    Connect,
    /// It took longer than allowed.
    Timeout,
    /// The answer broke off before its end.
    Cut,
    /// What came is no stream of completions.
    Garbled,
    /// The run was ended from outside while it ran.
    Abandoned,
}

/// A value of the server's metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name, with its labels as Prometheus writes them where it has any that tell values apart.
    pub name: String,
    /// Value.
    pub value: f64,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// Every request that was sent has ended.
    Done,
    /// Asked to stop.
    Interrupted,
    /// The server did not answer any more, with what was seen of it.
    Lost(String),
}

/// A recording in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// What was known before.
    pub head: Head,
    /// What was seen.
    pub events: Vec<Event>,
    /// How it ended; `None` where the process was killed or the file was cut.
    pub ending: Option<Ending>,
}
