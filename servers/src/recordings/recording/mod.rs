//! A recording: the file that `foretoken observe` writes while it sends requests to a server. It has the sent
//! requests, the answers with their times, and the reports of the server's metrics and step log. Events have the
//! order in which they were observed, and are recorded without interpretation.

mod facts;
mod file;

pub use facts::{Asked, Ended, Ending, Event, Failure, Head, Recording, Sample, Server, Tokens};
pub use file::{KIND, RecordingWriter, parse_recording, read_recording};
