//! Schedules recorded from vLLM's own `Scheduler` and engine core (`tests/vllm/README.md`), and their replay.

mod blocks;
mod core;
mod fixture;
mod replay;

pub use fixture::{BadFixture, Call, Derived, Entry, Fixture, Recorded, Step, Update};
pub use replay::{Differs, replay, replay_by, rules};
