//! The body of a streamed answer. If the client leaves before the answer is complete, the body makes the engine abort
//! the request.

use crate::serve::answer::Answer;
use crate::serve::calls::{Call, Piece};
use crate::serve::late::Late;
use futures_util::Stream;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc::UnboundedReceiver;

/// Makes the engine abort a request when this value is dropped, unless `done` is true. The value is dropped when the
/// client has left or when the answer is complete.
pub struct AbortOnDrop {
    /// The channel for messages to the engine's thread.
    pub calls: Sender<Call>,
    /// The id of the request that the engine may have to abort.
    pub id: foretoken_sim::RequestId,
    /// True if the engine has ended the request, so that no abort is needed.
    pub done: bool,
    /// True if a stop string has ended the request's answer.
    pub stopped: bool,
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if !self.done {
            // Sending fails only if the engine's thread has ended. Then there is no request to abort.
            let _ = self.calls.send(if self.stopped { Call::Stop(self.id) } else { Call::Leave(self.id) });
        }
    }
}

/// The server-sent events of one streamed answer. The stream waits for the tokens of each step.
pub struct Events {
    pub answer: Answer,
    /// The channel on which the engine's thread sends the tokens of this answer.
    pub pieces: UnboundedReceiver<Piece>,
    /// If the client leaves, this guard is dropped and makes the engine abort the request.
    pub abort: AbortOnDrop,
    /// Histogram of how late the chunks of all streams of the server are sent.
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
                self.abort.done = tokens.end.is_some();
                self.abort.stopped = self.answer.ended();
                self.late.note(tokens.due);
            }
            Some(Piece::Rejected(why)) => {
                self.abort.done = true;
                let error = serde_json::json!({ "error": { "message": why, "type": "BadRequestError", "code": 400 } });
                events.extend_from_slice(format!("data: {error}\n\n").as_bytes());
            }
            Some(Piece::Begun(_) | Piece::Busy(_)) => {}
            None if self.abort.done => return Poll::Ready(None),
            // The engine has ended before the answer was complete. The error breaks the connection, so that the client
            // does not mistake the answer for a complete one.
            None => return Poll::Ready(Some(Err(io::Error::other("the server ends")))),
        }
        Poll::Ready(Some(Ok(events)))
    }
}
