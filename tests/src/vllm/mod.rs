//! Schedules recorded from vLLM's own `Scheduler` (`tests/vllm/README.md`), and their replay.

mod fixture;
mod replay;

pub use fixture::{BadFixture, Derived, Entry, Fixture, Recorded, Step};
pub use replay::{Differs, replay, replay_by, rules};
