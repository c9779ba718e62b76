//! What `foretoken observe` writes down while it drives a server: what it sent, what came back and when, what the
//! server's metrics and its step log said. Facts only, in the order in which they were seen.

mod facts;
mod file;

pub use facts::{Asked, Ended, Ending, Event, Failure, Head, Recording, Sample, Server, Tokens};
pub use file::{RecordingWriter, read_recording};
