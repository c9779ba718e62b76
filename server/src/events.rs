//! The body of a streamed answer, and the note to the engine that its client has left.

use crate::answer::Answer;
use crate::calls::{Call, Piece};
use crate::late::Late;
use futures_util::Stream;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc::UnboundedReceiver;

/// Tells the engine that a client wants no more tokens, unless its request has ended.
pub struct Guest {
    /// The way to the engine.
    pub calls: Sender<Call>,
    /// The request.
    pub id: foretoken_sim::RequestId,
    /// Whether the engine knows that the request has ended.
    pub done: bool,
    /// Whether a stop has ended the answer.
    pub stopped: bool,
}

impl Drop for Guest {
    fn drop(&mut self) {
        if !self.done {
            // Without an engine nothing is left to abort.
            let _ = self.calls.send(if self.stopped { Call::Stop(self.id) } else { Call::Leave(self.id) });
        }
    }
}

/// The events of an answer, as its tokens come.
pub struct Events {
    /// The answer so far.
    pub answer: Answer,
    /// The tokens that come.
    pub pieces: UnboundedReceiver<Piece>,
    /// The client.
    pub guest: Guest,
    /// The delays of all tokens.
    pub late: Late,
}

impl Stream for Events {
    type Item = io::Result<Vec<u8>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.answer.ended() {
            return Poll::Ready(None);
        }
        let mut events = Vec::new();
        match ready!(self.pieces.poll_recv(cx)) {
            Some(Piece::Tokens(tokens)) => {
                self.answer.stream(&tokens, &mut events);
                self.guest.done = tokens.end.is_some();
                self.guest.stopped = self.answer.ended();
                self.late.note(tokens.due);
            }
            Some(Piece::Rejected(why)) => {
                self.guest.done = true;
                let error = serde_json::json!({ "error": { "message": why, "type": "BadRequestError", "code": 400 } });
                events.extend_from_slice(format!("data: {error}\n\n").as_bytes());
            }
            Some(Piece::Begun(_) | Piece::Busy(_)) => {}
            None if self.guest.done => return Poll::Ready(None),
            // The connection breaks off, so that the client does not take the answer for whole.
            None => return Poll::Ready(Some(Err(io::Error::other("the server ends")))),
        }
        Poll::Ready(Some(Ok(events)))
    }
}
