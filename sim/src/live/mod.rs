//! The trace of a run on a real clock, and two ways to run it again: with the same acceptance but other times
//! ([`RecordedRounds`]), or with the same times and the same acceptance, step by step ([`ReplayClock`]).

mod replay;
mod rounds;
mod trace;

pub use replay::{Diverged, ReplayClock};
pub use rounds::{Misses, RecordedRounds};
pub use trace::{Mark, MarkKind, Recorder, Round, StepTrace, TracedNode};
