//! The messages between the server's two threads: the thread that runs the engine, and the thread that answers clients.

use crate::serve::ask::Ask;
use foretoken_sim::RequestId;
use std::time::Instant;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

/// A message from the thread that answers clients to the engine's thread.
pub enum Call {
    /// A client's request, the time at which the request came, and the channel on which the engine's thread answers.
    Ask(Ask, Instant, UnboundedSender<Piece>),
    /// The client of the request with this id has left, so the engine aborts the request.
    Leave(RequestId),
    /// A stop string has ended the answer to the request with this id, so the engine aborts the request.
    Stop(RequestId),
    /// A request for the text of `/metrics`, which the engine's thread sends on this channel.
    Metrics(oneshot::Sender<String>),
}

/// A message from the engine's thread about a client's request. Usually `Begun` comes first, and then `Tokens` for each
/// step. If the request is refused, either `Busy` comes instead of `Begun`, or `Rejected` comes after `Begun` and
/// instead of `Tokens`.
pub enum Piece {
    /// The engine has taken the request, which now waits or runs. The value is the id that the engine gave to the
    /// request.
    Begun(RequestId),
    /// The request is refused (HTTP 429), because the largest allowed number of requests is waiting already. The value
    /// is the number of waiting requests.
    Busy(usize),
    /// The request is refused, because the engine could never run it to its end. The text is the reason.
    Rejected(String),
    /// The tokens that a step emitted for the request.
    Tokens(Tokens),
}

/// The tokens that a step emitted for a request.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    /// The instant at which the step that emitted the tokens ended.
    pub due: Instant,
    /// Number of tokens that the step emitted for the request.
    pub count: u32,
    /// (number of draft tokens that the step verified for the request, number of these draft tokens that it accepted).
    pub round: (u32, u32),
    /// The metrics of the request if these are its last tokens. `None` if more tokens come.
    pub end: Option<End>,
}

/// The metrics of a request at its end.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// True if the answer has as many tokens as the client allowed (finish reason `length`).
    pub full: bool,
    /// Seconds from the request's arrival until it was first scheduled.
    pub queue_s: f64,
    /// Seconds from the request's arrival until its first token.
    pub ttft_s: f64,
    /// Seconds from the request's first token to its last.
    pub generation_s: f64,
    /// Number of the request's prompt tokens that were found in the prefix cache.
    pub cached_tokens: u32,
}
