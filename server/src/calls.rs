//! The messages between the server's two threads: the engine's thread, and the thread that answers clients.

use crate::ask::Ask;
use foretoken_sim::RequestId;
use std::time::Instant;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

/// A message to the engine's thread.
pub enum Call {
    /// A request, the time at which it came, and the channel to its client.
    Ask(Ask, Instant, UnboundedSender<Piece>),
    /// The client of this request has left, so the engine aborts the request.
    Leave(RequestId),
    /// A stop string has ended the answer to this request, so the engine aborts the request.
    Stop(RequestId),
    /// A request for the text of `/metrics`.
    Metrics(oneshot::Sender<String>),
}

/// A message of the engine to a client. Usually `Begun` comes first, and then `Tokens` for each step. If the request is
/// refused, `Busy` comes instead of `Begun`, or `Rejected` comes after `Begun` and instead of tokens.
pub enum Piece {
    /// The request waits or runs.
    Begun(RequestId),
    /// Refused (HTTP 429), because the largest allowed number of requests waits already. The number is how many wait.
    Busy(usize),
    /// Refused: the request can never run to its end. The text is the reason.
    Rejected(String),
    /// The tokens of a step.
    Tokens(Tokens),
}

/// The tokens that a step emitted for a request.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    /// When the step that made the tokens ended.
    pub due: Instant,
    /// Number of tokens.
    pub count: u32,
    /// Number of draft tokens that the step verified for the request, and number of drafts that it accepted.
    pub round: (u32, u32),
    /// Set if these are the last tokens of the request: the request's metrics. `None` if more tokens come.
    pub end: Option<End>,
}

/// The metrics of a request at its end.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Whether the answer has as many tokens as the client allowed (finish reason `length`).
    pub full: bool,
    /// Seconds from arrival until the request was first scheduled.
    pub queue_s: f64,
    /// Seconds from arrival until the first token.
    pub ttft_s: f64,
    /// Seconds from the first token to the last.
    pub generation_s: f64,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u32,
}
