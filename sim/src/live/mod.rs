//! What a run on a real clock leaves behind, and the two ways to run it again: the same acceptance under other times
//! ([`RecordedRounds`]), or the same times and acceptance, step by step ([`ReplayClock`]).

mod replay;
mod rounds;
mod trace;

pub use replay::{Diverged, ReplayClock};
pub use rounds::{Misses, RecordedRounds};
pub use trace::{Mark, MarkKind, Recorder, Round, StepTrace, TracedNode};
