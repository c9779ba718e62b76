//! What the two threads send each other.

use crate::ask::Ask;
use foretoken_sim::RequestId;
use std::time::Instant;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

/// What clients ask of the engine.
pub enum Call {
    /// A request, when it came, and the way back to its client.
    Ask(Ask, Instant, UnboundedSender<Piece>),
    /// A client has left: its request is aborted.
    Leave(RequestId),
    /// A stop has ended an answer: its request is aborted.
    Stop(RequestId),
    /// The text of `/metrics`.
    Metrics(oneshot::Sender<String>),
}

/// What the engine sends to a client, in this order: once `Begun` and then tokens, or a refusal.
pub enum Piece {
    /// The request waits or runs.
    Begun(RequestId),
    /// This many requests wait already.
    Busy(usize),
    /// The request can never run, for this reason.
    Rejected(String),
    /// The tokens of a step.
    Tokens(Tokens),
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    /// When the step that made them ended.
    pub due: Instant,
    /// Number of tokens.
    pub count: u32,
    /// Draft tokens that the step verified, and those that it accepted.
    pub round: (u32, u32),
    /// The end of the request; `None` if more tokens come.
    pub end: Option<End>,
}

/// What is known of a request at its end.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Whether the answer has the most tokens that the client allowed.
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
