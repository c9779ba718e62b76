//! What `foretoken observe` records while it sends requests to a server. It records what it sent, what came back and
//! when, and what the server's metrics and step log reported. Events have the order in which they were observed, and
//! are recorded without interpretation.

mod facts;
mod file;

pub use facts::{Asked, Ended, Ending, Event, Failure, Head, Recording, Sample, Server, Tokens};
pub use file::{KIND, RecordingWriter, parse_recording, read_recording};
